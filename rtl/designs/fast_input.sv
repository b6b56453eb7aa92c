// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The input of FAST: a sector starts with its first two blocks, which wait for its first
// hash; the others, X, go into that hash and into a queue for counter mode.

module fast_input
  import fast_pkg::*;
#(
  // Of a sector.
  parameter int unsigned Blocks = 256,
  // Blocks a beat, 1 or 2.
  parameter int unsigned Lanes  = 2,
  localparam int unsigned Width = 128 * Lanes
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  // Sectors of runs; one is taken with the last beat of its first two blocks.
  input  logic    sector_valid_i,
  output logic    sector_take_o,
  input  sector_t sector_i,

  input  logic             in_valid_i,
  output logic             in_ready_o,
  input  logic [Width-1:0] in_data_i,

  // The first hash: its sector, and beats of X.
  output logic start_valid_o,
  input  logic start_ready_i,
  output logic hash_valid_o,
  input  logic hash_ready_i,

  // The first two blocks, the first one below; there is one whenever the hash is.
  input  logic         head_take_i,
  output sector_t      head_sector_o,
  output logic [255:0] head_pair_o,

  // X, which was there long before it is taken.
  input  logic             x_take_i,
  output logic [Width-1:0] x_o
);

  localparam int unsigned Beats = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  // Beats of the first two blocks.
  localparam int unsigned Heads = 2 / Lanes;

  logic [BeatWidth-1:0] beat_q;
  logic head, head_last, head_ready, x_ready, take;
  logic [255:0] pair;

  assign head = beat_q < BeatWidth'(Heads);
  assign head_last = beat_q == BeatWidth'(Heads - 1);
  assign in_ready_o = !head ? x_ready && hash_ready_i
      : sector_valid_i && (!head_last || (head_ready && start_ready_i));
  assign take = in_valid_i && in_ready_o;
  assign sector_take_o = take && head_last;
  assign start_valid_o = in_valid_i && head_last && sector_valid_i && head_ready;
  assign hash_valid_o = in_valid_i && !head && x_ready;

  if (Lanes == 1) begin : gen_head
    logic [127:0] first_q;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) first_q <= '0;
      else if (take && head) first_q <= in_data_i[127:0];
    end
    assign pair = {in_data_i[127:0], first_q};
  end else begin : gen_pair
    assign pair = in_data_i[255:0];
  end

  // A hash takes longer than the way through it.
  logic unused_head_valid;
  stream_chain #(
    .Width($bits(sector_t) + 256),
    .Depth(2)
  ) u_heads (
    .clk_i,
    .rst_ni,
    .valid_i(sector_take_o),
    .ready_o(head_ready),
    .data_i ({sector_i, pair}),
    .valid_o(unused_head_valid),
    .ready_i(head_take_i),
    .data_o ({head_sector_o, head_pair_o})
  );

  logic unused_x_valid;
  ram_fifo #(
    .Width(Width),
    .Depth(2 * Beats)
  ) u_x (
    .clk_i,
    .rst_ni,
    .busy_o,
    .valid_i(take && !head),
    .ready_o(x_ready),
    .data_i (in_data_i),
    .valid_o(unused_x_valid),
    .ready_i(x_take_i),
    .data_o (x_o)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) beat_q <= '0;
    else if (take) beat_q <= beat_q + 1'b1;
  end

endmodule
