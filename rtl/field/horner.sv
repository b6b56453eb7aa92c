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
//            t+1: what it needs of powers and products is chosen
//            t+2: into the multiplier
//          t+2+S: its product is there for beat t+S, or for the sum
//   last beat+2+S: the whole sum, while the next sector's beats may be under way
//
// Nothing is chosen in front of the multiplier's wide sums: a product that comes just
// in time is announced a cycle earlier, and added there; one that came before, and waits
// in a register, is added the cycle before. So beats may come with gaps of any length, and from
// several sectors in turn (contexts). Blocks
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

  // In one cycle, `Stages` + 2 after the last beat.
  output logic                    valid_o,
  output logic [ContextWidth-1:0] context_o,
  output elem_t                   sum_o,

  // One product of lane 0 for other purposes, as powers of a key, in a cycle
  // without a beat; in order, `Stages` + 2 later.
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

  // A beat that came; what goes into the multiplier.
  tag_t asked, asked_q, given_q, soon_tag, tag_out;
  logic asked_valid_q, given_valid_q, soon;
  logic [Lanes-1:0] valid_out;
  elem_t single_a_q, single_b_q, direct_q;
  elem_t product[Lanes];

  // Products of beat t wait at index t mod S; none of them is older than S beats.
  logic [Contexts-1:0][Lanes-1:0][Stages-1:0][127:0] chain_q;
  logic [Contexts-1:0][127:0] sum_q;

  assign asked.single = single_valid_i;
  assign asked.last = beat_i == BeatWidth'(Beats - 1);
  assign asked.which = context_i;
  assign asked.index = Stages > 1 ? IndexWidth'(beat_i) : '0;

  // The product that this beat takes up is just there, or comes in the next cycle.
  logic here, next;
  assign here = valid_out[0] && !tag_out.single && tag_out.which == asked_q.which
      && tag_out.index == asked_q.index;
  assign next = soon && !soon_tag.single && soon_tag.which == asked_q.which
      && soon_tag.index == asked_q.index;

  logic unused_soon;
  assign unused_soon = ^soon_tag;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asked_q       <= '0;
      asked_valid_q <= 1'b0;
      given_q       <= '0;
      given_valid_q <= 1'b0;
      single_a_q    <= '0;
      single_b_q    <= '0;
      direct_q      <= '0;
    end else begin
      asked_q       <= asked;
      asked_valid_q <= valid_i || single_valid_i;
      given_q       <= asked_q;
      given_valid_q <= asked_valid_q;
      single_a_q    <= single_a_i;
      single_b_q    <= single_b_i;
      direct_q      <= direct_i;
    end
  end

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    // The lane's first and last beat with a part in the sum.
    localparam int unsigned First = (FirstBlock + Lanes - 1 - lane) / Lanes;
    localparam int unsigned Last = (LastBlock - lane) / Lanes;
    // How far its last block is from the last of all.
    localparam int unsigned Behind = LastBlock - (Lanes * Last + lane);

    int unsigned beat;
    logic own, alone;
    assign beat = 32'(beat_i);
    assign own = beat + 1 > First && beat <= Last;
    assign alone = lane == 0 && single_valid_i;
    assign asked.final_product[lane] = !own || beat + Stages > Last;

    // Of the beat that came: its block, if it is no single product; which of the factors it has,
    // one of them; that it takes up a product.
    elem_t block_q;
    logic [Stages-1:0] tail_q;
    logic step_q, other_q, single_q, takes_q;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        block_q  <= '0;
        tail_q   <= '0;
        step_q   <= 1'b0;
        other_q  <= 1'b0;
        single_q <= 1'b0;
        takes_q  <= 1'b0;
      end else begin
        block_q  <= blocks_i[lane];
        for (int unsigned j = 0; j < Stages; j++) tail_q[j] <= beat + j == Last && !alone;
        step_q   <= own && beat + Stages <= Last && !alone;
        other_q  <= !own && !alone;
        single_q <= alone;
        takes_q  <= own && beat >= First + Stages && !alone;
      end
    end

    // What goes into the multiplier, without a product that comes just in time.
    elem_t a_q, b_q, b, chain;
    logic late_q;
    assign chain = here ? product[lane] : chain_q[asked_q.which][lane][asked_q.index];
    always_comb begin
      b = (step_q ? step_i : '0) ^ (other_q ? direct_q : '0) ^ (single_q ? single_b_q : '0);
      for (int unsigned j = 0; j < Stages; j++) if (tail_q[j]) b ^= tail_i[Behind+Lanes*j];
    end
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        a_q    <= '0;
        b_q    <= '0;
        late_q <= 1'b0;
      end else begin
        a_q    <= single_q ? single_a_q : block_q ^ (takes_q && !next ? chain : '0);
        b_q    <= b;
        late_q <= takes_q && next;
      end
    end

    tag_t tag_lane, soon_tag_lane;
    logic soon_lane;
    gf128_mult #(
      .Stages  (Stages),
      .TagWidth($bits(tag_t))
    ) u_mult (
      .clk_i,
      .rst_ni,
      .valid_i     (given_valid_q),
      .a_i         (a_q ^ (late_q ? product[lane] : '0)),
      .b_i         (b_q),
      .tag_i       (given_q),
      .soon_valid_o(soon_lane),
      .soon_tag_o  (soon_tag_lane),
      .valid_o     (valid_out[lane]),
      .product_o   (product[lane]),
      .tag_o       (tag_lane)
    );
    // All lanes go in step, so one tag is enough.
    if (lane == 0) begin : gen_tag
      assign tag_out = tag_lane;
      assign soon_tag = soon_tag_lane;
      assign soon = soon_lane;
    end else begin : gen_no_tag
      logic unused;
      assign unused = ^{tag_lane, valid_out[lane], soon_tag_lane, soon_lane};
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
    end else if (beat_out) begin
      for (int lane = 0; lane < int'(Lanes); lane++) begin
        chain_q[tag_out.which][lane][tag_out.index] <= product[lane];
      end
      sum_q[tag_out.which] <= tag_out.last ? '0 : sum;
    end
  end

endmodule
