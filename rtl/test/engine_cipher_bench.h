// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Drives engine_cipher and engine_keys as the rest of the co-processor does, and watches them:
// blocks against the models, verdicts against how each request's data ended, and the rules of
// the handshakes in every cycle.
#pragma once

#include <deque>

#include "Vengine_cipher_tb.h"
#include "models/models.h"
#include "vectors.h"

using model::operator^;

// As engine_pkg and registers.toml have them.
enum { kModeEcb, kModeEncrypted, kModeRun };
enum { kEcb, kXts, kFastBrw, kFastHorner, kHctr2, kEme2, kAez10 };
enum { kDone = 0, kList = 6, kAlignment = 7, kRead = 10 };
constexpr unsigned kSlots = 5;

inline size_t key_bytes(unsigned cipher) {
  constexpr size_t aes = KEY_BITS / 8;
  return cipher == kXts ? 2 * aes : cipher == kEme2 ? 32 + aes : aes;
}

struct Request {
  unsigned number = 0, status = kDone, mode = kModeEcb, slot = 0, unit = 1, step = 0;
  bool empty = false, decrypt = false;
  uint32_t blocks = 0;
  model::Bytes tweak = model::Bytes(16);
  // What the source gives, how it ends, and what comes out if it is all of it, with zeros for
  // what does not come in.
  model::Blocks data;
  unsigned end = kDone;
  model::Blocks expected;
};

struct Slot {
  bool valid = false;
  unsigned cipher = 0;
  model::Bytes key;
};

struct Rates {
  uint64_t request = 256, item = 256, out = 256, verdict = 256;
};

class Bench {
 public:
  explicit Bench(uint64_t seed) : random(seed) {
    top.rst_ni = 1;
    top.clear_i = 0;
    idle_inputs();
    reset();
  }
  ~Bench() { top.final(); }

  void reset() {
    top.rst_ni = 0;
    forget();
    step();
    step();
    top.rst_ni = 1;
  }
  void clear() {
    if (random.below(2)) drive();
    top.clear_i = 1;
    forget();
    step();
    top.clear_i = 0;
    idle_inputs();
  }

  // What the blocks of a request come out as.
  void expect(Request& request) const {
    if (request.empty) return;
    const Slot& slot = slots[request.slot];
    CHECK(slot.valid, "the test's slot has no key");
    model::Blocks in = request.data;
    in.resize(request.blocks);
    if (slot.cipher == kEcb) {
      const model::Aes aes(slot.key);
      model::Block mask = model::to_block(request.tweak);
      for (const auto& block : in) {
        if (request.mode == kModeEcb) mask = {};
        request.expected.push_back(aes.crypt(request.decrypt, block ^ mask) ^ mask);
        mask = model::times_x(mask);
      }
      return;
    }
    static const char* const names[] = {"", "xts", "fast-brw", "fast-horner", "hctr2", "eme2", "aez10"};
    const model::Mode* mode = model::find_mode(names[slot.cipher]);
    const auto cipher = mode->make(slot.key);
    model::Bytes tweak = request.tweak;
    for (uint32_t at = 0; at < request.blocks; at += request.unit) {
      model::Bytes full = tweak;
      full.resize(mode->tweak_bytes);
      const auto out = cipher->crypt(request.decrypt, full,
                                     model::Blocks(in.begin() + at, in.begin() + at + request.unit));
      request.expected.insert(request.expected.end(), out.begin(), out.end());
      count_up(tweak, request.step);
    }
  }

  void queue(Request request) {
    request.number = number_++ % 16;
    expect(request);
    for (const auto& block : request.data) items_.push_back({false, 0, block});
    items_.push_back({true, request.end, random.block()});
    waiting_.push_back(request);
    open_.push_back(request);
  }

  // One cycle.
  void tick() {
    drive();
    top.clk_i = 0;
    top.eval();
    if (random.below(16) == 0) valid_must_not_wait();
    watch();
    top.clk_i = 1;
    top.eval();
    now++;
  }
  void ticks(uint64_t n) {
    for (uint64_t i = 0; i < n; i++) tick();
  }
  void drain() {
    while (!open_.empty()) tick();
  }
  size_t pending() const { return open_.size(); }

  // KEY_DATA, KEY_CMD, and what KEY_STATUS says in the end. Requests go on meanwhile.
  unsigned command(const model::Bytes& key, unsigned slot, unsigned cipher, bool long_key,
                   unsigned what) {
    // As software does, by STATUS.ready.
    while (!top.wiped_o) tick();
    for (size_t i = 0; i < key.size(); i += 4) {
      top.data_write_i = 1;
      top.data_index_i = static_cast<uint8_t>(i / 4);
      top.data_i = static_cast<uint32_t>(key[i] | key[i + 1] << 8 | key[i + 2] << 16 |
                                         static_cast<uint32_t>(key[i + 3]) << 24);
      tick();
    }
    top.data_write_i = 0;
    top.command_write_i = 1;
    top.command_i = slot | cipher << 8 | static_cast<uint32_t>(long_key) << 12 | what << 16;
    tick();
    top.command_write_i = 0;
    do {
      CHECK(top.keys_busy_o == (top.status_o & 1), "busy_o and KEY_STATUS.busy differ");
      // Lost, since the command is not done.
      top.data_write_i = random.below(2) != 0;
      top.data_index_i = 0;
      top.data_i = 0xffffffff;
      top.command_write_i = random.below(2) != 0;
      top.command_i = random.below(kSlots) | 2 << 16;
      if (!(top.status_o & 1)) top.data_write_i = top.command_write_i = 0;
      tick();
      top.data_write_i = top.command_write_i = 0;
      top.eval();
    } while (top.status_o & 1);
    return top.status_o >> 4;
  }

  // Loads a random key, which the slot has from then on.
  void load(unsigned slot, unsigned cipher) {
    model::Bytes key(key_bytes(cipher));
    random.fill(key.data(), key.size());
    const unsigned result = command(key, slot, cipher, KEY_BITS == 256, 1);
    CHECK(result == 0, "a key is refused: %u", result);
    slots[slot] = {true, cipher, key};
    check_slots();
  }
  void check_slots() {
    uint32_t valid = 0;
    for (unsigned i = 0; i < kSlots; i++) {
      valid |= static_cast<uint32_t>(slots[i].valid) << i;
      const unsigned cipher = top.slot_cipher_o[i / 8] >> (4 * (i % 8)) & 15;
      CHECK(cipher == (slots[i].valid ? slots[i].cipher : 0), "slot %u has cipher %u", i, cipher);
    }
    CHECK(top.slot_valid_o == valid, "KEY_SLOTS is %x, not %x", top.slot_valid_o, valid);
  }

  // Every input zero, for comparing states.
  void rest(uint64_t cycles) {
    idle_inputs();
    for (uint64_t i = 0; i < cycles; i++) {
      CHECK(!top.out_valid_o && !top.verdict_valid_o, "output without a request");
      step();
    }
    CHECK(top.wiped_o, "not wiped after %llu cycles", static_cast<unsigned long long>(cycles));
  }

  Vengine_cipher_tb top;
  Rates rates;
  Slot slots[kSlots];
  uint64_t now = 0, blocks_checked = 0, requests_checked = 0, zeros = 0;
  // The cycle in which each block came out, if that is asked for.
  bool note_times = false;
  std::vector<uint64_t> times;

 private:
  struct Item {
    bool last;
    unsigned status;
    model::Block block;
  };
  struct Held {
    bool out = false, verdict = false;
    model::Block block;
    uint64_t words[4];
  };

  void forget() {
    items_.clear();
    waiting_.clear();
    open_.clear();
    for (auto& slot : slots) slot = {};
    request_valid_ = item_valid_ = judged_ = taken_ = false;
    came_ = shown_ = 0;
    stuck_ = 0;
    held_ = {};
  }

  void idle_inputs() {
    top.data_write_i = top.command_write_i = top.pipe_idle_i = 0;
    top.data_index_i = 0;
    top.data_i = top.command_i = 0;
    top.request_valid_i = top.item_valid_i = top.out_ready_i = top.verdict_ready_i = 0;
    put_request({});
    put_item({false, 0, {}});
    request_valid_ = item_valid_ = false;
  }

  void put_request(const Request& request) {
    top.number_i = static_cast<uint8_t>(request.number);
    top.status_i = static_cast<uint8_t>(request.status);
    top.empty_i = request.empty;
    top.decrypt_i = request.decrypt;
    top.mode_i = static_cast<uint8_t>(request.mode);
    top.slot_i = static_cast<uint8_t>(request.slot);
    top.unit_blocks_i = static_cast<uint16_t>(request.unit);
    top.blocks_i = request.blocks;
    put(top.tweak_i, request.tweak.data(), 16);
    top.step_i = static_cast<uint16_t>(request.step);
  }
  void put_item(const Item& item) {
    top.item_last_i = item.last;
    top.item_status_i = static_cast<uint8_t>(item.status);
    put(top.item_block_i, item.block);
  }

  void step() {
    top.clk_i = 0;
    top.eval();
    top.clk_i = 1;
    top.eval();
    now++;
  }

  // What is offered stays until it is taken; ports without anything valid have noise.
  void drive() {
    if (!waiting_.empty() && random.below(256) < rates.request) request_valid_ = true;
    if (!items_.empty() && random.below(256) < rates.item) item_valid_ = true;
    Request noise;
    noise.slot = static_cast<unsigned>(random.below(kSlots));
    noise.mode = static_cast<unsigned>(random.below(3));
    noise.blocks = static_cast<uint32_t>(random.below(1 << 22));
    top.request_valid_i = request_valid_;
    put_request(request_valid_ ? waiting_.front() : noise);
    top.item_valid_i = item_valid_;
    put_item(item_valid_ ? items_.front()
                         : Item{random.below(2) != 0, static_cast<unsigned>(random.below(12)),
                                random.block()});
    // As the destination, which takes a request's blocks when it is done with those before.
    const bool next = (judged_ && came_ == issued_) || (!open_.empty() && open_.front().empty);
    top.out_ready_i = !next && random.below(256) < rates.out;
    top.verdict_ready_i = !taken_ && random.below(256) < rates.verdict;
    top.pipe_idle_i = open_.empty();
  }

  void words(uint64_t* out) {
    out[0] = top.verdict_number_o;
    out[1] = top.verdict_status_o;
    out[2] = top.good_o;
    out[3] = top.issued_o;
  }

  void valid_must_not_wait() {
    const bool out = top.out_valid_o, verdict = top.verdict_valid_o;
    const auto out_ready = top.out_ready_i, verdict_ready = top.verdict_ready_i;
    top.out_ready_i = !out_ready;
    top.verdict_ready_i = !verdict_ready;
    top.eval();
    CHECK(out == static_cast<bool>(top.out_valid_o), "out_valid_o follows ready");
    CHECK(verdict == static_cast<bool>(top.verdict_valid_o), "verdict_valid_o follows ready");
    top.out_ready_i = out_ready;
    top.verdict_ready_i = verdict_ready;
    top.eval();
  }

  void watch() {
    bool moved = false;
    uint64_t verdict[4];
    words(verdict);
    if (held_.out) CHECK(top.out_valid_o && get(top.out_block_o) == held_.block, "output changed");
    if (held_.verdict) {
      CHECK(top.verdict_valid_o && std::equal(verdict, verdict + 4, held_.words), "verdict changed");
    }
    held_.out = top.out_valid_o && !top.out_ready_i;
    held_.verdict = top.verdict_valid_o && !top.verdict_ready_i;
    held_.block = get(top.out_block_o);
    std::copy(verdict, verdict + 4, held_.words);
    CHECK(top.blocked_o == held_.out, "blocked_o is %d", top.blocked_o);
    CHECK(!top.starved_o || top.core_busy_o, "starved_o without a request");

    CHECK(!open_.empty() || (!top.out_valid_o && !top.verdict_valid_o && !top.core_busy_o),
          "output without a request");
    if (top.request_valid_i && top.request_ready_o) {
      waiting_.pop_front();
      request_valid_ = false;
      moved = true;
    }
    if (top.item_valid_i && top.item_ready_o) {
      items_.pop_front();
      item_valid_ = false;
      moved = true;
    }
    if (top.verdict_valid_o && !judged_) judge(verdict);
    if (top.verdict_valid_o && top.verdict_ready_i) taken_ = moved = true;
    // A block is the last one only under its verdict's eyes.
    if (top.out_valid_o && top.out_ready_i) {
      const Request& request = open_.front();
      CHECK(came_ < request.expected.size(), "more blocks than the request has");
      CHECK(held_.block == request.expected[came_],
            "wrong data: block %u of %u, mode %u, unit %u, cipher %u", came_, request.blocks,
            request.mode, request.unit, slots[request.slot].cipher);
      came_++;
      blocks_checked++;
      if (note_times) times.push_back(now);
      moved = true;
    }
    shown_ = came_ + (top.out_valid_o && !top.out_ready_i);
    if (judged_ && taken_ && came_ == issued_) {
      open_.pop_front();
      requests_checked++;
      judged_ = taken_ = false;
      came_ = shown_ = 0;
    }
    if (moved || open_.empty()) {
      stuck_ = 0;
    } else {
      CHECK(++stuck_ < 100000, "nothing moves any more, cycle %llu",
            static_cast<unsigned long long>(now));
    }
  }

  // The verdict of the first open request is there.
  void judge(const uint64_t* verdict) {
    CHECK(!open_.empty(), "a verdict without a request");
    const Request& request = open_.front();
    const auto got = static_cast<uint32_t>(request.data.size());
    CHECK(verdict[0] == request.number, "the verdict of %llu, not %u",
          static_cast<unsigned long long>(verdict[0]), request.number);
    CHECK(verdict[1] == (request.empty ? request.status : request.end), "status %llu",
          static_cast<unsigned long long>(verdict[1]));
    const auto good = static_cast<uint32_t>(verdict[2]);
    issued_ = static_cast<uint32_t>(verdict[3]);
    CHECK(good == (request.empty ? 0 : got / request.unit * request.unit), "%u good of %u", good, got);
    if (request.empty) {
      CHECK(issued_ == 0, "an empty request has %u blocks", issued_);
    } else {
      // A few units more than there was data for, and always whole ones.
      const uint32_t piece = request.mode == kModeEcb ? 32 : request.unit;
      CHECK(issued_ >= got && issued_ > 0 && issued_ <= request.blocks, "%u issued", issued_);
      CHECK(issued_ == request.blocks || issued_ % piece == 0, "%u issued", issued_);
      CHECK(issued_ <= got + 12 * piece, "%u issued for %u", issued_, got);
      CHECK(got != request.blocks || issued_ == got, "%u issued of %u", issued_, got);
      // The last one was not at the output before this cycle.
      CHECK(shown_ < issued_, "the verdict comes after the last block");
      zeros += issued_ - got;
    }
    judged_ = true;
  }

  std::deque<Item> items_;
  // Not taken yet; not out yet.
  std::deque<Request> waiting_, open_;
  // Of the first open one: its blocks that came out, and with the one that waits at the output
  // since an earlier cycle; whether its verdict is there, whether that
  // is taken, and what it says.
  uint32_t came_ = 0, shown_ = 0, issued_ = 0;
  bool judged_ = false, taken_ = false;
  bool request_valid_ = false, item_valid_ = false;
  unsigned number_ = 0;
  uint64_t stuck_ = 0;
  Held held_;

 public:
  Random random;
};
