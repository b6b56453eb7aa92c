// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of clear_reset: it is low during reset, and in a cycle exactly if the cycle
// before it had reset or clear.

module clear_reset_props (
  input logic clk_i,
  input logic rst_ni,
  input logic clear_i,
  input logic rst_no
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  logic expected_q;
  always_ff @(posedge clk_i) expected_q <= rst_ni && !clear_i;
  always_comb begin
    if (!rst_ni) assert (!rst_no);
    if (rst_ni && started_q) assert (rst_no == expected_q);
  end

  logic cleared_q;
  initial cleared_q = 1'b0;
  always_ff @(posedge clk_i) cleared_q <= rst_ni && rst_no && clear_i;
  always_comb cover (cleared_q && !rst_no && !clear_i);

endmodule

bind clear_reset clear_reset_props u_props (
  .*
);
