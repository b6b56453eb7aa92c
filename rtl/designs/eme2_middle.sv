// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What EME2 does between its two passes over a sector, one sector at a time: the
// AES calls over the sum of the first pass's results PPP_j, one for each 128 blocks,
// that give the masks of the second pass.
//
// The specification (IEEE 1619.2) has MP = T* ^ sum PPP_j, MC = E(MP), M_0 = MP ^ MC
// and, where a sector has a block 128, MP' = PPP_128 ^ M_0, MC' = E(MP'),
// M_128 = MP' ^ MC'. The second pass's inputs CCC_j are then PPP_j ^ M_j, where M
// doubles from block to block and is M_128 at j = 128, since MC' ^ M_0 is
// PPP_128 ^ M_128. It defines CCC_0 by the sum of all others, so that it is the last
// one; but put in, all PPP_j cancel but the first:
//   CCC_0 = PPP_0 ^ (1 + x + x^2 + ... + x^(n-1)) (M_0 ^ M_128),
// n = 128 or the blocks of a shorter sector. So the second pass may begin with it as
// soon as M_128 is there, and the output is in order without waiting. Its factor is
// (1 + x)(1 + x^2)(1 + x^4) ..., applied in two steps: three of these with the result
// of the last call, the others a cycle later.
//
// Calls go before everything else, each known two cycles ahead, since it is known when a
// result comes: a call that follows from a result is put together in the cycle of that, out of a
// register in the next.

module eme2_middle
  import gf128_pkg::*;
#(
  // Of a sector; up to 256.
  parameter int unsigned Blocks = 256
) (
  input  logic clk_i,
  input  logic rst_ni,

  // A sector's first pass is over, or will be in the next cycle with MP in `direct_i` then; it is
  // taken, a cycle after that.
  input  logic  start_soon_i,
  input  logic  start_direct_i,
  input  elem_t direct_i,
  output logic  start_taken_o,
  input  logic  decrypt_i,
  // The last sector of its run.
  input  logic  last_i,
  // MP and PPP_128.
  input  elem_t sum_i,
  input  elem_t head_i,

  // A call two cycles later; in the next cycle, with its block; in this one.
  output logic  call_soon_o,
  output logic  call_next_o,
  output elem_t call_block_o,
  output logic  call_o,
  output logic  call_decrypt_o,
  // Its result in the next cycle; in this one.
  input  logic  result_soon_i,
  input  logic  result_valid_i,
  input  elem_t result_i,

  // The second pass may begin two cycles later.
  output logic  soon_o,
  // It needs these masks no more.
  input  logic  release_i,
  output logic  decrypt_o,
  output logic  last_o,
  // A cycle after the first `soon_o` and later, until the release: CCC_0 ^ PPP_0, M_0 and M_128.
  output elem_t first_mask_o,
  output elem_t low_mask_o,
  output elem_t high_mask_o
);

  localparam bit TwoCalls = Blocks > 128;
  localparam int unsigned Terms = TwoCalls ? 128 : Blocks;
  // Terms of the first step of the sum.
  localparam int unsigned Early = 8;

  typedef enum logic [1:0] {
    Idle,
    FirstCall,
    SecondCall,
    Done
  } state_e;

  state_e state_q;
  // A call in the next cycle, with the block of `direct_i`; in this one.
  logic next_q, direct_q, call_q, decrypt_q, last_q;
  elem_t head_q, low_q, high_q, masks, part_q;

  // (1 + x^from)(1 + x^(2 from)) ... (1 + x^(to / 2)) a
  function automatic elem_t sum_of_multiples(elem_t a, int unsigned from, int unsigned to);
    elem_t sum;
    sum = a;
    for (int unsigned power = from; power < to; power *= 2) begin
      sum ^= times_power(sum, power);
    end
    return sum;
  endfunction

  // M_0 ^ M_128, at the last result: MP ^ MC, or of M_0 ^ MP' ^ MC' what is left.
  assign masks = (TwoCalls ? head_q : low_q) ^ result_i;

  assign call_soon_o = (state_q == Idle && !next_q && !call_q && start_soon_i)
      || (TwoCalls && state_q == FirstCall && result_soon_i);
  assign call_next_o = next_q;
  assign call_o = call_q;
  assign start_taken_o = state_q == Idle && call_q;
  assign call_decrypt_o = state_q == Idle ? decrypt_i : decrypt_q;
  assign call_block_o = state_q != Idle ? head_q ^ low_q ^ result_i : direct_q ? direct_i : sum_i;

  assign soon_o = state_q == Done
      || (state_q == (TwoCalls ? SecondCall : FirstCall) && result_valid_i);
  assign decrypt_o = decrypt_q;
  assign last_o = last_q;
  assign first_mask_o = sum_of_multiples(part_q, Early, Terms);
  assign low_mask_o = low_q;
  assign high_mask_o = high_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      next_q    <= 1'b0;
      direct_q  <= 1'b0;
      call_q    <= 1'b0;
      decrypt_q <= 1'b0;
      last_q    <= 1'b0;
      head_q    <= '0;
      low_q     <= '0;
      high_q    <= '0;
      part_q    <= '0;
    end else begin
      next_q   <= call_soon_o;
      direct_q <= start_direct_i;
      call_q   <= next_q;
      if (result_valid_i) part_q <= sum_of_multiples(masks, 1, Early);
      unique case (state_q)
        Idle: begin
          if (call_q) begin
            state_q   <= FirstCall;
            decrypt_q <= decrypt_i;
            last_q    <= last_i;
            head_q    <= head_i;
            low_q     <= sum_i;
          end
        end
        FirstCall: begin
          if (result_valid_i) begin
            state_q <= TwoCalls ? SecondCall : Done;
            low_q   <= low_q ^ result_i;
          end
        end
        SecondCall: begin
          if (call_q) high_q <= head_q ^ low_q;
          if (result_valid_i) begin
            state_q <= Done;
            high_q  <= high_q ^ result_i;
          end
        end
        default: begin
          if (release_i) state_q <= Idle;
        end
      endcase
    end
  end

endmodule
