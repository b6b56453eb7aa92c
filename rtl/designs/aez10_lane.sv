// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One PEC of AEZ10 and the two blocks (a, b) that go with each call: a result r of AES
// gives u = a ^ r and v = b ^ r, and calls that follow from each other go round without
// leaving the pipeline, W_i and X_i twice, S'_i, Z_i and C'_i three times, the last pair
// three times with one for nothing. So nothing waits in between, and a slot is taken by
// something new only when nothing goes round (`free_o`). (a, b) are in a small RAM
// meanwhile, which takes fewer gates than registers that are cleared.
//
// What a slot holds is known from the first stage on. So whether it becomes free, and the
// mask with which it goes round, are decided a cycle before and come out of registers.

module aez10_lane
  import aes_pkg::*;
  import aez10_pkg::*;
#(
  parameter int unsigned KeyBits = 128,
  localparam int unsigned Rounds  = rounds(KeyBits)
) (
  input  logic clk_i,
  input  logic rst_ni,
  // The RAM is being wiped.
  output logic busy_o,

  input  block_t round_keys_i[1][Rounds+1],

  // Masks of what goes round: PairX and PairZ, PairC, and LastX in encryption and
  // decryption. That of PairC is the next one in the cycle after `mask_pair_step_o`.
  input  block_t mask_zero_i,
  input  block_t mask_pair_i,
  output logic   mask_pair_step_o,
  input  block_t mask_encrypt_i,
  input  block_t mask_decrypt_i,
  // Y, when the last pair's first call comes out.
  input  block_t y_i,

  // Something new; looked at only when `free_o`.
  output logic  free_o,
  input  logic  valid_i,
  input  call_t call_i,

  // What comes out; u is the first block and v the second, ^ r.
  output logic   valid_o,
  output item_t  item_o,
  output block_t result_o,
  output block_t a_o,
  output block_t u_o,
  output block_t v_o,
  output block_t b_o
);

  typedef struct packed {
    logic  valid;
    item_t item;
  } slot_t;

  // Beside the stages of AES; the last one is at the output.
  slot_t slot_d, soon;
  slot_t [Rounds:0] slot_q;
  logic again_q;
  block_t mask_q;

  assign soon = slot_q[Rounds-1];
  assign valid_o = slot_q[Rounds].valid;
  assign item_o = slot_q[Rounds].item;
  assign free_o = !again_q;
  assign mask_pair_step_o = soon.valid && soon.item.kind == PairZ;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      again_q <= 1'b0;
      mask_q  <= '0;
      slot_q  <= '0;
    end else begin
      again_q <= soon.valid && soon.item.kind inside {PairW, PairS, PairZ, LastY, LastHold};
      unique case (soon.item.kind)
        PairZ:    mask_q <= mask_pair_i;
        LastHold: mask_q <= soon.item.decrypt ? mask_decrypt_i : mask_encrypt_i;
        default:  mask_q <= mask_zero_i;
      endcase
      slot_q <= {slot_q[Rounds-1:0], slot_d};
    end
  end

  // What comes out, on its way in again.
  call_t next, call;

  assign u_o = a_o ^ result_o;
  assign v_o = b_o ^ result_o;

  always_comb begin
    next = '{item: item_o, block: u_o ^ mask_q, a: u_o, b: b_o};
    unique case (item_o.kind)
      PairW: next.item.kind = PairX;
      PairS: begin
        next.item.kind = PairZ;
        next.block     = v_o ^ mask_q;
        next.b         = v_o;
      end
      PairZ: next.item.kind = PairC;
      LastY: begin
        next.item.kind = LastHold;
        next.b         = b_o ^ y_i;
      end
      default: begin
        next.item.kind = LastX;
        next.block     = a_o ^ mask_q;
        next.a         = a_o;
      end
    endcase
  end

  assign call = again_q ? next : call_i;
  assign slot_d = '{valid: again_q || valid_i, item: call.item};

  logic unused_valid, unused_tag;

  aes_pipe #(
    .KeyBits(KeyBits)
  ) u_pec (
    .clk_i,
    .rst_ni,
    .round_keys_i,
    .valid_i(slot_d.valid),
    .block_i(call.block),
    .key_i  (1'b0),
    .tag_i  (1'b0),
    .valid_o(unused_valid),
    .block_o(result_o),
    .tag_o  (unused_tag)
  );

  // A ring: what is written comes out Rounds + 1 cycles later, as from the pipeline.
  logic [3:0] ring_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) ring_q <= '0;
    else ring_q <= ring_q + 1'b1;
  end

  wiped_ram #(
    .Width(256),
    .Depth(16)
  ) u_ring (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (slot_d.valid),
    .write_addr_i(ring_q),
    .write_data_i({call.a, call.b}),
    .read_i      (1'b1),
    .read_addr_i (ring_q - 4'(Rounds)),
    .read_data_o ({a_o, b_o})
  );

endmodule
