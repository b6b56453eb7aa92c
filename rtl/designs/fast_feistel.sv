// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The Feistel part of FAST: from the first two blocks i1 and i2 (swapped for decryption)
// and the first hash
//
//   u = i1 ^ g1     v = i2 ^ tau u     w = u ^ E(v)     y = v ^ E(w)     o2 = w ^ tau y
//
// and z = v ^ w for counter mode, along with w. Each of the two products and two calls has a
// sector of its own, so that four are here at a time, one behind the other. A sector
// waits for the one before it only ahead of the product of u and ahead of E(v): E(w) is called
// when E(v) comes out, and takes as long; the product of y takes less than a call.
// So calls and products are told apart by their order.

module fast_feistel
  import aes_pkg::*;
  import fast_pkg::*;
(
  input  logic clk_i,
  input  logic rst_ni,

  // The first hash, in one cycle; there is a place for one.
  input  logic   hash_valid_i,
  output logic   hash_ready_o,
  input  block_t hash_i,
  // A sector goes in, in a cycle after one with room for its results; its first two
  // blocks, the first one below.
  output logic         enter_o,
  input  logic         room_i,
  input  sector_t      head_sector_i,
  input  logic [255:0] head_pair_i,

  // Calls, which are always taken; `second`: it is that of w.
  output logic   call_valid_o,
  output logic   call_second_o,
  output block_t call_o,
  // The first or the second one's result.
  input  logic   first_done_i,
  input  logic   second_done_i,
  input  block_t done_i,

  // Products by tau, which are always taken, and come out in order; `second`: it is that of y.
  output logic   scale_valid_o,
  output logic   scale_second_o,
  output block_t scale_o,
  input  logic   scaled_valid_i,
  input  block_t scaled_i,

  // Both in one cycle; there is room for them.
  output logic    z_valid_o,
  output block_t  z_o,
  output logic    result_valid_o,
  output sector_t sector_o,
  output block_t  y_o,
  output block_t  o2_o
);

  // A first hash that waits; u, y is due for its product; one of them is. y goes first.
  logic held_q, enter_d, enter_q, y_due_q, due_q;
  block_t hash_q;

  // With its product under way or there: u, and i2 or v. With E(v): u, v. With E(w): w, v. With
  // its product: y, w.
  logic u_busy_q, u_away_q, v_busy_q, y_away_q;
  block_t u_left_q, u_right_q, v_left_q, v_right_q, w_left_q, w_right_q, y_left_q, y_right_q;
  sector_t u_sector_q, v_sector_q, w_sector_q, y_sector_q;
  // The latest product asked for was that of y.
  logic y_latest_q;

  // ---- Products ----

  block_t u;
  logic scaled_second, u_done, y_done;
  assign u = hash_q ^ (head_sector_i.decrypt ? head_pair_i[255:128] : head_pair_i[127:0]);
  assign hash_ready_o = !held_q;
  assign enter_o = enter_q;
  assign enter_d = (hash_valid_i || held_q) && !enter_q && !u_busy_q && room_i && !second_done_i;
  assign scale_valid_o = due_q;
  assign scale_second_o = y_due_q;
  assign scale_o = y_due_q ? y_left_q : u;

  assign scaled_second = y_away_q && !(u_away_q && y_latest_q);
  assign u_done = scaled_valid_i && !scaled_second;
  assign y_done = scaled_valid_i && scaled_second;

  // ---- Calls: never both in one cycle, since w is one less under way with E(v) ----

  block_t v, w;
  logic call_v;
  assign v = u_right_q ^ (u_done ? scaled_i : '0);
  assign w = v_left_q ^ done_i;
  assign call_v = (u_done || (u_busy_q && !u_away_q)) && !v_busy_q;
  assign call_valid_o = call_v || first_done_i;
  assign call_second_o = first_done_i;
  assign call_o = first_done_i ? w : v;

  assign z_valid_o = first_done_i;
  assign z_o = w ^ v_right_q;
  assign result_valid_o = y_done;
  assign sector_o = y_sector_q;
  assign y_o = y_left_q;
  assign o2_o = y_right_q ^ scaled_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      held_q     <= 1'b0;
      enter_q    <= 1'b0;
      y_due_q    <= 1'b0;
      due_q      <= 1'b0;
      hash_q     <= '0;
      u_busy_q   <= 1'b0;
      u_away_q   <= 1'b0;
      v_busy_q   <= 1'b0;
      y_away_q   <= 1'b0;
      y_latest_q <= 1'b0;
      {u_left_q, u_right_q, u_sector_q} <= '0;
      {v_left_q, v_right_q, v_sector_q} <= '0;
      {w_left_q, w_right_q, w_sector_q} <= '0;
      {y_left_q, y_right_q, y_sector_q} <= '0;
    end else begin
      if (hash_valid_i) hash_q <= hash_i;
      held_q  <= hash_valid_i || (held_q && !enter_q);
      enter_q <= enter_d;
      due_q   <= enter_d || second_done_i;
      y_due_q <= second_done_i;

      if (enter_q) begin
        u_busy_q   <= 1'b1;
        u_left_q   <= u;
        u_right_q  <= head_sector_i.decrypt ? head_pair_i[127:0] : head_pair_i[255:128];
        u_sector_q <= head_sector_i;
      end else begin
        if (u_done) u_right_q <= v;
        if (call_v) u_busy_q <= 1'b0;
      end
      u_away_q <= enter_q || (u_away_q && !u_done);
      y_away_q <= y_due_q || (y_away_q && !y_done);
      if (scale_valid_o) y_latest_q <= y_due_q;

      if (call_v) begin
        v_busy_q   <= 1'b1;
        v_left_q   <= u_left_q;
        v_right_q  <= v;
        v_sector_q <= u_sector_q;
      end else if (first_done_i) begin
        v_busy_q <= 1'b0;
      end
      if (first_done_i) begin
        w_left_q   <= w;
        w_right_q  <= v_right_q;
        w_sector_q <= v_sector_q;
      end
      if (second_done_i) begin
        y_left_q   <= w_right_q ^ done_i;
        y_right_q  <= w_left_q;
        y_sector_q <= w_sector_q;
      end
    end
  end

endmodule
