// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From results to completions: writes the entry of each into the completion ring of its
// ring, a few under way at a time, and tells when memory has answered. A result comes
// only after memory has answered for its data, so the order in memory is that of the
// README. Results of a ring whose completions are no longer written go nowhere.

module engine_completion
  import engine_pkg::*;
#(
  parameter int unsigned Rings = 1,
  // Entries on the bus and not yet answered.
  parameter int unsigned Depth = 4
) (
  input logic clk_i,
  input logic rst_ni,

  input  logic    result_valid_i,
  output logic    result_ready_o,
  input  result_t result_i,

  // Of each ring: where its next completion goes, and which it is.
  input  address_t             address_i[Rings],
  input  logic     [     15:0] index_i[Rings],
  input  logic     [Rings-1:0] phase_i,
  input  logic     [Rings-1:0] dead_i,
  // A result taken: its completion goes to memory; or nowhere.
  output logic     [Rings-1:0] post_o,
  output logic     [Rings-1:0] skip_o,
  output logic     [Rings-1:0] not_erased_o,
  // A completion that memory has answered.
  output logic     [Rings-1:0] done_o,
  output logic                 done_error_o,
  // Of that: it wants an interrupt, and what it says of its request.
  output logic                 done_interrupt_o,
  output logic                 done_failed_o,
  output blocks_t              done_blocks_o,
  output blocks_t              done_units_o,
  // Completions are being written.
  output logic                 busy_o,

  // To memory.
  output logic     req_valid_o,
  input  logic     req_ready_i,
  output address_t req_address_o,
  output burst_t   req_blocks_o,
  output logic     data_valid_o,
  input  logic     data_ready_i,
  output block_t   data_block_o,
  input  logic     done_valid_i,
  input  logic     done_error_i
);

  typedef struct packed {
    logic [2:0] ring;
    logic       wanted;
    logic       failed;
    blocks_t    blocks;
    blocks_t    units;
  } open_t;

  logic [Rings-1:0] mine;
  always_comb begin
    for (int i = 0; i < int'(Rings); i++) mine[i] = result_i.ring == 3'(i);
  end

  address_t address;
  logic [15:0] index;
  logic phase, dead;
  always_comb begin
    address = '0;
    index   = '0;
    for (int i = 0; i < int'(Rings); i++) begin
      if (mine[i]) begin
        address = address_i[i];
        index   = index_i[i];
      end
    end
    phase = (phase_i & mine) != '0;
    dead  = (dead_i & mine) != '0;
  end

  blocks_t units;
  assign units = result_i.blocks >> result_i.log2_unit_blocks;

  // One entry at a time is given to the bus, address and data each when they are taken.
  logic req_q, data_q, open_room, take;
  address_t address_q;
  block_t entry_q;
  assign result_ready_o = !req_q && !data_q && open_room;
  assign take = result_valid_i && result_ready_o;
  assign post_o = take && !dead ? mine : '0;
  assign skip_o = take && dead ? mine : '0;
  assign not_erased_o = take && result_i.not_erased ? mine : '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      req_q     <= 1'b0;
      data_q    <= 1'b0;
      address_q <= '0;
      entry_q   <= '0;
    end else if (take && !dead) begin
      req_q     <= 1'b1;
      data_q    <= 1'b1;
      address_q <= address;
      entry_q   <= {16'(index + 1'b1), 7'b0, phase, result_i.status, 32'(units), result_i.cookie};
    end else begin
      if (req_ready_i) req_q <= 1'b0;
      if (data_ready_i) data_q <= 1'b0;
    end
  end

  assign req_valid_o = req_q;
  assign req_address_o = address_q;
  assign req_blocks_o = burst_t'(1);
  assign data_valid_o = data_q;
  assign data_block_o = entry_q;

  open_t open, opened;
  logic open_valid;
  logic [$clog2(Depth+1)-1:0] unused_count;
  assign opened = '{
      ring: result_i.ring,
      wanted: result_i.interrupt,
      failed: result_i.status != 8'(engine_regs_pkg::StatusDone),
      blocks: result_i.blocks,
      units: units
  };

  stream_fifo #(
    .Width($bits(open_t)),
    .Depth(Depth)
  ) u_open (
    .clk_i,
    .rst_ni,
    .valid_i(take && !dead),
    .ready_o(open_room),
    .data_i (opened),
    .valid_o(open_valid),
    .ready_i(done_valid_i),
    .data_o (open),
    .count_o(unused_count)
  );

  always_comb begin
    for (int i = 0; i < int'(Rings); i++) begin
      done_o[i] = done_valid_i && open_valid && open.ring == 3'(i);
    end
  end
  assign done_error_o = done_error_i;
  assign done_interrupt_o = open.wanted;
  assign done_failed_o = open.failed;
  assign done_blocks_o = open.blocks;
  assign done_units_o = open.units;
  assign busy_o = open_valid || result_valid_i;

endmodule
