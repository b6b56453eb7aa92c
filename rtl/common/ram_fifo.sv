// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A first-in first-out queue between two ready/valid streams, in block RAM: for
// sectors. What goes in comes out two cycles later at the earliest; one entry a
// cycle goes in and one out. Reset wipes the memory, an entry a cycle;
// meanwhile the queue is `busy_o` and nothing may be given to it.

module ram_fifo #(
  parameter int unsigned Width = 128,
  // A power of two, 2 or more. One more entry fits in the output register.
  parameter int unsigned Depth = 256
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,

  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);

  localparam int unsigned AddrWidth = $clog2(Depth);

  logic [AddrWidth-1:0] write_q, read_q;
  // Entries in memory; the one read last is in the memory's output register.
  logic [AddrWidth:0] stored_q;
  logic have_q;
  logic push, pop, read;

  assign ready_o = !stored_q[AddrWidth];
  assign valid_o = have_q;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  assign read = stored_q != '0 && (!have_q || pop);

  wiped_ram #(
    .Width(Width),
    .Depth(Depth)
  ) u_ram (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (push),
    .write_addr_i(write_q),
    .write_data_i(data_i),
    .read_i      (read),
    .read_addr_i (read_q),
    .read_data_o (data_o)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q  <= '0;
      read_q   <= '0;
      stored_q <= '0;
      have_q   <= 1'b0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (read) read_q <= read_q + 1'b1;
      if (push && !read) stored_q <= stored_q + 1'b1;
      if (read && !push) stored_q <= stored_q - 1'b1;
      if (read) have_q <= 1'b1;
      else if (pop) have_q <= 1'b0;
    end
  end

endmodule
