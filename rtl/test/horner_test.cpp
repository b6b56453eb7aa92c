// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Horner's rule against sums of powers term by term: sectors in two contexts,
// with gaps and stalls, back to back, right after a key and long after it.

#include <deque>

#include "Vhorner_tb.h"
#include "harness.h"

namespace {

constexpr int kBlocks = 32;
using model::Block;
using model::operator^;

Block one() { return Block{1}; }

Block power(const Block& h, int exponent) {
  Block result = one();
  for (int i = 0; i < exponent; i++) result = model::multiply(result, h);
  return result;
}

struct Sector {
  std::vector<Block> blocks;
  bool direct;
};

// Of the sector's own blocks the last is multiplied by h^3.
Block expected(const Sector& sector, const Block& h) {
  Block sum{};
  const Block direct = power(h, kBlocks + 2 + sector.direct);
  for (int i = 0; i < kBlocks; i++) {
    const bool own = i >= FIRST && i <= LAST;
    sum = sum ^ model::multiply(sector.blocks[i], own ? power(h, 3 + LAST - i) : direct);
  }
  return sum;
}

struct Context {
  Sector sector;
  int beat = 0;
  std::deque<Block> sums;
};

void settle(Vhorner_tb& top) {
  top.clk_i = 0;
  top.eval();
}

void idle(Vhorner_tb& top) {
  top.key_valid_i = 0;
  top.valid_i = 0;
}

void load(Vhorner_tb& top, const Block& h) {
  top.key_valid_i = 1;
  put(top.h_i, h);
  cycle(top);
  top.key_valid_i = 0;
}

// Sends `count` sectors; `gaps`: beats and contexts at random, otherwise
// one context and a beat a cycle.
void run(Vhorner_tb& top, Random& random, const Block& h, int count, bool gaps) {
  Context contexts[2];
  int sent = 0, received = 0, now = 0, last_beat = 0;
  auto draw = [&](Context& context) {
    context.sector.blocks.clear();
    for (int i = 0; i < kBlocks; i++) context.sector.blocks.push_back(random.block());
    context.sector.direct = random.below(2);
    context.sums.push_back(expected(context.sector, h));
    context.beat = 0;
  };
  while (received < count) {
    CHECK(++now < 1000 + 500 * count, "no sum comes out");
    const int which = gaps && CONTEXTS > 1 ? static_cast<int>(random.below(2)) : 0;
    Context& context = contexts[which];
    // The next sector of a context follows the one before at once.
    if (context.sector.blocks.empty() && sent < count) {
      draw(context);
      sent++;
    }
    top.valid_i = !context.sector.blocks.empty() && (!gaps || random.below(4) != 0);
    top.context_i = static_cast<uint8_t>(which);
    top.beat_i = static_cast<uint8_t>(context.beat);
    if (!context.sector.blocks.empty()) {
      uint8_t bytes[16 * LANES];
      for (int lane = 0; lane < LANES; lane++) {
        const Block& block = context.sector.blocks[context.beat * LANES + lane];
        std::memcpy(bytes + 16 * lane, block.data(), 16);
      }
      put(top.blocks_i, bytes, sizeof bytes);
      top.direct_i = context.sector.direct;
    }
    settle(top);
    if (top.valid_o) {
      Context& done = contexts[top.context_o];
      CHECK(!done.sums.empty(), "a sum from nowhere");
      CHECK(get(top.sum_o) == done.sums.front(), "sum %d", received);
      if (!gaps) CHECK(now - last_beat == STAGES + 2, "a sum after %d cycles", now - last_beat);
      done.sums.pop_front();
      received++;
    }
    if (top.valid_i && top.ready_o) {
      if (++context.beat == kBlocks / LANES) {
        context.beat = 0;
        context.sector.blocks.clear();
        last_beat = now;
      }
    }
    cycle(top);
  }
  if (!gaps) {
    const int beats = kBlocks / LANES * count;
    CHECK(now - STAGES - 2 - beats < 25, "%d beats took %d cycles", beats, now);
  }
  top.valid_i = 0;
}

}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  Vhorner_tb top;
  Random random(LANES * 10 + STAGES);
  idle(top);
  reset(top);
  for (int key = 0; key < 8; key++) {
    const Block h = random.block();
    load(top, h);
    // At once, and with all powers there.
    run(top, random, h, 6, key % 2 == 0);
    run(top, random, h, 6, key % 2 != 0);
    CHECK(top.all_valid_o, "powers are missing");
    CHECK(get(top.top_o) == power(h, kBlocks), "h^Blocks");
    CHECK(get(top.constant0_o) == h, "h");
    CHECK(get(top.constant1_o) == model::times_x(power(h, 2)), "x h^2");
  }
  // Reset in the middle of a sector leaves nothing, and what follows is right.
  top.valid_i = 1;
  top.beat_i = 0;
  for (int i = 0; i < 7; i++) cycle(top);
  top.valid_i = 0;
  reset(top);
  for (int i = 0; i < 20; i++) {
    settle(top);
    CHECK(!top.any_key_bit_o && !top.ready_o && !top.valid_o && get(top.sum_o) == Block{},
          "something is left");
    cycle(top);
  }
  const Block h = random.block();
  load(top, h);
  run(top, random, h, 4, true);
  std::printf("Horner, %d lanes of %d stages, blocks %d to %d: passed\n", LANES, STAGES, FIRST,
              LAST);
  return 0;
}
