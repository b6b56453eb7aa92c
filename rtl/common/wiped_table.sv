// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A memory in look-up tables, read in the cycle of the address, that wipes itself: after reset
// it writes zeros everywhere, one entry a cycle, and is `busy_o` meanwhile. Writes during that
// time are lost, so its owner accepts nothing before. For entries of which only one at a
// time is read or written: registers would need a multiplexer for every reader.

module wiped_table #(
  parameter int unsigned Width = 128,
  // 2 or more.
  parameter int unsigned Depth = 8,
  // Readers.
  parameter int unsigned Reads = 1,
  localparam int unsigned AddrWidth = $clog2(Depth)
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input logic                 write_i,
  input logic [AddrWidth-1:0] write_addr_i,
  input logic [    Width-1:0] write_data_i,

  input  logic [AddrWidth-1:0] read_addr_i[Reads],
  output logic [    Width-1:0] read_data_o[Reads]
);

  logic [Width-1:0] memory[Depth];
  logic busy_q;
  logic [AddrWidth-1:0] wipe_q;

  assign busy_o = busy_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q <= 1'b1;
      wipe_q <= '0;
    end else if (busy_q) begin
      busy_q <= wipe_q != AddrWidth'(Depth - 1);
      wipe_q <= wipe_q + 1'b1;
    end
  end

  logic write;
  logic [AddrWidth-1:0] write_addr;
  logic [Width-1:0] write_data;
  assign write = busy_q || write_i;
  assign write_addr = busy_q ? wipe_q : write_addr_i;
  assign write_data = busy_q ? '0 : write_data_i;

  // Without reset, so that tools make a memory of it.
  always_ff @(posedge clk_i) begin
    if (write) memory[write_addr] <= write_data;
  end

  for (genvar i = 0; i < Reads; i++) begin : gen_read
    assign read_data_o[i] = memory[read_addr_i[i]];
  end

endmodule
