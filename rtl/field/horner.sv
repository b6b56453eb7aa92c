// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Horner's rule on pipelined multipliers: the sum of x_n h^(b+z-n) over the blocks
// n = a..z of a sector, `Lanes` blocks (a beat) a cycle. A multiplier of S stages
// has S products under way, so with M multipliers block n takes up where block
// n - M S stopped: M S sums side by side, each stepped by h^(M S), until the last
// M S blocks; those are multiplied by their own powers instead, and what comes
// out is added up:
//
//   cycle      t: beat t of the sector goes in (block M t + l into multiplier l)
//            t+S: its product is there for beat t+S, or for the sum
//     last beat+S: the whole sum, while the next sector's beats may be under way
//
// A lane's product that no beat takes up at once waits in a register: beats may come
// with gaps of any length, and from several sectors in turn (contexts). Blocks
// of the sector outside a..z do not take part; their places are for products of a
// block (a tweak, or nothing: zero) and a power of their own, `direct_i`.
//
// In the layout of `gf128_pkg`; whoever needs another one swaps bits around it.

module horner
  import gf128_pkg::*;
#(
  // Multipliers, and blocks a beat: powers of two, as Blocks.
  parameter int unsigned Lanes    = 1,
  // Of each multiplier: 1, 2 or 4.
  parameter int unsigned Stages   = 4,
  // Sums that may be under way at the same time.
  parameter int unsigned Contexts = 1,
  // Of a sector; its first and last block with a part in the sum (a and z).
  parameter int unsigned Blocks     = 256,
  parameter int unsigned FirstBlock = 0,
  parameter int unsigned LastBlock  = Blocks - 1,

  localparam int unsigned Chains       = Lanes * Stages,
  localparam int unsigned Beats        = Blocks / Lanes,
  localparam int unsigned BeatWidth    = $clog2(Beats),
  localparam int unsigned ContextWidth = Contexts > 1 ? $clog2(Contexts) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Stops everything while low.
  input  logic enable_i,

  // h^(M S), and tail_i[j] = h^(b+j), the power of block z - j.
  input  elem_t step_i,
  input  elem_t tail_i[Chains],

  // Beats of a context: 0 to Beats - 1 in order, and 0 again. `direct_i` with
  // those beats that have a block outside a..z.
  input  logic                    valid_i,
  input  logic [ContextWidth-1:0] context_i,
  input  logic [   BeatWidth-1:0] beat_i,
  input  elem_t                   blocks_i[Lanes],
  input  elem_t                   direct_i,

  // In one cycle, `Stages` after the last beat.
  output logic                    valid_o,
  output logic [ContextWidth-1:0] context_o,
  output elem_t                   sum_o,

  // One product of lane 0 for other purposes, as powers of a key, in a cycle
  // without a beat; in order, `Stages` later.
  input  logic  single_valid_i,
  input  elem_t single_a_i,
  input  elem_t single_b_i,
  output logic  single_valid_o,
  output elem_t single_product_o
);

  localparam int unsigned IndexWidth = Stages > 1 ? $clog2(Stages) : 1;

  // What travels with the products of a beat.
  typedef struct packed {
    logic                    single;
    logic                    last;
    logic [ContextWidth-1:0] which;
    logic [  IndexWidth-1:0] index;
    // Per lane: of the last ones, added up instead of taken up.
    logic [       Lanes-1:0] final_product;
  } tag_t;

  tag_t tag, tag_out;
  logic [Lanes-1:0] valid_out;
  elem_t product[Lanes];

  // Products of beat t wait at index t mod S; none of them is older than S beats.
  logic [Contexts-1:0][Lanes-1:0][Stages-1:0][127:0] chain_q;
  logic [Contexts-1:0][127:0] sum_q;

  assign tag.single = single_valid_i;
  assign tag.last = beat_i == BeatWidth'(Beats - 1);
  assign tag.which = context_i;
  assign tag.index = Stages > 1 ? IndexWidth'(beat_i) : '0;

  // The product that is just there is the one this beat takes up.
  logic at_once;
  assign at_once = valid_out[0] && !tag_out.single && tag_out.which == tag.which
      && tag_out.index == tag.index;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    // The lane's first and last beat with a part in the sum.
    localparam int unsigned First = (FirstBlock + Lanes - 1 - lane) / Lanes;
    localparam int unsigned Last = (LastBlock - lane) / Lanes;
    // How far its last block is from the last of all.
    localparam int unsigned Behind = LastBlock - (Lanes * Last + lane);

    int unsigned beat;
    logic own, fresh;
    elem_t a, b, chain, tail;
    assign beat = 32'(beat_i);
    assign own = beat + 1 > First && beat <= Last;
    assign fresh = !own || beat < First + Stages;
    assign tag.final_product[lane] = !own || beat + Stages > Last;

    always_comb begin
      tail = '0;
      for (int unsigned j = 0; j < Stages; j++) begin
        if (beat + j == Last) tail ^= tail_i[Behind+Lanes*j];
      end
    end

    assign chain = at_once ? product[lane] : chain_q[tag.which][lane][tag.index];

    // Lane 0's multiplier also makes the single products.
    always_comb begin
      a = blocks_i[lane] ^ (fresh ? '0 : chain);
      b = !own ? direct_i : tag.final_product[lane] ? tail : step_i;
      if (lane == 0 && single_valid_i) begin
        a = single_a_i;
        b = single_b_i;
      end
    end

    tag_t tag_lane;
    gf128_mult #(
      .Stages  (Stages),
      .TagWidth($bits(tag_t))
    ) u_mult (
      .clk_i,
      .rst_ni,
      .enable_i,
      .valid_i  (valid_i || single_valid_i),
      .a_i      (a),
      .b_i      (b),
      .tag_i    (tag),
      .valid_o  (valid_out[lane]),
      .product_o(product[lane]),
      .tag_o    (tag_lane)
    );
    // All lanes go in step, so one tag is enough.
    if (lane == 0) begin : gen_tag
      assign tag_out = tag_lane;
    end else begin : gen_no_tag
      logic unused;
      assign unused = ^{tag_lane, valid_out[lane]};
    end
  end

  elem_t sum;
  always_comb begin
    sum = sum_q[tag_out.which];
    for (int lane = 0; lane < int'(Lanes); lane++) begin
      if (tag_out.final_product[lane]) sum ^= product[lane];
    end
  end

  logic beat_out;
  assign beat_out = valid_out[0] && !tag_out.single;

  assign valid_o = beat_out && tag_out.last;
  assign context_o = tag_out.which;
  assign sum_o = sum;
  assign single_valid_o = valid_out[0] && tag_out.single;
  assign single_product_o = product[0];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      chain_q <= '0;
      sum_q   <= '0;
    end else if (enable_i && beat_out) begin
      for (int lane = 0; lane < int'(Lanes); lane++) begin
        chain_q[tag_out.which][lane][tag_out.index] <= product[lane];
      end
      sum_q[tag_out.which] <= tag_out.last ? '0 : sum;
    end
  end

endmodule
