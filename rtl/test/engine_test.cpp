// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The whole co-processor against the software models: random requests on all rings, right
// and wrong ones, errors of the bus at any transaction, resets at any moment, interrupts,
// and how many cycles requests take.
//
// usage: simulate JOBS SEED, or simulate --measure OP,UNIT,BYTES,LEVEL,BUS,LATENCY...

#include "engine_control.h"
#include "engine_figures.h"

namespace {

const BusTiming kTimings[] = {
    {0, 0, 0, 0, 0, 0, 0},
    {40, 0, 0, 0, 0, 0, 0},
    {10, 60, 4, 6, 4, 4, 8},
    {3, 5, 12, 2, 0, 12, 0},
    {100, 0, 0, 12, 14, 0, 14},
};

// A seed of its own for each part, so that they can change one by one.
void mixed(uint64_t seed, int count, const BusTiming& timing) {
  Engine engine(seed);
  Jobs jobs(engine);
  Traffic traffic(engine, jobs);
  engine.memory.timing = timing;
  engine.dawdle = timing.ar != 0;
  for (int slot = 0; slot < kSlots && slot < 5; slot++) jobs.load_key(slot);
  jobs.load_key(0, XE(CIPHER_ECB));
  for (int r = 0; r < RINGS; r++) engine.ring_on(r, static_cast<int>(engine.random.below(6)));
  engine.write(XE(REG_CTRL), 1);
  while (count > 0) {
    const int some = std::min(count, 40);
    traffic.run(some, [&](int r) {
      if (engine.random.below(16) == 0) return nop(jobs, engine.random, r);
      Job job = jobs.good(r, engine.random.below(8) ? 6000 : 60000);
      if (engine.random.below(3) == 0) {
        while (!spoil(jobs, engine.random, engine, job, static_cast<int>(engine.random.below(kSpoils)))) {
        }
      }
      return job;
    });
    count -= some;
    // No request uses it now.
    jobs.load_key(static_cast<int>(engine.random.below(std::min(kSlots, 5))));
  }
  // Memory has the last completion before the engine knows that.
  engine.wait_idle();
  const auto counters = engine.counters();
  const auto at = [](uint32_t address) { return (address - XE(REG_COUNTER_TOTAL)) / 8; };
  CHECK(counters[at(XE(REG_COUNTER_REQUESTS))] == traffic.done, "counted %llu requests of %llu",
        static_cast<unsigned long long>(counters[at(XE(REG_COUNTER_REQUESTS))]),
        static_cast<unsigned long long>(traffic.done));
  CHECK(counters[at(XE(REG_COUNTER_FAILED))] == traffic.failed, "failed requests");
  CHECK(counters[at(XE(REG_COUNTER_BYTES))] == traffic.bytes, "bytes");
  for (int r = 0; r < RINGS; r++) {
    CHECK(engine.ring_read(r, XE(RING_COMPLETED)) == engine.rings[r].head, "completed");
    engine.ring_off(r);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && std::string(argv[1]) == "--measure") {
    for (int i = 2; i < argc; i++) measure(argv[i]);
    return 0;
  }
  CHECK(argc == 3, "usage: %s JOBS SEED, or --measure WORKLOAD...", argv[0]);
  const int count = std::atoi(argv[1]);
  const uint64_t seed = std::strtoull(argv[2], nullptr, 0);
  std::fprintf(stderr, "engine: level %d, bus of %d bytes, seed %llu\n", LEVEL, BUS_BYTES,
               static_cast<unsigned long long>(seed));
  registers(seed);
  room(seed, 200);
  for (const BusTiming& timing : kTimings) mixed(seed + 1, count / 5, timing);
  std::fprintf(stderr, "engine: bus errors\n");
  bus_errors(seed + 2, count / 10);
  std::fprintf(stderr, "engine: faults\n");
  faults(seed + 3);
  std::fprintf(stderr, "engine: interrupts\n");
  interrupts(seed + 4);
  std::fprintf(stderr, "engine: resets\n");
  resets(seed + 5, count / 50 + 4);
  std::fprintf(stderr, "engine: figures\n");
  figures();
  std::printf("engine: level %d, %d bytes a beat: %d requests right\n", LEVEL, BUS_BYTES, count);
}
