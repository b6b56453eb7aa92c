// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Encryption pipelines side by side for counter mode, one block a cycle in each,
// in step; and single calls, which go through the last of them in place of its
// counter block, under any key and with a tag. In such a cycle no counter blocks
// go in. Counter mode has key 0.

module aes_lanes
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits  = 128,
  parameter int unsigned Lanes    = 1,
  // Keys that single calls may choose from.
  parameter int unsigned NumKeys  = 1,
  parameter int unsigned TagWidth = 1,
  localparam int unsigned Rounds   = rounds(KeyBits),
  localparam int unsigned SelWidth = NumKeys > 1 ? $clog2(NumKeys) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Stops every stage while low.
  input  logic enable_i,

  input  block_t round_keys_i[NumKeys][Rounds+1],

  input  logic   counters_valid_i,
  output logic   counters_ready_o,
  input  block_t counters_i[Lanes],

  input  logic                call_valid_i,
  input  block_t              call_i,
  input  logic [SelWidth-1:0] call_key_i,
  input  logic [TagWidth-1:0] call_tag_i,

  // Of the last lane, a call; of all, counter blocks.
  output logic                call_valid_o,
  output logic [TagWidth-1:0] call_tag_o,
  output logic                counters_valid_o,
  output block_t              blocks_o[Lanes]
);

  logic valid, is_call;

  assign counters_ready_o = !call_valid_i;

  aes_pec #(
    .KeyBits (KeyBits),
    .NumKeys (NumKeys),
    .TagWidth(TagWidth + 1)
  ) u_last (
    .clk_i,
    .rst_ni,
    .enable_i,
    .round_keys_i,
    .valid_i(call_valid_i || counters_valid_i),
    .block_i(call_valid_i ? call_i : counters_i[Lanes-1]),
    .key_i  (call_valid_i ? call_key_i : '0),
    .tag_i  ({call_valid_i, call_tag_i}),
    .valid_o(valid),
    .block_o(blocks_o[Lanes-1]),
    .tag_o  ({is_call, call_tag_o})
  );

  assign call_valid_o = valid && is_call;
  assign counters_valid_o = valid && !is_call;

  for (genvar lane = 0; lane + 1 < Lanes; lane++) begin : gen_lane
    // These need only the one key.
    block_t counter_keys[1][Rounds+1];
    logic unused_valid, unused_tag;
    assign counter_keys[0] = round_keys_i[0];
    aes_pec #(
      .KeyBits(KeyBits)
    ) u_pec (
      .clk_i,
      .rst_ni,
      .enable_i,
      .round_keys_i(counter_keys),
      .valid_i     (counters_valid_i && !call_valid_i),
      .block_i     (counters_i[lane]),
      .key_i       (1'b0),
      .tag_i       (1'b0),
      .valid_o     (unused_valid),
      .block_o     (blocks_o[lane]),
      .tag_o       (unused_tag)
    );
  end

endmodule
