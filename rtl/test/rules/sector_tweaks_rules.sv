// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A result comes to sector_tweaks only while there is a place for it, for which its queue does not ask. That
// queue is not there without tweaks, so it cannot be in the list of unasked.sv.

module sector_tweaks_rules #(
  parameter int unsigned Depth     = 2,
  parameter bit          WithTweak = 1'b1,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input logic clk_i,
  input logic rst_ni,
  input logic call_result_valid_i,
  input logic result_valid_o,
  input logic result_ready_i
);

  logic comes, leaves;
  // In the queue.
  logic [CountWidth-1:0] results_q;
  assign comes = WithTweak && call_result_valid_i;
  assign leaves = WithTweak && result_valid_o && result_ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) results_q <= '0;
    else begin
      results_q <= results_q + CountWidth'(comes) - CountWidth'(leaves);
      assert (!comes || leaves || results_q != CountWidth'(Depth)) else $error("the queue of results is full");
    end
  end

endmodule

bind sector_tweaks sector_tweaks_rules #(
  .Depth    (Depth),
  .WithTweak(WithTweak)
) u_rules (
  .*
);
