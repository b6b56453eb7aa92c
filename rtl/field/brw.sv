// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Bernstein-Rabin-Winograd polynomials of n = 2^Levels - 1 blocks, times t or t^2, at
// a point t: BRW(m1,m2,m3) = (t ^ m1)(t^2 ^ m2) ^ m3, and with half = (n+1)/2
// BRW(m1..mn) = BRW(m1..m[half-1]) (t^half ^ m[half]) ^ BRW(m[half+1]..mn):
// (n-1)/2 products, and one by the factor. Blocks come as beats of two, at any rate
// up to one a cycle; the products are made by a multiplier outside, that may be shared.
//
// Leaf k (from 0) is the product of m[4k+1] and m[4k+2], its first beat, plus m[4k+3]; node k
// has the factor t^(2^level) ^ m[4k+4], level = 2 + the zeros at the end of k+1, its rank. At
// even k that is level 2, and the node multiplies its leaf. At odd k it multiplies its
// leaf plus all nodes since the last one of its rank or above. The last node is
// the one by the factor.
//
// Second beats wait in a memory, and move on in order into one of two registers, of the
// next even and the next odd node. What those still lack is added there as it
// arrives; leaves whose second beat still waits are in a memory, and so are, by rank, the sums
// of the odd nodes to come.
//
// A product arrives six cycles after it was asked for and granted. So all decisions come from
// registers, and from `tag_q`, what is under way: a node is asked for as early as its last
// product comes just in time to be added in front of the multiplier. For a product granted in
// cycle 0:
//   cycle 1   its factors, chosen with the product that arrives now
//         2   into the multiplier, with the product that arrives now (`mult_late_o`)
//         4   what takes up this product may be granted
//         6   it arrives.
// At one beat a cycle, from a polynomial's first:
//   2k+1               leaf k granted: leaves go before nodes unless many wait, odd nodes before even
//   (n-3)/2 + 1        the last leaf; then the next polynomial's
//   (n-3)/2 + 15       the result, 14 cycles after the last beat
// so that the multiplier does a product in every cycle.

module brw
  import gf128_pkg::*;
#(
  // 5 or more.
  parameter int unsigned Levels = 8
) (
  input  logic clk_i,
  input  logic rst_ni,

  // What is in memory is being wiped after reset; no beat may come.
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
  // The next beat is the last one of its polynomial; it is always taken.
  output logic         last_beat_o,

  // A product to make, and its grant.
  output logic  mult_valid_o,
  input  logic  mult_ready_i,
  // A cycle after the grant, else zero: its factors; and whether the product of the next
  // cycle is to be added to the first one.
  output elem_t mult_a_o,
  output elem_t mult_b_o,
  output logic  mult_late_o,
  // Six cycles after the grant: the product.
  input  elem_t product_i,

  // A result has a place to go; the result, in one cycle.
  input  logic  result_ready_i,
  output logic  result_valid_o,
  output elem_t result_o
);

  localparam int unsigned LeafWidth = Levels - 2;
  localparam int unsigned RankWidth = $clog2(LeafWidth + 1);
  localparam int unsigned PowerWidth = $clog2(Levels);
  // Of second beats that may wait: eight, not more than a polynomial has.
  localparam int unsigned PlaceWidth = 3;
  // From a grant to its product.
  localparam int unsigned Latency = 6;

  typedef logic [RankWidth-1:0] rank_t;
  typedef logic [LeafWidth:0] ranks_t;
  typedef logic [LeafWidth-1:0] leaf_t;
  typedef logic [PlaceWidth-1:0] place_t;

  // Even leaves and nodes have index 0, odd ones index 1.
  localparam bit Even = 1'b0;
  localparam bit Odd = 1'b1;

  typedef struct packed {
    logic [1:0] leaf;
    logic [1:0] node;
    // Of a node: it is the last one; the rank of the node that it is a part of.
    logic       last;
    rank_t      rank;
  } tag_t;

  // The number of zeros at the end of n, which is not zero.
  function automatic rank_t rank_of(logic [LeafWidth:0] n);
    rank_t rank;
    rank = rank_t'(LeafWidth);
    for (int i = int'(LeafWidth) - 1; i >= 0; i--) if (n[i]) rank = rank_t'(i);
    return rank;
  endfunction

  // The node of a leaf, as it waits to be asked for.
  typedef struct packed {
    logic  valid;
    logic  last;
    // Its own, and that of the node that it is a part of.
    rank_t rank;
    rank_t parent;
    elem_t left;
    elem_t right;
  } node_t;

  // ---- Beats ----

  // The first beat of a leaf that is to be asked for; the second one is due, and the last of all.
  logic first_there_q, second_q, last_beat_q, first_odd_q;
  elem_t first_q[2];
  leaf_t leaf_q;
  // Second beats that wait.
  logic [PlaceWidth:0] waiting_q;
  // Of the polynomial whose last beat was the latest.
  logic squared_q;
  logic first_take, second_take, leaf_go;

  assign in_ready_o = second_q || (!first_there_q && !waiting_q[PlaceWidth]);
  assign first_take = in_valid_i && in_ready_o && !second_q;
  assign second_take = in_valid_i && second_q;
  assign last_beat_o = last_beat_q;

  // ---- Who is asked for: leaves first, so that beats flow; but if many second beats wait, nodes,
  // so that leaves are left for cycles in which nodes wait for each other ----

  logic [1:0] ask_q, go;
  // Many wait.
  logic many_q;
  assign mult_valid_o = first_there_q || ask_q != '0;
  assign leaf_go = first_there_q && !(many_q && ask_q != '0) && mult_ready_i;
  assign go[Odd] = ask_q[Odd] && (many_q || !first_there_q) && mult_ready_i;
  assign go[Even] = ask_q[Even] && !ask_q[Odd] && (many_q || !first_there_q) && mult_ready_i;

  node_t node_q[2];
  tag_t tag_d, tag_q[1:Latency];
  always_comb begin
    tag_d = '0;
    tag_d.leaf = {leaf_go && first_odd_q, leaf_go && !first_odd_q};
    tag_d.node = go;
    tag_d.last = go[Odd] && node_q[Odd].last;
    tag_d.rank = ask_q[Odd] ? node_q[Odd].parent : node_q[Even].parent;
  end

  // Leaves and even nodes that arrive in time for who takes them up, and are not yet taken up.
  logic [1:0][PlaceWidth-1:0] leaves_q;
  logic [1:0] evens_q;
  // Odd nodes that do not yet arrive in time; a result is under way, or has no place.
  logic [1:0] odd_away_q;
  logic result_away_q, result_ok_q;
  tag_t timely, soon, arrival;
  assign timely = tag_q[Latency-4];
  assign soon = tag_q[Latency-1];
  assign arrival = tag_q[Latency];
  logic unused;
  assign unused = ^{timely, arrival};

  // ---- Second beats move on ----

  // The leaf that does; the nodes' register is new.
  leaf_t load_leaf_q;
  logic [1:0] load, fresh_q;
  logic load_last;
  logic [LeafWidth:0] load_n;
  rank_t load_rank;
  elem_t load_left, load_right;
  assign load_last = &load_leaf_q;
  assign load_n = (LeafWidth + 1)'(load_leaf_q) + 1'b1;
  assign load_rank = rank_of(load_n);
  for (genvar i = 0; i < 2; i++) begin : gen_load
    assign load[i] = waiting_q != '0 && load_leaf_q[0] == 1'(i) && !node_q[i].valid;
  end

  logic busy_second, busy_leaves, busy_sums;
  assign busy_o = busy_second || busy_leaves || busy_sums;

  place_t second_addr[1];
  logic [255:0] second_read[1];
  assign second_addr[0] = place_t'(load_leaf_q);
  assign {load_right, load_left} = second_read[0];

  wiped_table #(
    .Width(256),
    .Depth(2 ** PlaceWidth)
  ) u_second (
    .clk_i,
    .rst_ni,
    .busy_o      (busy_second),
    .write_i     (second_take),
    .write_addr_i(place_t'(leaf_q)),
    .write_data_i(in_data_i),
    .read_addr_i (second_addr),
    .read_data_o (second_read)
  );

  // ---- Who takes up the product of the next cycle ----

  // A node's leaf is still to arrive, also if the node was granted in the cycle before.
  logic [1:0] lacks_q;
  // Leaves in memory. They arrive and move on in order: if there are any, the next to move on
  // is there.
  logic [PlaceWidth:0] stored_q;
  logic [1:0] asked, leaf_late, leaf_hits, hits_q;
  logic node_soon, same_rank, node_late, node_hits, store, store_q, sum_add, sum_add_q;
  logic stored;
  assign asked = tag_q[1].node;
  assign stored = stored_q != '0;
  for (genvar i = 0; i < 2; i++) begin : gen_leaf
    assign leaf_late[i] = soon.leaf[i] && asked[i] && lacks_q[i];
    assign leaf_hits[i] = soon.leaf[i] && (lacks_q[i] ? !asked[i] : load[i] && !stored);
  end
  assign store = soon.leaf != '0 && leaf_late == '0 && leaf_hits == '0;

  // Odd nodes that follow each other differ in rank.
  assign node_soon = soon.node != '0 && !soon.last;
  assign same_rank = soon.rank == node_q[Odd].rank;
  assign node_late = node_soon && asked[Odd] && same_rank;
  assign node_hits = node_soon
      && (load[Odd] ? soon.rank == load_rank : node_q[Odd].valid && same_rank);
  assign sum_add = node_soon && !node_late && !node_hits;

  // ---- Leaves whose second beat waits ----

  place_t arrival_q, fresh_place_q[1];
  logic fresh_stored_q;
  elem_t stored_leaf[1];

  wiped_table #(
    .Width(128),
    .Depth(2 ** PlaceWidth)
  ) u_leaves (
    .clk_i,
    .rst_ni,
    .busy_o      (busy_leaves),
    .write_i     (store_q),
    .write_addr_i(arrival_q),
    .write_data_i(product_i),
    .read_addr_i (fresh_place_q),
    .read_data_o (stored_leaf)
  );

  // ---- Sums, by rank ----

  // Something is in it.
  ranks_t summed_q;
  rank_t sum_addr[2];
  elem_t sum_read[2], old_sum_q, new_sum;
  assign new_sum = old_sum_q ^ product_i;
  assign sum_addr[0] = soon.rank;
  assign sum_addr[1] = node_q[Odd].rank;

  wiped_table #(
    .Width(128),
    .Depth(LeafWidth + 1),
    .Reads(2)
  ) u_sums (
    .clk_i,
    .rst_ni,
    .busy_o      (busy_sums),
    .write_i     (sum_add_q),
    .write_addr_i(arrival.rank),
    .write_data_i(new_sum),
    .read_addr_i (sum_addr),
    .read_data_o (sum_read)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      old_sum_q <= '0;
      summed_q  <= '0;
    end else begin
      if (sum_add_q && arrival.rank == soon.rank) old_sum_q <= new_sum;
      else old_sum_q <= summed_q[soon.rank] ? sum_read[0] : '0;
      summed_q <= (summed_q | (sum_add_q ? ranks_t'(1) << arrival.rank : '0))
          & ~(fresh_q[Odd] ? ranks_t'(1) << node_q[Odd].rank : '0);
    end
  end

  // ---- Nodes ----

  // In a new one's first cycle what was there before it is added, and the power of its factor.
  logic [PowerWidth-1:0] power_q;
  elem_t old_parts[2];
  assign power_o = power_q;
  assign old_parts[Even] = fresh_stored_q ? stored_leaf[0] : '0;
  assign old_parts[Odd] = (fresh_stored_q ? stored_leaf[0] : '0)
      ^ (summed_q[node_q[Odd].rank] ? sum_read[1] : '0);

  for (genvar i = 0; i < 2; i++) begin : gen_node
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        node_q[i] <= '0;
      end else if (load[i]) begin
        node_q[i].valid  <= 1'b1;
        node_q[i].last   <= load_last;
        node_q[i].rank   <= load_rank;
        node_q[i].parent <= rank_of(load_n + (load_n & -load_n));
        node_q[i].left   <= load_left;
        // The last block of all is no factor.
        node_q[i].right  <= load_last ? '0 : load_right;
      end else begin
        if (go[i]) node_q[i].valid <= 1'b0;
        node_q[i].left <= node_q[i].left ^ (fresh_q[i] ? old_parts[i] : '0)
            ^ (hits_q[i] ? product_i : '0);
        if (i == 1 && fresh_q[i]) node_q[i].right <= node_q[i].right ^ power_i;
      end
    end
  end

  // ---- Factors ----

  elem_t a, b;
  always_comb begin
    a = tag_q[1].leaf != '0 ? powers_i[0] ^ first_q[0] : '0;
    b = tag_q[1].leaf != '0 ? powers_i[1] ^ first_q[1] : '0;
    for (int i = 0; i < 2; i++) begin
      a ^= asked[i] ? node_q[i].left ^ (hits_q[i] ? product_i : '0) : '0;
      b ^= asked[i] ? node_q[i].right ^ (i == 0 ? powers_i[2] : '0) : '0;
    end
  end
  assign mult_a_o = a;
  assign mult_b_o = b;
  assign mult_late_o = leaf_late != '0 || node_late;

  assign result_valid_o = arrival.last;
  assign result_o = product_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      first_there_q  <= 1'b0;
      first_odd_q    <= 1'b0;
      first_q        <= '{default: '0};
      second_q       <= 1'b0;
      last_beat_q    <= 1'b0;
      leaf_q         <= '0;
      waiting_q      <= '0;
      squared_q      <= 1'b0;
      ask_q          <= '0;
      many_q         <= 1'b0;
      tag_q          <= '{default: '0};
      leaves_q       <= '0;
      evens_q        <= '0;
      odd_away_q     <= '0;
      result_away_q  <= 1'b0;
      result_ok_q    <= 1'b0;
      load_leaf_q    <= '0;
      fresh_q        <= '0;
      fresh_stored_q <= 1'b0;
      fresh_place_q  <= '{default: '0};
      power_q        <= '0;
      lacks_q        <= '0;
      stored_q       <= '0;
      hits_q         <= '0;
      store_q        <= 1'b0;
      sum_add_q      <= 1'b0;
      arrival_q      <= '0;
    end else begin
      // Follows the input until a first beat is there, and is read in the cycle after its grant.
      if (!first_there_q) first_q <= '{in_data_i[127:0], in_data_i[255:128]};
      if (first_take) begin
        first_there_q <= 1'b1;
        first_odd_q   <= leaf_q[0];
        second_q      <= 1'b1;
        last_beat_q   <= &leaf_q;
      end else if (leaf_go) begin
        first_there_q <= 1'b0;
      end
      if (second_take) begin
        second_q    <= 1'b0;
        last_beat_q <= 1'b0;
        leaf_q      <= leaf_q + 1'b1;
        if (last_beat_q) squared_q <= squared_i;
      end
      waiting_q <= waiting_q + (PlaceWidth + 1)'(second_take) - (PlaceWidth + 1)'(load != '0);

      many_q <= waiting_q >= (PlaceWidth + 1)'(4);
      tag_q[1] <= tag_d;
      for (int i = 2; i <= int'(Latency); i++) tag_q[i] <= tag_q[i-1];

      for (int i = 0; i < 2; i++) begin
        leaves_q[i] <= leaves_q[i] + PlaceWidth'(timely.leaf[i]) - PlaceWidth'(go[i]);
      end
      evens_q    <= evens_q + 2'(timely.node[Even]) - 2'(go[Odd]);
      odd_away_q <= odd_away_q + 2'(go[Odd]) - 2'(timely.node[Odd]);
      if (tag_d.last) result_away_q <= 1'b1;
      else if (arrival.last) result_away_q <= 1'b0;
      result_ok_q <= result_ready_i && !result_away_q;

      ask_q[Even] <= (load[Even] || (node_q[Even].valid && !go[Even])) && leaves_q[Even] != '0;
      // Of rank 1 only the even node before is lacking; above, the odd one as well.
      ask_q[Odd]  <= leaves_q[Odd] != '0 && evens_q != '0 && (load[Odd]
          ? !load_last && (!load_leaf_q[1] || odd_away_q == '0)
          : node_q[Odd].valid && !go[Odd] && (node_q[Odd].rank == rank_t'(1) || odd_away_q == '0)
              && (!node_q[Odd].last || result_ok_q));

      if (load != '0) load_leaf_q <= load_leaf_q + 1'b1;
      fresh_q          <= load;
      fresh_stored_q   <= stored;
      fresh_place_q[0] <= place_t'(load_leaf_q);
      power_q          <= load_last ? PowerWidth'(squared_q) : PowerWidth'(load_rank) + PowerWidth'(2);

      for (int i = 0; i < 2; i++) begin
        if (load[i]) lacks_q[i] <= !stored && !leaf_hits[i];
        else if (soon.leaf[i]) lacks_q[i] <= 1'b0;
        hits_q[i] <= leaf_hits[i] || (i == 1 && node_hits);
      end
      store_q   <= store;
      sum_add_q <= sum_add;
      stored_q  <= stored_q + (PlaceWidth + 1)'(store) - (PlaceWidth + 1)'(load != '0 && stored);
      if (arrival.leaf != '0) arrival_q <= arrival_q + 1'b1;
    end
  end

endmodule
