// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The queue at the end of a pipeline that never stops. Who sends something into the
// pipeline takes a place of the queue with it (`take_i`, in a cycle with `room_o`), so that
// there is one when it comes out, however long the reader waits. So nothing has to
// tell the pipeline to stand still, and `room_o` comes out of a register. It knows of a place
// taken or freed a cycle late, and keeps one back for that.
//
// What comes in goes out a cycle later at the earliest, one entry a cycle. With a pipeline of
// n cycles between `take_i` and `valid_i`, `Depth` of n + 5 or more never stops it as long as the
// reader takes all. The memory is of look-up tables, read at the output, so that no more than a
// few bits of its address wait for `ready_i`, however wide the entries are. It
// wipes itself after reset; the queue is `busy_o` meanwhile, and there is no room.

module credit_fifo #(
  parameter int unsigned Width = 128,
  // A power of two, 4 or more.
  parameter int unsigned Depth = 32
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input  logic take_i,
  output logic room_o,

  // For a place taken before.
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,

  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);

  localparam int unsigned IndexWidth = $clog2(Depth);
  localparam int unsigned CountWidth = $clog2(Depth + 1);

  // Places taken.
  logic [CountWidth-1:0] taken_q;
  logic room_q;
  // Where the next entry goes, and where the next one to leave is, if there is any.
  logic [IndexWidth-1:0] write_q, read_q, read_next;
  logic valid_q, pop;
  logic [IndexWidth-1:0] read_addr[1];
  logic [Width-1:0] entry[1];

  assign room_o = room_q;
  assign valid_o = valid_q;
  assign data_o = entry[0];
  assign pop = valid_q && ready_i;
  assign read_addr[0] = read_q;
  assign read_next = read_q + 1'b1;

  wiped_table #(
    .Width(Width),
    .Depth(Depth),
    .Reads(1)
  ) u_table (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (valid_i),
    .write_addr_i(write_q),
    .write_data_i(data_i),
    .read_addr_i (read_addr),
    .read_data_o (entry)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      taken_q <= '0;
      room_q  <= 1'b0;
      write_q <= '0;
      read_q  <= '0;
      valid_q <= 1'b0;
    end else begin
      taken_q <= taken_q + CountWidth'(take_i) - CountWidth'(pop);
      room_q  <= taken_q < CountWidth'(Depth - 1) && !busy_o;
      if (valid_i) write_q <= write_q + 1'b1;
      if (pop) read_q <= read_next;
      valid_q <= valid_i || (valid_q && !(pop && read_next == write_q));
    end
  end

endmodule
