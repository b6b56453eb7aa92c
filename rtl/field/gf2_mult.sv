// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The product of two polynomials over GF(2) of up to 16 coefficients or so, as
// in school: without a register, two levels of six-input look-up tables at 16.

module gf2_mult #(
  parameter int unsigned Width = 16
) (
  input  logic [  Width-1:0] a_i,
  input  logic [  Width-1:0] b_i,
  output logic [2*Width-2:0] product_o
);

  always_comb begin
    product_o = '0;
    for (int i = 0; i < Width; i++) begin
      product_o ^= {{(Width - 1) {1'b0}}, a_i & {Width{b_i[i]}}} << i;
    end
  end

endmodule
