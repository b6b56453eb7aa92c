// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One round of AES decryption, without a register, with the round keys of the equivalent
// inverse cipher (FIPS 197, section 5.3.5), in reverse order.

module aes_inv_round
  import aes_pkg::*;
(
  // The last round mixes no columns.
  input  logic   last_i,
  input  block_t state_i,
  input  block_t key_i,
  output block_t state_o
);

  block_t shifted, substituted;

  assign shifted = inv_shift_rows(state_i);

  for (genvar i = 0; i < 16; i++) begin : gen_sbox
    aes_inv_sbox u_sbox (
      .data_i(shifted[8*i+:8]),
      .data_o(substituted[8*i+:8])
    );
  end

  assign state_o = (last_i ? substituted : inv_mix_columns(substituted)) ^ key_i;

endmodule
