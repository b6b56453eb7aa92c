// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The test of every design with the common interface: known answers, random runs
// with idle and backpressure, starved inputs, clear and reset anywhere, and the
// counting of cycles, printed as lines of JSON.

#include "design_bench.h"
#include "state.h"

namespace {

struct Options {
  Design design;
  std::string vectors;
  uint64_t sectors = 300, seed = 1;
  // Fail above these; 0: any number will do.
  double max_cold = 0, max_steady = 0;
  bool only_cycles = false;
};

model::Bytes random_key(Bench& bench, const Design& design) {
  model::Bytes key(design.key_bytes());
  bench.random.fill(key.data(), key.size());
  return key;
}

// Small numbers, numbers about to carry into the next word, and any others.
model::Bytes random_tweak(Random& random) {
  model::Bytes tweak(16);
  switch (random.below(4)) {
    case 0:
      tweak[0] = static_cast<uint8_t>(random.next());
      break;
    case 1:
      for (size_t i = 0; i < (random.below(2) ? 8 : 16); i++) tweak[i] = 0xff;
      tweak[0] = static_cast<uint8_t>(0xff - random.below(4));
      break;
    case 2:
      random.fill(tweak.data(), 7);
      break;
    default:
      random.fill(tweak.data(), 16);
  }
  return tweak;
}

Run random_run(Bench& bench, const Design& design, uint32_t sectors) {
  Run run{random_tweak(bench.random), sectors, bench.random.below(2) != 0, {}};
  for (size_t i = 0; i < sectors * design.blocks(); i++) run.data.push_back(bench.random.block());
  return run;
}

// Every vector for this mode, key and sector size, both ways.
size_t known_answers(Bench& bench, const Options& options) {
  const Design& design = options.design;
  size_t used = 0;
  for (const Vector& vector : read_vectors(options.vectors.c_str())) {
    const bool run = vector.plain.size() > design.blocks();
    if (vector.model != design.model_name || vector.key.size() != design.key_bytes() ||
        vector.sector_bytes != design.sector_bytes || (run && design.tweak_step != 1) ||
        vector.tweak.size() > design.mode->tweak_bytes)
      continue;
    // Tweaks of 32 bytes come with zeros above.
    model::Bytes tweak = vector.tweak;
    bool fits = tweak.size() == design.mode->tweak_bytes;
    for (size_t i = 16; i < tweak.size(); i++) fits = fits && tweak[i] == 0;
    if (!fits) continue;
    tweak.resize(16);
    const auto sectors = static_cast<uint32_t>(vector.plain.size() / design.blocks());
    bench.queue_key(vector.key);
    bench.queue_run({tweak, sectors, false, vector.plain});
    bench.queue_run({tweak, sectors, true, vector.cipher});
    bench.drain();
    // The bench compared with the model; that the model agrees with the vectors is
    // for model_test to say, and for this:
    const auto cipher = design.mode->make(vector.key);
    const model::Blocks first(vector.plain.begin(),
                              vector.plain.begin() + static_cast<long>(design.blocks()));
    const auto out = cipher->crypt(false, vector.tweak, first);
    CHECK(std::equal(out.begin(), out.end(), vector.cipher.begin()), "the model is wrong");
    used++;
  }
  return used;
}

uint64_t random_rate(Random& random) {
  const uint64_t rates[] = {256, 256, 128, 32, 4, 0};
  return rates[random.below(6)];
}

// Random runs under changing keys. In every second batch each stream goes at its
// own pace, which changes, down to none at all; in the others at full rate.
void random_sectors(Bench& bench, const Options& options) {
  const Design& design = options.design;
  const uint64_t end = bench.sectors_checked + options.sectors;
  for (uint64_t batch = 0; bench.sectors_checked < end; batch++) {
    bench.queue_key(random_key(bench, design));
    const uint64_t left = end - bench.sectors_checked;
    uint64_t sectors = 0;
    for (uint64_t run = bench.random.below(8) + 1; run > 0 && sectors < left; run--) {
      const uint32_t lengths[] = {0, 1, 1, 2, 3, 5, 9, 16};
      const auto now = static_cast<uint32_t>(
          std::min<uint64_t>(lengths[bench.random.below(8)], left - sectors));
      bench.queue_run(random_run(bench, design, now));
      sectors += now;
      // A key that has to wait for the runs before it.
      if (bench.random.below(4) == 0) bench.queue_key(random_key(bench, design));
    }
    const bool uneven = batch % 2 != 0;
    while (bench.control_pending() || bench.beats_expected() > 0) {
      if (uneven) {
        bench.rates = {random_rate(bench.random), random_rate(bench.random),
                       random_rate(bench.random)};
      }
      const uint64_t pace = bench.random.below(2 * design.blocks()) + 1;
      for (uint64_t i = 0; i < pace && (bench.control_pending() || bench.beats_expected()); i++)
        bench.tick();
    }
    bench.rates = {};
  }
  bench.ticks(100);
}

// Whole sectors come out though the rest of their run is not there, whether it
// stops between sectors or inside one.
void starved(Bench& bench, const Design& design) {
  const uint64_t beats = design.blocks() / kLanes;
  for (uint64_t sectors : {1, 2}) {
    for (uint64_t more : {uint64_t{0}, uint64_t{1}, beats / 2, beats - 1}) {
      bench.queue_key(random_key(bench, design));
      bench.queue_run(random_run(bench, design, 4));
      bench.in_allowed = sectors * beats + more;
      const uint64_t end = bench.sectors_checked + sectors;
      const uint64_t limit = bench.now + 8000 + 40 * design.blocks();
      while (bench.sectors_checked < end) {
        bench.tick();
        CHECK(bench.now < limit, "%llu whole sectors and %llu beats went in, and do not come out",
              static_cast<unsigned long long>(sectors), static_cast<unsigned long long>(more));
      }
      bench.ticks(bench.random.below(100));
      bench.in_allowed = UINT64_MAX;
      bench.drain();
    }
  }
}

// Without a key nothing is asked for; then a run goes through.
void starts_afresh(Bench& bench, const Design& design) {
  bench.queue_run(random_run(bench, design, 1));
  // The bench fails if the request is taken, and if anything comes out.
  bench.ticks(bench.random.below(3) ? 20 : 2 * design.blocks() + 1000);
  bench.reset();
  bench.queue_key(random_key(bench, design));
  bench.queue_run(random_run(bench, design, 2));
  bench.drain();
}

// Clear and reset at any moment of a key's expansion and of runs.
void interrupted(Bench& bench, const Design& design) {
  for (int i = 0; i < 24; i++) {
    bench.queue_key(random_key(bench, design));
    for (int run = 0; run < 3; run++) bench.queue_run(random_run(bench, design, 2));
    bench.ticks(bench.random.below(i % 3 ? 6 * design.blocks() : 40));
    if (i % 2) {
      bench.clear();
    } else {
      bench.reset();
    }
    if (i % 4 < 2) {
      starts_afresh(bench, design);
    } else {
      // Another key, at once.
      bench.queue_key(random_key(bench, design));
      bench.queue_run(random_run(bench, design, 1));
      bench.drain();
    }
  }
}

// After clear, and after reset, no register and no memory holds anything of what
// was there: all of the state is that of a design that had never been used.
void wiped(const Design& design, uint64_t seed) {
  // Memories wipe themselves, an entry a cycle.
  const uint64_t rest = 4 * design.blocks() + 100;
  Bench fresh(design, seed);
  fresh.rest(rest);
  const State expected(fresh.top);
  for (int i = 0; i < 6; i++) {
    Bench used(design, seed + static_cast<uint64_t>(i));
    used.queue_key(random_key(used, design));
    for (int run = 0; run < 4; run++) used.queue_run(random_run(used, design, 2));
    used.ticks(i == 5 ? 8 : 100 + used.random.below(8 * design.blocks()));
    const State before(used.top);
    CHECK(before.bytes != expected.bytes, "there is nothing to wipe");
    if (i % 2) {
      used.clear();
    } else {
      used.reset();
    }
    used.rest(rest);
    const State after(used.top);
    CHECK(after.bytes.size() == expected.bytes.size(), "states of different sizes");
    size_t different = 0, first = 0;
    for (size_t j = 0; j < after.bytes.size(); j++) {
      if (after.bytes[j] != expected.bytes[j] && different++ == 0) first = j;
    }
    CHECK(different == 0, "%s leaves %zu of %zu bytes of state, the first at %zu",
          i % 2 ? "clear" : "reset", different, after.bytes.size(), first);
  }
}

// One sector with its inputs there from the start, the key long there or not.
uint64_t single(const Design& design, bool decrypt, bool cold, uint64_t& key_load) {
  Bench bench(design, 1);
  // Memories are wiped by then.
  bench.ticks(4 * design.blocks() + 100);
  bench.queue_key(random_key(bench, design));
  while (bench.control_pending()) bench.tick();
  if (!cold) bench.ticks(4000);
  Run run = random_run(bench, design, 1);
  run.decrypt = decrypt;
  bench.queue_run(run);
  bench.in_allowed = 0;
  while (!bench.top.expanded_o) {
    bench.tick();
    CHECK(bench.now < 100000, "expanded_o does not rise");
  }
  key_load = bench.now - bench.key_taken;
  const uint64_t offered = bench.now;
  bench.in_allowed = UINT64_MAX;
  bench.drain();
  return bench.sector_ends.back() - (cold ? offered : bench.first_in) + 1;
}

// From the end of sector 16 to that of sector 48, when the queues of the first ones have long been
// used up, in a run that goes on, or in runs of one sector that change direction.
double steady(const Design& design, bool decrypt, bool alternate) {
  // The last ones are quicker as well: no others come behind them.
  constexpr int kFirst = 16, kLast = 48, kSectors = kLast + 20;
  Bench bench(design, 2);
  bench.queue_key(random_key(bench, design));
  for (int i = 0; i < (alternate ? kSectors : 1); i++) {
    Run run = random_run(bench, design, alternate ? 1 : kSectors);
    run.decrypt = alternate ? i % 2 != 0 : decrypt;
    bench.queue_run(run);
  }
  bench.drain();
  const uint64_t cycles = bench.sector_ends[kLast - 1] - bench.sector_ends[kFirst - 1];
  return static_cast<double>(cycles) / (kLast - kFirst);
}

void count_cycles(const Options& options) {
  const Design& design = options.design;
  uint64_t key_load = 0;
  for (const bool decrypt : {false, true}) {
    const char* direction = decrypt ? "decrypt" : "encrypt";
    const uint64_t warm = single(design, decrypt, false, key_load);
    const uint64_t cold = single(design, decrypt, true, key_load);
    const double rate = steady(design, decrypt, false);
    std::printf(
        "{\"design\": \"%s\", \"key_bits\": %zu, \"sector_bytes\": %zu, \"lanes\": %zu, "
        "\"direction\": \"%s\", \"key_load\": %llu, \"cold\": %llu, \"warm\": %llu, "
        "\"steady\": %.2f, \"alternating\": %.2f}\n",
        design.name.c_str(), design.key_bits, design.sector_bytes, kLanes, direction,
        static_cast<unsigned long long>(key_load), static_cast<unsigned long long>(cold),
        static_cast<unsigned long long>(warm), rate, steady(design, decrypt, true));
    std::fflush(stdout);
    CHECK(options.max_cold == 0 || static_cast<double>(cold) <= options.max_cold,
          "%s: a cold sector takes %llu cycles, more than %.0f", direction,
          static_cast<unsigned long long>(cold), options.max_cold);
    CHECK(options.max_steady == 0 || rate <= options.max_steady,
          "%s: %.2f cycles a sector in steady state, more than %.2f", direction, rate,
          options.max_steady);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    // Verilator's own.
    if (name[0] == '+') continue;
    if (name == "--only-cycles") {
      options.only_cycles = true;
      continue;
    }
    if (name == "--any-order") {
      options.design.any_order = true;
      continue;
    }
    CHECK(i + 1 < argc, "%s needs a value", argv[i]);
    const char* value = argv[++i];
    if (name == "--name") {
      options.design.name = value;
    } else if (name == "--model") {
      options.design.model_name = value;
    } else if (name == "--key-bits") {
      options.design.key_bits = std::stoul(value);
    } else if (name == "--sector-bytes") {
      options.design.sector_bytes = std::stoul(value);
    } else if (name == "--tweak-step") {
      options.design.tweak_step = std::stoul(value);
    } else if (name == "--vectors") {
      options.vectors = value;
    } else if (name == "--sectors") {
      options.sectors = std::stoul(value);
    } else if (name == "--seed") {
      options.seed = std::stoul(value);
    } else if (name == "--max-cold") {
      options.max_cold = std::stod(value);
    } else if (name == "--max-steady") {
      options.max_steady = std::stod(value);
    } else {
      CHECK(false, "no option %s", name.c_str());
    }
  }
  options.design.mode = model::find_mode(options.design.model_name);
  CHECK(options.design.mode, "no model %s", options.design.model_name.c_str());
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  const Options options = parse(argc, argv);
  const Design& design = options.design;
  if (!options.only_cycles) {
    Bench bench(design, options.seed);
    starts_afresh(bench, design);
    const size_t vectors = options.vectors.empty() ? 0 : known_answers(bench, options);
    starved(bench, design);
    interrupted(bench, design);
    wiped(design, options.seed);
    random_sectors(bench, options);
    std::printf("%s, AES-%zu, %zu bytes: %zu known answers, %llu sectors (%llu by the crate), "
                "%llu cycles: passed\n",
                design.name.c_str(), design.key_bits, design.sector_bytes, vectors,
                static_cast<unsigned long long>(bench.sectors_checked),
                static_cast<unsigned long long>(bench.sectors_by_crate),
                static_cast<unsigned long long>(bench.now));
    std::fflush(stdout);
  }
  count_cycles(options);
  return 0;
}
