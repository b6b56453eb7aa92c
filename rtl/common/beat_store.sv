// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Beats on their way, in block RAM, for a writer and a reader that know by themselves what
// is in it: the next beat is at the output three cycles after it was written, and the reader
// must not want it before. `take_i` takes a place, in a cycle with `room_o`, with or before the
// writing of its beat. `room_o` comes out of a register and knows of what happened three cycles ago,
// so it keeps places back for that.

module beat_store #(
  parameter int unsigned Width = 128,
  // A power of two, 8 or more.
  parameter int unsigned Depth = 256
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Wiping after reset: there is no room.
  output logic busy_o,

  input  logic take_i,
  output logic room_o,

  // For a place taken.
  input logic             write_i,
  input logic [Width-1:0] data_i,

  // The next beat; on to the one after it.
  output logic [Width-1:0] data_o,
  input  logic             read_i
);

  localparam int unsigned AddrWidth = $clog2(Depth);

  // Places taken; beats read; their difference a cycle ago.
  logic [AddrWidth:0] taken_q, read_q, used_q;
  // There is a place for each beat, and the reader knows of it.
  logic room_q, unused_ready, unused_valid;

  assign room_o = room_q;

  ram_fifo #(
    .Width(Width),
    .Depth(Depth)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .busy_o,
    .valid_i(write_i),
    .ready_o(unused_ready),
    .data_i,
    .valid_o(unused_valid),
    .ready_i(read_i),
    .data_o
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      taken_q <= '0;
      read_q  <= '0;
      used_q  <= '0;
      room_q  <= 1'b0;
    end else begin
      if (take_i) taken_q <= taken_q + 1'b1;
      if (read_i) read_q <= read_q + 1'b1;
      used_q <= taken_q - read_q;
      // Four places are left, and three cycles may take one each.
      room_q <= !busy_o && !used_q[AddrWidth] && !(&used_q[AddrWidth-1:2]);
    end
  end

endmodule
