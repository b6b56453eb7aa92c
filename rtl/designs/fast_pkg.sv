// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the parts of FAST share.

package fast_pkg;

  // What a sector is besides its data and its tweak; `last` of its run.
  typedef struct packed {
    logic decrypt;
    logic last;
  } sector_t;

  // Sectors that may be between the Feistel part and the output: more than the time that
  // one takes there is of sectors of 512 bytes. That many places are no more
  // memory than a few.
  /* verilator lint_off UNUSEDPARAM */
  localparam int unsigned Sectors = 16;
  /* verilator lint_on UNUSEDPARAM */

  // Beats of a queue in block RAM: two sectors, and of short ones as many as cost no more.
  function automatic int unsigned queue_beats(int unsigned beats);
    return 2 * beats > 128 ? 2 * beats : 128;
  endfunction

endpackage
