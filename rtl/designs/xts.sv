// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XTS-AES for extended requests whose data units all have `SectorBytes` and whose tweaks
// are encrypted here: `xts_core` with the ports of every design. Its header has the schedule.

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

  xts_core #(
    .SectorBytes(SectorBytes),
    .KeyBits    (KeyBits),
    .TweakStep  (TweakStep),
    .Cores      (Cores)
  ) u_core (
    .clk_i,
    .rst_ni,
    .clear_i,
    .key_valid_i,
    .key_ready_o,
    .key_i,
    .expanded_o,
    .req_valid_i,
    .req_ready_o,
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .req_more_i  (($clog2(Beats))'(Beats - 1)),
    .req_call_i  (1'b1),
    .req_masked_i(1'b1),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .out_valid_o,
    .out_ready_i,
    .out_data_o,
    .out_last_o
  );

endmodule
