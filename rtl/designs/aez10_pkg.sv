// SPDX-License-Identifier: MIT OR Apache-2.0
//
// AEZ10: AEZ-core with a whole AES call E^{r,k}(X) = AES(X ^ (r + 1) I ^ k J) for each
// of its ciphers, I = AES(0), J = AES(1). The field is that of gf128_pkg with the bytes
// in reverse order; I, J and their multiples are kept in gf128_pkg's order and turned
// where they meet a block.

package aez10_pkg;

  import aes_pkg::block_t;
  import gf128_pkg::elem_t, gf128_pkg::times_power, gf128_pkg::swap_bytes;

  // What a call is for. A sector is pairs (M_i, M'_i) from i = 1 and the last one,
  // (M_x, M_y).
  typedef enum logic [3:0] {
    SetupI,   // I
    SetupJ,   // J
    SetupD,   // E^{3,1}(0), the part of Delta that is the key's
    Delta,    // E^{4,1}(tweak)
    PairW,    // W_i = M_i ^ E^{1,i}(M'_i)
    PairX,    // X_i = M'_i ^ E^{0,0}(W_i)
    PairS,    // Y_i = W_i ^ E^{2,i}(S), Z_i = X_i ^ E^{2,i}(S)
    PairZ,    // C'_i = Y_i ^ E^{0,0}(Z_i)
    PairC,    // C_i = Z_i ^ E^{1,i}(C'_i)
    LastIn,   // M_x ^ E^{0,1}(M_y); 2 in place of 1 in decryption, here and below
    LastS,    // S_y = M_y ^ E^{-1,1}(S_x)
    LastY,    // C_y = S_x ^ E^{-1,2}(S_y); 1 in place of 2 in decryption
    LastHold, // nothing: so that (M_x, M_y) takes as long as a pair
    LastX     // C_x = S_y ^ Delta ^ Y ^ E^{0,2}(C_y)
  } kind_e;

  // What a call is.
  typedef struct packed {
    kind_e kind;
    logic  decrypt;
    // The sector is the last one of its run.
    logic  last;
    // The first and the last of the sector's pairs but (M_x, M_y).
    logic  begins;
    logic  ends;
  } item_t;

  // A call: what goes into AES, masked, and two blocks for its result (aez10_lane).
  typedef struct packed {
    item_t  item;
    block_t block;
    block_t a;
    block_t b;
  } call_t;

  // The multiple k J, k a natural number below 128 as a polynomial.
  function automatic elem_t column(elem_t j, logic [6:0] k);
    elem_t sum;
    sum = '0;
    for (int unsigned i = 0; i < 7; i++) sum ^= times_power(j, i) & {128{k[i]}};
    return sum;
  endfunction

endpackage
