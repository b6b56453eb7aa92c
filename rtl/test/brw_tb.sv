// SPDX-License-Identifier: MIT OR Apache-2.0
//
// `brw` on a multiplier of four stages that is not always free.

module brw_tb
  import gf128_pkg::*;
#(
  parameter int unsigned Levels = 5
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  output logic         busy_o,
  input  elem_t        powers_i[Levels],
  input  logic         in_valid_i,
  output logic         in_ready_o,
  input  logic [255:0] in_data_i,
  input  logic         squared_i,
  output logic         last_beat_o,
  // The multiplier is free in this cycle; it gets a product.
  input  logic         mult_free_i,
  output logic         mult_valid_o,
  input  logic         result_ready_i,
  output logic         result_valid_o,
  output elem_t        result_o
);

  logic [$clog2(Levels)-1:0] power;
  logic mult_valid, mult_late, late_q, unused_valid, unused_soon, unused_soon_tag, unused_tag;
  elem_t a, b, a_q, b_q, product;
  assign mult_valid_o = mult_valid && mult_free_i;

  brw #(
    .Levels(Levels)
  ) u_brw (
    .clk_i,
    .rst_ni,
    .busy_o,
    .powers_i      (powers_i[0:2]),
    .power_o       (power),
    .power_i       (powers_i[power]),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .squared_i,
    .last_beat_o,
    .mult_valid_o  (mult_valid),
    .mult_ready_i  (mult_free_i),
    .mult_a_o      (a),
    .mult_b_o      (b),
    .mult_late_o   (mult_late),
    .product_i     (product),
    .result_ready_i,
    .result_valid_o,
    .result_o
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      a_q    <= '0;
      b_q    <= '0;
      late_q <= 1'b0;
    end else begin
      a_q    <= a;
      b_q    <= b;
      late_q <= mult_late;
    end
  end

  gf128_mult #(
    .Stages(4)
  ) u_mult (
    .clk_i,
    .rst_ni,
    .valid_i     (1'b0),
    .a_i         (a_q ^ (late_q ? product : '0)),
    .b_i         (b_q),
    .tag_i       (1'b0),
    .soon_valid_o(unused_soon),
    .soon_tag_o  (unused_soon_tag),
    .valid_o     (unused_valid),
    .product_o   (product),
    .tag_o       (unused_tag)
  );

endmodule
