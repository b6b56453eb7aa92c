// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pipelined AES in one direction: one block a cycle, one round a stage and one stage
// for the first key, so 11 cycles of latency for AES-128 and 15 for AES-256 (the papers'
// PEC, and with `Decrypt` their PDC). It never stops: whoever sends a block has a place for
// it when it comes out. Blocks in flight may be under different keys: each carries
// the number of its key through the stages, and a tag for whoever sent it.

module aes_pipe
  import aes_pkg::*;
#(
  parameter int unsigned KeyBits  = 128,
  parameter bit          Decrypt  = 1'b0,
  // Keys that blocks may choose from.
  parameter int unsigned NumKeys  = 1,
  parameter int unsigned TagWidth = 1,
  localparam int unsigned Rounds   = rounds(KeyBits),
  localparam int unsigned SelWidth = NumKeys > 1 ? $clog2(NumKeys) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  // To decrypt, those of the equivalent inverse cipher (aes_key_schedule with `Inverse`).
  input  block_t round_keys_i[NumKeys][Rounds+1],

  input  logic                valid_i,
  input  block_t              block_i,
  input  logic [SelWidth-1:0] key_i,
  input  logic [TagWidth-1:0] tag_i,

  output logic                valid_o,
  output block_t              block_o,
  output logic [TagWidth-1:0] tag_o
);

  typedef struct packed {
    logic                valid;
    logic [SelWidth-1:0] key;
    logic [TagWidth-1:0] tag;
    block_t              state;
  } stage_t;

  stage_t stage_d[Rounds+1], stage_q[Rounds+1];

  assign stage_d[0] = '{
          valid: valid_i,
          key: key_i,
          tag: tag_i,
          state: block_i ^ round_keys_i[key_i][Decrypt ? Rounds : 0]
      };

  for (genvar i = 1; i <= Rounds; i++) begin : gen_round
    block_t state;
    if (Decrypt) begin : gen_decrypt
      aes_inv_round u_round (
        .last_i (i == Rounds),
        .state_i(stage_q[i-1].state),
        .key_i  (round_keys_i[stage_q[i-1].key][Rounds-i]),
        .state_o(state)
      );
    end else begin : gen_encrypt
      aes_round #(
        .Last(i == Rounds)
      ) u_round (
        .state_i(stage_q[i-1].state),
        .key_i  (round_keys_i[stage_q[i-1].key][i]),
        .state_o(state)
      );
    end
    assign stage_d[i] = '{
            valid: stage_q[i-1].valid,
            key: stage_q[i-1].key,
            tag: stage_q[i-1].tag,
            state: state
        };
  end

  for (genvar i = 0; i <= Rounds; i++) begin : gen_stage
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) stage_q[i] <= '0;
      else stage_q[i] <= stage_d[i];
    end
  end

  assign valid_o = stage_q[Rounds].valid;
  assign block_o = stage_q[Rounds].state;
  assign tag_o   = stage_q[Rounds].tag;

endmodule
