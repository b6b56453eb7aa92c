// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Bernstein-Rabin-Winograd polynomials of n = 2^Levels - 1 blocks, times t or t^2, at
// a point t: BRW(m1,m2,m3) = (t ^ m1)(t^2 ^ m2) ^ m3, and with half = (n+1)/2
// BRW(m1..mn) = BRW(m1..m[half-1]) (t^half ^ m[half]) ^ BRW(m[half+1]..mn):
// (n-1)/2 products, and one by the factor. Blocks come as beats of two, at any rate
// up to one a cycle; the products are made by a multiplier outside, of any latency
// from 1 cycle (meant for 4), that may be shared.
//
// Leaf k (from 0) is the product of m[4k+1] and m[4k+2], plus m[4k+3]; node k has
// the factor t^(2^level) ^ m[4k+4], level = 2 + the zeros at the end of k+1. At even
// k that is level 2, and the node multiplies its leaf. At odd k it multiplies its
// leaf plus all nodes since the last one of its level or above. The last node is
// the one by the factor. Leaves wait in a ring of four, as they came, since registers that
// add need look-up tables. An odd one moves on into the register `next`, where what its
// node still lacks is added as it arrives; the sums of nodes to come are in a table, by level.
//
// At one beat a cycle with a multiplier of four stages:
//   cycle 2k           leaf k: leaves go before nodes, odd nodes before even ones
//   2k+5 to 2k+9       node k, as odd cycles are free and what it needs arrives: an odd
//                      node may take up a product in the very cycle in which that arrives
//   (n-3)/2 + 7        7 cycles after the last leaf: the product by the factor
//   (n-3)/2 + 11       the result; the next polynomial has begun meanwhile,
// so that the multiplier does a product in every cycle.

module brw
  import gf128_pkg::*;
#(
  // 4 or more.
  parameter int unsigned Levels = 8,
  localparam int unsigned LeafWidth  = Levels - 2,
  localparam int unsigned LevelWidth = $clog2(Levels + 1),
  // Of a product: see `tag_t`.
  localparam int unsigned TagWidth   = 4 + LevelWidth
) (
  input  logic clk_i,
  input  logic rst_ni,

  // Nothing is taken: what is in memory is being wiped after reset.
  output logic busy_o,

  // powers_i[j] = t^(2^j); and those from 3 on, one at a time, with t and t^2 for the last node.
  input  elem_t                     powers_i[3],
  output logic [$clog2(Levels)-1:0] power_o,
  input  elem_t                     power_i,

  input  logic         in_valid_i,
  output logic         in_ready_o,
  // The earlier block in the lower half. The upper half of the last beat does
  // not count.
  input  logic [255:0] in_data_i,
  // With the last beat: whether to multiply the polynomial with t^2.
  input  logic         squared_i,
  // The next beat is the last one of its polynomial.
  output logic         last_beat_o,

  // A product to make; it may be another one in the next cycle if it is not taken, and its
  // factors are zero as long as it is not.
  output logic                mult_valid_o,
  input  logic                mult_ready_i,
  output elem_t               mult_a_o,
  output elem_t               mult_b_o,
  output logic [TagWidth-1:0] mult_tag_o,
  // A product of this polynomial, in the order of asking.
  input  logic                product_valid_i,
  input  elem_t               product_i,
  input  logic [TagWidth-1:0] product_tag_i,

  // A result has a place to go; the result, in one cycle.
  input  logic  result_ready_i,
  output logic  result_valid_o,
  output elem_t result_o
);

  typedef logic [LevelWidth-1:0] level_t;
  typedef logic [LeafWidth-1:0] leaf_t;
  // Of powers_i.
  typedef logic [$clog2(Levels)-1:0] power_t;

  typedef enum logic [1:0] {
    Leaf,
    EvenNode,
    OddNode,
    Result
  } kind_e;

  typedef struct packed {
    kind_e      kind;
    // Of a leaf: its place in the ring.
    logic [1:0] place;
    // Of a node: the level of the node that it is a part of.
    level_t     level;
  } tag_t;

  // 2 + the number of zeros at the end of n, which is not zero.
  function automatic level_t level_of(logic [LeafWidth:0] n);
    level_t level;
    level = level_t'(Levels);
    for (int i = int'(LeafWidth) - 1; i >= 0; i--) if (n[i]) level = level_t'(i + 2);
    return level;
  endfunction

  // The level of the node of leaf k, and of the node that it is a part of.
  function automatic level_t own_level(leaf_t k);
    return level_of((LeafWidth + 1)'(k) + 1'b1);
  endfunction

  function automatic level_t parent_level(leaf_t k);
    logic [LeafWidth:0] n;
    n = (LeafWidth + 1)'(k) + 1'b1;
    return level_of(n + (n & -n));
  endfunction

  typedef struct packed {
    // The leaf is under way or here.
    logic  taken;
    // m[4k+3] and m[4k+4] are here, as `left` and `right`; the product is, as `made`.
    logic  rest;
    logic  product;
    elem_t left;
    elem_t right;
    elem_t made;
  } entry_t;

  typedef struct packed {
    logic   valid;
    logic   last;
    level_t level;
    elem_t  left;
    elem_t  right;
  } next_t;

  entry_t ring_q[4];
  next_t next_q;
  // Something is in the sum of that level.
  logic [Levels:0] summed_q, summed_d;

  // The leaf that beats are for; the second of its beats is due.
  leaf_t leaf_q;
  logic  second_q;
  // The leaves whose nodes come next.
  leaf_t even_q, odd_q;
  // Even nodes asked for ahead of odd ones, and arrived ahead of odd ones asked for.
  logic [1:0] ahead_q, arrived_q;
  // Odd nodes, results too, under way.
  logic [1:0] odd_away_q;
  logic result_away_q;
  // Of the polynomial whose last beat was the latest.
  logic squared_q;

  // What arrives.
  tag_t arrival;
  logic leaf_arrives, even_arrives, odd_arrives, node_arrives;
  assign arrival = product_tag_i;
  assign leaf_arrives = product_valid_i && arrival.kind == Leaf;
  assign even_arrives = product_valid_i && arrival.kind == EvenNode;
  assign odd_arrives = product_valid_i && (arrival.kind == OddNode || arrival.kind == Result);
  assign node_arrives = product_valid_i && (arrival.kind == EvenNode || arrival.kind == OddNode);

  assign result_valid_o = product_valid_i && arrival.kind == Result;
  assign result_o = product_i;

  // Beats.
  logic leaf_free, rest_take;
  assign leaf_free = !ring_q[leaf_q[1:0]].taken && !busy_o;
  assign in_ready_o = second_q || (leaf_free && mult_ready_i);
  assign rest_take = in_valid_i && second_q;
  assign last_beat_o = second_q && &leaf_q;

  // Which product is next: leaves first, so that beats flow.
  logic [1:0] even_place, odd_place;
  logic even_leaf_arrives, next_arrives;
  logic ask_leaf, ask_odd, ask_even, leaf_go, odd_go, even_go;
  assign even_place = {even_q[1], 1'b0};
  assign odd_place = {odd_q[1], 1'b1};
  assign even_leaf_arrives = leaf_arrives && arrival.place == even_place;
  assign next_arrives = node_arrives && arrival.level == next_q.level;

  assign ask_leaf = in_valid_i && !second_q && leaf_free;
  // At level 3 only the even node before is lacking; above, the odd one as well.
  assign ask_odd = next_q.valid && (arrived_q != '0 || even_arrives)
      && (next_q.level == level_t'(3) || odd_away_q == '0
          || (odd_away_q == 2'd1 && odd_arrives))
      && (!next_q.last || (result_ready_i && !result_away_q));
  // Not so early that the sum of level 3 would be that of two nodes.
  assign ask_even = ring_q[even_place].rest
      && (ring_q[even_place].product || even_leaf_arrives) && ahead_q <= 2'd1;
  assign leaf_go = ask_leaf && mult_ready_i;
  assign odd_go = ask_odd && !ask_leaf && mult_ready_i;
  assign even_go = ask_even && !ask_odd && !ask_leaf && mult_ready_i;

  tag_t ask_tag;
  level_t odd_parent, even_parent;
  // `next` has the leaf before `odd_q`.
  assign odd_parent = parent_level(odd_q - leaf_t'(2));
  assign even_parent = parent_level(even_q);
  assign mult_valid_o = ask_leaf || ask_odd || ask_even;
  assign mult_tag_o = ask_tag;
  always_comb begin
    ask_tag = '0;
    if (ask_leaf) begin
      ask_tag.kind = Leaf;
      ask_tag.place = leaf_q[1:0];
    end else if (ask_odd) begin
      ask_tag.kind = next_q.last ? Result : OddNode;
      ask_tag.level = odd_parent;
    end else begin
      ask_tag.kind = EvenNode;
      ask_tag.level = even_parent;
    end
  end

  // The leaf of the even node, without a product that arrives just now. Sums of what is
  // chosen, rather than choices between sums, so that the owner can add those of others.
  elem_t even_left, even_right;
  logic node_adds;
  assign even_left = ring_q[even_place].left
      ^ (ring_q[even_place].product ? ring_q[even_place].made : '0);
  assign even_right = ring_q[even_place].right ^ powers_i[2];
  assign node_adds = (odd_go && next_arrives) || (even_go && even_leaf_arrives);
  assign mult_a_o = (leaf_go ? powers_i[0] ^ in_data_i[127:0] : '0) ^ (odd_go ? next_q.left : '0)
      ^ (even_go ? even_left : '0) ^ (node_adds ? product_i : '0);
  assign mult_b_o = (leaf_go ? powers_i[1] ^ in_data_i[255:128] : '0)
      ^ (odd_go ? next_q.right : '0) ^ (even_go ? even_right : '0);

  // An odd leaf moves on; `odd_q` is the one after that in `next`.
  logic load;
  level_t load_level;
  assign load = (!next_q.valid || odd_go) && ring_q[odd_place].rest
      && ring_q[odd_place].product;
  assign load_level = own_level(odd_q);

  // Its factor's power; the last block of all is none.
  logic load_last;
  assign load_last = &odd_q;
  assign power_o = load_last ? power_t'(squared_q) : power_t'(load_level);

  // One adder for the sums of all levels. There is none of level 0: it stands for an empty one.
  logic sum_add;
  level_t sum_read[2];
  elem_t sum_old[2];
  assign sum_add = node_arrives && !(next_q.valid && next_arrives);
  assign sum_read[0] = summed_q[arrival.level] ? arrival.level : '0;
  assign sum_read[1] = load && summed_q[load_level] ? load_level : '0;

  always_comb begin
    summed_d = summed_q;
    for (int unsigned level = 3; level <= Levels; level++) begin
      if (load && load_level == level_t'(level)) summed_d[level] = 1'b0;
      else if (sum_add && arrival.level == level_t'(level)) summed_d[level] = 1'b1;
    end
  end

  wiped_table #(
    .Width(128),
    .Depth(Levels + 1),
    .Reads(2)
  ) u_sums (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (sum_add),
    .write_addr_i(arrival.level),
    .write_data_i(sum_old[0] ^ product_i),
    .read_addr_i (sum_read),
    .read_data_o (sum_old)
  );

  next_t next_d;
  logic next_adds;
  assign next_adds = node_arrives && arrival.level == (load ? load_level : next_q.level);
  always_comb begin
    next_d = next_q;
    if (load) begin
      next_d.valid = 1'b1;
      next_d.last  = load_last;
      next_d.level = load_level;
      next_d.right = power_i ^ (load_last ? '0 : ring_q[odd_place].right);
    end else if (odd_go) begin
      next_d.valid = 1'b0;
    end
    // What is in it without being valid counts for nothing.
    next_d.left = (load ? ring_q[odd_place].left ^ ring_q[odd_place].made : '0)
        ^ (load ? '0 : next_q.left) ^ sum_old[1] ^ (next_adds ? product_i : '0);
  end

  for (genvar i = 0; i < 4; i++) begin : gen_entry
    logic leave;
    assign leave = (load && odd_place == 2'(i)) || (even_go && even_place == 2'(i));
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        ring_q[i] <= '0;
      end else begin
        if (rest_take && leaf_q[1:0] == 2'(i)) begin
          ring_q[i].left  <= in_data_i[127:0];
          ring_q[i].right <= in_data_i[255:128];
        end
        if (leaf_arrives && arrival.place == 2'(i)) ring_q[i].made <= product_i;
        if (leave) begin
          ring_q[i].taken   <= 1'b0;
          ring_q[i].rest    <= 1'b0;
          ring_q[i].product <= 1'b0;
        end else begin
          if (leaf_go && leaf_q[1:0] == 2'(i)) ring_q[i].taken <= 1'b1;
          if (rest_take && leaf_q[1:0] == 2'(i)) ring_q[i].rest <= 1'b1;
          if (leaf_arrives && arrival.place == 2'(i)) ring_q[i].product <= 1'b1;
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q        <= '0;
      summed_q      <= '0;
      leaf_q        <= '0;
      second_q      <= 1'b0;
      even_q        <= '0;
      odd_q         <= leaf_t'(1);
      ahead_q       <= '0;
      arrived_q     <= '0;
      odd_away_q    <= '0;
      result_away_q <= 1'b0;
      squared_q     <= 1'b0;
    end else begin
      next_q   <= next_d;
      summed_q <= summed_d;
      if (leaf_go) second_q <= 1'b1;
      if (rest_take) begin
        second_q <= 1'b0;
        leaf_q   <= leaf_q + 1'b1;
        if (last_beat_o) squared_q <= squared_i;
      end
      if (even_go) even_q <= even_q + leaf_t'(2);
      if (load) odd_q <= odd_q + leaf_t'(2);
      ahead_q    <= ahead_q + 2'(even_go) - 2'(odd_go);
      arrived_q  <= arrived_q + 2'(even_arrives) - 2'(odd_go);
      odd_away_q <= odd_away_q + 2'(odd_go) - 2'(odd_arrives);
      if (odd_go && next_q.last) result_away_q <= 1'b1;
      else if (result_valid_o) result_away_q <= 1'b0;
    end
  end

endmodule
