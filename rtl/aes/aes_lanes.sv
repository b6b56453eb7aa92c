// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Encryption pipelines side by side for counter mode, one block a cycle in each,
// in step; and single calls, which go through the last of them in place of its
// counter block, under any key and with a tag. In such a cycle no counter blocks
// go in. Counter mode has key 0. What goes in is chosen in front of a register, so that the choice
// is apart from the sum with the first round key: a cycle more than a pipeline takes. Whoever
// gives calls and counter blocks out of registers can do without.

module aes_lanes
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits  = 128,
  parameter int unsigned Lanes    = 1,
  // Keys that single calls may choose from.
  parameter int unsigned NumKeys  = 1,
  parameter int unsigned TagWidth = 1,
  parameter bit          Register = 1'b1,
  localparam int unsigned Rounds   = rounds(KeyBits),
  localparam int unsigned SelWidth = NumKeys > 1 ? $clog2(NumKeys) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,

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

  // What comes out is told apart by bits that go through the pipeline with it, not by
  // logic behind it: hundreds of bits may wait for them.
  typedef struct packed {
    logic                    counters;
    logic                    call;
    logic [    SelWidth-1:0] key;
    logic [    TagWidth-1:0] tag;
    logic [Lanes-1:0][127:0] blocks;
  } entry_t;

  entry_t chosen, entry;
  logic unused_valid_last;

  assign counters_ready_o = !call_valid_i;

  always_comb begin
    chosen.counters = counters_valid_i && !call_valid_i;
    chosen.call = call_valid_i;
    chosen.key = call_valid_i ? call_key_i : '0;
    chosen.tag = call_tag_i;
    for (int i = 0; i < int'(Lanes); i++) chosen.blocks[i] = counters_i[i];
    if (call_valid_i) chosen.blocks[Lanes-1] = call_i;
  end

  pipe_stage #(
    .Width   ($bits(entry_t)),
    .Register(Register)
  ) u_entry (
    .clk_i,
    .rst_ni,
    .data_i(chosen),
    .data_o(entry)
  );

  aes_pipe #(
    .KeyBits (KeyBits),
    .NumKeys (NumKeys),
    .TagWidth(TagWidth + 2)
  ) u_last (
    .clk_i,
    .rst_ni,
    .round_keys_i,
    .valid_i(entry.counters || entry.call),
    .block_i(entry.blocks[Lanes-1]),
    .key_i  (entry.key),
    .tag_i  ({entry.counters, entry.call, entry.tag}),
    .valid_o(unused_valid_last),
    .block_o(blocks_o[Lanes-1]),
    .tag_o  ({counters_valid_o, call_valid_o, call_tag_o})
  );

  for (genvar lane = 0; lane + 1 < Lanes; lane++) begin : gen_lane
    // These need only the one key.
    block_t counter_keys[1][Rounds+1];
    logic unused_valid, unused_tag;
    assign counter_keys[0] = round_keys_i[0];
    aes_pipe #(
      .KeyBits(KeyBits)
    ) u_counter (
      .clk_i,
      .rst_ni,
      .round_keys_i(counter_keys),
      .valid_i     (entry.counters),
      .block_i     (entry.blocks[lane]),
      .key_i       (1'b0),
      .tag_i       (1'b0),
      .valid_o     (unused_valid),
      .block_o     (blocks_o[lane]),
      .tag_o       (unused_tag)
    );
  end

endmodule
