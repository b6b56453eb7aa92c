// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The second half of AEZ10, from the first pass's results on: it keeps W_i and X_i,
// their sum and the last pair, makes the call for S_y, and then gives the second pass's
// calls, one a cycle, the last pair's when S'_i has completed Y. One sector at a time,
// while the first pass of others goes on.

module aez10_back
  import aes_pkg::*;
  import aez10_pkg::*;
#(
  // Of a sector, without the last one.
  parameter int unsigned Pairs = 127,
  // Sectors between the passes.
  parameter int unsigned Slots = 2
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Of the sector buffer alone; `rst_ni` is that of all else.
  input  logic rst_buffer_ni,
  output logic buffer_busy_o,

  // Results, each in the cycle in which it is there; `begins` and `ends` of the sector.
  input logic   x_valid_i,
  input logic   x_begins_i,
  input logic   x_ends_i,
  input block_t w_i,
  input block_t x_i,
  input logic   in_valid_i,
  input item_t  in_item_i,
  // M_x ^ E(M_y), M_y
  input block_t in_left_i,
  input block_t in_right_i,
  input logic   last_s_valid_i,
  input block_t last_s_i,
  input logic   y_valid_i,
  input logic   y_begins_i,
  input logic   y_ends_i,
  input block_t y_i,

  // Delta of the sectors in order, taken with the call for S_y.
  input  logic   delta_valid_i,
  output logic   delta_ready_o,
  input  block_t delta_i,

  // Masks: 3 I ^ i J for the next pair's call, and J and 2 J.
  input  block_t mask_i,
  output logic   mask_step_o,
  input  block_t j_i,
  input  block_t j2_i,

  // A call: made in a cycle with both. The item and its blocks for a lane.
  output logic   valid_o,
  input  logic   ready_i,
  output item_t  item_o,
  output block_t block_o,
  output block_t a_o,
  output block_t b_o,

  // A sector has left the buffer.
  output logic free_o
);

  localparam int unsigned PairWidth = $clog2(Pairs + 1);

  typedef enum logic [1:0] {
    Idle,
    CallS,
    SecondPass
  } state_e;

  state_e state_q;
  block_t x_sum_q, x_sum_d, x_sum, left, right, s_x, s_x_q, s_y_q, delta_q, y_sum_q;
  logic decrypt, last, decrypt_q, last_q, y_done_q;
  logic sum_valid, pair_valid, buffer_valid, start, last_pair, pair_call, last_call;
  logic [PairWidth-1:0] pair_q;
  block_t buffer_w, buffer_x;
  logic [1:0] unused_ready;
  logic [1:0][$clog2(Slots+1)-1:0] unused_count;

  assign x_sum_d = (x_begins_i ? '0 : x_sum_q) ^ x_i;

  stream_fifo #(
    .Width(128),
    .Depth(Slots)
  ) u_sums (
    .clk_i,
    .rst_ni,
    .valid_i(x_valid_i && x_ends_i),
    .ready_o(unused_ready[0]),
    .data_i (x_sum_d),
    .valid_o(sum_valid),
    .ready_i(start),
    .data_o (x_sum),
    .count_o(unused_count[0])
  );

  stream_fifo #(
    .Width(258),
    .Depth(Slots)
  ) u_last_pairs (
    .clk_i,
    .rst_ni,
    .valid_i(in_valid_i),
    .ready_o(unused_ready[1]),
    .data_i ({in_item_i.decrypt, in_item_i.last, in_left_i, in_right_i}),
    .valid_o(pair_valid),
    .ready_i(start),
    .data_o ({decrypt, last, left, right}),
    .count_o(unused_count[1])
  );
  logic unused;
  assign unused = ^{in_item_i.kind, in_item_i.begins, in_item_i.ends};

  sector_buffer #(
    .Width(256),
    .Beats(Pairs),
    .Slots(Slots)
  ) u_buffer (
    .clk_i,
    .rst_ni      (rst_buffer_ni),
    .busy_o      (buffer_busy_o),
    .write_i     (x_valid_i),
    .write_data_i({w_i, x_i}),
    // Once a sector: the rest of it follows.
    .fetch_i     (state_q != Idle && pair_q == '0 && !buffer_valid),
    .valid_o     (buffer_valid),
    .ready_i     (pair_call),
    .data_o      ({buffer_w, buffer_x})
  );

  // Calls.

  assign s_x = left ^ x_sum ^ delta_i;
  assign last_pair = pair_q == PairWidth'(Pairs);

  always_comb begin
    item_o = '0;
    unique case (state_q)
      Idle: begin
        valid_o        = sum_valid && pair_valid && delta_valid_i;
        item_o.kind    = LastS;
        item_o.decrypt = decrypt;
        block_o        = s_x ^ (decrypt ? j2_i : j_i);
        a_o            = s_x;
        b_o            = right;
      end
      SecondPass: begin
        item_o.decrypt = decrypt_q;
        item_o.last    = last_q;
        if (last_pair) begin
          valid_o     = y_done_q;
          item_o.kind = LastY;
          block_o     = s_y_q ^ (decrypt_q ? j_i : j2_i);
          a_o         = s_x_q;
          b_o         = s_y_q ^ delta_q ^ y_sum_q;
        end else begin
          valid_o       = buffer_valid;
          item_o.kind   = PairS;
          item_o.begins = pair_q == '0;
          item_o.ends   = pair_q == PairWidth'(Pairs - 1);
          block_o       = s_x_q ^ s_y_q ^ mask_i;
          a_o           = buffer_w;
          b_o           = buffer_x;
        end
      end
      default: begin
        valid_o = 1'b0;
        block_o = '0;
        a_o     = '0;
        b_o     = '0;
      end
    endcase
  end

  assign start = state_q == Idle && valid_o && ready_i;
  assign pair_call = state_q == SecondPass && !last_pair && valid_o && ready_i;
  assign last_call = state_q == SecondPass && last_pair && valid_o && ready_i;
  assign delta_ready_o = start;
  assign mask_step_o = pair_call;
  assign free_o = pair_call && item_o.ends;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      x_sum_q   <= '0;
      y_sum_q   <= '0;
      y_done_q  <= 1'b0;
      s_x_q     <= '0;
      s_y_q     <= '0;
      delta_q   <= '0;
      decrypt_q <= 1'b0;
      last_q    <= 1'b0;
      pair_q    <= '0;
    end else begin
      if (x_valid_i) x_sum_q <= x_sum_d;
      if (y_valid_i) y_sum_q <= (y_begins_i ? '0 : y_sum_q) ^ y_i;

      if (start) begin
        state_q   <= CallS;
        s_x_q     <= s_x;
        delta_q   <= delta_i;
        decrypt_q <= decrypt;
        last_q    <= last;
      end
      if (last_s_valid_i) begin
        state_q <= SecondPass;
        s_y_q   <= last_s_i;
      end
      if (pair_call) pair_q <= pair_q + 1'b1;
      if (y_valid_i && y_ends_i) y_done_q <= 1'b1;
      if (last_call) begin
        state_q  <= Idle;
        pair_q   <= '0;
        y_done_q <= 1'b0;
      end
    end
  end

endmodule
