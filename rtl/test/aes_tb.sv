// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The AES cores and their key schedule side by side, as a test bench drives them:
// two keys, one expanded after the other.

module aes_tb
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits = 128
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic [1:0]         key_valid_i,
  input  logic [KeyBits-1:0] key_i,
  output logic [1:0]         key_ready_o,
  output logic [1:0]         keys_valid_o,

  input  logic        valid_i,
  input  logic        sel_i,
  input  logic [15:0] tag_i,
  input  block_t      block_i,

  output logic        pec_valid_o,
  output logic [15:0] pec_tag_o,
  output block_t      pec_block_o,
  output logic        pdc_valid_o,
  output logic [15:0] pdc_tag_o,
  output block_t      pdc_block_o,

  input  logic        sdc_valid_i,
  output logic        sdc_ready_o,
  output logic        sdc_valid_o,
  output logic [15:0] sdc_tag_o,
  output block_t      sdc_block_o,

  // Whether a bit is set in any round key.
  output logic any_key_bit_o
);

  localparam int unsigned Rounds = rounds(KeyBits);
  block_t round_keys[2][Rounds+1], inverse_keys[2][Rounds+1];

  for (genvar i = 0; i < 2; i++) begin : gen_key
    aes_key_schedule #(
      .KeyBits(KeyBits),
      .Inverse(1'b1)
    ) u_schedule (
      .clk_i,
      .rst_ni,
      .valid_i       (key_valid_i[i]),
      .key_i,
      .ready_o       (key_ready_o[i]),
      .valid_o       (keys_valid_o[i]),
      .round_keys_o  (round_keys[i]),
      .inverse_keys_o(inverse_keys[i])
    );
  end

  always_comb begin
    any_key_bit_o = 1'b0;
    for (int i = 0; i < 2; i++) begin
      for (int j = 0; j <= int'(Rounds); j++) any_key_bit_o |= |{round_keys[i][j], inverse_keys[i][j]};
    end
  end

  aes_pipe #(
    .KeyBits (KeyBits),
    .NumKeys (2),
    .TagWidth(16)
  ) u_pec (
    .clk_i,
    .rst_ni,
    .round_keys_i(round_keys),
    .valid_i,
    .block_i,
    .key_i       (sel_i),
    .tag_i,
    .valid_o     (pec_valid_o),
    .block_o     (pec_block_o),
    .tag_o       (pec_tag_o)
  );

  aes_pipe #(
    .KeyBits (KeyBits),
    .Decrypt (1'b1),
    .NumKeys (2),
    .TagWidth(16)
  ) u_pdc (
    .clk_i,
    .rst_ni,
    .round_keys_i(inverse_keys),
    .valid_i,
    .block_i,
    .key_i       (sel_i),
    .tag_i,
    .valid_o     (pdc_valid_o),
    .block_o     (pdc_block_o),
    .tag_o       (pdc_tag_o)
  );

  aes_sdc #(
    .KeyBits (KeyBits),
    .NumKeys (2),
    .TagWidth(16)
  ) u_sdc (
    .clk_i,
    .rst_ni,
    .round_keys_i(inverse_keys),
    .valid_i     (sdc_valid_i),
    .block_i,
    .key_i       (sel_i),
    .tag_i,
    .ready_o     (sdc_ready_o),
    .valid_o     (sdc_valid_o),
    .block_o     (sdc_block_o),
    .tag_o       (sdc_tag_o)
  );

endmodule
