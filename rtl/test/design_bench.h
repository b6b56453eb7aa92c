// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Drives a design with the common interface (README.md) and watches it: what goes in
// is queued, what comes out is compared with the mode's model, and the rules of the
// handshakes are checked in every cycle.
#pragma once

#include <deque>

#include "Vdesign.h"
#include "vectors.h"
#ifdef SECTOR_CIPHER
#include "sector_cipher.h"
#endif

using model::operator^;

// The configuration under test.
struct Design {
  std::string name, model_name;
  const model::Mode* mode = nullptr;
  size_t key_bits = 128, sector_bytes = 4096;
  uint64_t tweak_step = 1;
  // Beats may come out in any order within their sector.
  bool any_order = false;
  size_t key_bytes() const { return mode->key_bytes(key_bits / 8); }
  size_t blocks() const { return sector_bytes / 16; }
};

constexpr size_t kLanes = sizeof(Vdesign::in_data_i) / 16;

// The number in its sector of the first block of a beat of output: a design may give
// its beats out of order, with that number; all others give them in order.
template <typename Top>
auto place_of(const Top& top, size_t, int) -> decltype(static_cast<size_t>(top.out_block_o)) {
  return top.out_block_o;
}
template <typename Top>
size_t place_of(const Top&, size_t in_order, long) {
  return in_order;
}

struct Run {
  model::Bytes tweak;  // 16 bytes, of the first sector
  uint32_t sectors;
  bool decrypt;
  model::Blocks data;
};

// A stream is offered, or taken, in so many of 256 cycles where it may be.
struct Rates {
  uint64_t control = 256, in = 256, out = 256;
};

class Bench {
 public:
  Bench(const Design& design, uint64_t seed) : design_(design), random(seed) {
    CHECK(sizeof(top.key_i) == design.key_bytes(), "key_i has %zu bytes, the mode's key %zu",
          sizeof(top.key_i), design.key_bytes());
    CHECK(design.blocks() % kLanes == 0, "a sector is not whole beats");
    top.rst_ni = 1;
    top.clear_i = 0;
    idle_inputs();
    reset();
  }
  ~Bench() { top.final(); }

  // Both drop everything queued and expected.
  void reset() {
    top.rst_ni = 0;
    forget();
    step_clock();
    step_clock();
    top.rst_ni = 1;
  }
  void clear() {
    // What is offered meanwhile goes nowhere.
    if (random.below(2)) drive();
    top.clear_i = 1;
    forget();
    step_clock();
    top.clear_i = 0;
    key_valid_ = req_valid_ = in_valid_ = false;
  }

  void queue_key(const model::Bytes& key) { control_.push_back({true, key, {}}); }
  void queue_run(const Run& run) {
    CHECK(run.data.size() == run.sectors * design_.blocks(), "the test's run has another length");
    control_.push_back({false, {}, run});
    input_.insert(input_.end(), run.data.begin(), run.data.end());
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
  // Until all that is queued has come out.
  void drain() {
    while (!control_.empty() || !expected_.empty()) tick();
  }
  bool control_pending() const { return !control_.empty(); }
  size_t beats_expected() const { return expected_.size() / kLanes; }

  // Steps with every input zero, for comparing states.
  void rest(uint64_t cycles) {
    CHECK(control_.empty() && expected_.empty() && input_.empty(), "something is queued");
    idle_inputs();
    for (uint64_t i = 0; i < cycles; i++) {
      CHECK(!top.out_valid_o, "output without a run");
      step_clock();
    }
  }

  Vdesign top;
  Rates rates;
  // Input beats that may still be given.
  uint64_t in_allowed = UINT64_MAX;
  uint64_t now = 0;
  // Cycles in which things happened.
  uint64_t first_in = 0;
  bool any_in = false;
  uint64_t key_taken = 0;
  std::vector<uint64_t> sector_ends;
  uint64_t sectors_checked = 0, sectors_by_crate = 0;

 private:
  struct Control {
    bool is_key;
    model::Bytes key;
    Run run;
  };
  struct Expected {
    model::Block block;
    // Of the run's last sector; it came out.
    bool last, done;
  };

  void forget() {
    control_.clear();
    input_.clear();
    expected_.clear();
    cipher_.reset();
    unread_ = 0;
    stuck_ = 0;
    held_ = false;
    sector_blocks_out_ = 0;
    key_valid_ = req_valid_ = in_valid_ = false;
  }

  void idle_inputs() {
    const model::Bytes zeros(design_.key_bytes() + 32);
    top.key_valid_i = top.req_valid_i = top.in_valid_i = top.out_ready_i = 0;
    put(top.key_i, zeros.data(), sizeof(top.key_i));
    put(top.req_tweak_i, zeros.data(), 16);
    top.req_sectors_i = 0;
    top.req_decrypt_i = 0;
    put(top.in_data_i, zeros.data(), sizeof(top.in_data_i));
    key_valid_ = req_valid_ = in_valid_ = false;
  }

  void step_clock() {
    top.clk_i = 0;
    top.eval();
    top.clk_i = 1;
    top.eval();
    now++;
  }

  template <typename Port>
  void garbage(Port& port) {
    for (size_t i = 0; i < sizeof(port) / 4; i++) port[i] = static_cast<uint32_t>(random.next());
  }

  // What is offered stays until it is taken; ports without anything valid have noise.
  void drive() {
    // Keys and requests in the order in which they were queued.
    const bool next = !control_.empty() && random.below(256) < rates.control;
    if (next && control_.front().is_key) key_valid_ = true;
    if (next && !control_.front().is_key) req_valid_ = true;
    if (!in_valid_ && input_.size() >= kLanes && in_allowed > 0)
      in_valid_ = random.below(256) < rates.in;

    top.key_valid_i = key_valid_;
    if (key_valid_) {
      put(top.key_i, control_.front().key.data(), control_.front().key.size());
    } else {
      garbage(top.key_i);
    }
    top.req_valid_i = req_valid_;
    if (req_valid_) {
      const Run& run = control_.front().run;
      put(top.req_tweak_i, run.tweak.data(), 16);
      top.req_sectors_i = run.sectors;
      top.req_decrypt_i = run.decrypt;
    } else {
      garbage(top.req_tweak_i);
      top.req_sectors_i = static_cast<uint32_t>(random.next());
      top.req_decrypt_i = random.below(2) != 0;
    }
    top.in_valid_i = in_valid_;
    if (in_valid_) {
      model::Bytes bytes;
      for (size_t i = 0; i < kLanes; i++)
        bytes.insert(bytes.end(), input_[i].begin(), input_[i].end());
      put(top.in_data_i, bytes.data(), bytes.size());
    } else {
      garbage(top.in_data_i);
    }
    top.out_ready_i = random.below(256) < rates.out;
  }

  model::Blocks output() const {
    model::Bytes bytes;
    for (size_t i = 0; i < 4 * kLanes; i++) {
      for (int shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<uint8_t>(top.out_data_o[i] >> shift));
    }
    return to_blocks(bytes);
  }

  // Whether there is output, and which, does not depend on its being taken.
  void valid_must_not_wait() {
    const auto ready = top.out_ready_i;
    const auto valid = top.out_valid_o;
    const auto last = top.out_last_o;
    const auto data = output();
    top.out_ready_i = !ready;
    top.eval();
    CHECK(top.out_valid_o == valid, "out_valid_o follows out_ready_i");
    CHECK(!valid || (top.out_last_o == last && output() == data), "output follows out_ready_i");
    top.out_ready_i = ready;
    top.eval();
  }

  void watch() {
    bool moved = false;
    // Output that was not taken stands.
    if (held_) {
      CHECK(top.out_valid_o, "out_valid_o fell without out_ready_i, cycle %llu", now_());
      CHECK(output() == held_data_, "out_data_o changed without out_ready_i, cycle %llu", now_());
      CHECK(top.out_last_o == held_last_, "out_last_o changed without out_ready_i");
      CHECK(place_of(top, 0, 0) == held_place_, "out_block_o changed without out_ready_i");
    }
    held_ = top.out_valid_o && !top.out_ready_i;
    if (held_) {
      held_data_ = output();
      held_last_ = top.out_last_o;
      held_place_ = place_of(top, 0, 0);
    }
    if (top.key_valid_i && top.key_ready_o) {
      CHECK(unread_ <= 0, "a key is taken while a run is under way");
      cipher_ = design_.mode->make(control_.front().key);
      key_ = control_.front().key;
      control_.pop_front();
      key_valid_ = false;
      key_taken = now;
      moved = true;
    }
    if (top.req_valid_i && top.req_ready_o) {
      CHECK(cipher_, "a request is taken before a key");
      expect(control_.front().run);
      control_.pop_front();
      req_valid_ = false;
      moved = true;
    }
    // A beat may come out in the cycle of its request at the earliest.
    if (top.out_valid_o) take_output(moved);
    if (top.in_valid_i && top.in_ready_o) {
      if (!any_in) first_in = now;
      any_in = true;
      input_.erase(input_.begin(), input_.begin() + static_cast<long>(kLanes));
      in_allowed--;
      unread_ -= static_cast<int64_t>(kLanes);
      in_valid_ = false;
      moved = true;
    }
    // Waiting for nothing: it has all that it asked for, and gives nothing.
    const bool blocked = !top.out_ready_i || (in_allowed == 0 && unread_ > 0);
    const bool asked = key_valid_ || req_valid_ || in_valid_ || !expected_.empty();
    if (moved || !asked) {
      stuck_ = 0;
    } else if (!blocked) {
      CHECK(++stuck_ < 8000 + 40 * design_.blocks(), "nothing moves any more, cycle %llu", now_());
    }
  }

  void take_output(bool& moved) {
    CHECK(expected_.size() >= kLanes, "output without a run, cycle %llu", now_());
    if (!top.out_ready_i) return;
    const auto beat = output();
    const size_t place = place_of(top, sector_blocks_out_, 0);
    CHECK(design_.any_order || place == sector_blocks_out_, "block %zu is out of order", place);
    CHECK(place % kLanes == 0 && place < design_.blocks(), "a beat at block %zu", place);
    for (size_t i = 0; i < kLanes; i++) {
      Expected& expected = expected_[place + i];
      CHECK(!expected.done, "block %zu comes out again", place + i);
      CHECK(beat[i] == expected.block, "%s: wrong data: sector %llu since the start, block %zu",
            design_.name.c_str(), static_cast<unsigned long long>(sectors_checked), place + i);
      expected.done = true;
    }
    sector_blocks_out_ += kLanes;
    const bool end = sector_blocks_out_ == design_.blocks();
    CHECK(static_cast<bool>(top.out_last_o) == (end && expected_[0].last),
          "out_last_o is %d, block %zu", top.out_last_o, place);
    if (end) {
      expected_.erase(expected_.begin(), expected_.begin() + static_cast<long>(design_.blocks()));
      sector_blocks_out_ = 0;
      sectors_checked++;
      sector_ends.push_back(now);
    }
    moved = true;
  }

  void expect(const Run& run) {
    model::Bytes tweak = run.tweak;
    for (uint32_t sector = 0; sector < run.sectors; sector++) {
      const auto begin = run.data.begin() + static_cast<long>(sector * design_.blocks());
      const model::Blocks in(begin, begin + static_cast<long>(design_.blocks()));
      model::Bytes full = tweak;
      full.resize(design_.mode->tweak_bytes);
      const auto out = cipher_->crypt(run.decrypt, full, in);
      by_crate(run.decrypt, tweak, in, out);
      for (size_t i = 0; i < out.size(); i++)
        expected_.push_back({out[i], sector + 1 == run.sectors, false});
      count_up(tweak, design_.tweak_step);
    }
    unread_ += static_cast<int64_t>(run.data.size());
  }

  // A second opinion: the project's own software cipher.
  void by_crate(bool decrypt, const model::Bytes& tweak, const model::Blocks& in,
                const model::Blocks& out) {
#ifdef SECTOR_CIPHER
    if (!design_.mode->dm_crypt) return;
    // Its tweaks are sector numbers, its sector numbers count 512-byte units.
    const auto number = model::poly(model::to_block(tweak));
    const uint64_t units = design_.sector_bytes / 512;
    if (number.high != 0 || number.low >= UINT64_MAX / units) return;
    sector_cipher* cipher = nullptr;
    auto result = sector_cipher_new(&cipher, design_.mode->dm_crypt,
                                    static_cast<uint32_t>(design_.sector_bytes), true,
                                    key_.data(), key_.size(), nullptr);
    CHECK(result == SECTOR_CIPHER_RESULT_OK, "%s", sector_cipher_error_text(result));
    model::Blocks data = in;
    result = (decrypt ? sector_cipher_decrypt : sector_cipher_encrypt)(
        cipher, number.low * units, data[0].data(), design_.sector_bytes);
    CHECK(result == SECTOR_CIPHER_RESULT_OK, "%s", sector_cipher_error_text(result));
    CHECK(data == out, "the model and sector-cipher disagree");
    sector_cipher_free(cipher);
    sectors_by_crate++;
#else
    (void)decrypt, (void)tweak, (void)in, (void)out;
#endif
  }

  unsigned long long now_() const { return now; }

  const Design& design_;
  std::deque<Control> control_;
  std::deque<model::Block> input_;
  std::deque<Expected> expected_;
  std::unique_ptr<model::Cipher> cipher_;
  model::Bytes key_;
  // Blocks that accepted runs have still to be given; negative: given ahead of a run.
  int64_t unread_ = 0;
  uint64_t stuck_ = 0;
  bool key_valid_ = false, req_valid_ = false, in_valid_ = false;
  bool held_ = false, held_last_ = false;
  model::Blocks held_data_;
  size_t sector_blocks_out_ = 0, held_place_ = 0;

 public:
  Random random;
};
