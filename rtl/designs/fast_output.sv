// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The output of FAST: beats of Y wait in a queue, and what the sector's first two blocks
// are made of for the second hash, which is known last. In order, a sector's output starts
// with that, out of a queue of sectors; else Y goes out as it comes, and the
// first two blocks last.

module fast_output
  import aes_pkg::*;
  import fast_pkg::*;
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

  // A sector is begun, and has a place from then on.
  input  logic enter_i,
  output logic room_o,

  // y and o2 of a sector, and after that its second hash, in one cycle.
  input  logic    result_valid_i,
  input  sector_t sector_i,
  input  block_t  result_y_i,
  input  block_t  result_o2_i,
  input  logic    hash_valid_i,
  input  block_t  hash_i,

  // Beats of Y.
  input  logic             y_valid_i,
  output logic             y_ready_o,
  input  logic [Width-1:0] y_i,

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
  // Out of order, what comes while a sector's second hash is on its way.
  localparam int unsigned Depth = InOrder ? queue_beats(Beats) : 32;
  // The places in the sector of the first beat and the last one.
  localparam int unsigned First = InOrder ? 0 : Heads;
  localparam logic [BeatWidth-1:0] Last = BeatWidth'(First - 1);

  logic busy_results, busy_hashes, busy_y, unused_room;
  logic unused_result_valid, pair_valid, y_valid, take;
  sector_t sector;
  block_t result_y, result_o2, hash;
  logic [Width-1:0] y;
  assign busy_o = busy_results || busy_hashes || busy_y;

  // The next beat's place; it is of the first two blocks, the sector's last.
  logic [BeatWidth-1:0] place_q, next;
  logic pair_q, end_q;

  credit_fifo #(
    .Width($bits(sector_t) + 256),
    .Depth(Sectors)
  ) u_results (
    .clk_i,
    .rst_ni,
    .busy_o (busy_results),
    .take_i (enter_i),
    .room_o,
    .valid_i(result_valid_i),
    .data_i ({sector_i, result_y_i, result_o2_i}),
    .valid_o(unused_result_valid),
    .ready_i(sector_o),
    .data_o ({sector, result_y, result_o2})
  );

  credit_fifo #(
    .Width(128),
    .Depth(Sectors)
  ) u_hashes (
    .clk_i,
    .rst_ni,
    .busy_o (busy_hashes),
    .take_i (hash_valid_i),
    .room_o (unused_room),
    .valid_i(hash_valid_i),
    .data_i (hash_i),
    .valid_o(pair_valid),
    .ready_i(sector_o),
    .data_o (hash)
  );

  ram_fifo #(
    .Width(Width),
    .Depth(Depth)
  ) u_y (
    .clk_i,
    .rst_ni,
    .busy_o (busy_y),
    .valid_i(y_valid_i),
    .ready_o(y_ready_o),
    .data_i (y_i),
    .valid_o(y_valid),
    .ready_i(take && !pair_q),
    .data_o (y)
  );

  // A pair is there with its hash: y and o2 are long before.
  assign out_valid_o = pair_q ? pair_valid : y_valid && (!InOrder || pair_valid);
  assign take = out_valid_o && out_ready_i;
  assign out_last_o = end_q && sector.last;
  assign out_block_o = BlockWidth'(place_q) << (Lanes - 1);
  assign sector_o = take && end_q;
  assign next = place_q + 1'b1;

  for (genvar i = 0; i < Lanes; i++) begin : gen_block
    // o2 is the first block after encryption, the second after decryption.
    logic other;
    assign other = (Lanes == 1 ? place_q[0] : i == 1) == sector.decrypt;
    assign out_data_o[128*i+:128] = !pair_q ? y[128*i+:128] : other ? result_o2 : result_y ^ hash;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      place_q <= BeatWidth'(First);
      pair_q  <= InOrder;
      end_q   <= 1'b0;
    end else if (take) begin
      place_q <= next;
      pair_q  <= next < BeatWidth'(Heads);
      end_q   <= next == Last;
    end
  end

endmodule
