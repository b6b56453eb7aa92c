// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of engine_completion: every result that is taken is posted or skipped, and
// every one that is posted gives one request, one block and one answer for its ring, in
// order; none is lost, none comes twice.

module engine_completion_props
  import engine_pkg::*;
#(
  parameter int unsigned Rings = 1,
  parameter int unsigned Depth = 4
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             result_valid_i,
  input logic             result_ready_o,
  input result_t          result_i,
  input logic [Rings-1:0] dead_i,
  input logic [Rings-1:0] post_o,
  input logic [Rings-1:0] skip_o,
  input logic [Rings-1:0] done_o,
  input logic             done_interrupt_o,
  input logic             busy_o,
  input logic             req_valid_o,
  input logic             req_ready_i,
  input address_t         req_address_o,
  input logic             data_valid_o,
  input logic             data_ready_i,
  input block_t           data_block_o,
  input logic             done_valid_i,
  input logic [$clog2(Depth+1)-1:0] unused_count,
  // Of the queue of those on the bus: ring and wish for an interrupt lie on top.
  input logic [         50:0] entries_q[Depth],
  input logic [$clog2(Depth)-1:0] head_q,
  input logic [$clog2(Depth)-1:0] tail_q
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  stream_rules #(
    .Width(64)
  ) u_request (
    .clk_i,
    .rst_ni,
    .valid_i(req_valid_o),
    .ready_i(req_ready_i),
    .data_i (req_address_o)
  );
  stream_rules #(
    .Width(128)
  ) u_data (
    .clk_i,
    .rst_ni,
    .valid_i(data_valid_o),
    .ready_i(data_ready_i),
    .data_i (data_block_o)
  );
  stream_rules #(
    .Width ($bits(result_t)),
    .Assume(1'b1)
  ) u_result (
    .clk_i,
    .rst_ni,
    .valid_i(result_valid_i),
    .ready_i(result_ready_o),
    .data_i (result_i)
  );

  logic take, post;
  assign take = result_valid_i && result_ready_o;
  assign post = post_o != '0;

  // Counted since reset, modulo 16.
  logic [3:0] posted_q, asked_q, given_q, answered_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      posted_q   <= '0;
      asked_q    <= '0;
      given_q    <= '0;
      answered_q <= '0;
    end else begin
      posted_q   <= posted_q + 4'(post);
      asked_q    <= asked_q + 4'(req_valid_o && req_ready_i);
      given_q    <= given_q + 4'(data_valid_o && data_ready_i);
      answered_q <= answered_q + 4'(done_valid_i);
    end
  end

  // The bus answers what it was given, once.
  always_comb begin
    assume (!done_valid_i || (asked_q != answered_q && given_q != answered_q));
    assume (32'(result_i.ring) < Rings);
  end

  logic chosen;
  logic [3:0] chosen_ring;
  logic [2:0] ahead;
  followed_entry #(
    .Width(4),
    .CountWidth(3)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i(post),
    .pop_i(done_valid_i),
    .data_i({result_i.ring, result_i.interrupt}),
    .count_i(3'(unused_count)),
    .chosen_o(chosen),
    .data_o(chosen_ring),
    .ahead_o(ahead)
  );

  always_comb begin
    if (rst_ni && started_q) begin
      assert (take == (post_o != '0 || skip_o != '0));
      assert (!(post_o != '0 && skip_o != '0));
      assert ($onehot0(post_o) && $onehot0(skip_o) && $onehot0(done_o));
      if (take) assert ((post_o | skip_o) == Rings'(1 << result_i.ring));
      assert ((post_o & dead_i) == '0);
      assert (4'(posted_q - asked_q) == 4'(req_valid_o));
      assert (4'(posted_q - given_q) == 4'(data_valid_o));
      assert (4'(posted_q - answered_q) == 4'(unused_count));
      assert (32'(unused_count) <= Depth);
      assert (32'(4'(asked_q - answered_q)) <= Depth && 32'(4'(given_q - answered_q)) <= Depth);
      assert (done_valid_i == (done_o != '0));
      assert (busy_o || unused_count == '0);
      assert (tail_q == head_q + $clog2(Depth)'(unused_count));
      for (int i = 0; i < int'(Depth); i++) begin
        if (i < int'(unused_count)) begin
          assert (32'(entries_q[head_q+$clog2(Depth)'(i)][50:48]) < Rings);
        end
      end
      if (chosen) begin
        assert (ahead < 3'(unused_count));
        assert (entries_q[head_q+$clog2(Depth)'(ahead)][50:47] == chosen_ring);
        if (ahead == '0 && done_valid_i) begin
          assert (done_o == Rings'(1 << chosen_ring[3:1]) && done_interrupt_o == chosen_ring[0]);
        end
      end
    end
  end

  always_comb begin
    cover (rst_ni && 32'(unused_count) == Depth);
    cover (rst_ni && chosen && ahead == '0 && done_valid_i && chosen_ring == 4'b0101 && post);
    cover (rst_ni && skip_o != '0 && done_o != '0);
  end

endmodule

bind engine_completion engine_completion_props #(
  .Rings(Rings),
  .Depth(Depth)
) u_props (
  .entries_q(u_open.entries_q),
  .head_q   (u_open.head_q),
  .tail_q   (u_open.tail_q),
  .*
);
