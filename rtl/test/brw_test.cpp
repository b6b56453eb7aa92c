// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Polynomials against the recursion that defines them: back to back with the
// products counted, and with gaps, a busy multiplier and results that have to wait.

#include <deque>

#include "Vbrw_tb.h"
#include "harness.h"

namespace {

using model::Block;
using model::operator^;

constexpr size_t kBlocks = (1 << LEVELS) - 1;
constexpr size_t kBeats = (kBlocks + 1) / 2;

// powers[j] = t^(2^j).
Block brw(const Block* m, size_t n, const Block* powers) {
  if (n == 3) return model::multiply(powers[0] ^ m[0], powers[1] ^ m[1]) ^ m[2];
  const size_t half = (n + 1) / 2;
  int level = 0;
  while (size_t{1} << level < half) level++;
  return model::multiply(brw(m, half - 1, powers), powers[level] ^ m[half - 1]) ^
         brw(m + half, half - 1, powers);
}

struct Rates {
  uint64_t in, mult, result;
};

// Polynomials with their streams at rates out of 256.
void polynomials(Vbrw_tb& top, Random& random, size_t count, Rates rates, bool full_rate) {
  Block powers[LEVELS];
  powers[0] = random.block();
  for (int i = 1; i < LEVELS; i++) powers[i] = model::multiply(powers[i - 1], powers[i - 1]);
  for (int i = 0; i < LEVELS; i++) put(top.powers_i[i], powers[i]);

  std::vector<Block> in;
  std::vector<bool> squared;
  std::deque<Block> expected;
  for (size_t i = 0; i < count; i++) {
    std::vector<Block> blocks;
    for (size_t j = 0; j < kBlocks; j++) blocks.push_back(random.block());
    squared.push_back(random.below(2) != 0);
    expected.push_back(model::multiply(brw(blocks.data(), kBlocks, powers), powers[squared.back()]));
    in.insert(in.end(), blocks.begin(), blocks.end());
    // Beside the last block, where nothing counts.
    in.push_back(random.block());
  }
  size_t beat = 0, products = 0, cycles = 0, last_leaf = 0;
  bool offered = false;
  while (!expected.empty()) {
    if (!offered) offered = beat < count * kBeats && random.below(256) < rates.in;
    top.in_valid_i = offered;
    if (offered) {
      put(top.in_data_i, in[2 * beat].data(), 32);
      top.squared_i = beat % kBeats == kBeats - 1 ? squared[beat / kBeats] : random.below(2) != 0;
    }
    top.mult_free_i = random.below(256) < rates.mult;
    top.result_ready_i = random.below(256) < rates.result;
    top.clk_i = 0;
    top.eval();
    CHECK(top.last_beat_o == (beat % kBeats == kBeats - 1), "last beat, at beat %zu", beat);
    products += top.mult_valid_o;
    if (offered && top.in_ready_o) {
      if (beat % 2 == 0) last_leaf = cycles;
      beat++;
      offered = false;
    }
    if (top.result_valid_o) {
      CHECK(get(top.result_o) == expected.front(), "polynomial %zu", count - expected.size());
      expected.pop_front();
    }
    cycle(top);
    CHECK(++cycles < 100000 * count, "no result");
  }
  top.in_valid_i = 0;
  CHECK(products == count * kBeats, "%zu products for %zu polynomials", products, count);
  if (full_rate) {
    CHECK(last_leaf == count * kBeats - 2, "the beats took %zu cycles", last_leaf + 2);
    CHECK(cycles == last_leaf + 16, "the last result came after %zu cycles", cycles - last_leaf);
  }
}

// Reset, and until memory is wiped.
void start(Vbrw_tb& top) {
  reset(top);
  for (int i = 0; top.busy_o; i++) {
    CHECK(i <= 8, "still busy");
    cycle(top);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  Vbrw_tb top;
  top.in_valid_i = 0;
  top.mult_free_i = 0;
  top.result_ready_i = 0;
  Random random(LEVELS);
  start(top);
  polynomials(top, random, 1, {256, 256, 256}, true);
  polynomials(top, random, 5, {256, 256, 256}, true);
  for (int i = 0; i < 100; i++) {
    const uint64_t rates[] = {256, 224, 128, 64, 16};
    polynomials(top, random, 8, {rates[random.below(5)], rates[random.below(5)],
                                 rates[random.below(4)]}, false);
  }
  // Nothing of a polynomial is left.
  top.in_valid_i = top.mult_free_i = top.result_ready_i = 1;
  for (size_t i = 0; i < kBeats + 7; i++) cycle(top);
  top.in_valid_i = 0;
  start(top);
  polynomials(top, random, 2, {256, 256, 256}, true);
  std::printf("BRW, %zu blocks: 808 polynomials: passed\n", kBlocks);
  return 0;
}
