// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The masks of consecutive blocks: start, x start, x^2 start and so on, in the
// layout of gf128_pkg, `Lanes` of them a step. The first step of a chain takes its
// start from `start_value_i`, so that chains follow each other without a gap.

module mask_chain
  import gf128_pkg::*;
#(
  parameter int unsigned Lanes = 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  // On to the next masks after this cycle.
  input  logic  step_i,
  // These are the first masks of a chain.
  input  logic  start_i,
  input  elem_t start_value_i,

  output logic [Lanes-1:0][127:0] masks_o
);

  elem_t first, next_d, next_q;
  assign first = start_i ? start_value_i : next_q;
  assign next_d = times_power(first, Lanes);

  for (genvar i = 0; i < int'(Lanes); i++) begin : gen_lane
    assign masks_o[i] = times_power(first, i);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) next_q <= '0;
    else if (step_i) next_q <= next_d;
  end

endmodule
