// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Registers, interrupts and resets of the co-processor.
#pragma once

#include "engine_faults.h"
#include "state.h"

// What software reads and writes.
inline void registers(uint64_t seed) {
  Engine engine(seed);
  engine.dawdle = true;
  CHECK(engine.read(XE(REG_ID)) == XE(ID), "ID");
  CHECK(engine.read(XE(REG_VERSION)) == (XE(MAJOR) << 16 | XE(MINOR)), "VERSION");
  const uint32_t cap0 = LEVEL | RINGS << 4 | SLOTS << 8 | BUS_BYTES << 16 | ADDRESS_BITS << 24;
  CHECK(engine.read(XE(REG_CAP0)) == cap0, "CAP0");
  const uint32_t others = CIPHERS >> 2 ? UNIT_BYTES / 512 : 0;
  const uint32_t cap1 = CIPHERS | (KEY_BITS == 256 ? 2 : 1) << 16 | (LEVEL == 3 ? 15 : 0) << 20 | others << 24;
  CHECK(engine.read(XE(REG_CAP1)) == cap1, "CAP1");
  CHECK(engine.read(XE(REG_CAP2)) == (26u | 20 << 8 | 10 << 16 | (LEVEL > 1 ? XTS_BYTES / 16 : 0) << 20), "CAP2");
  CHECK(engine.read(XE(REG_CAP3)) == CYCLES_PER_US, "CAP3");
  CHECK(engine.read(XE(REG_STATUS)) == 3, "STATUS");
  // All of the others are zero, and stay so where they cannot be written.
  for (uint32_t at = 0; at < XE(BAR_BYTES); at += 4) {
    const bool counter = at >= XE(REG_COUNTER_CTRL);
    const bool ring = at >= XE(RINGS_OFFSET) && at < XE(RINGS_OFFSET) + RINGS * XE(RINGS_STRIDE);
    if (at <= XE(REG_STATUS) || counter || ring || at == XE(REG_INT_SET) || at == XE(REG_INT_CLEAR) ||
        at == XE(REG_KEY_CMD)) {
      continue;
    }
    engine.write(at, static_cast<uint32_t>(engine.random.next()));
    CHECK(engine.read(at) == 0, "register %x is not zero", at);
  }
  engine.write(XE(REG_INT_SET), ~0u);
  const uint32_t mask = ((1u << RINGS) - 1) | 1u << 31;
  CHECK(engine.read(XE(REG_INT_SET)) == mask && engine.read(XE(REG_INT_CLEAR)) == mask, "mask");
  engine.write(XE(REG_INT_CLEAR), 1u << 31);
  CHECK(engine.read(XE(REG_INT_SET)) == ((1u << RINGS) - 1), "mask");
  for (int r = 0; r < RINGS; r++) {
    for (uint32_t offset : {XE(RING_SQ_LO), XE(RING_SQ_HI), XE(RING_CQ_LO), XE(RING_CQ_HI)}) {
      const uint32_t value = static_cast<uint32_t>(engine.random.next());
      engine.ring_write(r, offset, value);
      CHECK(engine.ring_read(r, offset) == value, "ring register %x", offset);
      // Not with a byte missing.
      engine.write(engine.ring_register(r, offset), ~value, static_cast<int>(engine.random.below(15)));
      CHECK(engine.ring_read(r, offset) == value, "ring register %x takes a part", offset);
    }
    engine.ring_write(r, XE(RING_COALESCE), 0xffffffff);
    CHECK(engine.ring_read(r, XE(RING_COALESCE)) == 0xffff00ff, "COALESCE");
    // Doorbells of a ring that is off.
    engine.ring_write(r, XE(RING_TAIL), 5);
    CHECK(engine.ring_read(r, XE(RING_TAIL)) == 0 && engine.ring_read(r, XE(RING_STATE)) == 0, "TAIL");
    engine.ring_on(r, 3);
    engine.ring_write(r, XE(RING_SQ_LO), 0);
    engine.ring_write(r, XE(RING_SIZE), 4);
    CHECK(engine.ring_read(r, XE(RING_SQ_LO)) == static_cast<uint32_t>(engine.rings[r].sq()) &&
              engine.ring_read(r, XE(RING_SIZE)) == 3,
          "a ring that is on takes another address");
    engine.ring_off(r);
  }
  // Keys.
  model::Bytes key(64);
  engine.random.fill(key.data(), key.size());
  const auto command = [&](int slot, int cipher, int kind = 1, int bits = KEY_BITS) {
    return engine.key_command(slot, cipher, key, kind, bits);
  };
  CHECK(command(SLOTS, 0) == XE(KEY_RESULT_SLOT), "slot");
  CHECK(command(0, 15) == XE(KEY_RESULT_CIPHER), "cipher");
  CHECK(command(0, 0, 1, 384 - KEY_BITS) == XE(KEY_RESULT_LENGTH), "length");
  CHECK(command(0, 0, 0) == XE(KEY_RESULT_COMMAND) && command(0, 0, 3) == XE(KEY_RESULT_COMMAND), "command");
  CHECK(engine.read(XE(REG_KEY_SLOTS)) == 0, "slots");
  CHECK(command(SLOTS - 1, 0) == XE(KEY_RESULT_DONE), "load");
  CHECK(engine.read(XE(REG_KEY_SLOTS)) == 1u << (SLOTS - 1), "slots");
  CHECK(command(SLOTS - 1, 0, 2) == XE(KEY_RESULT_DONE) && engine.read(XE(REG_KEY_SLOTS)) == 0, "clear");
  if (CIPHERS >> XE(CIPHER_XTS) & 1) {
    std::copy_n(key.begin(), KEY_BITS / 8, key.begin() + KEY_BITS / 8);
    CHECK(command(0, XE(CIPHER_XTS)) == XE(KEY_RESULT_EQUAL), "equal keys");
  }
  for (uint32_t i = 0; i < XE(KEY_DATA_COUNT); i++) CHECK(engine.read(XE(REG_KEY_DATA) + 4 * i) == 0, "a key is read");
}

// Software uses the places of submissions again before it tells that it has read their
// completions: only those are fetched for which there is room.
inline void room(uint64_t seed, int count) {
  Bed bed(seed, 2);
  Engine& engine = bed.engine;
  Random& random = bed.random;
  for (int i = 0; i < count; i++) {
    const int r = static_cast<int>(random.below(RINGS));
    Engine::Ring& ring = engine.rings[r];
    const uint16_t fetched = static_cast<uint16_t>(engine.ring_read(r, XE(RING_STATE)) >> 16);
    const uint16_t read = static_cast<uint16_t>(engine.ring_read(r, XE(RING_CQ_HEAD)));
    const uint64_t most = ring.size() - static_cast<uint16_t>(ring.tail - fetched);
    for (uint64_t some = random.below(most + 1); some > 0; some--) {
      uint8_t sqe[64] = {};
      engine.submit(r, sqe);
    }
    engine.doorbell(r);
    for (int wait = 0; wait < 500; wait++) engine.tick();
    const uint16_t expected =
        static_cast<uint16_t>(read + std::min<int>(ring.size(), static_cast<uint16_t>(ring.tail - read)));
    const uint16_t now = static_cast<uint16_t>(engine.ring_read(r, XE(RING_STATE)) >> 16);
    CHECK(now == expected, "ring %d: fetched %d, %d of them read, tail %d", r, now, read, ring.tail);
    Completion completion;
    while (ring.head != now) CHECK(engine.poll(r, completion), "ring %d: completion %d is lost", r, ring.head);
    if (random.below(2)) engine.ring_write(r, XE(RING_CQ_HEAD), static_cast<uint16_t>(read + random.below(static_cast<uint16_t>(now - read) + 1)));
  }
}

// Coalescing by count, by time, by flag, and when the ring is empty: the line against a
// model of it in every cycle, with clears at any moment.
inline void interrupts(uint64_t seed) {
  Bed bed(seed);
  Engine& engine = bed.engine;
  Random& random = bed.random;
  engine.memory.timing = {5, 10, 2, 2, 2, 2, 2};
  engine.write(XE(REG_INT_SET), (1u << RINGS) - 1);
  uint64_t timers = 0, kept = 0;
  for (int round = 0; round < 200; round++) {
    const int r = static_cast<int>(random.below(RINGS));
    engine.ring_off(r);
    const uint32_t count = static_cast<uint32_t>(random.below(6));
    const uint64_t us = random.below(2) ? 0 : 1 + random.below(5);
    const bool when_empty = random.below(2);
    engine.ring_write(r, XE(RING_COALESCE), count | static_cast<uint32_t>(us) << 16);
    engine.ring_on(r, 4, when_empty);
    // Of those that waited before the ring was turned on nothing is left.
    engine.write(XE(REG_INT_STATUS), ~0u);
    const size_t number = 1 + random.below(10);
    std::vector<bool> flags;
    for (size_t i = 0; i < number; i++) {
      Job job;
      bed.jobs.base(job, r);
      flags.push_back(random.below(6) == 0);
      job.sqe[XE(SQE_FLAGS)] = static_cast<uint8_t>(flags.back() << XE(FLAG_INTERRUPT));
      bed.traffic.submit(std::move(job));
    }
    size_t seen = 0;
    uint32_t waiting = 0;
    uint64_t first = 0;
    bool status = false, answered = false;
    engine.after_tick = [&] {
      // An answer of the bus is seen in the cycle after it.
      const bool clear = engine.written_to == XE(REG_INT_STATUS);
      bool raise = false;
      if (answered) {
        CHECK(seen < number, "a completion too many");
        if (waiting++ == 0) first = engine.now;
        raise = flags[seen] || waiting >= count || (when_empty && seen + 1 == number);
        seen++;
      }
      answered = engine.answered;
      const bool line = engine.interrupt(r);
      const bool expected = (status && !clear) || raise;
      if (clear && raise && status) kept++;
      // So that what is left or new makes an edge.
      CHECK(!line || !clear, "ring %d: the line stays with a clear", r);
      if (line && !expected) {
        CHECK(us && waiting && engine.now >= first + us * CYCLES_PER_US, "ring %d: an interrupt for nothing", r);
        raise = true;
        timers++;
      }
      CHECK(line || clear || !expected, "ring %d: completion %zu has no interrupt (count %u)", r, seen, count);
      // A timer that ends with a clear is seen a cycle later.
      CHECK(line || !us || !waiting || engine.now <= first + (us + 1) * CYCLES_PER_US + clear,
            "ring %d: no interrupt after %d us", r, static_cast<int>(us));
      status = line || (clear && raise);
      if (raise) waiting = 0;
    };
    bed.traffic.ring(r);
    for (uint64_t idle = 0; seen < number || idle < (us + 2) * CYCLES_PER_US;) {
      CHECK(engine.now < (uint64_t{1} << 40), "no completions");
      for (uint64_t wait = random.below(30); wait > 0; wait--, idle++) engine.tick();
      if (status) engine.write(XE(REG_INT_STATUS), 1u << r);
      if (seen < number) idle = 0;
    }
    engine.after_tick = nullptr;
    bed.traffic.drain(r);
  }
  CHECK(timers > 10 && kept > 0, "%llu interrupts by timers, %llu in the cycle of a clear",
        static_cast<unsigned long long>(timers), static_cast<unsigned long long>(kept));
}

// Soft reset and zeroize at any moment: no data goes to memory afterwards, neither keys nor
// data are left, and it works again.
inline void resets(uint64_t seed, int count) {
  Bed bed(seed);
  Engine& engine = bed.engine;
  Random& random = bed.random;
  uint64_t keys_found = 0, data_found = 0;
  for (int round = 0; round < count; round++) {
    engine.memory.timing = random.below(2) ? BusTiming{30, 40, 4, 4, 8, 8, 4} : BusTiming{20, 0, 0, 0, 0, 0, 0};
    const bool whole = random.below(2);
    const auto holds = [&](const model::Bytes& state, const uint8_t* secret) {
      return memmem(state.data(), state.size(), secret, 16) != nullptr;
    };
    // Some requests, and stop in the middle of them.
    for (int i = 0; i < 8; i++) {
      const int r = static_cast<int>(random.below(RINGS));
      if (bed.traffic.room(r)) bed.traffic.submit(bed.jobs.good(r, 9000));
      if (random.below(2)) bed.traffic.ring(r);
    }
    for (int r = 0; r < RINGS; r++) bed.traffic.ring(r);
    for (uint64_t wait = random.below(1500); wait > 0; wait--) engine.tick();
    {
      const State state(engine.top);
      for (const Slot& slot : bed.jobs.slots) {
        if (slot.cipher >= 0) keys_found += holds(state.bytes, slot.key.data());
      }
      for (int r = 0; r < RINGS; r++) {
        for (const Job& job : bed.traffic.open[r]) {
          for (size_t i = 0; i < job.plain.size(); i += 16) data_found += holds(state.bytes, &job.plain[i]);
        }
      }
    }
    // A beat that the bus was already offered may still be taken.
    engine.after_tick = [&] {
      if (engine.written_to == XE(REG_CTRL)) engine.written = 0;
    };
    engine.write(XE(REG_CTRL), 1 | (whole ? 2 : 4));
    engine.after_tick = nullptr;
    int ready = 0;
    for (; !(engine.read(XE(REG_STATUS)) & 1); ready++) CHECK(ready < 3000, "not ready after reset");
    for (int i = 0; i < 300; i++) engine.tick();
    CHECK(engine.written <= 1, "%llu beats with data after reset", static_cast<unsigned long long>(engine.written));
    CHECK(engine.memory.idle(), "a transfer did not end");
    std::memset(&engine.top.m_axi_rdata, 0, sizeof engine.top.m_axi_rdata);
    engine.top.eval();
    const State state(engine.top);
    for (const Slot& slot : bed.jobs.slots) {
      if (slot.cipher < 0) continue;
      for (size_t i = 0; i < slot.key.size(); i += 16) CHECK(!holds(state.bytes, &slot.key[i]), "a key is left");
    }
    for (int r = 0; r < RINGS; r++) {
      for (const Job& job : bed.traffic.open[r]) {
        for (size_t i = 0; i < job.plain.size(); i += 16) {
          CHECK(!holds(state.bytes, &job.plain[i]) && !holds(state.bytes, &job.result[i]), "data is left");
        }
      }
    }
    CHECK(engine.read(XE(REG_KEY_SLOTS)) == 0, "slots");
    if (whole) {
      CHECK(engine.read(XE(REG_CTRL)) == 0 && engine.read(XE(REG_STATUS)) == 3, "registers");
      CHECK(engine.read(XE(REG_INT_SET)) == 0 && engine.read(XE(REG_INT_STATUS)) == 0, "interrupts");
      CHECK(engine.counters()[1] == 0, "counters");
    } else {
      CHECK(engine.read(XE(REG_FAULT)) == XE(FAULT_WIPED), "FAULT");
      CHECK(engine.read(XE(REG_STATUS)) == 7 && engine.read(XE(REG_INT_STATUS)) >> 31, "STATUS");
      engine.write(XE(REG_FAULT), 1);
      engine.write(XE(REG_INT_STATUS), ~0u);
    }
    for (int r = 0; r < RINGS; r++) {
      if (!whole) {
        CHECK((engine.ring_read(r, XE(RING_STATE)) & 0xffff) == (XE(FAULT_WIPED) << 8 | 3), "STATE");
        CHECK(engine.ring_read(r, XE(RING_SQ_LO)) == static_cast<uint32_t>(engine.rings[r].sq()), "SQ_LO");
      } else {
        CHECK(engine.ring_read(r, XE(RING_STATE)) == 0 && engine.ring_read(r, XE(RING_SQ_LO)) == 0, "STATE");
      }
      engine.ring_off(r);
      bed.traffic.forget(r);
    }
    bed.start();
    bed.traffic.run(6, [&](int r) { return bed.jobs.good(r, 3000); });
  }
  CHECK(keys_found > 0 && data_found > 0, "keys and data are not found where they have to be");
}
