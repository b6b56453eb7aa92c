// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the owner of a wiped_table keeps to, and with it that of each queue that has one inside: it
// writes nothing while the table wipes itself, and nothing beyond its end.

module wiped_table_rules #(
  parameter int unsigned Depth = 2,
  localparam int unsigned AddrWidth = $clog2(Depth)
) (
  input logic                 clk_i,
  input logic                 rst_ni,
  input logic                 busy_o,
  input logic                 write_i,
  input logic [AddrWidth-1:0] write_addr_i
);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (rst_ni) begin
      assert (!write_i || !busy_o) else $error("something is written while it is wiped");
      assert (!write_i || 32'(write_addr_i) < Depth) else $error("there is no entry %0d", write_addr_i);
    end
  end

endmodule

bind wiped_table wiped_table_rules #(
  .Depth(Depth)
) u_rules (
  .*
);
