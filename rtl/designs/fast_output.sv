// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The output of FAST: beats of Y wait in a queue, and the sector's first two blocks
// for the second hash, which is known last. In order, a sector's output starts
// with that, out of a queue of two sectors; else Y goes out as it comes, and the
// first two blocks last.

module fast_output
  import aes_pkg::*;
#(
  // Of a sector.
  parameter int unsigned Blocks  = 256,
  // Blocks a beat, 1 or 2.
  parameter int unsigned Lanes   = 2,
  parameter bit          InOrder = 1'b1,
  localparam int unsigned Width      = 128 * Lanes,
  localparam int unsigned BlockWidth = $clog2(Blocks)
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  // A beat of Y is begun, the first of its sector; there is room for it, and with the
  // first one for the first two blocks.
  input  logic begin_i,
  input  logic begin_first_i,
  output logic room_o,

  input  logic             y_valid_i,
  input  logic [Width-1:0] y_i,

  // y and o2 of a sector, and after that its second hash, in one cycle.
  input  logic   result_valid_i,
  output logic   result_ready_o,
  input  block_t result_y_i,
  input  block_t result_o2_i,
  input  logic   decrypt_i,
  input  logic   last_i,
  input  logic   hash_valid_i,
  input  block_t hash_i,

  output logic                  out_valid_o,
  input  logic                  out_ready_i,
  output logic [     Width-1:0] out_data_o,
  // The last beat of its run.
  output logic                  out_last_o,
  // The number of its first block in the sector.
  output logic [BlockWidth-1:0] out_block_o,
  // A sector is out.
  output logic                  sector_o
);

  localparam int unsigned Beats = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  // Beats of the first two blocks.
  localparam int unsigned Heads = 2 / Lanes;
  // Beats that may be under way; more than there are in the cores.
  localparam int unsigned Depth = InOrder || Beats < 32 ? 2 * Beats : 32;
  localparam int unsigned UsedWidth = $clog2(Depth + 1);

  // ---- Room ----

  logic [UsedWidth-1:0] used_q, asked;
  logic take;
  assign asked = begin_first_i ? UsedWidth'(1 + Heads) : UsedWidth'(1);
  assign room_o = used_q <= UsedWidth'(Depth) - asked;

  // ---- The first two blocks ----

  logic tail_q, decrypt_q, last_q, hash_take, end_beat;
  block_t y_q, o2_q, o1;
  assign result_ready_o = !tail_q || hash_valid_i;
  assign o1 = y_q ^ hash_i;
  // A sector's results are there long before its second hash.
  assign hash_take = hash_valid_i && tail_q;

  // So many sectors have room at most, so there is a place.
  localparam int unsigned Sectors = Depth < Beats ? 1 : 2;
  logic pair_valid, pair_last, unused_pair_ready;
  logic [255:0] pair;
  logic [$clog2(Sectors+1)-1:0] unused_pairs;
  stream_fifo #(
    .Width(257),
    .Depth(Sectors)
  ) u_pairs (
    .clk_i,
    .rst_ni,
    .valid_i(hash_take),
    .ready_o(unused_pair_ready),
    .data_i ({last_q, decrypt_q ? {o2_q, o1} : {o1, o2_q}}),
    .valid_o(pair_valid),
    .ready_i(take && end_beat),
    .data_o ({pair_last, pair}),
    .count_o(unused_pairs)
  );

  // ---- Y ----

  logic y_valid, unused_y_ready, pair_now;
  logic [Width-1:0] y;
  ram_fifo #(
    .Width(Width),
    .Depth(Depth)
  ) u_y (
    .clk_i,
    .rst_ni,
    .busy_o,
    .valid_i(y_valid_i),
    .ready_o(unused_y_ready),
    .data_i (y_i),
    .valid_o(y_valid),
    .ready_i(take && !pair_now),
    .data_o (y)
  );

  // ---- Beats ----

  logic [BeatWidth-1:0] beat_q, place;
  assign place = InOrder ? beat_q : beat_q + BeatWidth'(Heads);
  assign pair_now = place < BeatWidth'(Heads);
  assign end_beat = beat_q == BeatWidth'(Beats - 1);
  assign out_valid_o = (!InOrder || pair_valid) && (pair_now ? pair_valid : y_valid);
  assign take = out_valid_o && out_ready_i;
  assign out_last_o = end_beat && pair_last;
  assign out_block_o = BlockWidth'(place) << (Lanes - 1);
  assign sector_o = take && end_beat;
  if (Lanes == 1) begin : gen_block
    assign out_data_o = !pair_now ? y : place[0] ? pair[255:128] : pair[127:0];
  end else begin : gen_pair
    assign out_data_o = !pair_now ? y : pair;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      used_q    <= '0;
      tail_q    <= 1'b0;
      decrypt_q <= 1'b0;
      last_q    <= 1'b0;
      y_q       <= '0;
      o2_q      <= '0;
      beat_q    <= '0;
    end else begin
      used_q <= used_q + (begin_i ? asked : '0) - UsedWidth'(take);
      if (result_valid_i && result_ready_o) begin
        tail_q    <= 1'b1;
        decrypt_q <= decrypt_i;
        last_q    <= last_i;
        y_q       <= result_y_i;
        o2_q      <= result_o2_i;
      end else if (hash_valid_i) begin
        tail_q <= 1'b0;
      end
      if (take) beat_q <= beat_q + 1'b1;
    end
  end

endmodule
