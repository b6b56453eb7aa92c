// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The way in of a design whose sectors go through a hash first, and are read again for
// counter mode (XCB, HCTR2): its ports, the sectors of runs, and the sectors' beats, which are
// kept for the second time as they are taken. A beat is there for that three cycles later.

module hash_input #(
  parameter int unsigned Lanes     = 1,
  // Of a sector.
  parameter int unsigned Beats     = 256,
  // Beats kept, a power of two.
  parameter int unsigned Depth     = 512,
  parameter int unsigned TweakStep = 1,
  parameter int unsigned KeyWidth  = 128,
  localparam int unsigned BeatWidth = $clog2(Beats)
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,
  // See `sector_port`.
  output logic rst_no,
  output logic rst_sectors_no,

  input  logic                key_valid_i,
  output logic                key_ready_o,
  input  logic [KeyWidth-1:0] key_i,
  output logic                key_taken_o,
  output logic [KeyWidth-1:0] key_o,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  input  logic                 in_valid_i,
  output logic                 in_ready_o,
  input  logic [128*Lanes-1:0] in_data_i,

  // Nothing is under way in the rest of the design.
  input logic idle_i,

  // A beat, there is room to keep it, and its sector is known.
  output logic                 valid_o,
  input  logic                 take_i,
  output logic [128*Lanes-1:0] data_o,
  output logic [BeatWidth-1:0] beat_o,
  // Of its sector, the last beat.
  output logic                 last_o,
  output logic [        127:0] tweak_o,
  output logic                 decrypt_o,
  // The last sector of its run.
  output logic                 run_last_o,

  // What was kept.
  output logic [128*Lanes-1:0] kept_o,
  input  logic                 kept_taken_i
);

  logic busy, room, beat_valid;
  logic req_valid, run_ready, req_decrypt;
  logic [127:0] req_tweak, run_tweak;
  logic [31:0] req_sectors;
  logic run_valid, run_taken, run_decrypt, run_last, sector_valid, sector_done, last_q;
  logic [BeatWidth-1:0] beat_q;

  sector_port #(
    .KeyWidth    (KeyWidth),
    .RequestWidth(161),
    .DataWidth   (128 * Lanes)
  ) u_port (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no,
    .rst_sectors_no,
    .key_valid_i,
    .key_ready_o,
    .key_i,
    .req_valid_i,
    .req_ready_o,
    .req_i      ({req_decrypt_i, req_sectors_i, req_tweak_i}),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .idle_i     (idle_i && run_ready && !sector_valid && !busy),
    .key_taken_o,
    .key_o,
    .req_valid_o(req_valid),
    .req_ready_i(run_ready),
    .req_o      ({req_decrypt, req_sectors, req_tweak}),
    .in_valid_o (beat_valid),
    .in_ready_i (take_i),
    .in_data_o  (data_o)
  );

  run_expand #(
    .TweakStep(TweakStep)
  ) u_run (
    .clk_i,
    .rst_ni          (rst_no),
    .req_valid_i     (req_valid),
    .req_ready_o     (run_ready),
    .req_tweak_i     (req_tweak),
    .req_sectors_i   (req_sectors),
    .req_decrypt_i   (req_decrypt),
    .sector_valid_o  (run_valid),
    .sector_ready_i  (run_taken),
    .sector_tweak_o  (run_tweak),
    .sector_decrypt_o(run_decrypt),
    .sector_last_o   (run_last)
  );

  // One sector ahead, so that beats need not wait for the counting.
  stream_skid #(
    .Width(130)
  ) u_sectors (
    .clk_i,
    .rst_ni (rst_no),
    .valid_i(run_valid),
    .ready_o(run_taken),
    .data_i ({run_last, run_decrypt, run_tweak}),
    .valid_o(sector_valid),
    .ready_i(sector_done),
    .data_o ({run_last_o, decrypt_o, tweak_o})
  );

  beat_store #(
    .Width(128 * Lanes),
    .Depth(Depth)
  ) u_kept (
    .clk_i,
    .rst_ni (rst_no),
    .busy_o (busy),
    .take_i,
    .room_o (room),
    .write_i(take_i),
    .data_i (data_o),
    .data_o (kept_o),
    .read_i (kept_taken_i)
  );

  assign valid_o = beat_valid && sector_valid && room;
  assign beat_o = beat_q;
  assign last_o = last_q;
  assign sector_done = take_i && last_q;

  always_ff @(posedge clk_i or negedge rst_no) begin
    if (!rst_no) begin
      beat_q <= '0;
      last_q <= 1'b0;
    end else if (take_i) begin
      beat_q <= beat_q + 1'b1;
      last_q <= beat_q == BeatWidth'(Beats - 2);
    end
  end

endmodule
