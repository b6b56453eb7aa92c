// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sequential AES decryption: one round a cycle, one block at a time, for the
// designs that decrypt once per sector (the papers' SDC). 11 cycles a block for
// AES-128, 15 for AES-256: the block is accepted in one, and comes out that
// many later. `ready_o` is high while no block is under way. As with the
// pipelines, a block chooses its key, and a tag stays with it.

module aes_sdc
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits  = 128,
  // Keys that blocks may choose from.
  parameter int unsigned NumKeys  = 1,
  parameter int unsigned TagWidth = 1,
  localparam int unsigned Rounds   = rounds(KeyBits),
  localparam int unsigned SelWidth = NumKeys > 1 ? $clog2(NumKeys) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  // Of the equivalent inverse cipher (aes_key_schedule with `Inverse`).
  input  block_t round_keys_i[NumKeys][Rounds+1],

  input  logic                valid_i,
  input  block_t              block_i,
  input  logic [SelWidth-1:0] key_i,
  input  logic [TagWidth-1:0] tag_i,
  output logic                ready_o,

  output logic                valid_o,
  output block_t              block_o,
  output logic [TagWidth-1:0] tag_o
);

  localparam int unsigned CountWidth = $clog2(Rounds + 1);

  block_t state_q, state;
  logic [SelWidth-1:0] key_q;
  logic [TagWidth-1:0] tag_q;
  // Rounds to go.
  logic [CountWidth-1:0] count_q;
  logic busy_q, last_q, done_q;

  // The round's key, and the number of the next one: of the first round while no block is under way.
  block_t round_key_q;
  logic [CountWidth-1:0] next_q;
  logic [SelWidth-1:0] key;

  assign key = busy_q ? key_q : key_i;

  aes_inv_round u_round (
    .last_i (last_q),
    .state_i(state_q),
    .key_i  (round_key_q),
    .state_o(state)
  );

  assign ready_o = !busy_q;
  assign valid_o = done_q;
  assign block_o = state_q;
  assign tag_o   = tag_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q     <= '0;
      key_q       <= '0;
      tag_q       <= '0;
      count_q     <= '0;
      busy_q      <= 1'b0;
      last_q      <= 1'b0;
      done_q      <= 1'b0;
      round_key_q <= '0;
      next_q      <= CountWidth'(Rounds - 1);
    end else begin
      last_q      <= count_q == CountWidth'(2);
      done_q      <= last_q;
      round_key_q <= round_keys_i[key][next_q];
      if (busy_q) begin
        count_q <= count_q - 1'b1;
        busy_q  <= !last_q;
        state_q <= state;
        next_q  <= last_q || next_q == '0 ? CountWidth'(Rounds - 1) : next_q - 1'b1;
      end else if (valid_i) begin
        count_q <= CountWidth'(Rounds);
        busy_q  <= 1'b1;
        key_q   <= key_i;
        tag_q   <= tag_i;
        state_q <= block_i ^ round_keys_i[key_i][Rounds];
        next_q  <= CountWidth'(Rounds - 2);
      end
    end
  end

endmodule
