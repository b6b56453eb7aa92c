// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The multiplier against a product bit by bit, for any number of stages.

#include <deque>

#include "Vgf128_mult.h"
#include "harness.h"

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  Vgf128_mult top;
  top.valid_i = 0;
  Random random(STAGES);
  reset(top);

  // Latency, and the largest operands.
  model::Block ones;
  ones.fill(0xff);
  put(top.a_i, ones);
  put(top.b_i, ones);
  top.valid_i = 1;
  int latency = 0;
  top.clk_i = 0;
  top.eval();
  while (!top.valid_o) {
    cycle(top);
    top.valid_i = 0;
    CHECK(++latency < 10, "no product comes out");
  }
  CHECK(latency == STAGES, "a product takes %d cycles", latency);
  CHECK(get(top.product_o) == model::multiply(ones, ones), "all ones");
  top.valid_i = 0;
  for (int i = 0; i < 10; i++) cycle(top);

  struct Sent {
    model::Block product;
    uint8_t tag;
  };
  std::deque<Sent> in_flight;
  int received = 0;
  // What was announced in the cycle before.
  bool soon_valid = false;
  uint8_t soon_tag = 0;
  while (received < 20000) {
    const auto a = random.block(), b = random.block();
    top.valid_i = random.below(8) != 0;
    top.tag_i = static_cast<uint8_t>(random.below(2));
    put(top.a_i, a);
    put(top.b_i, b);
    top.clk_i = 0;
    top.eval();
    if (top.valid_i) in_flight.push_back({model::multiply(a, b), top.tag_i});
    CHECK(received == 0 || (top.valid_o == soon_valid && (!soon_valid || top.tag_o == soon_tag)),
          "product %d was not announced", received);
    if (top.valid_o) {
      CHECK(!in_flight.empty(), "a product from nowhere");
      CHECK(get(top.product_o) == in_flight.front().product, "product %d", received);
      CHECK(top.tag_o == in_flight.front().tag, "tag %d", received);
      in_flight.pop_front();
      received++;
    }
    soon_valid = top.soon_valid_o;
    soon_tag = top.soon_tag_o;
    cycle(top);
  }

  // Reset leaves nothing in flight.
  top.valid_i = 1;
  for (int i = 0; i < 10; i++) cycle(top);
  top.valid_i = 0;
  reset(top);
  top.a_i[0] = 0;
  put(top.a_i, model::Block{});
  for (int i = 0; i < 10; i++) {
    top.clk_i = 0;
    top.eval();
    CHECK(!top.valid_o && get(top.product_o) == model::Block{}, "something is left");
    cycle(top);
  }
  std::printf("GF(2^128), %d stages: 20000 random products: passed\n", STAGES);
  return 0;
}
