// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The input of FAST: a sector starts with its first two blocks, which wait for its first
// hash; the others, X, go into that hash and into a queue for counter mode. The
// sector's tweak waits for its second hash.

module fast_input
  import aes_pkg::*;
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

  // Sectors of runs.
  input  logic    sector_valid_i,
  output logic    sector_ready_o,
  input  block_t  tweak_i,
  input  sector_t sector_i,

  input  logic             in_valid_i,
  output logic             in_ready_o,
  input  logic [Width-1:0] in_data_i,

  // The first hash: its sector, and beats of X.
  output logic   start_valid_o,
  input  logic   start_ready_i,
  output block_t start_tweak_o,
  output logic   start_prime_o,
  output logic   hash_valid_o,
  input  logic   hash_ready_i,

  // The first two blocks, the first one below; there is one whenever the hash is.
  input  logic         head_take_i,
  output sector_t      head_sector_o,
  output logic [255:0] head_pair_o,

  // Of the next sector whose second hash starts, tweak and direction, long before that.
  input  logic   tweak_take_i,
  output block_t tweak_o,
  output logic   tweak_decrypt_o,

  // X, which was there long before it is taken.
  input  logic             x_take_i,
  output logic [Width-1:0] x_o
);

  localparam int unsigned Beats = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  // Beats of the first two blocks.
  localparam int unsigned Heads = 2 / Lanes;
  // Sectors whose first hash is under way, and whose second one has not started.
  localparam int unsigned HeadPlaces = 8;
  localparam int unsigned TweakPlaces = 2 * Sectors;

  localparam int unsigned Depth = queue_beats(Beats);
  localparam int unsigned PlaceWidth = $clog2(Depth + 1);

  // The sector that comes is known; the next beat; it is of the first two blocks, the last one.
  logic have_q, head_q, head_last_q;
  block_t tweak_q;
  sector_t sector_q;
  logic [BeatWidth-1:0] beat_q, next;
  logic head_room, take;

  // What was taken in the cycle before: a beat, of X, the last one of the first two blocks.
  logic [Width-1:0] data_q;
  logic x_q, start_q;
  logic [255:0] pair;
  // Beats in the queue of X. There is room for those that are not counted yet, too.
  logic [PlaceWidth-1:0] stored_q;
  logic x_room_q;

  assign sector_ready_o = !have_q;
  assign in_ready_o = !head_q ? x_room_q && hash_ready_i
      : have_q && (!head_last_q || (head_room && start_ready_i));
  assign take = in_valid_i && in_ready_o;
  assign start_valid_o = in_valid_i && head_last_q && have_q && head_room;
  assign start_tweak_o = tweak_q;
  assign start_prime_o = sector_q.decrypt;
  assign hash_valid_o = in_valid_i && !head_q && x_room_q;
  assign next = beat_q + 1'b1;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      have_q      <= 1'b0;
      tweak_q     <= '0;
      sector_q    <= '0;
      beat_q      <= '0;
      head_q      <= 1'b1;
      head_last_q <= Heads == 1;
      data_q      <= '0;
      x_q         <= 1'b0;
      start_q     <= 1'b0;
      stored_q    <= '0;
      x_room_q    <= 1'b0;
    end else begin
      data_q   <= in_data_i;
      x_q      <= take && !head_q;
      start_q  <= take && head_last_q;
      stored_q <= stored_q + PlaceWidth'(x_q) - PlaceWidth'(x_take_i);
      x_room_q <= stored_q < PlaceWidth'(Depth - 3);
      have_q   <= have_q ? !(take && head_last_q) : sector_valid_i;
      if (!have_q) begin
        tweak_q  <= tweak_i;
        sector_q <= sector_i;
      end
      if (take) begin
        beat_q      <= next;
        head_q      <= next < BeatWidth'(Heads);
        head_last_q <= next == BeatWidth'(Heads - 1);
      end
    end
  end

  if (Lanes == 1) begin : gen_head
    logic [127:0] first_q;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) first_q <= '0;
      else if (head_q && !head_last_q) first_q <= in_data_i;
    end
    assign pair = {data_q, first_q};
  end else begin : gen_pair
    assign pair = data_q;
  end

  logic busy_heads, busy_tweaks, busy_x;
  logic unused_head_valid, unused_tweak_room, unused_tweak_valid, unused_x_ready, unused_x_valid;
  assign busy_o = busy_heads || busy_tweaks || busy_x;

  credit_fifo #(
    .Width($bits(sector_t) + 256),
    .Depth(HeadPlaces)
  ) u_heads (
    .clk_i,
    .rst_ni,
    .busy_o (busy_heads),
    .take_i (start_q),
    .room_o (head_room),
    .valid_i(start_q),
    .data_i ({sector_q, pair}),
    .valid_o(unused_head_valid),
    .ready_i(head_take_i),
    .data_o ({head_sector_o, head_pair_o})
  );

  // Has a place for every sector that may wait for its first hash or be behind that.
  credit_fifo #(
    .Width(129),
    .Depth(TweakPlaces)
  ) u_tweaks (
    .clk_i,
    .rst_ni,
    .busy_o (busy_tweaks),
    .take_i (start_q),
    .room_o (unused_tweak_room),
    .valid_i(start_q),
    .data_i ({sector_q.decrypt, tweak_q}),
    .valid_o(unused_tweak_valid),
    .ready_i(tweak_take_i),
    .data_o ({tweak_decrypt_o, tweak_o})
  );

  ram_fifo #(
    .Width(Width),
    .Depth(Depth)
  ) u_x (
    .clk_i,
    .rst_ni,
    .busy_o (busy_x),
    .valid_i(x_q),
    .ready_o(unused_x_ready),
    .data_i (data_q),
    .valid_o(unused_x_valid),
    .ready_i(x_take_i),
    .data_o (x_o)
  );

endmodule
