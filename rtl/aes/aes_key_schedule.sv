// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The AES key schedule (FIPS 197, section 5.2): one round key a cycle into
// registers that every core of the design reads. A key of `KeyBits` bits is
// accepted when `ready_o` is high; `valid_o` is high once all round keys are
// there, KeyBits / 128 of them after the first cycle and one more in each
// further one. Reset overwrites all of it with zeros.
//
// With `Inverse` it also gives those of the equivalent inverse cipher (FIPS 197, section 5.3.5),
// InvMixColumns of all but the first and the last, which are there together with `valid_o`: so
// decryption adds its round key behind InvMixColumns, as encryption does, and not before.

module aes_key_schedule
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits = 128,
  parameter bit          Inverse = 1'b0,
  localparam int unsigned Rounds = rounds(KeyBits)
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic               valid_i,
  input  logic [KeyBits-1:0] key_i,
  output logic               ready_o,

  output logic   valid_o,
  output block_t round_keys_o[Rounds+1],
  // Zeros without `Inverse`.
  output block_t inverse_keys_o[Rounds+1]
);

  localparam int unsigned KeyBlocks = KeyBits / 128;
  localparam int unsigned CountWidth = $clog2(Rounds + 2);

  block_t keys_q[Rounds+1];
  // Round keys that are there; zero without a key. They are being made; all are there.
  logic [CountWidth-1:0] count_q;
  logic busy_q, valid_q, load;
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

  assign ready_o = !busy_q;
  assign valid_o = valid_q;
  assign load = valid_i && !busy_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      count_q    <= '0;
      busy_q     <= 1'b0;
      valid_q    <= 1'b0;
      constant_q <= '0;
      window_q   <= '0;
    end else if (load) begin
      count_q    <= CountWidth'(KeyBlocks);
      busy_q     <= 1'b1;
      valid_q    <= 1'b0;
      constant_q <= 8'h01;
      window_q   <= key_i;
    end else if (busy_q) begin
      count_q  <= count_q + 1'b1;
      busy_q   <= count_q != CountWidth'(Rounds);
      valid_q  <= count_q == CountWidth'(Rounds);
      window_q <= window_next;
      if (rotate) constant_q <= xtime(constant_q);
    end
  end

  for (genvar i = 0; i <= Rounds; i++) begin : gen_key
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) keys_q[i] <= '0;
      else if (load) keys_q[i] <= i < KeyBlocks ? key_i[128*(i%KeyBlocks)+:128] : '0;
      else if (i >= KeyBlocks && count_q == CountWidth'(i)) keys_q[i] <= next;
    end
  end

  assign round_keys_o = keys_q;

  if (Inverse) begin : gen_inverse
    // One at a time, from the latest of the round keys.
    block_t inverse;
    assign inverse = inv_mix_columns(window_q[KeyBits-1-:128]);
    assign inverse_keys_o[0] = keys_q[0];
    assign inverse_keys_o[Rounds] = keys_q[Rounds];
    for (genvar i = 1; i < Rounds; i++) begin : gen_key
      block_t inverse_q;
      always_ff @(posedge clk_i or negedge rst_ni) begin
        if (!rst_ni) inverse_q <= '0;
        else if (count_q == CountWidth'(i + 1)) inverse_q <= inverse;
      end
      assign inverse_keys_o[i] = inverse_q;
    end
  end else begin : gen_no_inverse
    assign inverse_keys_o = '{default: '0};
  end

endmodule
