// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XTS-AES for extended requests whose data units all have `SectorBytes` and whose tweaks
// are encrypted here: `xts_core` with the ports of every design, and in front of it what
// makes data units of a run. Its header has the schedule: its cycle 0 is the third after that
// of a request here, and a beat of data gets there a cycle after it is taken here.

module xts #(
  // Of a data unit: 512 to 4096.
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  // 1 or 2.
  parameter int unsigned Cores       = 1,
  localparam int unsigned Lanes      = Cores,
  localparam int unsigned KeyWidth   = 2 * KeyBits
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,

  // K1 || K2.
  input  logic                key_valid_i,
  output logic                key_ready_o,
  input  logic [KeyWidth-1:0] key_i,
  output logic                expanded_o,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  input  logic                 in_valid_i,
  output logic                 in_ready_o,
  input  logic [128*Lanes-1:0] in_data_i,

  output logic                 out_valid_o,
  input  logic                 out_ready_i,
  output logic [128*Lanes-1:0] out_data_o,
  output logic                 out_last_o
);

  localparam int unsigned Beats = SectorBytes / 16 / Lanes;

  logic rst_n, rst_sectors_n, key_taken, core_idle;
  logic [KeyWidth-1:0] taken_key;
  logic run_valid, run_ready, run_decrypt;
  logic [127:0] run_tweak;
  logic [31:0] run_sectors;
  logic unit_valid, unit_ready, unit_decrypt, unit_last;
  logic [127:0] unit_tweak;
  logic in_valid, in_ready;
  logic [128*Lanes-1:0] in_data;

  sector_port #(
    .KeyWidth (KeyWidth),
    .DataWidth(128 * Lanes)
  ) u_port (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no        (rst_n),
    .rst_sectors_no(rst_sectors_n),
    .key_valid_i,
    .key_ready_o,
    .key_i,
    .req_valid_i,
    .req_ready_o,
    .req_i         ({req_decrypt_i, req_sectors_i, req_tweak_i}),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .idle_i        (run_ready && core_idle),
    .key_taken_o   (key_taken),
    .key_o         (taken_key),
    .req_valid_o   (run_valid),
    .req_ready_i   (run_ready),
    .req_o         ({run_decrypt, run_sectors, run_tweak}),
    .in_valid_o    (in_valid),
    .in_ready_i    (in_ready),
    .in_data_o     (in_data)
  );

  run_expand #(
    .TweakStep(TweakStep)
  ) u_expand (
    .clk_i,
    .rst_ni          (rst_sectors_n),
    .req_valid_i     (run_valid),
    .req_ready_o     (run_ready),
    .req_tweak_i     (run_tweak),
    .req_sectors_i   (run_sectors),
    .req_decrypt_i   (run_decrypt),
    .sector_valid_o  (unit_valid),
    .sector_ready_i  (unit_ready),
    .sector_tweak_o  (unit_tweak),
    .sector_decrypt_o(unit_decrypt),
    .sector_last_o   (unit_last)
  );

  xts_core #(
    .SectorBytes(SectorBytes),
    .KeyBits    (KeyBits),
    .Cores      (Cores)
  ) u_core (
    .clk_i,
    .rst_ni        (rst_n),
    .rst_sectors_ni(rst_sectors_n),
    .idle_o        (core_idle),
    .key_taken_i   (key_taken),
    .key_i         (taken_key),
    .expanded_o,
    .unit_valid_i  (unit_valid),
    .unit_ready_o  (unit_ready),
    .unit_tweak_i  (unit_tweak),
    .unit_more_i   (($clog2(Beats))'(Beats - 1)),
    .unit_decrypt_i(unit_decrypt),
    .unit_last_i   (unit_last),
    .unit_call_i   (1'b1),
    .in_valid_i    (in_valid),
    .in_ready_o    (in_ready),
    .in_data_i     (in_data),
    .out_valid_o,
    .out_ready_i,
    .out_data_o,
    .out_last_o
  );

endmodule
