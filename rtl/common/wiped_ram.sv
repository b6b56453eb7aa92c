// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A block RAM with one write port and one read port (read data a cycle after its
// address, held while `read_i` is low; reading what is written in the same cycle
// gives the old entry), that wipes itself: after reset it writes
// zeros everywhere, one entry a cycle, and is `busy_o` meanwhile. Writes during
// that time are lost, so its owner accepts nothing before.

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

  // Without reset, so that tools make a block RAM of it: the output register holds
  // an entry until the next read; while all is wiped it follows entry 0.
  always_ff @(posedge clk_i) begin
    if (write) memory[write_addr] <= write_data;
    if (read_i || busy_q) read_data_o <= memory[busy_q ? '0 : read_addr_i];
  end

endmodule
