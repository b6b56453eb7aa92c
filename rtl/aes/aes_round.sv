// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One round of AES encryption, without a register (FIPS 197, section 5.1).

module aes_round
  import aes_pkg::*;
#(
  // The last round mixes no columns.
  parameter bit Last = 1'b0
) (
  input  block_t state_i,
  input  block_t key_i,
  output block_t state_o
);

  block_t substituted, shifted;

  for (genvar i = 0; i < 16; i++) begin : gen_sbox
    aes_sbox u_sbox (
      .data_i(state_i[8*i+:8]),
      .data_o(substituted[8*i+:8])
    );
  end

  assign shifted = shift_rows(substituted);
  assign state_o = (Last ? shifted : mix_columns(shifted)) ^ key_i;

endmodule
