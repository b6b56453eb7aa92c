// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The hash of HCTR2 twice, side by side under one key, over a tweak of 32 bytes (T,
// then zeros) and the blocks N_1 .. N_(m-1) of a sector of m. POLYVAL is a
// polynomial like any other, with all bits of a block in reverse order and k = x h for
// the key (RFC 8452, appendix A); L is the block of lengths:
//   H = L k^(m+2) + T k^(m+1) + the sum of N_i k^(m-i)
// so L k + T goes in the place of block 0, which has no part in the hash, with a power
// stored per key.

module hctr2_hash
  import gf128_pkg::*;
#(
  // Multipliers of each of the two, and blocks a beat.
  parameter int unsigned Lanes  = 2,
  // m, a power of two.
  parameter int unsigned Blocks = 256,
  localparam int unsigned Beats     = Blocks / Lanes,
  localparam int unsigned BeatWidth = $clog2(Beats)
) (
  input  logic clk_i,
  input  logic rst_ni,

  // h, the first thing after reset.
  input  logic         key_valid_i,
  input  logic [127:0] key_i,
  // Beats may go in.
  output logic         ready_o,

  // Beats, of one sector after the other in each; T with the first beat.
  input  logic [1:0]                valid_i,
  input  logic [1:0][BeatWidth-1:0] beat_i,
  input  logic [1:0][127:0]         tweak_i,
  input  logic [128*Lanes-1:0]      blocks_i[2],

  // Six cycles after the last beat.
  output logic [1:0]        valid_o,
  output logic [1:0][127:0] hash_o
);

  localparam int unsigned Stages = 4;
  localparam int unsigned Chains = Lanes * Stages;

  function automatic elem_t reverse(logic [127:0] block);
    elem_t reversed;
    for (int i = 0; i < 128; i++) reversed[i] = block[127-i];
    return reversed;
  endfunction

  // Twice the bits of the tweak, and 2 because the N are whole blocks.
  localparam elem_t Lengths = reverse(128'd514);

  logic single_valid, single_done, step_there, unused_step, all_there, ready_q;
  elem_t single_a, single_b, single_product, unused_top;
  elem_t powers[Chains+1], direct[1], constants[1], tail[Chains];
  // The first one also makes the powers of the key.
  logic [1:0] single_valid_out;
  logic [1:0][127:0] single_product_out;

  horner_powers #(
    .Max         (Chains),
    .Step        (Chains),
    .Blocks      (Blocks),
    .Directs     (1),
    .DirectLow   (1),
    .NumConstants(1),
    .Constants   (Lengths)
  ) u_powers (
    .clk_i,
    .rst_ni,
    .forget_i        (1'b0),
    .valid_i         (key_valid_i),
    .h_i             (double(reverse(key_i))),
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

  assign single_done = single_valid_out[0];
  assign single_product = single_product_out[0];
  // Beat 0 needs more than the step.
  assign unused_step = step_there;

  assign ready_o = ready_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) ready_q <= 1'b0;
    else ready_q <= all_there;
  end

  for (genvar i = 0; i < Chains; i++) begin : gen_tail
    assign tail[i] = powers[1+i];
  end

  for (genvar i = 0; i < 2; i++) begin : gen_hash
    elem_t places[Lanes];
    elem_t sum;
    logic unused_context;
    for (genvar lane = 0; lane < Lanes; lane++) begin : gen_places
      assign places[lane] = lane == 0 && beat_i[i] == '0
          ? reverse(tweak_i[i]) ^ constants[0] : reverse(blocks_i[i][128*lane+:128]);
    end
    horner #(
      .Lanes     (Lanes),
      .Stages    (Stages),
      .Contexts  (1),
      .Blocks    (Blocks),
      .FirstBlock(1),
      .LastBlock (Blocks - 1)
    ) u_horner (
      .clk_i,
      .rst_ni,
      .step_i          (powers[Chains]),
      .tail_i          (tail),
      .valid_i         (valid_i[i]),
      .context_i       (1'b0),
      .beat_i          (beat_i[i]),
      .blocks_i        (places),
      .direct_i        (direct[0]),
      .valid_o         (valid_o[i]),
      .context_o       (unused_context),
      .sum_o           (sum),
      .single_valid_i  (i == 0 && single_valid),
      .single_a_i      (single_a),
      .single_b_i      (single_b),
      .single_valid_o  (single_valid_out[i]),
      .single_product_o(single_product_out[i])
    );
    assign hash_o[i] = reverse(sum);
  end

  logic unused;
  assign unused = ^{single_valid_out[1], single_product_out[1]};

endmodule
