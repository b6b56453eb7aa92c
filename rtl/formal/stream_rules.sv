// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The rules of a ready/valid stream, as properties: what is valid and not taken stays,
// with the same data, unless reset comes. With `Assume` it is a rule for
// whoever drives the stream, otherwise a claim about it.

module stream_rules #(
  parameter int unsigned Width = 1,
  parameter bit Assume = 1'b0
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             valid_i,
  input logic             ready_i,
  input logic [Width-1:0] data_i
);

  logic waiting_q;
  logic [Width-1:0] data_q;

  always_ff @(posedge clk_i) begin
    waiting_q <= rst_ni && valid_i && !ready_i;
    data_q    <= data_i;
  end
  initial waiting_q = 1'b0;

  if (Assume) begin : gen_assume
    always_comb begin
      if (rst_ni && waiting_q) assume (valid_i && data_i == data_q);
    end
  end else begin : gen_assert
    always_comb begin
      if (rst_ni && waiting_q) assert (valid_i && data_i == data_q);
    end
  end

endmodule
