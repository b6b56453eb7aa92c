// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Horner's rule with the powers of a key, as a test bench drives them: sectors of
// 32 blocks, the last block multiplied by h^3, other places by h^34 or h^35.

module horner_tb
  import gf128_pkg::*;
#(
  parameter int unsigned Lanes      = 1,
  parameter int unsigned Stages     = 4,
  parameter int unsigned Contexts   = 2,
  parameter int unsigned FirstBlock = 0,
  parameter int unsigned LastBlock  = 30,
  localparam int unsigned Chains = Lanes * Stages,
  localparam int unsigned Max    = 2 + Chains > 4 ? 2 + Chains : 4
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic  key_valid_i,
  input  elem_t h_i,

  input  logic                 valid_i,
  output logic                 ready_o,
  input  logic                 context_i,
  input  logic [          4:0] beat_i,
  input  logic [128*Lanes-1:0] blocks_i,
  // Which of the two direct powers.
  input  logic                 direct_i,

  output logic  valid_o,
  output logic  context_o,
  output elem_t sum_o,

  output logic  all_valid_o,
  output elem_t top_o,
  // L h and M h^2, with bit i set in constant i.
  output elem_t constant0_o,
  output elem_t constant1_o,
  // Whether a bit is set in anything that belongs to the key.
  output logic  any_key_bit_o
);

  localparam int unsigned BeatWidth = $clog2(32 / Lanes);

  logic single_valid, single_done, step_valid;
  elem_t single_a, single_b, single_product;
  elem_t powers[Max+1], direct[2], constants[2];
  elem_t tail[Chains], blocks[Lanes];

  for (genvar i = 0; i < Chains; i++) begin : gen_tail
    assign tail[i] = powers[3+i];
  end
  for (genvar i = 0; i < Lanes; i++) begin : gen_blocks
    assign blocks[i] = blocks_i[128*i+:128];
  end

  // Beats that need more than h^(M S) wait for all of the powers.
  assign ready_o = step_valid && !single_valid
      && (all_valid_o || (FirstBlock == 0 && 32'(beat_i) < 4));
  assign constant0_o = constants[0];
  assign constant1_o = constants[1];

  horner_powers #(
    .Max         (Max),
    .Step        (Chains),
    .Blocks      (32),
    .Directs     (2),
    .DirectLow   (2),
    .NumConstants(2),
    .Constants   ({128'h2, 128'h1})
  ) u_powers (
    .clk_i,
    .rst_ni,
    .forget_i        (1'b0),
    .valid_i         (key_valid_i),
    .h_i,
    .single_valid_o  (single_valid),
    .single_a_o      (single_a),
    .single_b_o      (single_b),
    .single_valid_i  (single_done),
    .single_product_i(single_product),
    .step_valid_o    (step_valid),
    .all_valid_o,
    .powers_o        (powers),
    .top_o,
    .direct_o        (direct),
    .constants_o     (constants)
  );

  horner #(
    .Lanes     (Lanes),
    .Stages    (Stages),
    .Contexts  (Contexts),
    .Blocks    (32),
    .FirstBlock(FirstBlock),
    .LastBlock (LastBlock)
  ) u_horner (
    .clk_i,
    .rst_ni,
    .step_i          (powers[Chains]),
    .tail_i          (tail),
    .valid_i         (valid_i && ready_o),
    .context_i,
    .beat_i          (beat_i[BeatWidth-1:0]),
    .blocks_i        (blocks),
    .direct_i        (direct[direct_i]),
    .valid_o,
    .context_o,
    .sum_o,
    .single_valid_i  (single_valid),
    .single_a_i      (single_a),
    .single_b_i      (single_b),
    .single_valid_o  (single_done),
    .single_product_o(single_product)
  );

  always_comb begin
    any_key_bit_o = |top_o || |constants[0] || |constants[1] || |direct[0] || |direct[1];
    for (int i = 0; i <= int'(Max); i++) any_key_bit_o |= |powers[i];
  end

endmodule
