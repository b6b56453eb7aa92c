// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A register in a stream, for its valid and data as for its ready: nothing goes through it
// within a cycle, in either direction, so that paths end at it. It takes and gives an
// entry a cycle; one that comes when its reader stops has a place beside. Which of the two
// places is written and which one is read comes out of registers, so that entries may be wide.
// What goes in comes out a cycle later. After reset it is not ready for a cycle; reset leaves zeros.

module stream_skid #(
  parameter int unsigned Width = 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,

  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);

  // A place follows its input while it is the next one to be written, and free.
  logic [1:0] follow_q;
  logic [Width-1:0] entries_q[2];
  // The next place to write and to read; there is an entry; there are two.
  logic write_q, read_q, valid_q, full_q, ready_q;
  logic push, pop, write, full;

  assign ready_o = ready_q;
  assign valid_o = valid_q;
  assign data_o = entries_q[read_q];
  assign push = valid_i && ready_q;
  assign pop = valid_q && ready_i;
  assign write = write_q ^ push;
  assign full = !pop && (full_q || (valid_q && push));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      follow_q <= '0;
      write_q  <= 1'b0;
      read_q   <= 1'b0;
      valid_q  <= 1'b0;
      full_q   <= 1'b0;
      ready_q  <= 1'b0;
    end else begin
      follow_q <= full ? '0 : write ? 2'b10 : 2'b01;
      write_q  <= write;
      read_q   <= read_q ^ pop;
      valid_q  <= push || full_q || (valid_q && !pop);
      full_q   <= full;
      ready_q  <= !full;
    end
  end

  for (genvar i = 0; i < 2; i++) begin : gen_entry
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) entries_q[i] <= '0;
      else if (follow_q[i]) entries_q[i] <= data_i;
    end
  end

endmodule
