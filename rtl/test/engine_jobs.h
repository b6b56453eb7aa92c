// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Random requests to the co-processor: where their data lies, what comes of them by the
// software models, and whether that is what is in memory afterwards.
#pragma once

#include "engine_driver.h"

constexpr int kSlots = SLOTS;
constexpr int kStatusDone = XE(STATUS_DONE);

// The name of a cipher's model, by its number; null if this build does not have it.
inline const char* model_name(int cipher) {
  static const char* const names[] = {"", "xts", "fast-brw", "fast-horner", "hctr2", "eme2", "aez10"};
  return cipher < 7 && (CIPHERS >> cipher & 1) ? names[cipher] : nullptr;
}

inline size_t key_bytes(int cipher) {
  if (cipher == XE(CIPHER_ECB)) return KEY_BITS / 8;
  return model::find_mode(model_name(cipher))->key_bytes(KEY_BITS / 8);
}

// What is in the key slots.
struct Slot {
  int cipher = -1;
  model::Bytes key;
};

struct Piece {
  uint64_t address;
  size_t length;
};

struct Job {
  int ring;
  uint64_t cookie;
  uint8_t sqe[64] = {};
  // What it has to come to; `units`: done at most, and exactly without an error.
  int status = kStatusDone;
  uint32_t units = 0;
  size_t unit_bytes = 16;
  bool in_place = false;
  // A bus error may hit it: status may be this one too.
  int bus_status = -1;
  // What cannot be written cannot be erased: data may stay beyond what is done.
  bool left_behind = false;
  std::vector<Piece> source, destination;
  // What the source had, what has to come, and all that lay around the destination before.
  std::vector<uint8_t> plain, result, before;
  uint64_t arena;
};

constexpr size_t kArena = 0x30000, kHalf = 0x12000;
// Of an arena: source, destination, the two lists.
constexpr size_t kDestination = kHalf, kLists = 2 * kHalf;

template <typename T>
void set(Job& job, int at, T value) {
  std::memcpy(job.sqe + at, &value, sizeof(T));
}

class Jobs {
 public:
  Jobs(Engine& engine) : engine_(engine), random_(engine.random), slots(kSlots) {
    for (uint64_t at = kBase + 0x20000 * 8; at + kArena <= kBase + kMemory; at += kArena) free_.push_back(at);
  }

  bool room() const { return !free_.empty(); }

  // Loads another key into a slot.
  void load_key(int slot) {
    std::vector<int> there;
    for (int cipher = 0; cipher < 7; cipher++) {
      if (CIPHERS >> cipher & 1) there.push_back(cipher);
    }
    const int cipher = there[random_.below(there.size())];
    load_key(slot, cipher);
  }
  void load_key(int slot, int cipher) {
    Slot& to = slots[slot];
    to.cipher = cipher;
    to.key.resize(key_bytes(cipher));
    random_.fill(to.key.data(), to.key.size());
    const int result = engine_.key_command(slot, cipher, to.key);
    CHECK(result == XE(KEY_RESULT_DONE), "key of cipher %d: result %d", cipher, result);
  }

  // A request that is right, of at most so many bytes; `most` is the arena's half at most.
  Job good(int ring, size_t most = 20000) {
    Job job;
    base(job, ring);
    std::vector<int> candidates;
    for (int i = 0; i < kSlots; i++) {
      if (slots[i].cipher >= 0) candidates.push_back(i);
    }
    CHECK(!candidates.empty(), "no keys");
    const int slot = candidates[random_.below(candidates.size())];
    const int cipher = slots[slot].cipher;
    int op = XE(OP_RUN);
    int log2_unit = 9 + static_cast<int>(random_.below(4));
    if (cipher == XE(CIPHER_ECB)) op = LEVEL >= 2 && random_.below(2) ? XE(OP_XTS) : XE(OP_ECB);
    if (op == XE(OP_ECB)) log2_unit = 4;
    if (op == XE(OP_XTS)) {
      log2_unit = 9;
      while (1 << log2_unit < XTS_BYTES && random_.below(2)) log2_unit++;
    }
    if (op == XE(OP_RUN) && cipher != XE(CIPHER_XTS)) {
      log2_unit = 0;
      while (1 << log2_unit < UNIT_BYTES) log2_unit++;
    }
    const uint64_t fit = std::max<uint64_t>(1, most >> log2_unit);
    uint32_t units = 1 + static_cast<uint32_t>(random_.below(random_.below(4) ? std::min<uint64_t>(fit, 6) : fit));
    if (op == XE(OP_XTS)) units = 1;
    make(job, op, slot, log2_unit, units, random_.below(2), random_.below(3) == 0, random_.below(2),
         random_.below(2));
    return job;
  }

  // A request as it is asked for.
  void make(Job& job, int op, int slot, int log2_unit, uint32_t units, bool decrypt, bool in_place,
            bool source_list, bool destination_list) {
    job.units = units;
    job.unit_bytes = size_t{1} << log2_unit;
    job.in_place = in_place;
    const size_t bytes = job.unit_bytes * units;
    job.sqe[XE(SQE_OP)] = static_cast<uint8_t>(op);
    job.sqe[XE(SQE_SLOT)] = static_cast<uint8_t>(slot);
    job.sqe[XE(SQE_LOG2_UNIT)] = static_cast<uint8_t>(log2_unit);
    set<uint32_t>(job, XE(SQE_UNITS), units);
    model::Bytes tweak(16);
    uint16_t step = 0;
    if (op == XE(OP_XTS)) random_.fill(tweak.data(), 16);
    if (op == XE(OP_RUN)) {
      random_.fill(tweak.data(), 16);
      step = static_cast<uint16_t>(random_.below(4) ? random_.below(9) : random_.next());
      // Carries go far; and the last one is as far as it can be.
      if (random_.below(2)) std::memset(tweak.data() + 1, 0xff, random_.below(14));
      tweak[15] &= 0x7f;
      if (random_.below(4) == 0) last_tweak(tweak, static_cast<uint64_t>(step) * (units - 1));
      set<uint16_t>(job, XE(SQE_STEP), step);
    }
    if (op != XE(OP_ECB)) std::memcpy(job.sqe + XE(SQE_TWEAK), tweak.data(), 16);

    int flags = decrypt << XE(FLAG_DECRYPT) | static_cast<int>(random_.below(4) == 0) << XE(FLAG_INTERRUPT);
    place(job, XE(SQE_SOURCE), XE(SQE_SOURCE_ENTRIES), job.arena, source_list, bytes, job.source, job.arena + kLists);
    flags |= source_list << XE(FLAG_SOURCE_LIST);
    if (in_place) {
      job.destination = job.source;
      flags |= 1 << XE(FLAG_IN_PLACE);
    } else {
      place(job, XE(SQE_DESTINATION), XE(SQE_DESTINATION_ENTRIES), job.arena + kDestination, destination_list, bytes,
            job.destination, job.arena + kLists + 0x4000);
      flags |= destination_list << XE(FLAG_DESTINATION_LIST);
    }
    job.sqe[XE(SQE_FLAGS)] = static_cast<uint8_t>(flags);
    random_.fill(engine_.memory.at(job.arena, kLists), kLists);
    for (const Piece& piece : job.source) {
      const uint8_t* at = engine_.memory.at(piece.address, piece.length);
      job.plain.insert(job.plain.end(), at, at + piece.length);
    }
    compute(job, op, slot, decrypt, tweak, step);
  }

  // After everything is set: what lies around.
  void remember(Job& job) {
    const uint8_t* at = engine_.memory.at(job.arena, kLists);
    job.before.assign(at, at + kLists);
  }

  // The completion and the memory are right. With an error, what lies beyond the units
  // that are done is as it was, or zero.
  void check(const Job& job, const Completion& completion) {
    CHECK(completion.cookie == job.cookie, "ring %d: completion of another request", job.ring);
    const bool hit = completion.status == job.bus_status && completion.status != job.status;
    CHECK(completion.status == job.status || hit, "ring %d: status %d instead of %d (op %d units %u x %zu, flags %x)",
          job.ring, completion.status, job.status, job.sqe[0], job.units, job.unit_bytes, job.sqe[1]);
    if (completion.status == kStatusDone) {
      CHECK(completion.units == job.units, "%u units of %u", completion.units, job.units);
    } else {
      CHECK(completion.units <= job.units, "%u units of %u with status %d", completion.units, job.units,
            completion.status);
    }
    check_memory(job, completion.units);
  }

  void check_memory(const Job& job, uint32_t units) {
    const uint8_t* memory = engine_.memory.at(job.arena, kLists);
    std::vector<uint8_t> expected = job.before;
    std::vector<bool> beyond(kLists);
    size_t done = 0;
    for (const Piece& piece : job.destination) {
      if (piece.address < job.arena || piece.address + piece.length > job.arena + kLists) continue;
      for (size_t i = 0; i < piece.length; i++, done++) {
        const size_t at = piece.address - job.arena + i;
        if (done < units * job.unit_bytes) expected[at] = job.result[done];
        else beyond[at] = true;
        if (job.left_behind && memory[at] == job.result[done]) expected[at] = memory[at];
      }
    }
    for (size_t i = 0; i < kLists; i++) {
      CHECK(memory[i] == expected[i] || (beyond[i] && memory[i] == 0),
            "ring %d: byte %zx of the arena is %02x instead of %02x (op %d, %u of %u units x %zu, flags %x)", job.ring,
            i, memory[i], expected[i], job.sqe[0], units, job.units, job.unit_bytes, job.sqe[1]);
    }
  }

  void release(const Job& job) { free_.push_back(job.arena); }

  void base(Job& job, int ring) {
    job.ring = ring;
    job.cookie = random_.next();
    set(job, XE(SQE_COOKIE), job.cookie);
    job.arena = free_.back();
    free_.pop_back();
  }

 private:
  Engine& engine_;
  Random& random_;
  std::vector<uint64_t> free_;

 public:
  std::vector<Slot> slots;

 private:
  // 2^128 - 1 less that much.
  static void last_tweak(model::Bytes& tweak, uint64_t less) {
    std::memset(tweak.data(), 0xff, 16);
    const uint64_t low = ~less;
    std::memcpy(tweak.data(), &low, 8);
  }

  void place(Job& job, int at, int entries_at, uint64_t from, bool list, size_t bytes, std::vector<Piece>& pieces,
             uint64_t list_at) {
    if (!list) {
      const uint64_t address = from + 16 * random_.below((kHalf - bytes) / 16 + 1);
      pieces.push_back({address, bytes});
      set(job, at, address);
      return;
    }
    size_t slack = kHalf - bytes;
    uint64_t next = from;
    const size_t usual = random_.below(3) == 0 ? 64 : random_.below(2) ? 512 : 4096;
    while (bytes > 0) {
      if (random_.below(2)) {
        const size_t gap = 16 * random_.below(std::min<size_t>(slack, 256) / 16 + 1);
        slack -= gap;
        next += gap;
      }
      size_t length = std::min<size_t>(bytes, 16 + 16 * random_.below(usual / 8));
      // At most so many entries fit.
      if (pieces.size() >= 900) length = bytes;
      pieces.push_back({next, length});
      next += length;
      bytes -= length;
    }
    list_at += 16 * random_.below(64);
    uint8_t* entry = engine_.memory.at(list_at, 16 * pieces.size());
    for (const Piece& piece : pieces) {
      std::memcpy(entry, &piece.address, 8);
      const uint64_t length = piece.length;
      std::memcpy(entry + 8, &length, 8);
      entry += 16;
    }
    set(job, at, list_at);
    set(job, entries_at, static_cast<uint32_t>(pieces.size()));
  }

  void compute(Job& job, int op, int slot, bool decrypt, model::Bytes tweak, uint16_t step) {
    job.result.resize(job.plain.size());
    const Slot& key = slots[slot];
    if (op == XE(OP_RUN)) {
      const auto cipher = model::find_mode(model_name(key.cipher))->make(key.key);
      model::Bytes given = tweak;
      given.resize(model::find_mode(model_name(key.cipher))->tweak_bytes);
      for (size_t at = 0; at < job.plain.size(); at += job.unit_bytes) {
        model::Blocks blocks;
        for (size_t i = 0; i < job.unit_bytes; i += 16) blocks.push_back(model::to_block(job.plain, at + i));
        blocks = cipher->crypt(decrypt, given, blocks);
        for (size_t i = 0; i < blocks.size(); i++) std::memcpy(&job.result[at + 16 * i], blocks[i].data(), 16);
        unsigned carry = step;
        for (int i = 0; i < 16; i++) {
          carry += given[i];
          given[i] = static_cast<uint8_t>(carry);
          carry >>= 8;
        }
      }
      return;
    }
    const model::Aes aes(key.key);
    model::Block mask{};
    if (op == XE(OP_XTS)) mask = model::to_block(tweak);
    for (size_t at = 0; at < job.plain.size(); at += 16) {
      const model::Block block = aes.crypt(decrypt, model::to_block(job.plain, at) ^ mask) ^ mask;
      std::memcpy(&job.result[at], block.data(), 16);
      if (op == XE(OP_XTS)) mask = model::times_x(mask);
    }
  }
};
