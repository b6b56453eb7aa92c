// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The hashes of XCB over the tweak Z and m - 1 blocks X, from blocks to blocks in
// GCM's layout. With L the block of lengths that ends both (of Z and a zero block; of
// the X and one more), and M the one before it in h2 (of Z and a zero block; of the X):
//   h1 = Z H^(m+2) + the sum of X_i H^(m+2-i) + L H
//   h2 = Z H^(m+3) + the sum of X_i H^(m+2-i) + M H^2 + L H
// so Z goes in the place of block m, which has no part in a hash, with one of two powers
// stored per key, and the rest is constant.

module xcb_hash
  import gf128_pkg::*;
#(
  // Multipliers, and blocks a beat.
  parameter int unsigned Lanes  = 1,
  // m, a power of two.
  parameter int unsigned Blocks = 256,
  localparam int unsigned Beats     = Blocks / Lanes,
  localparam int unsigned BeatWidth = $clog2(Beats)
) (
  input  logic clk_i,
  input  logic rst_ni,

  // H, the first thing after reset.
  input  logic         key_valid_i,
  input  logic [127:0] key_i,
  // A beat may go in, of the first Beats - 5 of a sector; any beat may.
  output logic         early_ready_o,
  output logic         ready_o,

  // Beats of two sectors, in two contexts, in any order.
  input  logic                 valid_i,
  input  logic                 context_i,
  input  logic [BeatWidth-1:0] beat_i,
  input  logic                 last_i,
  input  logic [        127:0] blocks_i[Lanes],
  // With the last beat: Z, and whether this is h2.
  input  logic [        127:0] tweak_i,
  input  logic                 h2_i,

  // Six cycles after the last beat: the hash, if it is h1 or h2.
  output logic         valid_o,
  output logic         context_o,
  output logic [127:0] h1_o,
  output logic [127:0] h2_o
);

  localparam int unsigned Stages = 4;
  localparam int unsigned Chains = Lanes * Stages;
  localparam int unsigned Max    = 2 + Chains;

  // L and M: big-endian numbers of bits, 64 bits each.
  localparam logic [63:0] SectorBits = 64'(128 * Blocks);
  localparam elem_t OuterLengths = swap_gcm(swap_bytes({64'd256, SectorBits}));
  localparam elem_t InnerLengths = swap_gcm(swap_bytes({64'd256, SectorBits - 64'd128}));

  logic single_valid, single_done, step_there, all_there;
  elem_t single_a, single_b, single_product, sum, unused_top;
  elem_t powers[Max+1], direct[2], constants[2], tail[Chains], places[Lanes];

  horner_powers #(
    .Max         (Max),
    .Step        (Chains),
    .Blocks      (Blocks),
    .Directs     (2),
    .DirectLow   (2),
    .NumConstants(2),
    .Constants   ({InnerLengths, OuterLengths})
  ) u_powers (
    .clk_i,
    .rst_ni,
    .forget_i        (1'b0),
    .valid_i         (key_valid_i),
    .h_i             (swap_gcm(key_i)),
    .single_valid_o  (single_valid),
    .single_a_o      (single_a),
    .single_b_o      (single_b),
    .single_valid_i  (single_done),
    .single_product_i(single_product),
    .step_valid_o    (step_there),
    .all_valid_o     (all_there),
    .powers_o        (powers),
    .top_o           (unused_top),
    .direct_o        (direct),
    .constants_o     (constants)
  );

  assign early_ready_o = step_there && !single_valid;
  assign ready_o = all_there;

  // The last X has H^3.
  for (genvar i = 0; i < Chains; i++) begin : gen_tail
    assign tail[i] = powers[3+i];
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_places
    assign places[lane] = swap_gcm(
        lane == Lanes - 1 && last_i ? tweak_i : blocks_i[lane]);
  end

  horner #(
    .Lanes     (Lanes),
    .Stages    (Stages),
    .Contexts  (2),
    .Blocks    (Blocks),
    .FirstBlock(0),
    .LastBlock (Blocks - 2)
  ) u_horner (
    .clk_i,
    .rst_ni,
    .step_i          (powers[Chains]),
    .tail_i          (tail),
    .valid_i,
    .context_i,
    .beat_i,
    .blocks_i        (places),
    .direct_i        (direct[h2_i]),
    .valid_o,
    .context_o,
    .sum_o           (sum),
    .single_valid_i  (single_valid),
    .single_a_i      (single_a),
    .single_b_i      (single_b),
    .single_valid_o  (single_done),
    .single_product_o(single_product)
  );

  assign h1_o = swap_gcm(sum ^ constants[0]);
  assign h2_o = swap_gcm(sum ^ constants[0] ^ constants[1]);

endmodule
