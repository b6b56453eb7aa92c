// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the co-processor's modules say to each other. A block is 16 bytes, the first
// in bits 7:0.

package engine_pkg;

  // Each of its readers uses a part.
  /* verilator lint_off UNUSEDPARAM */
  // Names that are words of C++, too.
  /* verilator lint_off SYMRSVDWORD */

  // Of the bytes in the longest request, of the entries in the longest list, and of the
  // entries in the longest ring.
  localparam int unsigned LogBytes   = 26;
  localparam int unsigned LogEntries = 20;
  localparam int unsigned LogRing    = 10;
  // Of a key slot: the longest keys, those of XTS and EME2 with AES-256.
  localparam int unsigned SlotBits = 512;
  // Blocks of the longest burst: 1 KiB, so that a bus of 4 bytes has at most 256 beats.
  localparam int unsigned BurstBlocks = 64;

  localparam int unsigned BlocksWidth  = LogBytes - 4 + 1;
  localparam int unsigned BurstWidth   = $clog2(BurstBlocks + 1);
  localparam int unsigned EntriesWidth = LogEntries + 1;

  typedef logic [127:0] block_t;
  typedef logic [63:0] address_t;
  typedef logic [BlocksWidth-1:0] blocks_t;
  typedef logic [BurstWidth-1:0] burst_t;
  typedef logic [7:0] status_t;

  // What the cipher core does with a unit's tweak.
  typedef enum logic [1:0] {
    // Blocks are for themselves: no masks.
    ModeEcb = 0,
    // The tweak is the first mask.
    ModeEncrypted = 1,
    // The core encrypts the tweak; all ciphers but XTS have only this.
    ModeRun = 2
  } mode_e;

  // A request on its way; the rings have checked it. With another status than DONE it
  // only passes through in its turn.
  typedef struct packed {
    logic [2:0]              ring;
    // Counts requests, so that two that are under way are told apart.
    logic [3:0]              number;
    logic [63:0]             cookie;
    logic                    interrupt;
    status_t                 status;
    // Without data: op NOP, or a status.
    logic                    empty;
    logic                    decrypt;
    mode_e                   mode;
    logic [4:0]              slot;
    // Of a unit: 32 to 256, a power of two; 1 for ECB, which the cipher takes in pieces.
    logic [8:0]              unit_blocks;
    // In all: units times unit_blocks.
    blocks_t                 blocks;
    block_t                  tweak;
    logic [15:0]             step;
    logic                    source_list;
    address_t                source;
    logic [EntriesWidth-1:0] source_entries;
    logic                    destination_list;
    address_t                destination;
    logic [EntriesWidth-1:0] destination_entries;
  } request_t;

  // What comes from the source: a block, or the end of the request's data, with DONE if
  // all of it has come.
  typedef struct packed {
    logic    last;
    status_t status;
    block_t  block;
  } item_t;

  // How a request's way through the cipher ended, from the cipher to the destination:
  // of the `issued` blocks that come out, the first `good` are to be written.
  typedef struct packed {
    logic [3:0] number;
    status_t    status;
    blocks_t    good;
    blocks_t    issued;
  } verdict_t;

  // How a request ended, from the destination to the completions.
  typedef struct packed {
    logic [2:0]  ring;
    logic [63:0] cookie;
    logic        interrupt;
    status_t     status;
    // Blocks done, a whole number of units; completions count units.
    blocks_t     blocks;
    logic [3:0]  log2_unit_blocks;
    // What had been written beyond could not be erased.
    logic        not_erased;
  } result_t;

  /* verilator lint_on SYMRSVDWORD */
  /* verilator lint_on UNUSEDPARAM */

endpackage
