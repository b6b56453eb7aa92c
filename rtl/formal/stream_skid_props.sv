// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of stream_skid: it keeps the rules of a stream, gives the entries in the order in
// which they came, each once, a cycle later at the earliest; it stops its writer only
// when it is full; and nothing is left after reset.

module stream_skid_props #(
  parameter int unsigned Width = 1
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             valid_i,
  input logic             ready_o,
  input logic [Width-1:0] data_i,
  input logic             valid_o,
  input logic             ready_i,
  input logic [Width-1:0] data_o,
  input logic       [1:0] follow_q,
  input logic             read_q,
  input logic             valid_q,
  input logic             full_q,
  input logic             ready_q,
  input logic [Width-1:0] entries_q[2]
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

  logic [1:0] count;
  assign count = 2'(valid_q) + 2'(full_q);

  logic chosen_q, push, pop;
  logic [Width-1:0] chosen_data_q;
  logic [1:0] ahead_q;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  followed_entry #(
    .Width(Width),
    .CountWidth(2)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i(push),
    .pop_i(pop),
    .data_i,
    .count_i(count),
    .chosen_o(chosen_q),
    .data_o(chosen_data_q),
    .ahead_o(ahead_q)
  );

  // In reset, or the first cycle after it.
  logic reset_q;
  initial reset_q = 1'b0;
  always_ff @(posedge clk_i) reset_q <= !rst_ni;

  always_comb begin
    if (rst_ni && started_q) begin
      // What comes out of registers: its ready and its valid.
      assert (ready_o == ready_q && valid_o == valid_q);
      // It takes an entry unless it has two.
      assert (ready_o == (!full_q && !reset_q));
      if (chosen_q) begin
        assert (ahead_q < count);
        assert (entries_q[read_q ^ ahead_q[0]] == chosen_data_q);
        if (ahead_q == '0) assert (valid_o && data_o == chosen_data_q);
      end
    end
    // After reset: empty, and zeros everywhere.
    if (reset_q) begin
      assert (!valid_q && !full_q && !ready_q && follow_q == '0);
      assert (entries_q[0] == '0 && entries_q[1] == '0);
    end
  end

  // The interesting cases can happen.
  always_comb begin
    cover (rst_ni && full_q && pop && chosen_q && chosen_data_q != '0);
    cover (rst_ni && push && pop && chosen_q && ahead_q == '0);
  end

endmodule

bind stream_skid stream_skid_props #(
  .Width(Width)
) u_props (
  .*
);
