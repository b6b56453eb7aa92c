// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One round of AES decryption, without a register (FIPS 197, section 5.3), with
// the round keys of encryption in reverse order.

module aes_inv_round
  import aes_pkg::*;
#(
  // The last round mixes no columns.
  parameter bit Last = 1'b0
) (
  input  block_t state_i,
  input  block_t key_i,
  output block_t state_o
);

  block_t shifted, keyed;

  assign shifted = inv_shift_rows(state_i);

  block_t substituted;
  for (genvar i = 0; i < 16; i++) begin : gen_sbox
    aes_inv_sbox u_sbox (
      .data_i(shifted[8*i+:8]),
      .data_o(substituted[8*i+:8])
    );
  end

  assign keyed = substituted ^ key_i;
  assign state_o = Last ? keyed : inv_mix_columns(keyed);

endmodule
