// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From extended requests to sectors: takes a run (first tweak, number of sectors,
// direction) and gives the tweak and direction of each of its sectors, in order,
// one a cycle if they are taken. A sector's tweak is the one before it plus
// `TweakStep`, as a little-endian integer over all 128 bits: 1 counts sectors, 8
// counts 512-byte units in 4096-byte sectors, as dm-crypt's plain64 does. A run of
// no sectors is accepted and gives nothing.

module run_expand #(
  parameter int unsigned TweakStep = 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  output logic         sector_valid_o,
  input  logic         sector_ready_i,
  output logic [127:0] sector_tweak_o,
  output logic         sector_decrypt_o,
  // The last sector of its run.
  output logic         sector_last_o
);

  logic [127:0] tweak_q;
  // Sectors of the run that are still to come; zero without a run.
  logic [ 31:0] left_q;
  logic         decrypt_q;

  assign sector_valid_o   = left_q != '0;
  assign sector_tweak_o   = tweak_q;
  assign sector_decrypt_o = decrypt_q;
  assign sector_last_o    = left_q == 32'd1;
  // The next run is taken with the last sector, so that runs follow without a gap.
  assign req_ready_o = left_q == '0 || (sector_last_o && sector_ready_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      tweak_q   <= '0;
      left_q    <= '0;
      decrypt_q <= 1'b0;
    end else if (req_valid_i && req_ready_o) begin
      tweak_q   <= req_tweak_i;
      left_q    <= req_sectors_i;
      decrypt_q <= req_decrypt_i;
    end else if (sector_valid_o && sector_ready_i) begin
      tweak_q <= tweak_q + 128'(TweakStep);
      left_q  <= left_q - 1'b1;
    end
  end

endmodule
