// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What comes between EME2's passes and into the second one: sums up the results PPP_j
// of the first, which wait in the sector buffer, has eme2_middle make the calls
// over each sum, and puts its masks to the PPP_j.

module eme2_back
  import gf128_pkg::*;
#(
  // Of a sector.
  parameter int unsigned Blocks = 256,
  parameter int unsigned Lanes  = 1,
  // Sectors between the passes.
  parameter int unsigned Slots  = 2
) (
  input  logic clk_i,
  input  logic rst_ni,
  // For the sector buffer, which is wiped then.
  input  logic rst_buffer_ni,
  output logic buffer_busy_o,

  // What comes out of the cores: a beat of the first pass, or in lane 0 a call's result.
  input logic [Lanes-1:0][127:0] results_i,
  input logic                    first_valid_i,
  input logic                    first_decrypt_i,
  // The sector is the last one of its run.
  input logic                    first_last_i,
  // The beat is the first one, that of block 128, the last one of its sector.
  input logic                    first_begins_i,
  input logic                    first_high_i,
  input logic                    first_ends_i,
  // T* of a sector that begins.
  input elem_t                   star_i,
  input logic                    call_valid_i,
  // In the next cycle: the last beat of a sector's first pass; a call's result.
  input logic                    first_soon_i,
  input logic                    call_result_soon_i,

  // A call between the passes two cycles later; in the next cycle, with its block; in this one.
  output logic  call_soon_o,
  output logic  call_next_o,
  output elem_t call_block_o,
  output logic  call_o,
  output logic  call_decrypt_o,

  // There is a beat for the second pass; it goes into the cores two cycles later.
  output logic                    soon_o,
  input  logic                    take_i,
  // It does in the next cycle.
  output logic                    next_o,
  // It does in this one: its blocks, and what is to be added to the first of them. Zero in
  // all other cycles, so that whoever puts something else in needs not choose.
  output logic                    valid_o,
  output logic [Lanes-1:0][127:0] blocks_o,
  output elem_t                   first_mask_o,
  output logic                    decrypt_o,
  output logic                    last_o,
  output logic                    begins_o,
  output logic                    ends_o
);

  localparam int unsigned Beats = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  // The beat with block 128; one that there is not in a short sector.
  localparam int unsigned HighBeat = 128 / Lanes;

  // First pass out: MP, and PPP_128.

  elem_t sum_q, sum_d, sum_on, head_q;
  logic passed, passed_valid, passed_taken, passed_decrypt, passed_last;
  elem_t passed_sum, passed_head;
  logic unused_passed_ready;
  logic [$clog2(Slots+1)-1:0] unused_passed_count;

  assign passed = first_valid_i && first_ends_i;

  always_comb begin
    sum_d = first_begins_i ? star_i : sum_q;
    // The last beat of a sector is not its first.
    sum_on = sum_q;
    for (int i = 0; i < int'(Lanes); i++) begin
      sum_d ^= results_i[i];
      sum_on ^= results_i[i];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      sum_q  <= '0;
      head_q <= '0;
    end else if (first_valid_i) begin
      sum_q <= sum_d;
      if (first_high_i) head_q <= results_i[0];
    end
  end

  stream_fifo #(
    .Width(258),
    .Depth(Slots)
  ) u_passed (
    .clk_i,
    .rst_ni,
    .valid_i(passed),
    .ready_o(unused_passed_ready),
    .data_i ({first_decrypt_i, first_last_i, sum_d, head_q}),
    .valid_o(passed_valid),
    .ready_i(passed_taken),
    .data_o ({passed_decrypt, passed_last, passed_sum, passed_head}),
    .count_o(unused_passed_count)
  );

  // Between the passes.

  logic middle_soon, middle_release, middle_decrypt, middle_last;
  elem_t first_mask, low_mask, high_mask;

  eme2_middle #(
    .Blocks(Blocks)
  ) u_middle (
    .clk_i,
    .rst_ni,
    .start_soon_i  (passed_valid || passed || first_soon_i),
    .start_direct_i(!passed_valid && !passed),
    .direct_i      (sum_on),
    .start_taken_o (passed_taken),
    .decrypt_i     (passed_decrypt),
    .last_i        (passed_last),
    .sum_i         (passed_sum),
    .head_i        (passed_head),
    .call_soon_o,
    .call_next_o,
    .call_block_o,
    .call_o,
    .call_decrypt_o,
    .result_soon_i (call_result_soon_i),
    .result_valid_i(call_valid_i),
    .result_i      (results_i[0]),
    .soon_o        (middle_soon),
    .release_i     (middle_release),
    .decrypt_o     (middle_decrypt),
    .last_o        (middle_last),
    .first_mask_o  (first_mask),
    .low_mask_o    (low_mask),
    .high_mask_o   (high_mask)
  );

  // A beat of the second pass goes in in the next cycle: there is an entry for it.
  logic next_q, unused_buffer_ready, unused_buffer_valid;
  logic [Lanes-1:0][127:0] buffer_block;

  ram_fifo #(
    .Width(128 * Lanes),
    .Depth(Slots * Beats)
  ) u_buffer (
    .clk_i,
    .rst_ni (rst_buffer_ni),
    .busy_o (buffer_busy_o),
    .valid_i(first_valid_i),
    .ready_o(unused_buffer_ready),
    .data_i (results_i),
    .valid_o(unused_buffer_valid),
    .ready_i(next_q),
    .data_o (buffer_block)
  );

  // Second pass in. The masks are needed until the last of them is in the chain.

  typedef struct packed {
    logic decrypt;
    logic last;
    logic begins;
    logic ends;
  } beat_t;

  // The next beat to be decided about, and whether a sector goes on with it.
  logic [BeatWidth-1:0] beat_q;
  logic goes_on_q;
  // Of the beat that goes in in the next cycle, and of that in this one.
  beat_t next_beat_q, turn_beat_q;
  logic high_q, turn_q;
  logic [Lanes-1:0][127:0] masks, blocks_q;
  elem_t first_mask_q;

  assign soon_o = goes_on_q || middle_soon;
  assign middle_release = next_q && (Blocks > 128 ? high_q : next_beat_q.begins);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q      <= 1'b0;
      turn_q      <= 1'b0;
      beat_q      <= '0;
      goes_on_q   <= 1'b0;
      next_beat_q <= '0;
      turn_beat_q <= '0;
      high_q      <= 1'b0;
    end else begin
      next_q      <= take_i;
      turn_q      <= next_q;
      turn_beat_q <= next_beat_q;
      if (take_i) begin
        // Beats is a power of two.
        beat_q             <= beat_q + 1'b1;
        goes_on_q          <= beat_q != BeatWidth'(Beats - 1);
        next_beat_q.begins <= !goes_on_q;
        next_beat_q.ends   <= beat_q == BeatWidth'(Beats - 1);
        high_q             <= Blocks > 128 && beat_q == BeatWidth'(HighBeat);
        if (!goes_on_q) begin
          next_beat_q.decrypt <= middle_decrypt;
          next_beat_q.last    <= middle_last;
        end
      end
    end
  end

  mask_chain #(
    .Lanes(Lanes)
  ) u_masks (
    .clk_i,
    .rst_ni,
    .step_i       (next_q),
    .start_i      (next_beat_q.begins || high_q),
    .start_value_i(high_q ? high_mask : low_mask),
    .masks_o      (masks)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      blocks_q     <= '0;
      first_mask_q <= '0;
    end else begin
      blocks_q <= next_q ? buffer_block ^ masks : '0;
      // The first block has a mask of its own, with so much logic that it is added later.
      if (next_q && next_beat_q.begins) blocks_q[0] <= buffer_block[0];
      first_mask_q <= next_q && next_beat_q.begins ? first_mask : '0;
    end
  end

  assign next_o = next_q;
  assign valid_o = turn_q;
  assign blocks_o = blocks_q;
  assign first_mask_o = first_mask_q;
  assign decrypt_o = turn_beat_q.decrypt;
  assign last_o = turn_beat_q.last;
  assign begins_o = turn_beat_q.begins;
  assign ends_o = turn_beat_q.ends;

endmodule
