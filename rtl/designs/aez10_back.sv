// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The second half of AEZ10, from the first pass's results on: it keeps W_i and X_i,
// their sum and the last pair, makes the call for S_y, and then gives the second pass's
// calls, one a cycle. One sector at a time, while the first pass of others goes on.
//
// The last pair follows the others at once: its first call is C_y's, in the end of which
// S'_i of all others, which are a slot ahead at least, have completed Y (`y_sum_o`). So
// the next sector waits for its own S_y alone.

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
  input  logic   x_valid_i,
  input  logic   x_begins_i,
  input  logic   x_ends_i,
  input  block_t w_i,
  input  block_t x_i,
  input  logic   in_valid_i,
  input  logic   in_decrypt_i,
  input  logic   in_last_i,
  // M_x ^ E(M_y), M_y
  input  block_t in_left_i,
  input  block_t in_right_i,
  input  logic   last_s_valid_i,
  input  block_t s_x_i,
  input  block_t s_y_i,
  input  logic   y_valid_i,
  input  logic   y_begins_i,
  input  block_t y_i,
  output block_t y_sum_o,

  // Delta of the sectors in order, taken with the call for S_y.
  input  logic   delta_valid_i,
  output logic   delta_ready_o,
  input  block_t delta_i,

  // Masks: 3 I ^ i J for the next pair's call, and J and 2 J.
  input  block_t mask_i,
  output logic   mask_step_o,
  input  block_t j_i,
  input  block_t j2_i,

  // Calls: made in a cycle with both. Those of the second pass will become output, for which
  // they need a place.
  output logic  valid_o,
  input  logic  ready_i,
  output call_t call_o,
  input  logic  room_i,
  output logic  take_o,

  // A sector has left the buffer.
  output logic free_o
);

  localparam int unsigned PairWidth = $clog2(Pairs + 1);

  typedef enum logic [1:0] {
    Idle,
    CallS,
    SecondPass,
    LastPair
  } state_e;

  state_e state_q;
  block_t x_sum_q, x_sum_d, x_sum, left, right, s_x, s_x_q, s_y_q, delta_q, y_sum_q;
  logic decrypt, last, decrypt_q, last_q, begins_q, ends_q;
  logic sum_valid, pair_valid, buffer_valid, start, pair_call;
  logic [PairWidth-1:0] pair_q;
  block_t buffer_w, buffer_x;
  logic [2:0] unused_ready;
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
    .data_i ({in_decrypt_i, in_last_i, in_left_i, in_right_i}),
    .valid_o(pair_valid),
    .ready_i(start),
    .data_o ({decrypt, last, left, right}),
    .count_o(unused_count[1])
  );

  ram_fifo #(
    .Width(256),
    .Depth(2 ** $clog2(Slots * Pairs))
  ) u_buffer (
    .clk_i,
    .rst_ni (rst_buffer_ni),
    .busy_o (buffer_busy_o),
    .valid_i(x_valid_i),
    .ready_o(unused_ready[2]),
    .data_i ({w_i, x_i}),
    .valid_o(buffer_valid),
    .ready_i(pair_call),
    .data_o ({buffer_w, buffer_x})
  );

  // Calls.

  assign s_x = left ^ x_sum ^ delta_i;

  always_comb begin
    call_o = '0;
    unique case (state_q)
      SecondPass: begin
        valid_o             = buffer_valid && room_i;
        call_o.item.kind    = PairS;
        call_o.item.decrypt = decrypt_q;
        call_o.item.begins  = begins_q;
        call_o.block        = s_x_q ^ s_y_q ^ mask_i;
        call_o.a            = buffer_w;
        call_o.b            = buffer_x;
      end
      LastPair: begin
        valid_o             = room_i;
        call_o.item.kind    = LastY;
        call_o.item.decrypt = decrypt_q;
        call_o.item.last    = last_q;
        call_o.block        = s_y_q ^ (decrypt_q ? j_i : j2_i);
        call_o.a            = s_x_q;
        call_o.b            = s_y_q ^ delta_q;
      end
      default: begin
        valid_o          = state_q == Idle && sum_valid && pair_valid && delta_valid_i;
        call_o.item.kind = LastS;
        call_o.block     = s_x ^ (decrypt ? j2_i : j_i);
        call_o.a         = s_x;
        call_o.b         = right;
      end
    endcase
  end

  assign start = state_q == Idle && valid_o && ready_i;
  assign pair_call = state_q == SecondPass && valid_o && ready_i;
  assign take_o = state_q inside {SecondPass, LastPair} && valid_o && ready_i;
  assign delta_ready_o = start;
  assign mask_step_o = pair_call;
  assign free_o = pair_call && ends_q;
  assign y_sum_o = y_sum_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      x_sum_q   <= '0;
      y_sum_q   <= '0;
      s_x_q     <= '0;
      s_y_q     <= '0;
      delta_q   <= '0;
      decrypt_q <= 1'b0;
      last_q    <= 1'b0;
      begins_q  <= 1'b1;
      ends_q    <= 1'b0;
      pair_q    <= '0;
    end else begin
      if (x_valid_i) x_sum_q <= x_sum_d;
      if (y_valid_i) y_sum_q <= (y_begins_i ? '0 : y_sum_q) ^ y_i;

      unique case (state_q)
        Idle: begin
          delta_q   <= delta_i;
          decrypt_q <= decrypt;
          last_q    <= last;
          if (start) state_q <= CallS;
        end
        CallS: begin
          s_x_q <= s_x_i;
          s_y_q <= s_y_i;
          if (last_s_valid_i) state_q <= SecondPass;
        end
        SecondPass:
        if (pair_call) begin
          begins_q <= ends_q;
          ends_q   <= pair_q == PairWidth'(Pairs - 2);
          pair_q   <= ends_q ? '0 : pair_q + 1'b1;
          if (ends_q) state_q <= LastPair;
        end
        LastPair:  if (take_o) state_q <= Idle;
      endcase
    end
  end

endmodule
