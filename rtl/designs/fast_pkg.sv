// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the parts of FAST share.

package fast_pkg;

  // What a sector is besides its data; `last` of its run.
  typedef struct packed {
    aes_pkg::block_t tweak;
    logic            decrypt;
    logic            last;
  } sector_t;

endpackage
