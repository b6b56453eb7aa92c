// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of stream_chain: it keeps the rules of a stream, takes one more while there is
// room or one leaves, gives each entry once, in turn and as it came, and nothing is left
// after reset.

module stream_chain_props #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 2
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             valid_i,
  input logic             ready_o,
  input logic [Width-1:0] data_i,
  input logic             valid_o,
  input logic             ready_i,
  input logic [Width-1:0] data_o,
  input logic [Depth-1:0] valid_q,
  input logic [Depth-1:0][Width-1:0] data_q,
  input logic             free[Depth]
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

  // One entry, chosen freely, is followed from its way in to its way out: it is in
  // `place_q`, and goes on as soon as it can.
  logic [7:0] place_q;
  logic chosen_q, choice, follow, push, pop;
  logic [Width-1:0] chosen_data_q;
  any_sequence u_choice (.Y(choice));
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  assign follow = choice && push && !chosen_q;

  // The next place is left, or empty.
  logic goes_on;
  always_comb begin
    goes_on = 1'b0;
    for (int i = 0; i + 1 < int'(Depth); i++) begin
      if (place_q == 8'(i)) goes_on = !valid_q[i+1] || free[i+1];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) chosen_q <= 1'b0;
    else if (follow) chosen_q <= 1'b1;
    else if (pop && place_q == 8'(Depth - 1)) chosen_q <= 1'b0;
  end
  always_ff @(posedge clk_i) begin
    if (follow) begin
      chosen_data_q <= data_i;
      place_q       <= '0;
    end else if (goes_on) begin
      place_q <= place_q + 1'b1;
    end
  end

  always_comb begin
    if (rst_ni && started_q) begin
      assert (ready_o == (!(&valid_q) || ready_i));
      if (chosen_q) begin
        assert (place_q < 8'(Depth));
        for (int i = 0; i < int'(Depth); i++) begin
          if (place_q == 8'(i)) assert (valid_q[i] && data_q[i] == chosen_data_q);
        end
      end
      // Nobody passes another: who moves finds the next place left.
      for (int i = 0; i + 1 < int'(Depth); i++) begin
        if (free[i] && valid_q[i]) assert (free[i+1]);
      end
    end
  end

  // After reset: empty, and zeros everywhere.
  logic reset_q;
  initial reset_q = 1'b0;
  always_ff @(posedge clk_i) reset_q <= !rst_ni;
  always_comb begin
    if (reset_q) begin
      assert (valid_q == '0);
      for (int i = 0; i < int'(Depth); i++) assert (data_q[i] == '0);
    end
  end

  // The interesting cases can happen.
  always_comb begin
    cover (rst_ni && (&valid_q) && push && pop);
    cover (rst_ni && chosen_q && pop && place_q == 8'(Depth - 1) && chosen_data_q != '0);
  end

endmodule

bind stream_chain stream_chain_props #(
  .Width(Width),
  .Depth(Depth)
) u_props (
  .*
);
