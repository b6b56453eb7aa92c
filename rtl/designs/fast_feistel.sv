// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The Feistel part of FAST, one sector at a time: from the first two blocks i1 and i2
// (swapped for decryption) and the first hash
//
//   u = i1 ^ g1     v = i2 ^ tau u     w = u ^ E(v)     y = v ^ E(w)     o2 = w ^ tau y
//
// z = v ^ w, for counter mode, is there along with w. E(w) is called in the very
// cycle in which E(v) comes out. Results wait until they are taken, and the next
// sector's first hash for that.

module fast_feistel
  import aes_pkg::*;
  import fast_pkg::*;
(
  input  logic clk_i,
  input  logic rst_ni,

  // The first hash, in one cycle; there is a place for one.
  input  logic         hash_valid_i,
  output logic         hash_ready_o,
  input  block_t       hash_i,
  // Its sector, and that one's first two blocks, the first one below.
  output logic         head_take_o,
  input  sector_t      head_sector_i,
  input  logic [255:0] head_pair_i,

  // Calls, which are always taken while the cores move; `second`: it is that of w.
  input  logic   aes_enable_i,
  output logic   call_valid_o,
  output logic   call_second_o,
  output block_t call_o,
  // The first or the second one's result, while the cores move.
  input  logic   first_done_i,
  input  logic   second_done_i,
  input  block_t done_i,

  // Products by tau, which are always taken; `second`: it is that of y.
  output logic   scale_valid_o,
  output logic   scale_second_o,
  output block_t scale_o,
  input  logic   scaled_valid_i,
  input  block_t scaled_i,

  // The sector, from when z is there until y and o2 are taken.
  output sector_t sector_o,
  output logic    z_valid_o,
  input  logic    z_ready_i,
  output block_t  z_o,
  output logic    result_valid_o,
  input  logic    result_ready_i,
  output block_t  y_o,
  output block_t  o2_o
);

  typedef enum logic [3:0] {
    Idle,
    ScaleU,
    WaitU,
    CallV,
    WaitV,
    WaitW,
    ScaleY,
    WaitY,
    Done
  } state_e;

  state_e state_q;
  sector_t sector_q;
  // In turn u, w, y and i2, v, w, o2.
  block_t left_q, right_q;
  logic z_valid_q;
  block_t z_q;
  // A first hash that waits; one is there.
  logic held_q, hash_there, take;
  block_t hold_q, hash;

  assign hash_ready_o = !held_q;
  assign hash_there = held_q || hash_valid_i;
  assign hash = held_q ? hold_q : hash_i;
  assign take = state_q == Idle && hash_there;
  assign head_take_o = take;

  logic call_first;
  assign call_first = state_q == CallV && !z_valid_q;
  assign call_valid_o = call_first || first_done_i;
  assign call_second_o = first_done_i;
  assign call_o = first_done_i ? left_q ^ done_i : right_q;

  assign scale_valid_o = state_q == ScaleU || state_q == ScaleY;
  assign scale_second_o = state_q == ScaleY;
  assign scale_o = left_q;

  assign sector_o = sector_q;
  assign z_valid_o = z_valid_q;
  assign z_o = z_q;
  assign result_valid_o = state_q == Done;
  assign y_o = left_q;
  assign o2_o = right_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      sector_q  <= '0;
      left_q    <= '0;
      right_q   <= '0;
      z_valid_q <= 1'b0;
      z_q       <= '0;
      held_q    <= 1'b0;
      hold_q    <= '0;
    end else begin
      if (hash_valid_i) hold_q <= hash_i;
      held_q <= hash_there && !take;
      if (z_ready_i) z_valid_q <= 1'b0;
      case (state_q)
        Idle:
        if (take) begin
          left_q   <= hash ^ (head_sector_i.decrypt ? head_pair_i[255:128] : head_pair_i[127:0]);
          right_q  <= head_sector_i.decrypt ? head_pair_i[127:0] : head_pair_i[255:128];
          sector_q <= head_sector_i;
          state_q  <= ScaleU;
        end
        ScaleU: state_q <= WaitU;
        WaitU:
        if (scaled_valid_i) begin
          right_q <= right_q ^ scaled_i;
          state_q <= CallV;
        end
        CallV: if (call_first && aes_enable_i) state_q <= WaitV;
        WaitV:
        if (first_done_i) begin
          left_q    <= left_q ^ done_i;
          z_q       <= right_q ^ left_q ^ done_i;
          z_valid_q <= 1'b1;
          state_q   <= WaitW;
        end
        WaitW:
        if (second_done_i) begin
          left_q  <= right_q ^ done_i;
          right_q <= left_q;
          state_q <= ScaleY;
        end
        ScaleY: state_q <= WaitY;
        WaitY:
        if (scaled_valid_i) begin
          right_q <= right_q ^ scaled_i;
          state_q <= Done;
        end
        Done: if (result_ready_i) state_q <= Idle;
        default: state_q <= Idle;
      endcase
    end
  end

endmodule
