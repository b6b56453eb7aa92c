// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the Verilator tests share: the clock, random numbers that are the same in
// every run, blocks in and out of ports, and a check that ends the test.
#pragma once

#include <verilated.h>

#include <cstdio>
#include <cstdlib>

#include "model.h"

#define CHECK(condition, ...)                                     \
  do {                                                            \
    if (!(condition)) {                                           \
      std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                          \
      std::fputc('\n', stderr);                                   \
      std::exit(1);                                               \
    }                                                             \
  } while (0)

// xorshift64*.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed ^ 0x9e3779b97f4a7c15) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1d;
  }
  uint64_t below(uint64_t end) { return (next() >> 16) % end; }
  void fill(uint8_t* bytes, size_t len) {
    for (size_t i = 0; i < len; i++) bytes[i] = static_cast<uint8_t>(next() >> 32);
  }
  model::Block block() {
    model::Block block;
    fill(block.data(), block.size());
    return block;
  }

 private:
  uint64_t state_;
};

// A wide port is an array of 32-bit words, the lowest first.
template <typename Port>
void put(Port& port, const uint8_t* bytes, size_t len) {
  for (size_t i = 0; i < len / 4; i++) {
    port[i] = static_cast<uint32_t>(bytes[4 * i]) | static_cast<uint32_t>(bytes[4 * i + 1]) << 8 |
              static_cast<uint32_t>(bytes[4 * i + 2]) << 16 |
              static_cast<uint32_t>(bytes[4 * i + 3]) << 24;
  }
}

template <typename Port>
void put(Port& port, const model::Block& block) {
  put(port, block.data(), block.size());
}

template <typename Port>
model::Block get(const Port& port) {
  model::Block block;
  for (int i = 0; i < 16; i++) block[i] = static_cast<uint8_t>(port[i / 4] >> (8 * (i % 4)));
  return block;
}

// One clock cycle: inputs that were set before are taken at the rising edge.
template <typename Top>
void cycle(Top& top) {
  top.clk_i = 0;
  top.eval();
  top.clk_i = 1;
  top.eval();
}

template <typename Top>
void reset(Top& top) {
  top.rst_ni = 0;
  cycle(top);
  cycle(top);
  top.rst_ni = 1;
}

// 00 01 02 ...
inline std::vector<uint8_t> counting(size_t len) {
  std::vector<uint8_t> bytes(len);
  for (size_t i = 0; i < len; i++) bytes[i] = static_cast<uint8_t>(i);
  return bytes;
}
