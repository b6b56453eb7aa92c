// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The keys of HCTR2: round keys, the hash key h = E_K(0) and L = E_K(1). The two
// calls go to the design's pipeline right behind the key: the schedule makes a round
// key a cycle, and the pipeline needs one a cycle, so that h is there two cycles
// after the last round key.

module hctr2_keys
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits = 128,
  localparam int unsigned Rounds = rounds(KeyBits)
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic               valid_i,
  output logic               ready_o,
  input  logic [KeyBits-1:0] key_i,

  // Its round keys are done.
  output logic expanded_o,

  // Calls of AES, and what comes of them, in order.
  output logic   call_o,
  output block_t block_o,
  input  logic   done_i,
  input  block_t block_i,
  // The first of them is h.
  output logic   hash_key_o,

  output block_t l_o,
  output block_t round_keys_o[1][Rounds+1],
  // For decryption: see `aes_key_schedule`.
  output block_t inverse_keys_o[1][Rounds+1]
);

  logic key_q, ready;
  // Calls made, and come back: 0 to 2.
  logic [1:0] made_q, done_q;
  block_t l_q;

  logic take;
  assign ready_o = ready && (!key_q || done_q[1]);
  assign take = valid_i && ready_o;
  assign call_o = key_q && !made_q[1];
  assign block_o = 128'(made_q);
  assign hash_key_o = done_i && done_q == '0;
  assign l_o = l_q;

  aes_key_schedule #(
    .KeyBits(KeyBits),
    .Inverse(1'b1)
  ) u_schedule (
    .clk_i,
    .rst_ni,
    .valid_i       (take),
    .key_i,
    .ready_o       (ready),
    .valid_o       (expanded_o),
    .round_keys_o  (round_keys_o[0]),
    .inverse_keys_o(inverse_keys_o[0])
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      key_q  <= 1'b0;
      made_q <= '0;
      done_q <= '0;
      l_q    <= '0;
    end else if (take) begin
      key_q  <= 1'b1;
      made_q <= '0;
      done_q <= '0;
      l_q    <= '0;
    end else begin
      if (call_o) made_q <= made_q + 1'b1;
      if (done_i) done_q <= done_q + 1'b1;
      if (done_i && !hash_key_o) l_q <= block_i;
    end
  end

endmodule
