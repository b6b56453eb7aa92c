// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A first-in first-out queue between two ready/valid streams, in registers. What
// goes in comes out a cycle later at the earliest; it takes and gives one entry a
// cycle, also when full, if its reader takes one. Reset leaves zeros.

module stream_fifo #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 2
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,

  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o,

  // Entries inside.
  output logic [$clog2(Depth+1)-1:0] count_o
);

  localparam int unsigned IndexWidth = Depth > 1 ? $clog2(Depth) : 1;

  logic [Width-1:0] entries_q[Depth];
  logic [IndexWidth-1:0] head_q, tail_q, head, tail;
  logic [$clog2(Depth+1)-1:0] count_q;

  // One entry has a number that is constant.
  assign head = Depth > 1 ? head_q : '0;
  assign tail = Depth > 1 ? tail_q : '0;

  logic push, pop;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;

  assign valid_o = count_q != '0;
  assign ready_o = count_q != ($clog2(Depth + 1))'(Depth) || ready_i;
  assign data_o = entries_q[head];
  assign count_o = count_q;

  function automatic logic [IndexWidth-1:0] after(logic [IndexWidth-1:0] index);
    return index == IndexWidth'(Depth - 1) ? '0 : index + 1'b1;
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      head_q  <= '0;
      tail_q  <= '0;
      count_q <= '0;
      for (int i = 0; i < int'(Depth); i++) entries_q[i] <= '0;
    end else begin
      if (push) begin
        entries_q[tail] <= data_i;
        tail_q          <= after(tail_q);
      end
      if (pop) head_q <= after(head_q);
      if (push && !pop) count_q <= count_q + 1'b1;
      if (pop && !push) count_q <= count_q - 1'b1;
    end
  end

endmodule
