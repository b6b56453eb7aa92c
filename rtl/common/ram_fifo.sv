// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A first-in first-out queue between two ready/valid streams, in block RAM: for
// sectors. What goes in comes out three cycles later at the earliest, out of a skid buffer behind
// the memory, since block RAM is slow to say what it has; one entry a cycle goes in and
// one out. Reset wipes the memory, an entry a cycle; meanwhile the queue is `busy_o` and
// nothing may be given to it.

module ram_fifo #(
  parameter int unsigned Width = 128,
  // A power of two, 2 or more. Three more entries fit in the registers behind the memory.
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
  // Entries in memory; whether there are any, and whether one is in the memory's own register.
  logic [AddrWidth:0] stored_q;
  logic some_q, have_q;
  logic [Width-1:0] fetched;
  logic push, read, move, room;

  assign ready_o = !stored_q[AddrWidth];
  assign push = valid_i && ready_o;
  assign move = have_q && room;
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
    .read_data_o (fetched)
  );

  stream_skid #(
    .Width(Width)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(have_q),
    .ready_o(room),
    .data_i (fetched),
    .valid_o,
    .ready_i,
    .data_o
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q  <= '0;
      read_q   <= '0;
      stored_q <= '0;
      some_q   <= 1'b0;
      have_q   <= 1'b0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (read) read_q <= read_q + 1'b1;
      if (push && !read) stored_q <= stored_q + 1'b1;
      if (read && !push) stored_q <= stored_q - 1'b1;
      some_q <= push || (some_q && !(read && stored_q == (AddrWidth + 1)'(1)));
      have_q <= read || (have_q && !move);
    end
  end

endmodule
