// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The reset of all that a command has to wipe: it falls with `rst_ni` at once, and with
// the edge that ends a cycle of `clear_i`, and rises in step with the clock, one cycle
// after the last of both. So registers with an asynchronous reset are zero from the
// cycle after the command on, and need no logic of their own for that. It comes straight
// out of a flip-flop, so there is nothing to glitch. In its cycles registers keep still:
// their owner must not take anything.

module clear_reset (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,
  output logic rst_no
);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) rst_no <= 1'b0;
    else rst_no <= !clear_i;
  end

endmodule
