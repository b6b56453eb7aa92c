// SPDX-License-Identifier: MIT OR Apache-2.0
//
// How many cycles requests take: limits, and measurements for tables.
#pragma once

#include "engine_traffic.h"

// Cycles from the doorbell of so many requests, submitted at once, to the last completion
// in memory; of each of them in `each`.
inline uint64_t timed(Engine& engine, Traffic& traffic, std::vector<Job> work, std::vector<uint64_t>* each = nullptr) {
  const size_t number = work.size();
  for (Job& job : work) traffic.submit(std::move(job));
  uint64_t start = 0;
  engine.after_tick = [&] {
    if (engine.written_to == static_cast<int>(engine.ring_register(0, XE(RING_TAIL)))) start = engine.now;
  };
  traffic.ring(0);
  engine.after_tick = nullptr;
  size_t found = 0;
  uint64_t last = start;
  while (found < number) {
    engine.tick();
    const Engine::Ring& ring = engine.rings[0];
    const uint8_t* entry = engine.memory.at(ring.cq() + 16 * ((ring.head + found) % ring.size()), 16);
    if (entry[XE(CQE_PHASE)] == !((ring.head + found) >> ring.log2 & 1)) {
      if (each) each->push_back(engine.now - last);
      last = engine.now;
      found++;
    }
    CHECK(engine.now - start < 4000000, "requests take for ever");
  }
  traffic.drain();
  return last - start;
}

inline void request(Jobs& jobs, std::vector<Job>& work, int op, int log2_unit, size_t bytes) {
  Job job;
  jobs.base(job, 0);
  jobs.make(job, op, op == XE(OP_RUN) ? 1 : 0, log2_unit, static_cast<uint32_t>(bytes >> log2_unit), false, false, false,
            false);
  work.push_back(std::move(job));
}

// Limits, on a bus that takes a block a cycle: a read has its first beat 40 cycles after
// its address, a write its answer 40 after its last beat.
inline void figures() {
  if (LEVEL < 3 || BUS_BYTES < 16 || KEY_BITS != 128) return;
  constexpr int kLatency = 40;
  Engine engine(1);
  Jobs jobs(engine);
  Traffic traffic(engine, jobs);
  engine.memory.timing.latency = kLatency;
  jobs.load_key(0, XE(CIPHER_ECB));
  jobs.load_key(1, XE(CIPHER_XTS));
  engine.ring_on(0, 4);
  engine.write(XE(REG_CTRL), 1);
  std::vector<Job> work;
  // The key is loaded with the first.
  request(jobs, work, XE(OP_RUN), 12, 4096);
  timed(engine, traffic, std::move(work));

  work.clear();
  for (int i = 0; i < 8; i++) request(jobs, work, XE(OP_RUN), 12, 65536);
  std::vector<uint64_t> each;
  timed(engine, traffic, std::move(work), &each);
  uint64_t steady = 0;
  for (size_t i = 1; i < each.size(); i++) steady += each[i];
  const double unit = static_cast<double>(steady) / static_cast<double>(each.size() - 1) / 16;
  std::printf("engine: 64 KiB XTS requests back to back: %.1f cycles per 4096 bytes (core alone 257; limit %.1f)\n", unit,
              1.05 * 257);

  work.clear();
  request(jobs, work, XE(OP_RUN), 12, 4096);
  const uint64_t one = timed(engine, traffic, std::move(work));
  // What waits for memory one after the other: the submission, the data, the answer to its
  // writes.
  const double limit = 1.25 * 270 + 3 * kLatency;
  std::printf("engine: one 4 KiB XTS request, doorbell to completion in memory: %llu cycles, %llu without three round "
              "trips of %d (core alone 270; limit %.0f)\n",
              static_cast<unsigned long long>(one), static_cast<unsigned long long>(one) - 3 * kLatency, kLatency, limit);
  CHECK(unit <= 1.05 * 257, "requests back to back are slow");
  CHECK(static_cast<double>(one) <= limit, "a request alone is slow");
}

// OP,UNIT,BYTES,LEVEL,BUS,LATENCY: a line of JSON with the counters of requests of that
// kind, 1 MiB or more of data, and how many cycles 512 bytes take. LEVEL and BUS have to
// be those of this build.
inline void measure(const char* workload) {
  char op_name[8];
  int unit, bytes, level, bus, latency;
  CHECK(std::sscanf(workload, "%7[a-z],%d,%d,%d,%d,%d", op_name, &unit, &bytes, &level, &bus, &latency) == 6,
        "%s is not OP,UNIT,BYTES,LEVEL,BUS,LATENCY", workload);
  CHECK(level == LEVEL && bus == BUS_BYTES, "this is level %d with a bus of %d bytes", LEVEL, BUS_BYTES);
  const std::string name = op_name;
  const int op = name == "ecb" ? XE(OP_ECB) : name == "xts" ? XE(OP_XTS) : XE(OP_RUN);
  CHECK(name == "ecb" || name == "xts" || name == "run", "OP is ecb, xts or run");
  int log2_unit = 0;
  while (1 << log2_unit < unit) log2_unit++;
  Engine engine(1);
  engine.memory.timing.latency = latency;
  Jobs jobs(engine);
  jobs.load_key(0, XE(CIPHER_ECB));
  if (op == XE(OP_RUN)) jobs.load_key(1, XE(CIPHER_XTS));
  engine.ring_on(0, 4);
  engine.write(XE(REG_CTRL), 1);
  // Data lies in one place, since nobody looks at it; one request at a time, or eight.
  for (int depth : {1, 8}) {
    const int requests = std::max(depth, (1 << 18) / bytes);
    std::vector<uint64_t> before = engine.counters();
    const uint64_t start = engine.now;
    int submitted = 0, completed = 0;
    uint8_t sqe[64] = {};
    sqe[XE(SQE_OP)] = static_cast<uint8_t>(op);
    sqe[XE(SQE_SLOT)] = op == XE(OP_RUN);
    sqe[XE(SQE_LOG2_UNIT)] = static_cast<uint8_t>(log2_unit);
    const uint32_t units = static_cast<uint32_t>(bytes >> log2_unit);
    std::memcpy(sqe + XE(SQE_UNITS), &units, 4);
    const uint64_t source = kBase + 0x400000, destination = kBase + 0x800000;
    std::memcpy(sqe + XE(SQE_SOURCE), &source, 8);
    std::memcpy(sqe + XE(SQE_DESTINATION), &destination, 8);
    while (completed < requests) {
      bool rang = false;
      for (; submitted < requests && submitted - completed < depth; submitted++, rang = true) engine.submit(0, sqe);
      if (rang) engine.doorbell(0);
      Completion completion;
      bool any = false;
      while (engine.poll(0, completion)) {
        CHECK(completion.status == kStatusDone, "status %d", completion.status);
        completed++;
        any = true;
      }
      if (any) engine.acknowledge(0);
      else engine.tick();
    }
    const uint64_t cycles = engine.now - start;
    engine.wait_idle();
    std::vector<uint64_t> after = engine.counters();
    std::printf("{\"op\": \"%s\", \"unit\": %d, \"bytes\": %d, \"level\": %d, \"bus\": %d, \"latency\": %d, \"depth\": %d, "
                "\"requests\": %d, \"cycles\": %llu, \"cycles_per_512\": %.2f",
                op_name, unit, bytes, level, bus, latency, depth, requests, static_cast<unsigned long long>(cycles),
                static_cast<double>(cycles) * 512 / bytes / requests);
    static const char* const names[] = {"total", "fetch", "source", "cipher", "destination", "completion", "interrupt",
                                        "idle", "requests", "failed", "units", "bytes", "interrupts", "read_waits",
                                        "write_waits"};
    for (int i = 0; i < XE(COUNTERS); i++) {
      if (i == 8) continue;
      std::printf(", \"%s%s\": %llu", i == 11 ? "data_" : "", names[i], static_cast<unsigned long long>(after[i] - before[i]));
    }
    std::printf("}\n");
  }
}
