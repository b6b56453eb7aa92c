// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One PEC of AEZ10 and the two blocks (a, b) that go with each call: a result r of AES
// gives u = a ^ r and v = b ^ r, and calls that follow from each other go round without
// leaving the pipeline, W_i and X_i twice, S'_i, Z_i and C'_i three times, the last pair
// twice. So nothing waits in between, and a slot is taken by something new only
// when nothing goes round (`free_o`). (a, b) are in a small RAM meanwhile, which
// takes fewer gates than registers that are cleared.

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
  input  logic enable_i,

  input  block_t round_keys_i[1][Rounds+1],

  // Masks of what goes round: PairX and PairZ, PairC, and LastX in encryption and
  // decryption.
  input  block_t mask_zero_i,
  input  block_t mask_pair_i,
  input  block_t mask_encrypt_i,
  input  block_t mask_decrypt_i,

  // Something new, its block masked; looked at only when `free_o`.
  output logic   free_o,
  input  logic   valid_i,
  input  item_t  item_i,
  input  block_t block_i,
  input  block_t a_i,
  input  block_t b_i,

  // What comes out; u is the first block and v the second, ^ r.
  output logic   valid_o,
  output item_t  item_o,
  output block_t result_o,
  output block_t a_o,
  output block_t u_o,
  output block_t v_o,
  output block_t b_o
);

  logic   again;
  item_t  next;
  block_t next_mask;

  assign u_o = a_o ^ result_o;
  assign v_o = b_o ^ result_o;
  assign free_o = !again;

  always_comb begin
    next      = item_o;
    next_mask = mask_zero_i;
    again     = valid_o;
    unique case (item_o.kind)
      PairW: next.kind = PairX;
      PairS: next.kind = PairZ;
      PairZ: begin
        next.kind = PairC;
        next_mask = mask_pair_i;
      end
      LastY: begin
        next.kind = LastX;
        next_mask = item_o.decrypt ? mask_decrypt_i : mask_encrypt_i;
      end
      default: again = 1'b0;
    endcase
  end

  // Z_i goes on from v, all others from u.
  block_t next_block, next_b;
  assign next_block = item_o.kind == PairS ? v_o : u_o;
  assign next_b = item_o.kind == PairS ? v_o : b_o;

  aes_pec #(
    .KeyBits (KeyBits),
    .TagWidth($bits(item_t))
  ) u_pec (
    .clk_i,
    .rst_ni,
    .enable_i,
    .round_keys_i,
    .valid_i(again || valid_i),
    .block_i(again ? next_block ^ next_mask : block_i),
    .key_i  (1'b0),
    .tag_i  (again ? next : item_i),
    .valid_o,
    .block_o(result_o),
    .tag_o  (item_o)
  );

  // A ring: what is written comes out Rounds + 1 steps later, as from the pipeline.
  logic [3:0] ring_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) ring_q <= '0;
    else if (enable_i) ring_q <= ring_q + 1'b1;
  end

  wiped_ram #(
    .Width(256),
    .Depth(16)
  ) u_ring (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (enable_i && (again || valid_i)),
    .write_addr_i(ring_q),
    .write_data_i(again ? {u_o, next_b} : {a_i, b_i}),
    .read_i      (enable_i),
    .read_addr_i (ring_q - 4'(Rounds)),
    .read_data_o ({a_o, b_o})
  );

endmodule
