// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Asks memory for submissions, one of each ring in turn, up to `Depth` ahead of their
// use, and gives their blocks in order.

module engine_fetch
  import engine_pkg::*;
#(
  parameter int unsigned Rings = 1,
  // Submissions asked for and not yet used.
  parameter int unsigned Depth = 4
) (
  input logic clk_i,
  input logic rst_ni,

  input  logic     [Rings-1:0] want_i,
  input  address_t             address_i[Rings],
  output logic     [Rings-1:0] issue_o,

  // To memory.
  output logic     req_valid_o,
  input  logic     req_ready_i,
  output address_t req_address_o,
  output burst_t   req_blocks_o,
  input  logic     rsp_valid_i,
  input  block_t   rsp_block_i,
  input  logic     rsp_error_i,

  // The blocks of a submission, four in a row, and whose it is.
  output logic       block_valid_o,
  input  logic       block_ready_i,
  output block_t     block_o,
  output logic       block_error_o,
  output logic [2:0] ring_o,
  // The submission is used.
  input  logic       used_i
);

  localparam int unsigned Blocks = engine_regs_pkg::SqeBytes / 16;

  // The ring after the last one that has something, or the first of all.
  logic [2:0] last_q, chosen;
  logic found;
  always_comb begin
    chosen = '0;
    found  = 1'b0;
    for (int i = int'(Rings) - 1; i >= 0; i--) begin
      if (want_i[i]) begin
        chosen = 3'(i);
        found  = 1'b1;
      end
    end
    for (int i = int'(Rings) - 1; i >= 0; i--) begin
      if (want_i[i] && i > int'(last_q)) chosen = 3'(i);
    end
  end

  logic room, choose, valid_q;
  address_t address_q;
  assign choose = found && room && !valid_q;
  assign req_valid_o = valid_q;
  assign req_address_o = address_q;
  assign req_blocks_o = burst_t'(Blocks);
  always_comb begin
    for (int i = 0; i < int'(Rings); i++) issue_o[i] = choose && chosen == 3'(i);
  end

  address_t chosen_address;
  always_comb begin
    chosen_address = '0;
    for (int i = 0; i < int'(Rings); i++) begin
      if (chosen == 3'(i)) chosen_address = address_i[i];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q   <= 1'b0;
      address_q <= '0;
      // So that ring 0 is the first.
      last_q    <= 3'(Rings - 1);
    end else if (choose) begin
      valid_q   <= 1'b1;
      address_q <= chosen_address;
      last_q    <= chosen;
    end else if (req_ready_i) begin
      valid_q <= 1'b0;
    end
  end

  // Room for the blocks comes with that for the number of the ring.
  logic unused_valid, unused_room;
  logic [$clog2(Depth+1)-1:0] unused_rings;
  logic [$clog2(Blocks*Depth+1)-1:0] unused_blocks;

  stream_fifo #(
    .Width(3),
    .Depth(Depth)
  ) u_rings (
    .clk_i,
    .rst_ni,
    .valid_i(choose),
    .ready_o(room),
    .data_i (chosen),
    .valid_o(unused_valid),
    .ready_i(used_i),
    .data_o (ring_o),
    .count_o(unused_rings)
  );

  stream_fifo #(
    .Width(129),
    .Depth(Blocks * Depth)
  ) u_blocks (
    .clk_i,
    .rst_ni,
    .valid_i(rsp_valid_i),
    .ready_o(unused_room),
    .data_i ({rsp_error_i, rsp_block_i}),
    .valid_o(block_valid_o),
    .ready_i(block_ready_i),
    .data_o ({block_error_o, block_o}),
    .count_o(unused_blocks)
  );

endmodule
