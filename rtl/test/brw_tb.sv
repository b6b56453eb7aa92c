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

  localparam int unsigned TagWidth = 4 + $clog2(Levels + 1);

  logic [$clog2(Levels)-1:0] power;
  logic mult_valid, product_valid;
  elem_t a, b, product;
  logic [TagWidth-1:0] tag, product_tag;
  assign mult_valid_o = mult_valid && mult_free_i;

  brw #(
    .Levels(Levels)
  ) u_brw (
    .clk_i,
    .rst_ni,
    .busy_o,
    .powers_i       (powers_i[0:2]),
    .power_o        (power),
    .power_i        (powers_i[power]),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .squared_i,
    .last_beat_o,
    .mult_valid_o   (mult_valid),
    .mult_ready_i   (mult_free_i),
    .mult_a_o       (a),
    .mult_b_o       (b),
    .mult_tag_o     (tag),
    .product_valid_i(product_valid),
    .product_i      (product),
    .product_tag_i  (product_tag),
    .result_ready_i,
    .result_valid_o,
    .result_o
  );

  gf128_mult #(
    .Stages  (4),
    .TagWidth(TagWidth)
  ) u_mult (
    .clk_i,
    .rst_ni,
    .enable_i (1'b1),
    .valid_i  (mult_valid_o),
    .a_i      (a),
    .b_i      (b),
    .tag_i    (tag),
    .valid_o  (product_valid),
    .product_o(product),
    .tag_o    (product_tag)
  );

endmodule
