// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A PEC and a PDC side by side that take one block a cycle between them, each with
// its direction, and give them in the same order: both pipelines have the same
// length, so no two blocks come out together. Decryption is under key 0.

module aes_duplex
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits  = 128,
  // Keys that encryption may choose from.
  parameter int unsigned NumKeys  = 1,
  parameter int unsigned TagWidth = 1,
  localparam int unsigned Rounds   = rounds(KeyBits),
  localparam int unsigned SelWidth = NumKeys > 1 ? $clog2(NumKeys) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  block_t round_keys_i[NumKeys][Rounds+1],
  // Of key 0, for the equivalent inverse cipher.
  input  block_t inverse_keys_i[1][Rounds+1],

  input  logic                valid_i,
  input  logic                decrypt_i,
  input  block_t              block_i,
  input  logic [SelWidth-1:0] key_i,
  input  logic [TagWidth-1:0] tag_i,

  output logic                valid_o,
  output block_t              block_o,
  output logic [TagWidth-1:0] tag_o
);

  logic encrypted_valid, decrypted_valid;
  block_t encrypted, decrypted;
  logic [TagWidth-1:0] encrypted_tag, decrypted_tag;

  aes_pipe #(
    .KeyBits (KeyBits),
    .NumKeys (NumKeys),
    .TagWidth(TagWidth)
  ) u_pec (
    .clk_i,
    .rst_ni,
    .round_keys_i,
    .valid_i(valid_i && !decrypt_i),
    .block_i,
    .key_i,
    .tag_i,
    .valid_o(encrypted_valid),
    .block_o(encrypted),
    .tag_o  (encrypted_tag)
  );

  aes_pipe #(
    .KeyBits (KeyBits),
    .Decrypt (1'b1),
    .TagWidth(TagWidth)
  ) u_pdc (
    .clk_i,
    .rst_ni,
    .round_keys_i(inverse_keys_i),
    .valid_i     (valid_i && decrypt_i),
    .block_i,
    .key_i       (1'b0),
    .tag_i,
    .valid_o     (decrypted_valid),
    .block_o     (decrypted),
    .tag_o       (decrypted_tag)
  );

  assign valid_o = encrypted_valid || decrypted_valid;
  assign block_o = decrypted_valid ? decrypted : encrypted;
  assign tag_o   = decrypted_valid ? decrypted_tag : encrypted_tag;

endmodule
