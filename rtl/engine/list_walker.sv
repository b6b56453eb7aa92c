// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Says where in memory a run of blocks lies: gives it as *chunks* of at most `Chunk`
// blocks that do not cross 4 KiB, in order, from a single address or from a list that it
// fetches four entries at a time and ahead of use. Then it says how that ended:
// DONE; ALIGNMENT, and no chunks, if the address or the list does not fit; LIST or READ
// after the chunks before the fault. A list that is longer than the run is noticed before
// the last chunk, which is kept back, so a run is covered as a whole if and only if the end
// is DONE.
//
// With `skip_i` the first blocks are left out, with `loose_i` the list may be longer than
// the run: so it covers part of a run again. `stop_i`, held until `idle_o`, ends the walk
// without an end; fetches under way are waited for.

module list_walker
  import engine_pkg::*;
#(
  parameter int unsigned AddressBits = 64,
  // Blocks, a power of two up to 64.
  parameter int unsigned Chunk = 64,
  // Entries of the queue, 8 or more.
  parameter int unsigned Entries = 8
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic stop_i,
  output logic idle_o,
  // It waits for entries.
  output logic fetching_o,

  input  logic                    start_valid_i,
  output logic                    start_ready_o,
  input  logic                    list_i,
  // Of the run, or of the list.
  input  address_t                address_i,
  input  logic [EntriesWidth-1:0] entries_i,
  // Of the run, one or more.
  input  blocks_t                 blocks_i,
  input  blocks_t                 skip_i,
  input  logic                    loose_i,

  output logic     chunk_valid_o,
  input  logic     chunk_ready_i,
  output address_t chunk_address_o,
  output burst_t   chunk_blocks_o,

  // After all chunks.
  output logic    end_valid_o,
  input  logic    end_ready_i,
  output status_t end_status_o,

  // To the reader.
  output logic     req_valid_o,
  input  logic     req_ready_i,
  output address_t req_address_o,
  output burst_t   req_blocks_o,
  input  logic     rsp_valid_i,
  input  block_t   rsp_block_i,
  input  logic     rsp_error_i
);

  // Of an entry, whose length has 32 bits.
  localparam int unsigned LengthWidth = 28;
  localparam int unsigned Fetch = 4;
  localparam int unsigned CountWidth = $clog2(Entries + 1);
  localparam status_t StatusDone = 8'(engine_regs_pkg::StatusDone);
  localparam status_t StatusList = 8'(engine_regs_pkg::StatusList);
  localparam status_t StatusAlignment = 8'(engine_regs_pkg::StatusAlignment);
  localparam status_t StatusRead = 8'(engine_regs_pkg::StatusRead);

  typedef enum logic [1:0] {
    Idle,
    Walk,
    // The end is to be told, when nothing is under way any more.
    End,
    // The same, and nothing is told.
    Drain
  } state_e;

  typedef struct packed {
    logic                   failed;
    logic                   malformed;
    logic [AddressBits-1:0] address;
    logic [LengthWidth-1:0] blocks;
  } entry_t;

  // Bytes from `address` on do not all have an address on the bus.
  function automatic logic beyond(address_t address, logic [LengthWidth-1:0] blocks);
    logic [64:0] limit;
    limit = 65'd1 << AddressBits;
    return 65'(address) + 65'({blocks, 4'd0}) > limit;
  endfunction

  state_e state_q;
  status_t status_q;
  logic loose_q, start;
  // Where the current entry goes on, and how many blocks of it and of the run are left.
  logic [AddressBits-1:0] address_q;
  logic [LengthWidth-1:0] left_q;
  blocks_t run_q, skip_q;
  // Entries not begun, and not asked for.
  logic [EntriesWidth-1:0] entries_q, unfetched_q;
  logic [AddressBits-1:0] fetch_q;

  assign start_ready_o = state_q == Idle && !stop_i;
  assign start = start_valid_i && start_ready_o;
  assign idle_o = state_q == Idle;

  // Fetches.
  logic asked_q, asks;
  logic [CountWidth-1:0] awaited_q, stored;
  logic [8:0] fetch_to_edge;
  burst_t fetch_blocks;
  assign fetch_to_edge = 9'd256 - 9'(fetch_q[11:4]);
  always_comb begin
    fetch_blocks = BurstWidth'(Fetch);
    if (unfetched_q < EntriesWidth'(Fetch)) fetch_blocks = BurstWidth'(unfetched_q);
    if (fetch_to_edge < 9'(fetch_blocks)) fetch_blocks = BurstWidth'(fetch_to_edge);
  end
  assign req_valid_o = asked_q || (state_q == Walk && unfetched_q != '0 &&
                                   32'(stored) + 32'(awaited_q) + Fetch <= Entries);
  assign req_address_o = 64'(fetch_q);
  assign req_blocks_o = fetch_blocks;
  assign asks = req_valid_o && req_ready_i;

  // Entries as they come: its fields, and whether they are as they have to be.
  logic entry_valid, entry_ready, fifo_ready;
  entry_t entry, arrived;
  always_comb begin
    arrived.failed = rsp_error_i;
    arrived.address = rsp_block_i[AddressBits-1:0];
    arrived.blocks = rsp_block_i[95:68];
    arrived.malformed = rsp_block_i[3:0] != '0 || rsp_block_i[67:64] != '0 ||
                        rsp_block_i[95:68] == '0 || rsp_block_i[127:96] != '0 ||
                        beyond(rsp_block_i[63:0], rsp_block_i[95:68]);
  end
  stream_fifo #(
    .Width($bits(entry_t)),
    .Depth(Entries)
  ) u_entries (
    .clk_i,
    .rst_ni,
    .valid_i(rsp_valid_i && state_q == Walk),
    .ready_o(fifo_ready),
    .data_i (arrived),
    .valid_o(entry_valid),
    .ready_i(entry_ready),
    .data_o (entry),
    .count_o(stored)
  );
  // An entry is begun when the one before is done with.
  assign entry_ready = state_q != Walk || (left_q == '0 && run_q != '0);
  assign fetching_o = state_q == Walk && left_q == '0 && run_q != '0 && !entry_valid;

  // The next chunk.
  logic [8:0] to_edge;
  burst_t blocks;
  logic final_chunk, too_long, chunk_valid_q, chunk_free;
  logic [AddressBits-1:0] chunk_address_q;
  burst_t chunk_blocks_q;
  assign to_edge = 9'd256 - 9'(address_q[11:4]);
  always_comb begin
    blocks = BurstWidth'(Chunk);
    if (to_edge < 9'(blocks)) blocks = BurstWidth'(to_edge);
    if (left_q < LengthWidth'(blocks)) blocks = BurstWidth'(left_q);
    if (run_q < BlocksWidth'(blocks)) blocks = BurstWidth'(run_q);
  end
  assign final_chunk = run_q == BlocksWidth'(blocks);
  assign too_long = !loose_q && (entries_q != '0 || left_q > LengthWidth'(blocks));
  assign chunk_free = !chunk_valid_q || chunk_ready_i;
  assign chunk_valid_o = chunk_valid_q;
  assign chunk_address_o = 64'(chunk_address_q);
  assign chunk_blocks_o = chunk_blocks_q;

  // What is left out of the current entry.
  logic [LengthWidth-1:0] skipped;
  assign skipped = LengthWidth'(skip_q) < left_q ? LengthWidth'(skip_q) : left_q;

  logic quiet;
  assign quiet = !asked_q && awaited_q == '0 && stored == '0;
  assign end_valid_o = state_q == End && quiet && !chunk_valid_q;
  assign end_status_o = status_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q         <= Idle;
      status_q        <= '0;
      loose_q         <= 1'b0;
      address_q       <= '0;
      left_q          <= '0;
      run_q           <= '0;
      skip_q          <= '0;
      entries_q       <= '0;
      unfetched_q     <= '0;
      fetch_q         <= '0;
      asked_q         <= 1'b0;
      awaited_q       <= '0;
      chunk_valid_q   <= 1'b0;
      chunk_address_q <= '0;
      chunk_blocks_q  <= '0;
    end else begin
      // The reader may not take a request at once; it stays until it does.
      asked_q <= req_valid_o && !req_ready_i;
      awaited_q <= awaited_q + (asks ? CountWidth'(fetch_blocks) : '0) - CountWidth'(rsp_valid_i);
      if (asks) begin
        fetch_q     <= fetch_q + AddressBits'({fetch_blocks, 4'd0});
        unfetched_q <= unfetched_q - EntriesWidth'(fetch_blocks);
      end
      if (chunk_ready_i) chunk_valid_q <= 1'b0;

      unique case (state_q)
        Idle: begin
          if (start) begin
            state_q     <= Walk;
            loose_q     <= loose_i;
            run_q       <= blocks_i;
            skip_q      <= skip_i;
            address_q   <= address_i[AddressBits-1:0];
            fetch_q     <= address_i[AddressBits-1:0];
            left_q      <= list_i ? '0 : LengthWidth'(blocks_i);
            entries_q   <= list_i ? entries_i : '0;
            unfetched_q <= list_i ? entries_i : '0;
            if (address_i[3:0] != '0 ||
                beyond(address_i, list_i ? LengthWidth'(entries_i) : LengthWidth'(blocks_i))) begin
              state_q  <= End;
              status_q <= StatusAlignment;
            end
            if (list_i && (entries_i == '0 || entries_i > EntriesWidth'(1 << LogEntries))) begin
              state_q  <= End;
              status_q <= StatusList;
            end
          end
        end
        Walk: begin
          if (run_q == '0) begin
            state_q  <= End;
            status_q <= StatusDone;
          end else if (left_q == '0) begin
            if (entry_valid) begin
              entries_q <= entries_q - 1'b1;
              address_q <= entry.address;
              left_q    <= entry.blocks;
              if (entry.failed || entry.malformed) begin
                state_q  <= End;
                status_q <= entry.failed ? StatusRead : StatusList;
              end
            end else if (entries_q == '0) begin
              state_q  <= End;
              status_q <= StatusList;
            end
          end else if (skip_q != '0) begin
            address_q <= address_q + AddressBits'({skipped, 4'd0});
            left_q    <= left_q - skipped;
            run_q     <= run_q - BlocksWidth'(skipped);
            skip_q    <= skip_q - BlocksWidth'(skipped);
          end else if (final_chunk && too_long) begin
            state_q  <= End;
            status_q <= StatusList;
          end else if (chunk_free) begin
            chunk_valid_q   <= 1'b1;
            chunk_address_q <= address_q;
            chunk_blocks_q  <= blocks;
            address_q       <= address_q + AddressBits'({blocks, 4'd0});
            left_q          <= left_q - LengthWidth'(blocks);
            run_q           <= run_q - BlocksWidth'(blocks);
            if (final_chunk) begin
              state_q  <= End;
              status_q <= StatusDone;
            end
          end
        end
        End: if (end_valid_o && end_ready_i) state_q <= Idle;
        Drain: if (quiet) state_q <= Idle;
      endcase
      if (stop_i && state_q != Idle) begin
        state_q       <= state_q == Drain && quiet ? Idle : Drain;
        chunk_valid_q <= 1'b0;
      end
    end
  end

  logic unused;
  assign unused = fifo_ready;

endmodule
