// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the AES modules share. A block is 128 bits with its first byte in bits
// 7:0, as it lies in memory and on a stream; byte i of the block is row i mod 4
// and column i div 4 of the state (FIPS 197, section 3.4).

package aes_pkg;

  typedef logic [127:0] block_t;

  // Rounds for a key of `key_bits` bits.
  function automatic int unsigned rounds(int unsigned key_bits);
    return key_bits / 32 + 6;
  endfunction

  // Times x in AES's field.
  function automatic logic [7:0] xtime(logic [7:0] a);
    return {a[6:0], 1'b0} ^ (8'h1b & {8{a[7]}});
  endfunction

  // Times a small polynomial.
  function automatic logic [7:0] times(logic [3:0] factor, logic [7:0] a);
    return (factor[0] ? a : '0) ^ (factor[1] ? xtime(a) : '0) ^ (factor[2] ? xtime(xtime(a)) : '0)
        ^ (factor[3] ? xtime(xtime(xtime(a))) : '0);
  endfunction

  // FIPS 197, section 5.1.2: row r moves left by r columns.
  function automatic block_t shift_rows(block_t state);
    block_t moved;
    for (int column = 0; column < 4; column++) begin
      for (int row = 0; row < 4; row++) begin
        moved[8*(4*column+row)+:8] = state[8*(4*((column+row)%4)+row)+:8];
      end
    end
    return moved;
  endfunction

  // FIPS 197, section 5.3.1.
  function automatic block_t inv_shift_rows(block_t state);
    block_t moved;
    for (int column = 0; column < 4; column++) begin
      for (int row = 0; row < 4; row++) begin
        moved[8*(4*((column+row)%4)+row)+:8] = state[8*(4*column+row)+:8];
      end
    end
    return moved;
  endfunction

  // FIPS 197, section 5.1.3, one column: 2 3 1 1 and its rotations.
  function automatic logic [31:0] mix_column(logic [31:0] column);
    logic [31:0] mixed;
    logic [7:0] all;
    all = column[7:0] ^ column[15:8] ^ column[23:16] ^ column[31:24];
    for (int row = 0; row < 4; row++) begin
      mixed[8*row+:8] = column[8*row+:8] ^ all
          ^ xtime(column[8*row+:8] ^ column[8*((row+1)%4)+:8]);
    end
    return mixed;
  endfunction

  function automatic block_t mix_columns(block_t state);
    block_t mixed;
    for (int column = 0; column < 4; column++) begin
      mixed[32*column+:32] = mix_column(state[32*column+:32]);
    end
    return mixed;
  endfunction

  // FIPS 197, section 5.3.3: 14 11 13 9. Each bit is the sum of at most 19 of a column's, here in four parts of at
  // most six, so that two look-up tables in a row do it: 2 3 1 1 after 5 0 4 0, which shares more, takes three.
  localparam logic [3:0][3:0] InvMix = {4'd9, 4'd13, 4'd11, 4'd14};

  // What each part takes of the column: 32 bits for each of four parts, for each of the first byte's eight bits.
  function automatic logic [8*4*32-1:0] inv_mix_parts();
    logic [8*4*32-1:0] parts;
    parts = '0;
    for (int out = 0; out < 8; out++) begin
      int terms;
      terms = 0;
      for (int in = 0; in < 32; in++) begin
        logic [7:0] product;
        product = times(InvMix[in/8], 8'(1 << (in % 8)));
        if (product[out]) begin
          parts[32*(4*out+terms/6)+in] = 1'b1;
          terms++;
        end
      end
    end
    return parts;
  endfunction

  localparam logic [8*4*32-1:0] InvMixParts = inv_mix_parts();

  function automatic logic [31:0] inv_mix_column(logic [31:0] column);
    logic [31:0] mixed;
    for (int row = 0; row < 4; row++) begin
      logic [31:0] turned;
      turned = 32'({column, column} >> (8 * row));
      for (int out = 0; out < 8; out++) begin
        mixed[8*row+out] = (^(turned & InvMixParts[32*(4*out)+:32])) ^ (^(turned & InvMixParts[32*(4*out+1)+:32]))
            ^ (^(turned & InvMixParts[32*(4*out+2)+:32])) ^ (^(turned & InvMixParts[32*(4*out+3)+:32]));
      end
    end
    return mixed;
  endfunction

  function automatic block_t inv_mix_columns(block_t state);
    block_t mixed;
    for (int column = 0; column < 4; column++) begin
      mixed[32*column+:32] = inv_mix_column(state[32*column+:32]);
    end
    return mixed;
  endfunction

endpackage
