// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory behind an AXI4 port, for Verilator tests of bus masters: random latency and
// waiting on each channel, errors where the test wants them, and the rules of AXI4 for
// masters checked in every cycle.
#pragma once

#include <deque>
#include <map>

#include "harness.h"

struct BusTiming {
  // Cycles from an address, or from the last beat of a write, to the answer: at least, and
  // up to so many more.
  int latency = 0, jitter = 0;
  // Of 16 cycles, in so many a channel waits: AR, R, AW, W, B.
  int ar = 0, r = 0, aw = 0, w = 0, b = 0;
  // Of writes, where it is another than `latency`.
  int write_latency = -1;
};

template <typename Top, int kBytes>
class BusMemory {
 public:
  // An error at the block of an address: always, or so many times.
  struct Fault {
    uint64_t address;
    int times;
  };

  BusMemory(Top& top, Random& random, uint64_t base, size_t size)
      : bytes(size), top_(top), random_(random), base_(base) {}

  std::vector<uint8_t> bytes;
  BusTiming timing;
  std::vector<Fault> read_faults, write_faults;
  // With it, refused bursts may be written all the same.
  bool half_written = true;
  uint64_t reads = 0, writes = 0, strobed = 0, faults = 0;
  // The cycles of the first address to read from and the last beat written.
  uint64_t first_read = 0, last_write = 0;

  uint8_t* at(uint64_t address, size_t len) {
    CHECK(address >= base_ && address + len <= base_ + bytes.size(), "no memory at %llx",
          static_cast<unsigned long long>(address));
    return &bytes[address - base_];
  }
  bool idle() const { return reads_.empty() && writes_.empty() && answers_.empty(); }

  // Before the edge: what the memory offers.
  void drive(uint64_t now) {
    top_.arready_i = reads_.size() < 32 && !waits(timing.ar);
    top_.awready_i = writes_.size() < 32 && !waits(timing.aw);
    top_.wready_i = !waits(timing.w);
    if (!top_.rvalid_i || r_taken_) {
      top_.rvalid_i = !reads_.empty() && now >= reads_.front().ready && !waits(timing.r);
      if (top_.rvalid_i) offer_beat();
    }
    if (!top_.bvalid_i || b_taken_) {
      top_.bvalid_i = !answers_.empty() && now >= answers_.front().ready && !waits(timing.b);
      if (top_.bvalid_i) top_.bresp_i = answers_.front().error ? 2 + random_.below(2) : 0;
    }
    r_taken_ = b_taken_ = false;
  }

  // What has settled before the edge is taken by it.
  void observe(uint64_t now) {
    stable(ar_, top_.arvalid_o, top_.arready_i, {top_.araddr_o, top_.arlen_o}, "AR");
    stable(aw_, top_.awvalid_o, top_.awready_i, {top_.awaddr_o, top_.awlen_o}, "AW");
    std::vector<uint64_t> beat = {top_.wstrb_o, top_.wlast_o};
    uint8_t data[kBytes];
    take_data(data);
    for (uint8_t byte : data) beat.push_back(byte);
    stable(w_, top_.wvalid_o, top_.wready_i, beat, "W");

    if (top_.arvalid_o && top_.arready_i) {
      const int beats = top_.arlen_o + 1;
      burst_rules(top_.araddr_o, beats, "AR");
      reads_.push_back({top_.araddr_o, beats, now + delay(timing.latency)});
      if (reads++ == 0) first_read = now;
    }
    if (top_.rvalid_i && top_.rready_o) {
      r_taken_ = true;
      Burst& front = reads_.front();
      front.address += kBytes;
      if (--front.beats == 0) reads_.pop_front();
    }
    // An address counts for data as soon as it is offered.
    if (top_.awvalid_o && !aw_offered_) {
      const int beats = top_.awlen_o + 1;
      burst_rules(top_.awaddr_o, beats, "AW");
      writes_.push_back({top_.awaddr_o, beats});
    }
    aw_offered_ = top_.awvalid_o && !top_.awready_i;
    if (top_.awvalid_o && top_.awready_i) addressed_++;
    if (top_.wvalid_o) CHECK(fed_ < writes_.size(), "a beat before its address");
    if (top_.wvalid_o && top_.wready_i) {
      Write& write = writes_[fed_];
      write.data.insert(write.data.end(), data, data + kBytes);
      write.strobes.push_back(top_.wstrb_o);
      const bool last = static_cast<int>(write.strobes.size()) == write.beats;
      CHECK(top_.wlast_o == last, "WLAST in beat %zu of %d", write.strobes.size(), write.beats);
      if (top_.wstrb_o) strobed++;
      last_write = now;
      if (last) fed_++;
    }
    while (fed_ > 0 && addressed_ > 0) {
      const int latency = timing.write_latency < 0 ? timing.latency : timing.write_latency;
      answers_.push_back({carry_out(writes_.front()), now + delay(latency)});
      writes_.pop_front();
      fed_--;
      addressed_--;
      writes++;
    }
    if (top_.bvalid_i && top_.bready_o) {
      b_taken_ = true;
      answers_.pop_front();
    }
  }

 private:
  struct Burst {
    uint64_t address;
    int beats;
    uint64_t ready;
  };
  struct Write {
    uint64_t address;
    int beats;
    std::vector<uint8_t> data = {};
    std::vector<uint32_t> strobes = {};
  };
  struct Answer {
    bool error;
    uint64_t ready;
  };
  // What a channel offered and was not taken.
  struct Offered {
    bool waiting = false;
    std::vector<uint64_t> payload = {};
  };

  bool waits(int of_16) { return of_16 && static_cast<int>(random_.below(16)) < of_16; }
  uint64_t delay(int latency) { return latency + (timing.jitter ? random_.below(timing.jitter + 1) : 0); }

  void stable(Offered& before, bool valid, bool ready, const std::vector<uint64_t>& payload,
              const char* channel) {
    if (before.waiting) CHECK(valid && payload == before.payload, "%s did not stay", channel);
    before.waiting = valid && !ready;
    before.payload = payload;
  }

  void burst_rules(uint64_t address, int beats, const char* channel) {
    CHECK(address % 16 == 0 && beats * kBytes % 16 == 0 && beats * kBytes <= 1024 &&
              address / 4096 == (address + beats * kBytes - 1) / 4096,
          "%s of %d beats at %llx", channel, beats, static_cast<unsigned long long>(address));
    at(address, beats * kBytes);
  }

  bool fault(std::vector<Fault>& list, uint64_t address, size_t len) {
    bool found = false;
    for (Fault& fault : list) {
      if (fault.times && fault.address < address + len && fault.address + 16 > address) {
        if (fault.times > 0) fault.times--;
        found = true;
        faults++;
      }
    }
    return found;
  }

  void offer_beat() {
    const Burst& front = reads_.front();
    uint8_t data[kBytes];
    std::memcpy(data, at(front.address, kBytes), kBytes);
    top_.rresp_i = 0;
    if (fault(read_faults, front.address, kBytes)) {
      top_.rresp_i = 2 + random_.below(2);
      random_.fill(data, kBytes);
    }
    top_.rlast_i = front.beats == 1;
    if constexpr (kBytes == 16) {
      put(top_.rdata_i, data, kBytes);
    } else {
      uint64_t word = 0;
      std::memcpy(&word, data, kBytes);
      top_.rdata_i = word;
    }
  }

  void take_data(uint8_t* data) {
    if constexpr (kBytes == 16) {
      const model::Block block = get(top_.wdata_o);
      std::memcpy(data, block.data(), kBytes);
    } else {
      const uint64_t word = top_.wdata_o;
      std::memcpy(data, &word, kBytes);
    }
  }

  bool carry_out(const Write& write) {
    const bool refused = fault(write_faults, write.address, write.data.size());
    if (refused && !(half_written && random_.below(2))) return true;
    uint8_t* memory = at(write.address, write.data.size());
    for (size_t i = 0; i < write.data.size(); i++) {
      if (write.strobes[i / kBytes] >> (i % kBytes) & 1) memory[i] = write.data[i];
    }
    return refused;
  }

  Top& top_;
  Random& random_;
  uint64_t base_;
  std::deque<Burst> reads_;
  // Offered; the first `fed_` have all data, and of `addressed_` the address was taken.
  std::deque<Write> writes_;
  std::deque<Answer> answers_;
  size_t fed_ = 0, addressed_ = 0;
  bool aw_offered_ = false, r_taken_ = false, b_taken_ = false;
  Offered ar_, aw_, w_;
};
