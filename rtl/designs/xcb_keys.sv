// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The keys of XCB. From the key K, by its own AES: H = E_K(0), and K_e, K_d and
// K_c, the first bytes of E_K(1) || E_K(2), E_K(3) || E_K(4) and E_K(5) || E_K(6)
// (with 128 bits the first of each pair will do). The calls go to the
// design's pipeline one a cycle, right behind the key: the schedule makes a round key
// a cycle, and the pipeline needs one a cycle, so that H is there two cycles after the
// last round key. The schedule of K makes that of K_c in the end.
//
//   cycle 0 K is taken; 1.. calls (4, or 7 of AES-256); rounds + 3 and later: H, then
//   K_e, K_d, K_c as they come out; their schedules run side by side.

module xcb_keys
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

  // Its round keys are done; those of K_e, K_d and K_c are.
  output logic expanded_o,
  output logic derived_o,

  // Calls of AES under key 0, and what comes of them, in order.
  output logic   call_o,
  output block_t block_o,
  input  logic   done_i,
  input  block_t block_i,
  // The first of them is H.
  output logic   hash_key_o,

  // 0: K, then K_c; 1: K_e; 2: K_d.
  output block_t round_keys_o[3][Rounds+1],
  // For decryption, of K_e and of K_d: see `aes_key_schedule`.
  output block_t inverse_keys_o[2][Rounds+1]
);

  localparam int unsigned Halves = KeyBits / 128;
  localparam int unsigned Calls = 1 + 3 * Halves;

  logic key_q, expanded_q;
  // Calls made, and come back: up to Calls.
  logic [2:0] made_q, done_q;

  logic [2:0] load, ready, valid;
  logic [KeyBits-1:0] derived;

  logic take;
  assign take = valid_i && ready_o;
  assign ready_o = (!key_q || derived_o) && ready[0];
  assign expanded_o = key_q && (expanded_q || valid[0]);
  assign derived_o = key_q && done_q == 3'(Calls) && (&valid);

  // Call n is E_K(n), or of AES-128 E_K(0), E_K(1), E_K(3), E_K(5), as a big-endian
  // number.
  logic [2:0] number;
  assign number = Halves == 2 || made_q == '0 ? made_q : {made_q[1:0], 1'b0} - 3'd1;
  assign call_o = key_q && made_q != 3'(Calls);
  assign block_o = {5'b0, number, 120'b0};
  assign hash_key_o = done_i && done_q == '0;

  if (Halves == 1) begin : gen_128
    assign derived = block_i;
    assign load = {done_q == 3'd2, done_q == 3'd1, done_q == 3'd3} & {3{done_i}};
  end else begin : gen_256
    // The first half of a derived key.
    block_t half_q;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) half_q <= '0;
      else if (done_i) half_q <= done_q == 3'(Calls - 1) ? '0 : block_i;
    end
    assign derived = {block_i, half_q};
    assign load = {done_q == 3'd4, done_q == 3'd2, done_q == 3'd6} & {3{done_i}};
  end

  block_t inverse[3][Rounds+1];
  assign inverse_keys_o[0] = inverse[1];
  assign inverse_keys_o[1] = inverse[2];

  for (genvar i = 0; i < 3; i++) begin : gen_schedule
    aes_key_schedule #(
      .KeyBits(KeyBits),
      .Inverse(i > 0)
    ) u_schedule (
      .clk_i,
      .rst_ni,
      .valid_i       (load[i] || (i == 0 && take)),
      .key_i         (i == 0 && take ? key_i : derived),
      .ready_o       (ready[i]),
      .valid_o       (valid[i]),
      .round_keys_o  (round_keys_o[i]),
      .inverse_keys_o(inverse[i])
    );
  end

  // A schedule is long done with one key when the next one comes.
  logic unused_ready;
  assign unused_ready = ^ready[2:1];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      key_q      <= 1'b0;
      expanded_q <= 1'b0;
      made_q     <= '0;
      done_q     <= '0;
    end else if (take) begin
      key_q      <= 1'b1;
      expanded_q <= 1'b0;
      made_q     <= '0;
      done_q     <= '0;
    end else begin
      if (valid[0]) expanded_q <= 1'b1;
      if (call_o) made_q <= made_q + 1'b1;
      if (done_i) done_q <= done_q + 1'b1;
    end
  end

endmodule
