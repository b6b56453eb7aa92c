// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The test of engine_cipher and engine_keys: random requests of every mode, unit, step, slot and
// direction, with data that ends early at any block, idle and backpressure; key commands in
// between; clear and reset at any moment; and the cycles that a unit takes.
//
// Built for one configuration: LEVEL, CIPHERS, KEY_BITS, XTS_BYTES and UNIT_BYTES.

#include "engine_cipher_bench.h"
#include "state.h"

namespace {

uint64_t seed = 1;
bool passed = false;

void name_seed() {
  if (!passed) std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed));
}

bool built(unsigned cipher) {
  if (!(CIPHERS >> cipher & 1)) return false;
  return cipher == kEcb || LEVEL >= 3;
}

unsigned random_cipher(Random& random) {
  unsigned cipher;
  // ECB and XTS more often than the others.
  do cipher = static_cast<unsigned>(random.below(2) ? random.below(2) : random.below(7));
  while (!built(cipher));
  return cipher;
}

model::Bytes random_tweak(Random& random) {
  model::Bytes tweak(16);
  switch (random.below(3)) {
    case 0:
      tweak[0] = static_cast<uint8_t>(random.next());
      break;
    case 1:
      // About to carry; no tweak of a request passes 2^128.
      for (size_t i = 0; i < (random.below(2) ? 8 : 15); i++) tweak[i] = 0xff;
      break;
    default:
      random.fill(tweak.data(), 15);
  }
  return tweak;
}

// A request of `units` units that has all of its data.
Request whole(Random& random, unsigned slot, unsigned mode, unsigned unit, uint32_t units) {
  Request request;
  request.slot = slot;
  request.mode = mode;
  request.unit = unit;
  request.blocks = unit * units;
  request.decrypt = random.below(2) != 0;
  if (mode != kModeEcb) request.tweak = random_tweak(random);
  if (mode == kModeEncrypted) random.fill(request.tweak.data(), 16);
  const unsigned steps[] = {1, 8, 0xffff, static_cast<unsigned>(random.below(1 << 16))};
  if (mode == kModeRun) request.step = steps[random.below(4)];
  for (uint32_t i = 0; i < request.blocks; i++) request.data.push_back(random.block());
  return request;
}

Request random_request(Bench& bench) {
  Random& random = bench.random;
  const unsigned ends[] = {kList, kRead, kAlignment, kDone};
  if (random.below(8) == 0) {
    Request request;
    request.empty = true;
    request.status = static_cast<unsigned>(random.below(12));
    request.end = request.status;
    request.slot = static_cast<unsigned>(random.below(32));
    request.blocks = static_cast<uint32_t>(random.below(1000));
    return request;
  }
  unsigned slot;
  do slot = static_cast<unsigned>(random.below(kSlots));
  while (!bench.slots[slot].valid);
  const unsigned cipher = bench.slots[slot].cipher;
  unsigned mode = kModeRun, unit = UNIT_BYTES / 16;
  uint32_t units = static_cast<uint32_t>(1 + random.below(random.below(4) ? 3 : 9));
  if (cipher == kEcb) {
    mode = LEVEL >= 2 && random.below(2) ? kModeEncrypted : kModeEcb;
    unit = 1;
    if (mode == kModeEcb) units = static_cast<uint32_t>(1 + random.below(random.below(2) ? 40 : 200));
  }
  if (mode == kModeEncrypted || cipher == kXts) {
    unit = 1U << random.below(random.below(4) ? 6 : 9);
    if (random.below(2)) unit = 32;
    unit = std::min(unit, unsigned{XTS_BYTES / 16});
    if (mode == kModeEncrypted) units = 1;
    if (unit > 64) units = std::min<uint32_t>(units, 3);
  }
  Request request = whole(random, slot, mode, unit, units);
  switch (random.below(6)) {
    case 0:
      // Cut anywhere, as by an error, or by whoever wants no more of it.
      request.end = ends[random.below(4)];
      request.data.resize(random.below(request.blocks));
      break;
    case 1:
      request.end = ends[random.below(2)];
      // Between units, or with all blocks there: the list is too long.
      request.data.resize(request.unit * random.below(request.blocks / request.unit + 1));
      break;
    default:
      break;
  }
  return request;
}

uint64_t random_rate(Random& random) {
  const uint64_t rates[] = {256, 256, 128, 32, 8, 0};
  return rates[random.below(6)];
}

void random_key(Bench& bench) {
  bench.load(static_cast<unsigned>(bench.random.below(kSlots)), random_cipher(bench.random));
}

// Every stream at its own pace for a while, down to none at all.
void uneven_ticks(Bench& bench) {
  while (bench.pending() > 0) {
    bench.rates = {random_rate(bench.random), random_rate(bench.random), random_rate(bench.random),
                   random_rate(bench.random)};
    bench.ticks(bench.random.below(300) + 1);
  }
  bench.rates = {};
}

// Refused, cleared, and lost commands.
void random_command(Bench& bench) {
  Random& random = bench.random;
  const auto slot = static_cast<unsigned>(random.below(kSlots));
  const bool bits = KEY_BITS == 256;
  model::Bytes key(key_bytes(kXts));
  random.fill(key.data(), key.size());
  switch (random.below(6)) {
    case 0:
      CHECK(bench.command(key, kSlots + static_cast<unsigned>(random.below(250 - kSlots)), kEcb, bits, 1) == 1,
            "a key for a slot that there is not");
      break;
    case 1:
      CHECK(bench.command(key, slot, 7 + static_cast<unsigned>(random.below(9)), bits, 1) == 2,
            "a key for a cipher that there is not");
      break;
    case 2:
      CHECK(bench.command(key, slot, kEcb, !bits, 1) == 3, "a key of another length");
      break;
    case 3:
      if (!built(kXts)) break;
      std::copy(key.begin(), key.begin() + KEY_BITS / 8, key.begin() + KEY_BITS / 8);
      CHECK(bench.command(key, slot, kXts, bits, 1) == 4, "XTS with one key twice");
      break;
    case 4:
      CHECK(bench.command(key, slot, kEcb, bits, random.below(2) ? 3 : 0) == 5, "no such command");
      // That wiped KEY_DATA: the key is zeros.
      CHECK(bench.command({}, slot, kEcb, bits, 1) == 0, "a key of zeros");
      bench.slots[slot] = {true, kEcb, model::Bytes(KEY_BITS / 8)};
      break;
    default:
      CHECK(bench.command(key, slot, static_cast<unsigned>(random.below(16)), !bits, 2) == 0, "clear");
      bench.slots[slot] = {};
  }
  bench.check_slots();
}

void random_requests(Bench& bench, uint64_t requests) {
  const uint64_t end = bench.requests_checked + requests;
  for (uint64_t batch = 0; bench.requests_checked < end; batch++) {
    random_key(bench);
    for (uint64_t i = bench.random.below(12) + 1; i > 0; i--) bench.queue(random_request(bench));
    if (batch % 2) uneven_ticks(bench);
    // A command amid requests waits for them.
    bench.ticks(bench.random.below(200));
    if (bench.random.below(2)) random_command(bench);
    if (bench.random.below(2)) bench.drain();
  }
  bench.drain();
  bench.ticks(100);
}

// Clear and reset at any moment, of key commands too; then everything goes on from nothing.
void interrupted(Bench& bench) {
  for (int i = 0; i < 40; i++) {
    random_key(bench);
    random_key(bench);
    for (int j = 0; j < 4; j++) bench.queue(random_request(bench));
    bench.ticks(bench.random.below(i % 3 ? 600 : 40));
    if (i % 2) {
      bench.clear();
    } else {
      bench.reset();
    }
    bench.top.eval();
    bench.check_slots();
    random_key(bench);
    bench.queue(random_request(bench));
    bench.drain();
  }
}

// After clear and reset all of the state is that of a design that had never been used, and after
// its slot was cleared too, but for what is no key: see below.
void wiped() {
  const uint64_t rest = UNIT_BYTES / 4 + 200;
  Bench fresh(seed);
  fresh.rest(rest);
  const State expected(fresh.top);
  for (uint64_t i = 0; i < 12; i++) {
    Bench used(seed + i);
    for (int j = 0; j < 3; j++) random_key(used);
    for (int j = 0; j < 6; j++) used.queue(random_request(used));
    used.ticks(used.random.below(i % 3 ? 1500 : 60));
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

// Of a slot that is cleared no part of the key is left anywhere, nor of its round keys.
void cleared_slot() {
  Bench bench(seed);
  bench.load(2, kEcb);
  const model::Bytes key = bench.slots[2].key;
  std::vector<model::Block> parts = model::Aes(key).round_keys();
  bench.queue(whole(bench.random, 2, kModeEcb, 1, 3));
  bench.drain();
  const auto count = [&] {
    const State state(bench.top);
    size_t found = 0;
    for (const auto& part : parts) {
      for (size_t at = 0; at + 8 <= part.size(); at += 8) {
        found += std::search(state.bytes.begin(), state.bytes.end(), part.begin() + static_cast<long>(at),
                             part.begin() + static_cast<long>(at) + 8) != state.bytes.end();
      }
    }
    return found;
  };
  CHECK(count() == 2 * parts.size(), "only %zu of the round keys are found", count());
  CHECK(bench.command({}, 2, 0, false, 2) == 0, "clear");
  bench.slots[2] = {};
  bench.check_slots();
  bench.ticks(3);
  CHECK(count() == 0, "%zu parts of the key are left", count());
}

// Cycles a unit (ECB: a block) from the end of the first unit to that of the last; requests of so
// many units each.
double steady(unsigned cipher, unsigned mode, unsigned unit, uint32_t units, unsigned requests) {
  Bench bench(2);
  bench.load(0, cipher);
  for (unsigned i = 0; i < requests; i++) bench.queue(whole(bench.random, 0, mode, unit, units));
  bench.note_times = true;
  bench.drain();
  const size_t all = units * requests;
  return static_cast<double>(bench.times.back() - bench.times[unit - 1]) / static_cast<double>(all - 1);
}

void measure(const char* name, unsigned cipher, unsigned mode, unsigned unit, uint32_t units,
             unsigned requests, double limit) {
  const double cycles = steady(cipher, mode, unit, units, requests);
  std::printf("%s, %u units of %u bytes a request: %.3f cycles a unit\n", name, units, 16 * unit, cycles);
  CHECK(cycles <= limit, "more than %.3f", limit);
}

void count_cycles() {
  measure("ECB", kEcb, kModeEcb, 1, 1000, 1, 1.0011);
  measure("ECB", kEcb, kModeEcb, 1, 256, 8, 1.01);
  if (LEVEL >= 2) measure("XTS, encrypted tweak", kEcb, kModeEncrypted, 32, 1, 20, 33);
  if (built(kXts)) {
    measure("XTS", kXts, kModeRun, 32, 40, 1, 33);
    measure("XTS", kXts, kModeRun, 32, 8, 8, 33.2);
    measure("XTS", kXts, kModeRun, 32, 1, 20, 34);
    if (XTS_BYTES == 4096) measure("XTS", kXts, kModeRun, 256, 10, 1, 257);
    if (XTS_BYTES == 4096) measure("XTS", kXts, kModeRun, 256, 1, 10, 258);
  }
  // Longer, since blocks go in and come out one a cycle only.
  const char* const names[] = {"", "", "FAST-BRW", "FAST-Horner", "HCTR2", "EME2", "AEZ10"};
  for (unsigned cipher = kFastBrw; cipher <= kAez10; cipher++) {
    if (built(cipher)) measure(names[cipher], cipher, kModeRun, UNIT_BYTES / 16, 16, 1, 1.4 * UNIT_BYTES / 16);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  CHECK(argc == 3, "usage: %s REQUESTS SEED", argv[0]);
  seed = std::stoull(argv[2]);
  std::atexit(name_seed);
  Bench bench(seed);
  interrupted(bench);
  wiped();
  cleared_slot();
  random_requests(bench, std::stoull(argv[1]));
  std::printf("engine_cipher, level %d, ciphers %#x, AES-%d: %llu requests, %llu blocks, %llu of them zeros "
              "after a failed source, %llu cycles: passed\n",
              LEVEL, CIPHERS, KEY_BITS, static_cast<unsigned long long>(bench.requests_checked),
              static_cast<unsigned long long>(bench.blocks_checked),
              static_cast<unsigned long long>(bench.zeros), static_cast<unsigned long long>(bench.now));
  count_cycles();
  passed = true;
  return 0;
}
