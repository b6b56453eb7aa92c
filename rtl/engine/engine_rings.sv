// SPDX-License-Identifier: MIT OR Apache-2.0
//
// All rings: from doorbells to requests, and the indices on the way back. Rings take
// turns, a request each; submissions are fetched ahead of their use.

module engine_rings
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  parameter int unsigned Level       = 3,
  parameter int unsigned Rings       = 1,
  parameter int unsigned Slots       = 8,
  parameter int unsigned AddressBits = 64,
  parameter int unsigned XtsBytes    = 512,
  parameter int unsigned UnitBytes   = 4096
) (
  input logic clk_i,
  // Of the registers; and of what is under way, which CTRL.zeroize resets too.
  input logic rst_ni,
  input logic rst_data_ni,
  input logic wipe_i,
  input logic serve_i,

  input  logic        write_i,
  input  logic [12:0] write_address_i,
  input  logic [31:0] write_data_i,
  input  logic [12:0] read_address_i,
  output logic [31:0] read_data_o,

  // Submissions from memory.
  output logic     req_valid_o,
  input  logic     req_ready_i,
  output address_t req_address_o,
  output burst_t   req_blocks_o,
  input  logic     rsp_valid_i,
  input  block_t   rsp_block_i,
  input  logic     rsp_error_i,

  input  logic [31:0] slot_valid_i,
  input  logic [31:0][3:0] slot_cipher_i,
  input  logic        hold_i,
  output logic        pipe_idle_o,

  // To the source, the cipher and the destination; and that a request is at its end.
  output logic     [2:0] request_valid_o,
  input  logic     [2:0] request_ready_i,
  output request_t       request_o,
  input  logic           ended_i,

  // Completions: see engine_completion.
  output address_t             completion_o[Rings],
  output logic     [     15:0] posted_o[Rings],
  output logic     [Rings-1:0] phase_o,
  output logic     [Rings-1:0] dead_o,
  input  logic     [Rings-1:0] post_i,
  input  logic     [Rings-1:0] skip_i,
  input  logic     [Rings-1:0] not_erased_i,
  input  logic     [Rings-1:0] done_i,
  input  logic                 done_error_i,

  // Interrupts: see engine_interrupts.
  output logic     [Rings-1:0] start_o,
  output logic     [Rings-1:0] last_o,
  output logic     [Rings-1:0] when_empty_o,
  output logic     [      7:0] count_o[Rings],
  output logic     [     15:0] us_o[Rings],
  output logic     [Rings-1:0] fault_o,
  output logic     [      7:0] fault_code_o[Rings],
  output address_t             fault_address_o[Rings],

  output logic busy_o,
  output logic faulted_o
);

  logic [Rings-1:0] want, issue, accept, drop, busy, faulted;
  logic lost;
  address_t submission[Rings];
  logic [31:0] read_data[Rings];

  for (genvar i = 0; i < Rings; i++) begin : gen_ring
    localparam int unsigned Base = RingsOffset + RingsStride * i;
    logic here;
    assign here = write_address_i[12:6] == 7'(Base >> 6);

    engine_ring #(
      .AddressBits(AddressBits)
    ) u_ring (
      .clk_i,
      .rst_ni,
      .wipe_i,
      .serve_i,
      .write_i        (write_i && here),
      .write_offset_i (write_address_i[5:0]),
      .write_data_i,
      .read_offset_i  (read_address_i[5:0]),
      .read_data_o    (read_data[i]),
      .want_o         (want[i]),
      .submission_o   (submission[i]),
      .issue_i        (issue[i]),
      .accept_i       (accept[i]),
      .drop_i         (drop[i]),
      .lost_i         (lost),
      .completion_o   (completion_o[i]),
      .posted_o       (posted_o[i]),
      .phase_o        (phase_o[i]),
      .dead_o         (dead_o[i]),
      .post_i         (post_i[i]),
      .skip_i         (skip_i[i]),
      .not_erased_i   (not_erased_i[i]),
      .done_i         (done_i[i]),
      .done_error_i,
      .start_o        (start_o[i]),
      .last_o         (last_o[i]),
      .when_empty_o   (when_empty_o[i]),
      .count_o        (count_o[i]),
      .us_o           (us_o[i]),
      .busy_o         (busy[i]),
      .faulted_o      (faulted[i]),
      .fault_o        (fault_o[i]),
      .fault_code_o   (fault_code_o[i]),
      .fault_address_o(fault_address_o[i])
    );
  end

  assign busy_o = busy != '0;
  assign faulted_o = faulted != '0;

  always_comb begin
    read_data_o = '0;
    for (int i = 0; i < int'(Rings); i++) begin
      if (read_address_i[12:6] == 7'((RingsOffset + RingsStride * 32'(i)) >> 6)) begin
        read_data_o = read_data[i];
      end
    end
  end

  logic block_valid, block_ready, block_error, used;
  block_t block;
  logic [2:0] ring;

  engine_fetch #(
    .Rings(Rings)
  ) u_fetch (
    .clk_i,
    .rst_ni       (rst_data_ni),
    .want_i       (want),
    .address_i    (submission),
    .issue_o      (issue),
    .req_valid_o,
    .req_ready_i,
    .req_address_o,
    .req_blocks_o,
    .rsp_valid_i,
    .rsp_block_i,
    .rsp_error_i,
    .block_valid_o(block_valid),
    .block_ready_i(block_ready),
    .block_o      (block),
    .block_error_o(block_error),
    .ring_o       (ring),
    .used_i       (used)
  );

  engine_check #(
    .Level      (Level),
    .Rings      (Rings),
    .Slots      (Slots),
    .AddressBits(AddressBits),
    .XtsBytes   (XtsBytes),
    .UnitBytes  (UnitBytes)
  ) u_check (
    .clk_i,
    .rst_ni       (rst_data_ni),
    .block_valid_i(block_valid),
    .block_ready_o(block_ready),
    .block_i      (block),
    .block_error_i(block_error),
    .ring_i       (ring),
    .used_o       (used),
    .accept_o     (accept),
    .drop_o       (drop),
    .lost_o       (lost),
    .start_i      (start_o),
    .slot_valid_i,
    .slot_cipher_i,
    .hold_i,
    .pipe_idle_o,
    .request_valid_o,
    .request_ready_i,
    .request_o,
    .ended_i
  );

endmodule
