// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What AEZ10 has of its key: round keys, then I and J from one call in each lane, then
// E^{3,1}(0) for Delta. The first calls start with the first round key, which the
// others follow one a cycle, as fast as a block goes through the rounds.

module aez10_keys
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits = 128,
  localparam int unsigned Rounds  = rounds(KeyBits)
) (
  input  logic clk_i,
  input  logic rst_ni,

  // A key is taken with `key_valid_i`; only when `ready_o`.
  input  logic               key_valid_i,
  input  logic [KeyBits-1:0] key_i,
  output logic               ready_o,

  output logic   expanded_o,
  output block_t round_keys_o[1][Rounds+1],

  // The calls for I and J, and the one for E^{3,1}(0), are to be made now; nothing is in their
  // way.
  output logic   call_ij_o,
  output logic   call_delta_o,
  input  logic   ij_valid_i,
  input  block_t i_i,
  input  block_t j_i,
  input  logic   delta_valid_i,
  input  block_t delta_i,

  // In the order of gf128_pkg.
  output block_t i_o,
  output block_t j_o,
  output block_t delta_o,
  // Masks of pairs may be made from the next cycle on.
  output logic   load_o,
  // Calls for tweaks, and pairs, may be made.
  output logic   tweaks_o,
  output logic   pairs_o
);

  typedef enum logic [2:0] {
    NoKey,
    CallIJ,
    WaitIJ,
    CallDelta,
    Tweaks,
    Pairs
  } state_e;

  state_e state_q;
  block_t i_d, i_q, j_d, j_q, delta_q;
  // Not all of its calls are back.
  logic away_q, ready;

  block_t unused_inverse_keys[Rounds+1];
  aes_key_schedule #(
    .KeyBits(KeyBits)
  ) u_schedule (
    .clk_i,
    .rst_ni,
    .valid_i       (key_valid_i),
    .key_i,
    .ready_o       (ready),
    .valid_o       (expanded_o),
    .round_keys_o  (round_keys_o[0]),
    .inverse_keys_o(unused_inverse_keys)
  );

  assign ready_o = ready && !away_q;
  assign i_d = gf128_pkg::swap_bytes(i_i);
  assign j_d = gf128_pkg::swap_bytes(j_i);
  assign i_o = i_q;
  assign j_o = j_q;
  assign delta_o = delta_q;

  assign call_ij_o = state_q == CallIJ;
  assign call_delta_o = state_q == CallDelta;
  assign load_o = state_q == WaitIJ && ij_valid_i;
  assign tweaks_o = state_q == Tweaks || state_q == Pairs;
  assign pairs_o = state_q == Pairs;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= NoKey;
      away_q  <= 1'b0;
      i_q     <= '0;
      j_q     <= '0;
      delta_q <= '0;
    end else if (key_valid_i) begin
      state_q <= CallIJ;
      away_q  <= 1'b1;
      i_q     <= '0;
      j_q     <= '0;
      delta_q <= '0;
    end else begin
      unique case (state_q)
        CallIJ:    state_q <= WaitIJ;
        WaitIJ:    if (ij_valid_i) state_q <= CallDelta;
        CallDelta: state_q <= Tweaks;
        Tweaks:    state_q <= Pairs;
        default:   ;
      endcase
      if (load_o) begin
        i_q <= i_d;
        j_q <= j_d;
      end
      if (delta_valid_i) begin
        delta_q <= delta_i;
        away_q  <= 1'b0;
      end
    end
  end

endmodule
