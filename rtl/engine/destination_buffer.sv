// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Blocks on their way out, in block RAM: they go in as they come, and are given out only
// once they have been assigned to a burst, in the same order. What is not assigned can be
// discarded. Reset wipes the memory; meanwhile it is `busy_o` and takes nothing.

module destination_buffer
  import engine_pkg::*;
#(
  // Blocks, a power of two.
  parameter int unsigned Depth = 128,
  localparam int unsigned CountWidth = $clog2(Depth) + 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input  logic   valid_i,
  output logic   ready_o,
  input  block_t block_i,

  // Blocks that are in no burst yet, without what comes in this cycle.
  output logic [CountWidth-1:0] unassigned_o,
  // So many more of them, which may include the block of this cycle.
  input  burst_t                assign_i,
  // All that is not assigned is forgotten; nothing comes in at the same time.
  input  logic                  discard_i,

  output logic   valid_o,
  input  logic   ready_i,
  output block_t block_o
);

  localparam int unsigned AddrWidth = $clog2(Depth);

  logic [CountWidth-1:0] write_q, assigned_q, read_q, assigned;
  logic have_q, push, read;

  assign ready_o = !busy_o && write_q - read_q != CountWidth'(Depth);
  assign push = valid_i && ready_o;
  assign read = read_q != assigned_q && (!have_q || ready_i);
  assign unassigned_o = write_q - assigned_q;
  assign assigned = assigned_q + CountWidth'(assign_i);
  assign valid_o = have_q;

  wiped_ram #(
    .Width(128),
    .Depth(Depth)
  ) u_ram (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (push),
    .write_addr_i(write_q[AddrWidth-1:0]),
    .write_data_i(block_i),
    .read_i      (read),
    .read_addr_i (read_q[AddrWidth-1:0]),
    .read_data_o (block_o)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q    <= '0;
      assigned_q <= '0;
      read_q     <= '0;
      have_q     <= 1'b0;
    end else begin
      assigned_q <= assigned;
      if (discard_i) write_q <= assigned;
      else if (push) write_q <= write_q + 1'b1;
      if (read) read_q <= read_q + 1'b1;
      have_q <= read || (have_q && !ready_i);
    end
  end

endmodule
