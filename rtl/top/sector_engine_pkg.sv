// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The ciphers that sector_engine chooses from, and the widths that go with them.

package sector_engine_pkg;

  typedef enum int unsigned {
    Xts        = 0,
    FastBrw    = 1,
    FastHorner = 2,
    Hctr2      = 3,
    Eme2       = 4,
    Aez10      = 5,
    Xcb        = 6
  } cipher_e;

  // Blocks in a beat of data.
  function automatic int unsigned lanes(int unsigned cipher, int unsigned cores);
    return cipher == FastBrw || cipher == Aez10 ? 2 : cores;
  endfunction

  // Bits of the whole key for AES keys of `key_bits`.
  function automatic int unsigned key_width(int unsigned cipher, int unsigned key_bits);
    if (cipher == Xts) return 2 * key_bits;
    return cipher == Eme2 ? 256 + key_bits : key_bits;
  endfunction

endpackage
