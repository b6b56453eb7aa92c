// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What `horner` needs of a hash key h, worked out once per key and kept in
// registers: h to h^Max, h^Blocks, the powers h^(Blocks+DirectLow) and up for
// blocks with a power of their own, and products of h, h^2, ... and constants.
//
// Powers of two come by squaring, one a cycle; odd ones, and the rest, by
// single products of `horner`'s multiplier (h^e = h^(e-1) h), in this order:
// constants, odd powers, direct powers. The square of each odd one is kept
// along with it. No beat may go in while `single_valid_o`; with h there in cycle
// 0, h^8 is there in cycle 3, and all of it after about 20.

module horner_powers
  import gf128_pkg::*;
#(
  // 4 to 11.
  parameter int unsigned Max       = 4,
  // The power that every beat needs, a power of two of at most Max.
  parameter int unsigned Step      = 4,
  // Of a sector, a power of two, at least Max.
  parameter int unsigned Blocks    = 256,
  parameter int unsigned Directs   = 1,
  parameter int unsigned DirectLow = 1,
  // constants_o[i] = Constants[i] h^(i+1).
  parameter int unsigned NumConstants = 1,
  parameter logic [NumConstants-1:0][127:0] Constants = '0
) (
  input  logic clk_i,
  input  logic rst_ni,

  // A key will come; what there is of the one before is not used.
  input  logic  forget_i,
  // A new key; all of it is worked out anew.
  input  logic  valid_i,
  input  elem_t h_i,

  // Of `horner`.
  output logic  single_valid_o,
  output elem_t single_a_o,
  output elem_t single_b_o,
  input  logic  single_valid_i,
  input  elem_t single_product_i,

  // h^Step is there; all of it is.
  output logic  step_valid_o,
  output logic  all_valid_o,
  output elem_t powers_o[Max+1],
  output elem_t top_o,
  output elem_t direct_o[Directs],
  output elem_t constants_o[NumConstants]
);

  localparam int unsigned Squarings = $clog2(Blocks);
  localparam int unsigned SquaringsWidth = $clog2(Squarings + 1);
  localparam int unsigned Odd = (Max - 1) / 2;
  localparam int unsigned Jobs = NumConstants + Odd + Directs;
  localparam int unsigned JobWidth = $clog2(Jobs + 1);

  // Entry 0 is not used.
  elem_t power_q[Max+1];
  logic [Max:1] there_q;
  // h^(2^k), with k the number of squarings so far.
  elem_t top_q, top_squared;
  logic [SquaringsWidth-1:0] squarings_q;
  elem_t direct_q[Directs];
  elem_t constant_q[NumConstants];
  // The next product to ask for, the next one to come.
  logic [JobWidth-1:0] asked_q, came_q;
  logic key_q, top_there;

  assign top_there = key_q && squarings_q == SquaringsWidth'(Squarings);
  assign top_squared = square(top_q);

  // The next product, if its factors are there. It is asked for out of a register, so that whoever
  // has beats for the multiplier knows in time that they have to wait.
  logic ask;
  elem_t ask_a, ask_b;
  always_comb begin
    ask = 1'b0;
    ask_a = '0;
    ask_b = '0;
    for (int unsigned i = 0; i < NumConstants; i++) begin
      if (asked_q == JobWidth'(i)) begin
        ask = there_q[i+1];
        ask_a = Constants[i];
        ask_b = power_q[i+1];
      end
    end
    for (int unsigned i = 0; i < Odd; i++) begin
      if (asked_q == JobWidth'(NumConstants + i)) begin
        ask = there_q[2*i+2];
        ask_a = power_q[2*i+2];
        ask_b = power_q[1];
      end
    end
    for (int unsigned i = 0; i < Directs; i++) begin
      if (asked_q == JobWidth'(NumConstants + Odd + i)) begin
        ask = top_there && there_q[DirectLow+i];
        ask_a = top_q;
        ask_b = power_q[DirectLow+i];
      end
    end
  end

  // Products that are there now.
  logic [Jobs-1:0] came;
  for (genvar i = 0; i < Jobs; i++) begin : gen_came
    assign came[i] = key_q && single_valid_i && came_q == JobWidth'(i);
  end

  assign power_q[0] = '0;
  for (genvar e = 1; e <= Max; e++) begin : gen_power
    logic write;
    elem_t value;
    if (e == 1) begin : gen_first
      assign write = valid_i;
      assign value = h_i;
    end else if (2 ** $clog2(e) == e) begin : gen_power_of_two
      assign write = key_q && squarings_q == SquaringsWidth'($clog2(e) - 1);
      assign value = top_squared;
    end else if (e % 2 != 0) begin : gen_odd
      assign write = came[NumConstants+(e-3)/2];
      assign value = single_product_i;
    end else begin : gen_twice_odd
      assign write = came[NumConstants+(e/2-3)/2];
      assign value = square(single_product_i);
    end
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        power_q[e] <= '0;
        there_q[e] <= 1'b0;
      end else if (forget_i) begin
        there_q[e] <= 1'b0;
      end else begin
        if (write) power_q[e] <= value;
        if (valid_i || write) there_q[e] <= write;
      end
    end
  end

  for (genvar i = 0; i < NumConstants; i++) begin : gen_constant
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) constant_q[i] <= '0;
      else if (came[i]) constant_q[i] <= single_product_i;
    end
  end

  for (genvar i = 0; i < Directs; i++) begin : gen_direct
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) direct_q[i] <= '0;
      else if (came[NumConstants+Odd+i]) direct_q[i] <= single_product_i;
    end
  end

  assign step_valid_o = there_q[Step];
  assign all_valid_o = came_q == JobWidth'(Jobs) && top_there;
  assign powers_o = power_q;
  assign top_o = top_q;
  assign direct_o = direct_q;
  assign constants_o = constant_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      single_valid_o <= 1'b0;
      single_a_o     <= '0;
      single_b_o     <= '0;
    end else begin
      single_valid_o <= ask && key_q;
      single_a_o     <= ask_a;
      single_b_o     <= ask_b;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      top_q       <= '0;
      squarings_q <= '0;
      asked_q     <= '0;
      came_q      <= '0;
      key_q       <= 1'b0;
    end else if (forget_i) begin
      key_q <= 1'b0;
    end else begin
      if (valid_i) begin
        top_q       <= h_i;
        squarings_q <= '0;
        asked_q     <= '0;
        came_q      <= '0;
        key_q       <= 1'b1;
      end else if (key_q) begin
        if (!top_there) begin
          top_q       <= top_squared;
          squarings_q <= squarings_q + 1'b1;
        end
        if (ask) asked_q <= asked_q + 1'b1;
        if (single_valid_i) came_q <= came_q + 1'b1;
      end
    end
  end

endmodule
