// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A first-in first-out queue between two ready/valid streams, in block RAM: for
// sectors. What goes in comes out three cycles later at the earliest, out of a register of
// its own, since block RAM is slow to say what it has; one entry a cycle goes in and
// one out. Reset wipes the memory, an entry a cycle; meanwhile the queue is `busy_o` and
// nothing may be given to it.

module ram_fifo #(
  parameter int unsigned Width = 128,
  // A power of two, 2 or more. Two more entries fit in the registers behind the memory.
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
  // Entries in memory; whether there are any. The two read last are in the memory's register and in that of the output.
  logic [AddrWidth:0] stored_q;
  logic some_q, have_q, valid_q;
  logic [Width-1:0] data_q, second;
  logic push, read, move;

  assign ready_o = !stored_q[AddrWidth];
  assign valid_o = valid_q;
  assign data_o = data_q;
  assign push = valid_i && ready_o;
  assign move = have_q && (!valid_q || ready_i);
  assign read = some_q && (!have_q || move);

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
    .read_data_o (second)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q  <= '0;
      read_q   <= '0;
      stored_q <= '0;
      some_q   <= 1'b0;
      have_q   <= 1'b0;
      valid_q  <= 1'b0;
      data_q   <= '0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (read) read_q <= read_q + 1'b1;
      if (push && !read) stored_q <= stored_q + 1'b1;
      if (read && !push) stored_q <= stored_q - 1'b1;
      some_q <= push || (some_q && !(read && stored_q == (AddrWidth + 1)'(1)));
      have_q <= read || (have_q && !move);
      if (move) data_q <= second;
      valid_q <= move || (valid_q && !ready_i);
    end
  end

endmodule
