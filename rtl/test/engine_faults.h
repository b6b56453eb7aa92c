// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Errors of the bus at a request's data and lists, and faults of rings.
#pragma once

#include "engine_traffic.h"

// A co-processor with keys, all of its rings on.
struct Bed {
  Engine engine;
  Jobs jobs;
  Traffic traffic;
  Random& random;
  explicit Bed(uint64_t seed, int log2 = 4) : engine(seed), jobs(engine), traffic(engine, jobs), random(engine.random) {
    start(log2);
  }
  void start(int log2 = 4) {
    for (Slot& slot : jobs.slots) slot.cipher = -1;
    jobs.load_key(0, XE(CIPHER_ECB));
    for (int slot = 1; slot < kSlots && slot < 4; slot++) jobs.load_key(slot);
    for (int r = 0; r < RINGS; r++) engine.ring_on(r, log2);
    engine.write(XE(REG_CTRL), 1);
  }
};

// Errors of the bus at data and lists: the request that is hit says so, and nobody else.
inline void bus_errors(uint64_t seed, int count) {
  Bed bed(seed);
  Engine& engine = bed.engine;
  Random& random = bed.random;
  engine.memory.timing = {12, 20, 2, 2, 2, 2, 2};
  uint64_t hits = 0;
  for (int i = 0; i < count; i++) {
    const int r = static_cast<int>(random.below(RINGS));
    for (uint64_t others = random.below(4); others > 0; others--) {
      const int other = static_cast<int>(random.below(RINGS));
      if (bed.traffic.room(other)) bed.traffic.submit(bed.jobs.good(other, 6000));
      bed.traffic.ring(other);
    }
    if (!bed.traffic.room(r)) {
      bed.traffic.drain(r);
      continue;
    }
    Job job = bed.jobs.good(r, 12000);
    const int flags = job.sqe[XE(SQE_FLAGS)];
    uint64_t address;
    const auto somewhere = [&](const std::vector<Piece>& pieces) {
      const size_t at = 16 * random.below(job.plain.size() / 16);
      size_t before = 0;
      for (const Piece& piece : pieces) {
        if (at < before + piece.length) {
          job.units = std::min(job.units, static_cast<uint32_t>(at / job.unit_bytes));
          return piece.address + at - before;
        }
        before += piece.length;
      }
      std::abort();
    };
    const auto in_list = [&](int at, size_t entries) {
      std::memcpy(&address, job.sqe + at, 8);
      address += 16 * random.below(entries);
    };
    switch (random.below(4)) {
      case 0:
        address = somewhere(job.source);
        engine.memory.read_faults.push_back({address, 1});
        job.status = XE(STATUS_READ);
        break;
      case 1:
        address = somewhere(job.destination);
        engine.memory.write_faults.push_back({address, 1});
        job.status = XE(STATUS_WRITE);
        break;
      case 2:
        if (!(flags >> XE(FLAG_SOURCE_LIST) & 1)) {
          bed.jobs.release(job);
          continue;
        }
        in_list(XE(SQE_SOURCE), job.source.size());
        // In place the list is read twice: one of both is refused.
        engine.memory.read_faults.push_back({address, 1});
        job.status = XE(STATUS_READ);
        break;
      default:
        if (!(flags >> XE(FLAG_DESTINATION_LIST) & 1)) {
          bed.jobs.release(job);
          continue;
        }
        in_list(XE(SQE_DESTINATION), job.destination.size());
        engine.memory.read_faults.push_back({address, 1});
        job.status = XE(STATUS_READ);
    }
    hits++;
    bed.traffic.submit(std::move(job));
    bed.traffic.ring(r);
    // One error at a time, so that it is known whose it is.
    bed.traffic.drain(r);
    engine.memory.read_faults.clear();
    engine.memory.write_faults.clear();
  }
  bed.traffic.drain();
  engine.wait_idle();
  CHECK(hits > static_cast<uint64_t>(count) / 4, "few errors");
  CHECK(!(engine.read(XE(REG_INT_STATUS)) >> 31), "an error of data or a list gives fault %x",
        engine.read(XE(REG_FAULT)));
}

// Each fault of a ring: it is told, the ring stops, others go on, and it starts anew.
inline void faults(uint64_t seed) {
  Bed bed(seed);
  Engine& engine = bed.engine;
  Random& random = bed.random;
  engine.memory.timing = {12, 20, 2, 2, 2, 2, 2};
  engine.write(XE(REG_INT_SET), 1u << 31);
  for (int round = 0; round < 40; round++) {
    const int r = static_cast<int>(random.below(RINGS));
    const int code = 1 + round % 6;
    if (code == XE(FAULT_WIPED)) continue;
    const Engine::Ring& ring = engine.rings[r];
    uint64_t address = 0;
    size_t completing = 0;
    for (int other = 0; other < RINGS; other++) {
      if (other != r && bed.traffic.room(other)) bed.traffic.submit(bed.jobs.good(other, 6000));
      bed.traffic.ring(other);
    }
    const auto some = [&](size_t number) {
      for (size_t i = 0; i < number; i++) bed.traffic.submit(bed.jobs.good(r, 3000));
    };
    switch (code) {
      case XE(FAULT_DESCRIPTOR):
        some(6);
        completing = random.below(6);
        address = ring.sq() + 64 * ((ring.head + completing) % ring.size());
        engine.memory.read_faults.push_back({address + 16 * random.below(4), 1});
        break;
      case XE(FAULT_COMPLETION):
        some(6);
        completing = random.below(6);
        address = ring.cq() + 16 * ((ring.head + completing) % ring.size());
        engine.memory.write_faults.push_back({address, 1});
        engine.memory.half_written = false;
        break;
      case XE(FAULT_DOORBELL):
        if (random.below(2)) {
          engine.ring_write(r, XE(RING_TAIL), static_cast<uint16_t>(ring.tail + ring.size() + 1 + random.below(1000)));
        } else if (random.below(2) && ring.tail) {
          engine.ring_write(r, XE(RING_TAIL), static_cast<uint16_t>(ring.tail - 1));
        } else {
          engine.ring_write(r, XE(RING_CQ_HEAD), static_cast<uint16_t>(ring.head + 1 + random.below(1000)));
        }
        break;
      case XE(FAULT_ERASE): {
        // A burst that fails whenever it is tried, behind one that does not.
        Job job = bed.jobs.good(r, 6000);
        while (job.plain.size() < 512 || job.destination.size() > 1) {
          bed.jobs.release(job);
          job = bed.jobs.good(r, 6000);
        }
        job.status = XE(STATUS_WRITE);
        job.left_behind = true;
        const size_t at = 16 * random.below(job.plain.size() / 16);
        job.units = static_cast<uint32_t>(at / job.unit_bytes);
        engine.memory.write_faults.push_back({job.destination[0].address + at, -1});
        engine.memory.half_written = false;
        bed.traffic.submit(std::move(job));
        completing = 1;
        break;
      }
      default:
        engine.ring_off(r);
        bed.traffic.forget(r);
        engine.rings[r].head = 0;
        std::memset(engine.memory.at(ring.cq(), 16 * ring.size()), 0, 16 * ring.size());
        switch (random.below(3)) {
          case 0:
            engine.ring_write(r, random.below(2) ? XE(RING_SQ_LO) : XE(RING_CQ_LO),
                              static_cast<uint32_t>(ring.sq()) + 1 + static_cast<uint32_t>(random.below(63)));
            break;
          case 1:
            engine.ring_write(r, XE(RING_SIZE), 11 + static_cast<uint32_t>(random.below(5)));
            break;
          default: {
            // The last entry lies beyond.
            const uint64_t end = ADDRESS_BITS == 64 ? 0 : uint64_t{1} << (ADDRESS_BITS % 64);
            const bool sq = random.below(2);
            const uint64_t bad = end - (sq ? 64 : 16) * ring.size() + 64;
            engine.ring_write(r, sq ? XE(RING_SQ_LO) : XE(RING_CQ_LO), static_cast<uint32_t>(bad));
            engine.ring_write(r, sq ? XE(RING_SQ_HI) : XE(RING_CQ_HI), static_cast<uint32_t>(bad >> 32));
          }
        }
        engine.ring_write(r, XE(RING_CONTROL), 1);
    }
    const size_t before = bed.traffic.open[r].size();
    bed.traffic.ring(r);
    uint64_t waited = 0;
    while (!engine.interrupt(RINGS)) {
      engine.tick();
      bed.traffic.poll(r);
      CHECK(waited++ < 100000, "no fault %d", code);
    }
    const uint32_t fault = engine.read(XE(REG_FAULT));
    CHECK(fault == static_cast<uint32_t>(code | r << 8), "fault %x instead of %d of ring %d", fault, code, r);
    const uint64_t where = engine.counter(XE(REG_FAULT_ADDR_LO));
    CHECK(where == address, "fault %d at %llx instead of %llx", code, static_cast<unsigned long long>(where),
          static_cast<unsigned long long>(address));
    CHECK(engine.read(XE(REG_STATUS)) & 4, "STATUS.fault");
    CHECK((engine.ring_read(r, XE(RING_STATE)) & 0xff02) == static_cast<uint32_t>(code << 8 | 2), "STATE");
    // What was fetched before completes.
    for (waited = 0; waited < 20000; waited++) {
      engine.tick();
      bed.traffic.poll(r);
    }
    CHECK(before - bed.traffic.open[r].size() == completing, "ring %d with fault %d: %zu completions instead of %zu", r,
          code, before - bed.traffic.open[r].size(), completing);
    CHECK(engine.ring_read(r, XE(RING_COMPLETED)) == ring.head, "ring %d with fault %d: COMPLETED %u", r, code,
          engine.ring_read(r, XE(RING_COMPLETED)));
    engine.write(XE(REG_FAULT), 1);
    engine.write(XE(REG_INT_STATUS), 1u << 31);
    CHECK(!engine.interrupt(RINGS) && engine.read(XE(REG_FAULT)) == 0, "the fault stays");
    engine.memory.read_faults.clear();
    engine.memory.write_faults.clear();
    engine.memory.half_written = true;
    for (int other = 0; other < RINGS; other++) {
      if (other != r) bed.traffic.drain(other);
    }
    engine.ring_off(r);
    bed.traffic.forget(r);
    engine.ring_on(r, 4);
    CHECK(!(engine.read(XE(REG_STATUS)) & 4), "STATUS.fault stays");
    some(3);
    bed.traffic.drain(r);
  }
}
