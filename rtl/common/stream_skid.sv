// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A register in a stream, for its valid and data as for its ready: nothing goes through it
// within a cycle, in either direction, so that paths end at it. It takes and gives an
// entry a cycle; one that comes when its reader stops is kept beside. What goes in comes out a
// cycle later. After reset it is not ready for a cycle; reset leaves zeros.

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

  // At the output; kept beside.
  logic valid_q, kept_q, ready_q, move, push;
  logic [Width-1:0] data_q, kept_data_q;

  assign ready_o = ready_q;
  assign valid_o = valid_q;
  assign data_o = data_q;
  assign move = !valid_q || ready_i;
  assign push = valid_i && ready_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q     <= 1'b0;
      kept_q      <= 1'b0;
      ready_q     <= 1'b0;
      data_q      <= '0;
      kept_data_q <= '0;
    end else begin
      // What is kept goes on when the output moves.
      kept_q  <= (kept_q || push) && !move;
      ready_q <= move || !(kept_q || push);
      if (move) begin
        valid_q <= kept_q || push;
        if (kept_q || push) data_q <= kept_q ? kept_data_q : data_i;
      end
      if (push && !move) kept_data_q <= data_i;
    end
  end

endmodule
