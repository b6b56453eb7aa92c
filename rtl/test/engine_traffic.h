// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Requests on all rings at once, in order on each, and checks of what comes of them; and
// all the ways in which a submission can be wrong.
#pragma once

#include "engine_jobs.h"

class Traffic {
 public:
  Traffic(Engine& engine, Jobs& jobs) : engine_(engine), jobs_(jobs), random_(engine.random) {}

  std::deque<Job> open[RINGS];
  uint64_t done = 0, failed = 0, bytes = 0;

  bool room(int r) const {
    return jobs_.room() && static_cast<int>(open[r].size()) < engine_.rings[r].size() - unread_[r];
  }
  void submit(Job job) {
    jobs_.remember(job);
    engine_.submit(job.ring, job.sqe);
    rung_[job.ring] = false;
    open[job.ring].push_back(std::move(job));
  }
  void ring(int r) {
    if (!rung_[r]) engine_.doorbell(r);
    rung_[r] = true;
  }

  // Takes the completions that are there.
  bool poll(int r) {
    Completion completion;
    bool any = false;
    while (engine_.poll(r, completion)) {
      any = true;
      CHECK(!open[r].empty(), "ring %d: a completion too many", r);
      jobs_.check(open[r].front(), completion);
      done++;
      if (completion.status != kStatusDone) failed++;
      bytes += completion.units * open[r].front().unit_bytes;
      jobs_.release(open[r].front());
      open[r].pop_front();
      unread_[r]++;
    }
    if (unread_[r] && (random_.below(3) || unread_[r] == engine_.rings[r].size())) acknowledge(r);
    return any;
  }
  void acknowledge(int r) {
    engine_.acknowledge(r);
    unread_[r] = 0;
  }

  void drain() {
    for (int r = 0; r < RINGS; r++) drain(r);
  }
  void drain(int r) {
    if (open[r].empty() && !unread_[r]) return;
    ring(r);
    uint64_t idle = 0;
    while (!open[r].empty()) {
      if (poll(r)) idle = 0;
      engine_.tick();
      CHECK(idle++ < 200000, "ring %d: no completion in %llu cycles, state %x", r,
            static_cast<unsigned long long>(idle), engine_.ring_read(r, XE(RING_STATE)));
    }
    if (unread_[r]) acknowledge(r);
  }

  // Forgets all of a ring: it has been turned off.
  void forget(int r) {
    for (const Job& job : open[r]) jobs_.release(job);
    open[r].clear();
    unread_[r] = 0;
    rung_[r] = true;
  }

  template <typename Make>
  void run(int count, Make make) {
    for (int i = 0; i < count;) {
      const int r = static_cast<int>(random_.below(RINGS));
      if (room(r)) {
        submit(make(r));
        i++;
        if (random_.below(2)) ring(r);
      } else {
        for (int other = 0; other < RINGS; other++) ring(other);
      }
      for (int other = 0; other < RINGS; other++) poll(other);
      for (uint64_t wait = random_.below(200); wait > 0; wait--) engine_.tick();
    }
    drain();
  }

 private:
  Engine& engine_;
  Jobs& jobs_;
  Random& random_;
  int unread_[RINGS] = {};
  bool rung_[RINGS] = {};
};

// Makes a mistake of some kind in a request that is right; gives false if that is none for it.
inline bool spoil(Jobs& jobs, Random& random, Engine& engine, Job& job, int kind) {
  const int op = job.sqe[XE(SQE_OP)];
  const int flags = job.sqe[XE(SQE_FLAGS)];
  const bool source_list = flags >> XE(FLAG_SOURCE_LIST) & 1;
  const bool destination_list = flags >> XE(FLAG_DESTINATION_LIST) & 1;
  const auto flip = [&](int at, int bits) { job.sqe[at] ^= static_cast<uint8_t>(1 + random.below((1 << bits) - 1)); };
  const auto one_of = [&](int at, int bytes) { flip(at + static_cast<int>(random.below(bytes)), 8); };
  const auto fail = [&](int status) {
    job.status = status;
    job.units = 0;
    return true;
  };
  switch (kind) {
    case 0:
      job.sqe[XE(SQE_OP)] = LEVEL >= 3 ? static_cast<uint8_t>(4 + random.below(252)) : static_cast<uint8_t>(LEVEL + 1);
      return fail(XE(STATUS_OP));
    case 1:
      job.sqe[XE(SQE_FLAGS)] |= static_cast<uint8_t>(1 << (5 + random.below(3)));
      return fail(XE(STATUS_RESERVED));
    case 2:
      one_of(random.below(2) ? XE(SQE_ZERO0) : XE(SQE_ZERO1), 2);
      return fail(XE(STATUS_RESERVED));
    case 3:
      if (op == XE(OP_RUN)) return false;
      one_of(XE(SQE_STEP), 2);
      return fail(XE(STATUS_RESERVED));
    case 4:
      if (op != XE(OP_ECB)) return false;
      one_of(XE(SQE_TWEAK), 16);
      return fail(XE(STATUS_RESERVED));
    case 5:
      if (source_list) return false;
      one_of(XE(SQE_SOURCE_ENTRIES), 4);
      return fail(XE(STATUS_RESERVED));
    case 6:
      if (destination_list) return false;
      one_of(XE(SQE_DESTINATION_ENTRIES), 4);
      return fail(XE(STATUS_RESERVED));
    case 7:
      if (!job.in_place) return false;
      if (random.below(2)) one_of(XE(SQE_DESTINATION), 8);
      else job.sqe[XE(SQE_FLAGS)] |= 1 << XE(FLAG_DESTINATION_LIST);
      return fail(XE(STATUS_RESERVED));
    case 8: {
      const uint8_t before = job.sqe[XE(SQE_LOG2_UNIT)];
      do job.sqe[XE(SQE_LOG2_UNIT)] = static_cast<uint8_t>(random.below(3) ? random.below(14) : random.next());
      while (job.sqe[XE(SQE_LOG2_UNIT)] == before ||
             (op != XE(OP_ECB) && job.sqe[XE(SQE_LOG2_UNIT)] >= 9 && job.sqe[XE(SQE_LOG2_UNIT)] <= 12 &&
              (op == XE(OP_RUN) ? jobs.slots[job.sqe[XE(SQE_SLOT)]].cipher == XE(CIPHER_XTS)
                                : 1 << job.sqe[XE(SQE_LOG2_UNIT)] <= XTS_BYTES)));
      return fail(XE(STATUS_UNIT));
    }
    case 9: {
      const uint32_t limit = 1u << (26 - job.sqe[XE(SQE_LOG2_UNIT)]);
      uint32_t units = random.below(2) ? 0 : limit + 1 + static_cast<uint32_t>(random.below(~limit));
      if (op == XE(OP_XTS) && random.below(2)) units = 2;
      set<uint32_t>(job, XE(SQE_UNITS), units);
      return fail(XE(STATUS_UNITS));
    }
    case 10:
      if (job.in_place || random.below(2)) flip(XE(SQE_SOURCE), 4);
      else flip(XE(SQE_DESTINATION), 4);
      return fail(XE(STATUS_ALIGNMENT));
    case 11: {
      // So that the last byte lies just beyond.
      const uint64_t last = ADDRESS_BITS == 64 ? 0 : uint64_t{1} << (ADDRESS_BITS % 64);
      const bool source = job.in_place || random.below(2);
      uint32_t entries;
      std::memcpy(&entries, job.sqe + (source ? XE(SQE_SOURCE_ENTRIES) : XE(SQE_DESTINATION_ENTRIES)), 4);
      const uint64_t bytes = entries ? entries * 16 : job.plain.size();
      // An address of 2^64 does not exist.
      const uint64_t places = bytes / 16 - (ADDRESS_BITS == 64);
      if (places == 0) return false;
      set<uint64_t>(job, source ? XE(SQE_SOURCE) : XE(SQE_DESTINATION), last - bytes + 16 * (1 + random.below(places)));
      return fail(XE(STATUS_ALIGNMENT));
    }
    case 12: {
      int slot = static_cast<int>(random.below(256));
      if (random.below(2)) {
        for (slot = 0; slot < kSlots && jobs.slots[slot].cipher >= 0;) slot++;
      }
      if (slot < kSlots && jobs.slots[slot].cipher >= 0) return false;
      job.sqe[XE(SQE_SLOT)] = static_cast<uint8_t>(slot);
      return fail(XE(STATUS_SLOT));
    }
    case 13:
      for (int slot = 0; slot < kSlots; slot++) {
        if (jobs.slots[slot].cipher < 0) continue;
        if ((jobs.slots[slot].cipher == XE(CIPHER_ECB)) != (op == XE(OP_RUN))) continue;
        job.sqe[XE(SQE_SLOT)] = static_cast<uint8_t>(slot);
        return fail(XE(STATUS_CIPHER));
      }
      return false;
    case 14: {
      uint16_t step;
      std::memcpy(&step, job.sqe + XE(SQE_STEP), 2);
      if (op != XE(OP_RUN) || job.units < 2 || step == 0) return false;
      // The last unit's is just beyond.
      const uint64_t low = ~(static_cast<uint64_t>(step) * (job.units - 1)) + 1;
      std::memset(job.sqe + XE(SQE_TWEAK), 0xff, 16);
      set<uint64_t>(job, XE(SQE_TWEAK), low);
      return fail(XE(STATUS_TWEAK));
    }
    case 15: {
      const bool source = source_list && (!destination_list || random.below(2));
      if (!source && !destination_list) return false;
      const int at = source ? XE(SQE_SOURCE_ENTRIES) : XE(SQE_DESTINATION_ENTRIES);
      set<uint32_t>(job, at, random.below(2) ? 0 : (1u << 20) + 1 + static_cast<uint32_t>(random.below(1 << 24)));
      return fail(XE(STATUS_LIST));
    }
    case 16: {
      // Wrong at some entry, which is found after others have been used.
      const bool source = source_list && (!destination_list || random.below(2));
      if (!source && !destination_list) return false;
      uint64_t list;
      uint32_t entries;
      std::memcpy(&list, job.sqe + (source ? XE(SQE_SOURCE) : XE(SQE_DESTINATION)), 8);
      const int entries_at = source ? XE(SQE_SOURCE_ENTRIES) : XE(SQE_DESTINATION_ENTRIES);
      std::memcpy(&entries, job.sqe + entries_at, 4);
      const uint32_t which = static_cast<uint32_t>(random.below(entries));
      uint8_t* entry = engine.memory.at(list + 16 * which, 16);
      size_t good = 0;
      for (uint32_t i = 0; i < which; i++) good += (source ? job.source : job.destination)[i].length;
      job.status = XE(STATUS_LIST);
      switch (random.below(5)) {
        case 0:
          entry[8] ^= static_cast<uint8_t>(1 + random.below(15));
          break;
        case 1:
          std::memset(entry + 8, 0, 4);
          break;
        case 2:
          entry[12 + random.below(4)] = 1;
          break;
        case 3:
          entry[0] ^= static_cast<uint8_t>(1 + random.below(15));
          break;
        default:
          // One entry less.
          if (entries == 1) return false;
          set<uint32_t>(job, entries_at, entries - 1);
          good = job.plain.size() - (source ? job.source : job.destination).back().length;
      }
      job.units = static_cast<uint32_t>(good / job.unit_bytes);
      return true;
    }
    default: {
      // More in the list than the request needs: all is done, and it is a mistake.
      const bool source = source_list && (!destination_list || random.below(2));
      if (!source && !destination_list) return false;
      uint64_t list;
      std::memcpy(&list, job.sqe + (source ? XE(SQE_SOURCE) : XE(SQE_DESTINATION)), 8);
      std::vector<Piece>& pieces = source ? job.source : job.destination;
      uint8_t* entry = engine.memory.at(list + 16 * pieces.size(), 16);
      const Piece more = {pieces.back().address, 16 * (1 + random.below(9))};
      if (random.below(2)) {
        std::memcpy(entry, &more, 16);
        set<uint32_t>(job, source ? XE(SQE_SOURCE_ENTRIES) : XE(SQE_DESTINATION_ENTRIES),
                      static_cast<uint32_t>(pieces.size() + 1));
      } else {
        entry -= 16;
        const uint32_t length = static_cast<uint32_t>(pieces.back().length) + 16;
        std::memcpy(entry + 8, &length, 4);
      }
      job.status = XE(STATUS_LIST);
      return true;
    }
  }
}

constexpr int kSpoils = 18;

// NOP, right or wrong.
inline Job nop(Jobs& jobs, Random& random, int ring) {
  Job job;
  jobs.base(job, ring);
  job.sqe[XE(SQE_FLAGS)] = static_cast<uint8_t>(random.below(2) << XE(FLAG_INTERRUPT));
  if (random.below(3) == 0) {
    const int at = static_cast<int>(random.below(55));
    // Not the operation, and not the flag that it has.
    job.sqe[at + 1] ^= at == 0 ? 1 : static_cast<uint8_t>(1 + random.below(255));
    job.status = XE(STATUS_RESERVED);
  }
  return job;
}
