// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Where the destination's next burst goes: walks the runs that it is given, keeps a few
// chunks ahead, so that the list of the next run is there before this one has ended, and
// cuts them to the bursts that the destination asks for.
//
// The last of the chunks of a run that ends with another status than DONE is followed by a
// fault. `flush_i` forgets all runs; nothing is taken or given until it has, when
// `flushing_o` is low again.

module destination_bursts
  import engine_pkg::*;
#(
  parameter int unsigned AddressBits = 64,
  // Blocks.
  parameter int unsigned Burst = 16
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic flush_i,
  output logic flushing_o,
  // It waits for entries of a list.
  output logic fetching_o,
  // All runs have been given.
  output logic empty_o,

  input  logic                    run_valid_i,
  output logic                    run_ready_o,
  input  logic                    list_i,
  input  address_t                address_i,
  input  logic [EntriesWidth-1:0] entries_i,
  input  blocks_t                 blocks_i,
  input  blocks_t                 skip_i,
  input  logic                    loose_i,

  // Of the chunk at hand `size_o` blocks can be had, at most a burst.
  output logic     valid_o,
  output address_t address_o,
  output burst_t   size_o,
  // So many of them are taken, none or up to `size_o`.
  input  burst_t   take_i,
  // In place of a chunk: the run ended like this.
  output logic     fault_valid_o,
  input  logic     fault_ready_i,
  output status_t  fault_status_o,

  output logic     req_valid_o,
  input  logic     req_ready_i,
  output address_t req_address_o,
  output burst_t   req_blocks_o,
  input  logic     rsp_valid_i,
  input  block_t   rsp_block_i,
  input  logic     rsp_error_i
);

  // With up to 8 KiB in the queue, the next list's round trip is hidden, behind the blocks
  // that the source has asked for.
  localparam int unsigned Chunks = 8;
  localparam status_t StatusDone = 8'(engine_regs_pkg::StatusDone);

  typedef struct packed {
    logic                   fault;
    logic [AddressBits-1:0] address;
    // Or the status of a fault.
    logic [7:0]             blocks;
  } chunk_t;

  logic flush_q, walk_idle, run_ready;
  logic chunk_valid, chunk_ready, end_valid, end_ready;
  address_t chunk_address;
  burst_t chunk_blocks;
  status_t end_status;

  assign flushing_o = flush_q;
  assign run_ready_o = run_ready && !flush_q && !flush_i;
  list_walker #(
    .AddressBits(AddressBits)
  ) u_walker (
    .clk_i,
    .rst_ni,
    .stop_i         (flush_q),
    .idle_o         (walk_idle),
    .fetching_o,
    .start_valid_i  (run_valid_i && !flush_i),
    .start_ready_o  (run_ready),
    .list_i,
    .address_i,
    .entries_i,
    .blocks_i,
    .skip_i,
    .loose_i,
    .chunk_valid_o  (chunk_valid),
    .chunk_ready_i  (chunk_ready),
    .chunk_address_o(chunk_address),
    .chunk_blocks_o (chunk_blocks),
    .end_valid_o    (end_valid),
    .end_ready_i    (end_ready),
    .end_status_o   (end_status),
    .req_valid_o,
    .req_ready_i,
    .req_address_o,
    .req_blocks_o,
    .rsp_valid_i,
    .rsp_block_i,
    .rsp_error_i
  );

  // Chunks and ends never come together. An end that is DONE is of no interest.
  logic push_valid, push_ready, front_valid, front_pop, is_fault;
  chunk_t pushed, front;
  logic [$clog2(Chunks+1)-1:0] count;
  assign is_fault = end_valid && end_status != StatusDone;
  assign push_valid = (chunk_valid || is_fault) && !flush_q;
  assign pushed.fault = !chunk_valid;
  assign pushed.address = chunk_address[AddressBits-1:0];
  assign pushed.blocks = chunk_valid ? 8'(chunk_blocks) : end_status;
  assign chunk_ready = push_ready && !flush_q;
  assign end_ready = (push_ready || !is_fault) && !flush_q;
  stream_fifo #(
    .Width($bits(chunk_t)),
    .Depth(Chunks)
  ) u_chunks (
    .clk_i,
    .rst_ni,
    .valid_i(push_valid),
    .ready_o(push_ready),
    .data_i (pushed),
    .valid_o(front_valid),
    .ready_i(front_pop),
    .data_o (front),
    .count_o(count)
  );

  burst_t used_q, left;
  logic [AddressBits-1:0] address;
  assign left = BurstWidth'(front.blocks) - used_q;
  assign valid_o = front_valid && !front.fault && !flush_q;
  assign address = front.address + AddressBits'({used_q, 4'd0});
  assign address_o = 64'(address);
  assign size_o = left < BurstWidth'(Burst) ? left : BurstWidth'(Burst);
  assign fault_valid_o = front_valid && front.fault && !flush_q;
  assign fault_status_o = front.blocks;
  assign front_pop = flush_q || (valid_o && take_i == left) || (fault_valid_o && fault_ready_i);
  assign empty_o = walk_idle && count == '0 && !flush_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      flush_q <= 1'b0;
      used_q  <= '0;
    end else begin
      flush_q <= flush_i || (flush_q && !(walk_idle && count == '0));
      used_q  <= front_pop || flush_q ? '0 : used_q + take_i;
    end
  end

  // The walker gives addresses that are.
  logic unused;
  assign unused = ^chunk_address;

endmodule
