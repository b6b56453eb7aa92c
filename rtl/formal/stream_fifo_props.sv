// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of stream_fifo: it counts right, keeps the rules of a stream, gives the
// entries in the order in which they came, each once, and nothing is left after reset.

module stream_fifo_props #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 2,
  localparam int unsigned IndexWidth = Depth > 1 ? $clog2(Depth) : 1,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic                  valid_i,
  input logic                  ready_o,
  input logic [     Width-1:0] data_i,
  input logic                  valid_o,
  input logic                  ready_i,
  input logic [     Width-1:0] data_o,
  input logic [CountWidth-1:0] count_o,
  input logic [IndexWidth-1:0] head_q,
  input logic [IndexWidth-1:0] tail_q,
  input logic [     Width-1:0] entries_q[Depth]
);

  stream_rules #(
    .Width(Width)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(valid_o),
    .ready_i,
    .data_i (data_o)
  );

  // It starts with a reset.
  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  logic chosen_q, push, pop;
  logic [Width-1:0] chosen_data_q;
  logic [CountWidth-1:0] ahead_q;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  followed_entry #(
    .Width(Width),
    .CountWidth(CountWidth)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i(push),
    .pop_i(pop),
    .data_i,
    .count_i(count_o),
    .chosen_o(chosen_q),
    .data_o(chosen_data_q),
    .ahead_o(ahead_q)
  );

  function automatic logic [IndexWidth-1:0] around(logic [31:0] index);
    return IndexWidth'(index >= Depth ? index - Depth : index);
  endfunction

  always_comb begin
    if (rst_ni && started_q) begin
      assert (count_o <= CountWidth'(Depth));
      assert (32'(head_q) < Depth && 32'(tail_q) < Depth);
      assert (tail_q == around(32'(head_q) + 32'(count_o)));
      assert (valid_o == (count_o != '0));
      // It takes one more while there is room, or one leaves.
      assert (ready_o == (count_o < CountWidth'(Depth) || ready_i));
      if (chosen_q) begin
        assert (ahead_q < count_o);
        assert (entries_q[around(32'(head_q) + 32'(ahead_q))] == chosen_data_q);
        if (ahead_q == '0) assert (valid_o && data_o == chosen_data_q);
      end
    end
  end

  // After reset: empty, and zeros everywhere.
  logic reset_q;
  initial reset_q = 1'b0;
  always_ff @(posedge clk_i) reset_q <= !rst_ni;
  always_comb begin
    if (reset_q) begin
      assert (!valid_o && count_o == '0);
      for (int i = 0; i < int'(Depth); i++) assert (entries_q[i] == '0);
    end
  end

  // The interesting cases can happen.
  always_comb begin
    cover (rst_ni && count_o == CountWidth'(Depth) && push && pop);
    cover (rst_ni && chosen_q && pop && ahead_q == '0 && chosen_data_q != '0);
  end

endmodule

bind stream_fifo stream_fifo_props #(
  .Width(Width),
  .Depth(Depth)
) u_props (
  .*
);
