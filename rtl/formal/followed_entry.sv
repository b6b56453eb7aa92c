// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One entry of a queue, chosen freely, followed from its way in to its way out: `ahead_o`
// entries leave before it.

module followed_entry #(
  parameter int unsigned Width = 1,
  parameter int unsigned CountWidth = 1
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  push_i,
  input  logic                  pop_i,
  input  logic [     Width-1:0] data_i,
  // Entries in the queue.
  input  logic [CountWidth-1:0] count_i,
  output logic                  chosen_o,
  output logic [     Width-1:0] data_o,
  output logic [CountWidth-1:0] ahead_o
);

  logic follow, choice;
  any_sequence u_choice (.Y(choice));
  assign follow = choice && push_i && !chosen_o;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) chosen_o <= 1'b0;
    else if (follow) chosen_o <= 1'b1;
    else if (pop_i && ahead_o == '0) chosen_o <= 1'b0;
  end
  always_ff @(posedge clk_i) begin
    if (follow) begin
      data_o  <= data_i;
      ahead_o <= count_i - CountWidth'(pop_i);
    end else if (pop_i) begin
      ahead_o <= ahead_o - 1'b1;
    end
  end

endmodule
