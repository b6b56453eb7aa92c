// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Any of the designs behind AXI4-Streams: a parameter chooses the cipher, so that tools
// see one module and one list of ports.
//
//   s_axis_key      a key in one beat, byte 0 in bits 7:0
//   s_axis_request  a run in one beat: the first sector's tweak in bits 127:0, the number
//                   of sectors in 159:128, 1 for decryption in 160
//   s_axis_data     the sectors' blocks in order
//   m_axis_data     the same number of blocks; tlast with the last beat of each run
//
// Every byte of every beat counts, so there is neither TKEEP nor TSTRB, and the requests
// say where a run ends, so the input needs no TLAST. A key is taken between runs only.
// Beyond AXI: `expanded` tells that the round keys are done, and `zeroize` wipes keys,
// what is derived from them, and all data. `aresetn` may be asserted at any time, and
// has to be released in step with `aclk`.

module sector_engine
  import sector_engine_pkg::*;
#(
  // One of cipher_e.
  parameter int unsigned Cipher      = Xts,
  // 512 to 4096, a power of two.
  parameter int unsigned SectorBytes = 4096,
  // Of AES: 128 or 256.
  parameter int unsigned KeyBits     = 128,
  // From one sector's tweak to the next: 1, or SectorBytes / 512 as LUKS2 counts.
  parameter int unsigned TweakStep   = 1,
  // Of AES, 1 or 2; Aez10 always has two.
  parameter int unsigned Cores       = 2,
  // Each cipher leaves some of the parameters alone.
  /* verilator lint_off UNUSEDPARAM */
  // FastBrw: 1 or 2.
  parameter int unsigned Multipliers = 2,
  // Aez10: masks in block RAM if it is not 0 (no bit, since FuseSoC sets integers).
  parameter int unsigned Precomputed = 1,
  /* verilator lint_on UNUSEDPARAM */
  localparam int unsigned KeyWidth  = key_width(Cipher, KeyBits),
  localparam int unsigned DataWidth = 128 * lanes(Cipher, Cores)
) (
  input  logic aclk,
  input  logic aresetn,
  input  logic zeroize,
  output logic expanded,

  input  logic                s_axis_key_tvalid,
  output logic                s_axis_key_tready,
  input  logic [KeyWidth-1:0] s_axis_key_tdata,

  input  logic         s_axis_request_tvalid,
  output logic         s_axis_request_tready,
  input  logic [167:0] s_axis_request_tdata,

  input  logic                 s_axis_data_tvalid,
  output logic                 s_axis_data_tready,
  input  logic [DataWidth-1:0] s_axis_data_tdata,

  output logic                 m_axis_data_tvalid,
  input  logic                 m_axis_data_tready,
  output logic [DataWidth-1:0] m_axis_data_tdata,
  output logic                 m_axis_data_tlast
);

  // Others would build, and be wrong.
  if (!(SectorBytes inside {512, 1024, 2048, 4096})) begin : gen_sector_bytes
    $error("SectorBytes has to be 512, 1024, 2048 or 4096");
  end
  if (!(KeyBits inside {128, 256})) begin : gen_key_bits
    $error("KeyBits has to be 128 or 256");
  end
  if (!(Cores inside {1, 2})) begin : gen_cores
    $error("Cores has to be 1 or 2");
  end
  if (Cipher == Aez10 && Cores != 2) begin : gen_aez10_cores
    $error("Aez10 has two cores");
  end
  if (!(Multipliers inside {1, 2})) begin : gen_multipliers
    $error("Multipliers has to be 1 or 2");
  end

  // The designs' ports, by their names there.
  logic clk_i, rst_ni, clear_i, expanded_o;
  logic key_valid_i, key_ready_o, req_valid_i, req_ready_o, req_decrypt_i;
  logic in_valid_i, in_ready_o, out_valid_o, out_ready_i, out_last_o;
  logic [KeyWidth-1:0] key_i;
  logic [127:0] req_tweak_i;
  logic [31:0] req_sectors_i;
  logic [DataWidth-1:0] in_data_i, out_data_o;
  // The rest of the byte is reserved.
  logic [6:0] unused;

  assign {clk_i, rst_ni, clear_i, expanded} = {aclk, aresetn, zeroize, expanded_o};
  assign {key_valid_i, s_axis_key_tready, key_i} = {s_axis_key_tvalid, key_ready_o, s_axis_key_tdata};
  assign {req_valid_i, s_axis_request_tready} = {s_axis_request_tvalid, req_ready_o};
  assign {unused, req_decrypt_i, req_sectors_i, req_tweak_i} = s_axis_request_tdata;
  assign {in_valid_i, s_axis_data_tready, in_data_i} = {s_axis_data_tvalid, in_ready_o, s_axis_data_tdata};
  assign {m_axis_data_tvalid, out_ready_i} = {out_valid_o, m_axis_data_tready};
  assign {m_axis_data_tlast, m_axis_data_tdata} = {out_last_o, out_data_o};

  if (Cipher == Xts) begin : gen_xts
    xts #(
      .SectorBytes(SectorBytes),
      .KeyBits    (KeyBits),
      .TweakStep  (TweakStep),
      .Cores      (Cores)
    ) u_xts (
      .*
    );
  end else if (Cipher == FastBrw || Cipher == FastHorner) begin : gen_fast
    // Blocks come in order.
    logic [$clog2(SectorBytes/16)-1:0] unused_block;
    fast #(
      .SectorBytes(SectorBytes),
      .KeyBits    (KeyBits),
      .TweakStep  (TweakStep),
      .Horner     (Cipher == FastHorner),
      .Cores      (Cores),
      .Multipliers(Cipher == FastBrw ? Multipliers : 1)
    ) u_fast (
      .out_block_o(unused_block),
      .*
    );
  end else if (Cipher == Hctr2) begin : gen_hctr2
    hctr2 #(
      .SectorBytes(SectorBytes),
      .KeyBits    (KeyBits),
      .TweakStep  (TweakStep),
      .Cores      (Cores)
    ) u_hctr2 (
      .*
    );
  end else if (Cipher == Eme2) begin : gen_eme2
    eme2 #(
      .SectorBytes(SectorBytes),
      .KeyBits    (KeyBits),
      .TweakStep  (TweakStep),
      .Cores      (Cores)
    ) u_eme2 (
      .*
    );
  end else if (Cipher == Aez10) begin : gen_aez10
    aez10 #(
      .SectorBytes(SectorBytes),
      .KeyBits    (KeyBits),
      .TweakStep  (TweakStep),
      .Precomputed(Precomputed != 0)
    ) u_aez10 (
      .*
    );
  end else if (Cipher == Xcb) begin : gen_xcb
    xcb #(
      .SectorBytes(SectorBytes),
      .KeyBits    (KeyBits),
      .TweakStep  (TweakStep),
      .Cores      (Cores)
    ) u_xcb (
      .*
    );
  end else begin : gen_none
    $error("no such cipher");
  end

endmodule
