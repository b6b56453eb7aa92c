// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A pipeline stage that a parameter switches on or off: a register, zero after
// reset, or a wire.

module pipe_stage #(
  parameter int unsigned Width = 1,
  parameter bit Register = 1'b1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  if (Register) begin : gen_register
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) data_o <= '0;
      else data_o <= data_i;
    end
  end else begin : gen_wire
    // Without a register there is nothing to clock.
    logic unused;
    assign unused = ^{clk_i, rst_ni};
    assign data_o = data_i;
  end

endmodule
