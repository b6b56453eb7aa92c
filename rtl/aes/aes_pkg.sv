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

  // FIPS 197, section 5.3.3. 14 11 13 9 is 2 3 1 1 after 5 0 4 0.
  function automatic block_t inv_mix_columns(block_t state);
    block_t prepared;
    for (int column = 0; column < 4; column++) begin
      for (int row = 0; row < 4; row++) begin
        prepared[8*(4*column+row)+:8] = state[8*(4*column+row)+:8]
            ^ xtime(xtime(state[8*(4*column+row)+:8] ^ state[8*(4*column+(row+2)%4)+:8]));
      end
    end
    return mix_columns(prepared);
  endfunction

endpackage
