// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the owner of a credit_fifo keeps to, or entries are lost: it takes a place only while there is
// room, and writes only into places taken, before or in the same cycle.

module credit_fifo_rules #(
  parameter int unsigned Depth = 4,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input logic clk_i,
  input logic rst_ni,
  input logic take_i,
  input logic room_o,
  input logic valid_i
);

  // Places taken and not written.
  logic [CountWidth-1:0] away_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) away_q <= '0;
    else begin
      away_q <= away_q + CountWidth'(take_i) - CountWidth'(valid_i);
      assert (!take_i || room_o) else $error("a place is taken, and there is no room");
      assert (!valid_i || take_i || away_q != '0) else $error("an entry comes without a place");
    end
  end

endmodule

bind credit_fifo credit_fifo_rules #(
  .Depth(Depth)
) u_rules (
  .*
);
