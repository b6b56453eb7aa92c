// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A first-in first-out queue between two ready/valid streams, as registers in a row:
// what goes in moves on to the last free one, so it comes out `Depth` cycles later at the
// earliest, and there is no multiplexer for the data. It takes and gives one entry a
// cycle, also when full, if its reader takes one. Reset leaves zeros.

module stream_chain #(
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
  output logic [Width-1:0] data_o
);

  logic [Depth-1:0] valid_q;
  logic [Depth-1:0][Width-1:0] data_q;
  // The place is free, or becomes so.
  logic free[Depth];

  assign ready_o = free[0];
  assign valid_o = valid_q[Depth-1];
  assign data_o = data_q[Depth-1];

  for (genvar i = 0; i < Depth; i++) begin : gen_place
    logic valid;
    logic [Width-1:0] data;
    // A gap further on, or the reader, lets all before it move.
    assign free[i] = ready_i || !(&valid_q[Depth-1:i]);
    if (i == 0) begin : gen_first
      assign valid = valid_i;
      assign data = data_i;
    end else begin : gen_next
      assign valid = valid_q[i-1];
      assign data = data_q[i-1];
    end
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        valid_q[i] <= 1'b0;
        data_q[i]  <= '0;
      end else if (free[i]) begin
        valid_q[i] <= valid;
        if (valid) data_q[i] <= data;
      end
    end
  end

endmodule
