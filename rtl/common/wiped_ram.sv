// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A wiped_table with an output register, of which tools make a block RAM: read data a cycle
// after its address, held while `read_i` is low; reading what is written in the same cycle
// gives the old entry.

module wiped_ram #(
  parameter int unsigned Width = 128,
  // 2 or more.
  parameter int unsigned Depth = 256,
  localparam int unsigned AddrWidth = $clog2(Depth)
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input logic                 write_i,
  input logic [AddrWidth-1:0] write_addr_i,
  input logic [    Width-1:0] write_data_i,

  input  logic                 read_i,
  input  logic [AddrWidth-1:0] read_addr_i,
  output logic [    Width-1:0] read_data_o
);

  logic busy;
  logic [AddrWidth-1:0] read_addr[1];
  logic [Width-1:0] entry[1];

  assign busy_o = busy;
  // While all is wiped the register follows entry 0: it has no reset, which block RAM lacks.
  assign read_addr[0] = busy ? '0 : read_addr_i;

  wiped_table #(
    .Width(Width),
    .Depth(Depth),
    .Reads(1)
  ) u_table (
    .clk_i,
    .rst_ni,
    .busy_o     (busy),
    .write_i,
    .write_addr_i,
    .write_data_i,
    .read_addr_i(read_addr),
    .read_data_o(entry)
  );

  always_ff @(posedge clk_i) begin
    if (read_i || busy) read_data_o <= entry[0];
  end

endmodule
