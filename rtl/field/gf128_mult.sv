// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pipelined multiplication in GF(2^128), one product a cycle, by Karatsuba's
// method three levels deep: 27 products of 16 coefficients. The work falls into
// four pieces of two to three levels of logic each:
//   1. the 27 pairs of operands, sums of up to eight words;
//   2. the 27 products;
//   3. from 27 products of 16 to three of 64;
//   4. the last level of sums, and the reduction.
// `Stages` registers lie behind pieces: 4 behind all of them, as the papers'
// multiplier has; 3 behind 1, 2 and 4; 2 behind 2 and 4; 1 behind 4.
//
// A tag travels with each product. A cycle before it is there, `soon_valid_o` and `soon_tag_o` tell
// what comes, so that whoever waits for it need not decide in the cycle in which it is needed.
// It never stops.

module gf128_mult
  import gf128_pkg::*;
#(
  // 1 to 4.
  parameter int unsigned Stages   = 4,
  parameter int unsigned TagWidth = 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic                valid_i,
  input  elem_t               a_i,
  input  elem_t               b_i,
  input  logic [TagWidth-1:0] tag_i,

  output logic                soon_valid_o,
  output logic [TagWidth-1:0] soon_tag_o,
  output logic                valid_o,
  output elem_t               product_o,
  output logic [TagWidth-1:0] tag_o
);

  localparam int unsigned Leaves = 27;
  localparam bit [4:1] Registered = {Stages >= 1, Stages >= 4, Stages >= 2, Stages >= 3};

  // A number in base 3 names a leaf of the recursion: digit 0 takes the low
  // halves, 1 the high ones, 2 the sums of both; the lowest digit decides at
  // the lowest level. Which of the eight 16-bit words go into a leaf:
  function automatic logic [7:0] words_of(int unsigned leaf);
    logic [7:0] words;
    for (int unsigned word = 0; word < 8; word++) begin
      int unsigned rest;
      words[word] = 1'b1;
      rest = leaf;
      for (int unsigned level = 0; level < 3; level++) begin
        if (rest % 3 != 2 && rest % 3 != ((word >> level) & 1)) words[word] = 1'b0;
        rest = rest / 3;
      end
    end
    return words;
  endfunction

  // What travels from piece to piece.
  typedef struct packed {
    logic                valid;
    logic [TagWidth-1:0] tag;
  } side_t;

  typedef struct packed {
    side_t                   side;
    logic [Leaves-1:0][15:0] a;
    logic [Leaves-1:0][15:0] b;
  } operands_t;

  typedef struct packed {
    side_t                   side;
    logic [Leaves-1:0][30:0] leaf;
  } products_t;

  typedef struct packed {
    side_t             side;
    logic [2:0][126:0] third;
  } sums_t;

  typedef struct packed {
    side_t side;
    elem_t product;
  } result_t;

  operands_t operands_d, operands_q;
  products_t products_d, products_q;
  sums_t sums_d, sums_q;
  result_t result_d, result_q;

  // 1. Operands.
  assign operands_d.side = '{valid: valid_i, tag: tag_i};
  for (genvar leaf = 0; leaf < Leaves; leaf++) begin : gen_operands
    localparam logic [7:0] Words = words_of(leaf);
    always_comb begin
      operands_d.a[leaf] = '0;
      operands_d.b[leaf] = '0;
      for (int word = 0; word < 8; word++) begin
        if (Words[word]) begin
          operands_d.a[leaf] ^= a_i[16*word+:16];
          operands_d.b[leaf] ^= b_i[16*word+:16];
        end
      end
    end
  end

  // 2. Products.
  assign products_d.side = operands_q.side;
  for (genvar leaf = 0; leaf < Leaves; leaf++) begin : gen_products
    gf2_mult #(
      .Width(16)
    ) u_mult (
      .a_i      (operands_q.a[leaf]),
      .b_i      (operands_q.b[leaf]),
      .product_o(products_d.leaf[leaf])
    );
  end

  // 3. Up two levels: low + (sums + low + high) x^n + high x^2n.
  logic [ 8:0][30:0] middle16;
  logic [ 8:0][62:0] product32;
  logic [ 2:0][62:0] middle32;

  assign sums_d.side = products_q.side;
  always_comb begin
    for (int i = 0; i < 9; i++) begin
      middle16[i] = products_q.leaf[3*i] ^ products_q.leaf[3*i+1] ^ products_q.leaf[3*i+2];
      product32[i] = 63'(products_q.leaf[3*i]) ^ (63'(products_q.leaf[3*i+1]) << 32)
          ^ (63'(middle16[i]) << 16);
    end
    for (int i = 0; i < 3; i++) begin
      middle32[i] = product32[3*i] ^ product32[3*i+1] ^ product32[3*i+2];
      sums_d.third[i] = 127'(product32[3*i]) ^ (127'(product32[3*i+1]) << 64)
          ^ (127'(middle32[i]) << 32);
    end
  end

  // 4. The last level, and the reduction.
  logic [126:0] middle64;
  assign middle64 = sums_q.third[0] ^ sums_q.third[1] ^ sums_q.third[2];
  assign result_d = '{
          side: sums_q.side,
          product: reduce(
              255'(sums_q.third[0]) ^ (255'(sums_q.third[1]) << 128) ^ (255'(middle64) << 64)
          )
      };

  pipe_stage #(
    .Width   ($bits(operands_t)),
    .Register(Registered[1])
  ) u_operands (
    .clk_i,
    .rst_ni,
    .data_i(operands_d),
    .data_o(operands_q)
  );

  pipe_stage #(
    .Width   ($bits(products_t)),
    .Register(Registered[2])
  ) u_products (
    .clk_i,
    .rst_ni,
    .data_i(products_d),
    .data_o(products_q)
  );

  pipe_stage #(
    .Width   ($bits(sums_t)),
    .Register(Registered[3])
  ) u_sums (
    .clk_i,
    .rst_ni,
    .data_i(sums_d),
    .data_o(sums_q)
  );

  pipe_stage #(
    .Width   ($bits(result_t)),
    .Register(Registered[4])
  ) u_result (
    .clk_i,
    .rst_ni,
    .data_i(result_d),
    .data_o(result_q)
  );

  assign soon_valid_o = result_d.side.valid;
  assign soon_tag_o = result_d.side.tag;
  assign valid_o   = result_q.side.valid;
  assign product_o = result_q.product;
  assign tag_o     = result_q.side.tag;

endmodule
