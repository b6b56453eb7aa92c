// SPDX-License-Identifier: MIT OR Apache-2.0
//
// GF(2^128) in the layout of XTS, EME2 and FAST ("little"): bit i of the block is
// the coefficient of x^i, and x^128 = x^7 + x^2 + x + 1. The other layouts are the
// same field with its bits elsewhere:
//   GCM's (XCB)  bits reversed inside each byte;
//   AEZ's        bytes in reverse order;
//   POLYVAL's    all 128 bits reversed against GCM's by bytes (RFC 8452, appendix A).

package gf128_pkg;

  typedef logic [127:0] elem_t;

  // Times x.
  function automatic elem_t double(elem_t a);
    return {a[126:0], 1'b0} ^ (128'h87 & {128{a[127]}});
  endfunction

  // The remainder of a product of two elements.
  function automatic elem_t reduce(logic [254:0] product);
    logic [133:0] folded;
    logic [126:0] high;
    high   = product[254:128];
    folded = 134'(high) ^ (134'(high) << 1) ^ (134'(high) << 2) ^ (134'(high) << 7);
    // What stands out again is six bits; times x^7 + x^2 + x + 1 it fits.
    return product[127:0] ^ folded[127:0] ^ 128'(folded[133:128])
        ^ (128'(folded[133:128]) << 1) ^ (128'(folded[133:128]) << 2)
        ^ (128'(folded[133:128]) << 7);
  endfunction

  // Times x^power; power is a constant, 127 at most.
  function automatic elem_t times_power(elem_t a, int unsigned power);
    return reduce(255'(a) << power);
  endfunction

  // A square: linear, so no more than wires and exclusive ors.
  function automatic elem_t square(elem_t a);
    logic [254:0] spread;
    spread = '0;
    for (int i = 0; i < 128; i++) spread[2*i] = a[i];
    return reduce(spread);
  endfunction

  // Between this layout and GCM's, either way.
  function automatic elem_t swap_gcm(elem_t a);
    elem_t swapped;
    for (int i = 0; i < 128; i++) swapped[i] = a[i^7];
    return swapped;
  endfunction

  // Between this layout and AEZ's, either way.
  function automatic elem_t swap_bytes(elem_t a);
    elem_t swapped;
    for (int i = 0; i < 16; i++) swapped[8*i+:8] = a[8*(15-i)+:8];
    return swapped;
  endfunction

endpackage
