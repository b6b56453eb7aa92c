// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The AES key schedule (FIPS 197, section 5.2): one round key a cycle into
// registers that every core of the design reads. A key of `KeyBits` bits is
// accepted when `ready_o` is high; `valid_o` is high once all round keys are
// there, KeyBits / 128 of them after the first cycle and one more in each
// further one. Reset overwrites all of it with zeros.

module aes_key_schedule
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits = 128,
  localparam int unsigned Rounds = rounds(KeyBits)
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic               valid_i,
  input  logic [KeyBits-1:0] key_i,
  output logic               ready_o,

  output logic   valid_o,
  output block_t round_keys_o[Rounds+1]
);

  localparam int unsigned KeyBlocks = KeyBits / 128;
  localparam int unsigned CountWidth = $clog2(Rounds + 2);

  block_t keys_q[Rounds+1];
  // Round keys that are there; zero without a key.
  logic [CountWidth-1:0] count_q;
  logic [7:0] constant_q;

  // The last KeyBits bits of the schedule so far, the latest highest.
  logic [KeyBits-1:0] window_q;

  // The word before the next one, through RotWord where a key's length is
  // complete, and SubWord.
  logic        rotate;
  logic [31:0] last_word, rotated, substituted;
  assign last_word = window_q[KeyBits-1-:32];
  // AES-256: every second round key starts without RotWord and constant.
  assign rotate = KeyBlocks == 1 || !count_q[0];
  assign rotated = rotate ? {last_word[7:0], last_word[31:8]} : last_word;

  for (genvar i = 0; i < 4; i++) begin : gen_sbox
    aes_sbox u_sbox (
      .data_i(rotated[8*i+:8]),
      .data_o(substituted[8*i+:8])
    );
  end

  block_t next;
  always_comb begin
    logic [31:0] word;
    word = substituted ^ (rotate ? {24'b0, constant_q} : 32'b0);
    for (int i = 0; i < 4; i++) begin
      word ^= window_q[32*i+:32];
      next[32*i+:32] = word;
    end
  end

  logic [KeyBits-1:0] window_next;
  if (KeyBlocks == 1) begin : gen_128
    assign window_next = next;
  end else begin : gen_256
    assign window_next = {next, window_q[KeyBits-1:128]};
  end

  assign ready_o = count_q == '0 || valid_o;
  assign valid_o = count_q == CountWidth'(Rounds + 1);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      count_q    <= '0;
      constant_q <= '0;
      window_q   <= '0;
    end else if (valid_i && ready_o) begin
      count_q    <= CountWidth'(KeyBlocks);
      constant_q <= 8'h01;
      window_q   <= key_i;
    end else if (count_q != '0 && !valid_o) begin
      count_q  <= count_q + 1'b1;
      window_q <= window_next;
      if (rotate) constant_q <= xtime(constant_q);
    end
  end

  for (genvar i = 0; i <= Rounds; i++) begin : gen_key
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) keys_q[i] <= '0;
      else if (valid_i && ready_o) keys_q[i] <= i < KeyBlocks ? key_i[128*(i%KeyBlocks)+:128] : '0;
      else if (i >= KeyBlocks && count_q == CountWidth'(i)) keys_q[i] <= next;
    end
  end

  assign round_keys_o = keys_q;

endmodule
