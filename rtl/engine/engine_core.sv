// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cipher cores behind one interface, those that `Ciphers` and `Level` ask for: units in
// order, their blocks one a cycle, and the result in the same order. One core at a time is at
// work, the one whose key was loaded last; another's key may be given only when no unit is
// under way. ECB and XTS are one core, `xts_core`. Cores that take two blocks a beat share a
// queue at either end.

module engine_core
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  // As in CAP0: 1: ECB; 2: and XTS with encrypted tweaks; 3: and all that is in `Ciphers`.
  parameter int unsigned Level     = 3,
  // A bit for each cipher that is there, by its number in registers.toml.
  parameter int unsigned Ciphers   = 3,
  // Of AES: 128 or 256.
  parameter int unsigned KeyBits   = 256,
  // The longest unit of XTS, 512 to 4096, and the one unit of the other ciphers.
  parameter int unsigned XtsBytes  = 4096,
  parameter int unsigned UnitBytes = 4096
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Wipes keys, and all that is in the cores.
  input  logic clear_i,
  // Wiping after reset is over.
  output logic wiped_o,

  input  logic                key_valid_i,
  output logic                key_ready_o,
  input  logic [SlotBits-1:0] key_i,
  input  logic [         3:0] key_cipher_i,

  input  logic   unit_valid_i,
  output logic   unit_ready_o,
  input  block_t unit_tweak_i,
  // Its blocks, less one.
  input  logic [7:0] unit_more_i,
  input  logic   unit_decrypt_i,
  input  mode_e  unit_mode_i,

  input  logic   in_valid_i,
  output logic   in_ready_o,
  input  block_t in_block_i,

  output logic   out_valid_o,
  input  logic   out_ready_i,
  output block_t out_block_o
);

  // Places of the cores; those from FastBrw on have two blocks a beat.
  localparam int unsigned Cores = 6;
  localparam int unsigned Xts = 0;
  localparam int unsigned Hctr2 = 1;
  localparam int unsigned FastBrw = 2;
  localparam int unsigned FastHorner = 3;
  localparam int unsigned Eme2 = 4;
  localparam int unsigned Aez10 = 5;
  localparam bit More = Level >= 3;
  localparam logic [Cores-1:0] Built = {
    More && Ciphers[CipherAez10],
    More && Ciphers[CipherEme2],
    More && Ciphers[CipherFastHorner],
    More && Ciphers[CipherFastBrw],
    More && Ciphers[CipherHctr2],
    Ciphers[CipherEcb] || Ciphers[CipherXts]
  };
  localparam bit TwoBlocks = Built[Cores-1:FastBrw] != '0;
  localparam int unsigned Beats = UnitBytes / 32;

  // The core that a key is for, and the one that is at work.
  logic [Cores-1:0] chosen, active_q;
  logic [Cores-1:0] key_ready, unit_ready, in_ready, out_valid, idle;
  logic [127:0] one_out[2];
  logic [255:0] two_out[Cores];
  logic queues_busy, wiped_q;

  always_comb begin
    chosen = '0;
    unique case (key_cipher_i)
      4'(CipherEcb), 4'(CipherXts): chosen[Xts] = 1'b1;
      4'(CipherFastBrw): chosen[FastBrw] = 1'b1;
      4'(CipherFastHorner): chosen[FastHorner] = 1'b1;
      4'(CipherHctr2): chosen[Hctr2] = 1'b1;
      4'(CipherEme2): chosen[Eme2] = 1'b1;
      4'(CipherAez10): chosen[Aez10] = 1'b1;
      default: ;
    endcase
  end

  assign key_ready_o = (chosen & key_ready) != '0 && wiped_q;
  assign unit_ready_o = (active_q & unit_ready) != '0;
  assign idle = key_ready | ~Built;
  assign wiped_o = wiped_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      active_q <= '0;
      wiped_q  <= 1'b0;
    end else begin
      if (key_valid_i && key_ready_o) active_q <= chosen;
      // A core that is wiping itself takes no key.
      if (&idle && !queues_busy) wiped_q <= 1'b1;
    end
  end

  logic [Cores-1:0] key_valid, unit_valid;
  assign key_valid = chosen & {Cores{key_valid_i && wiped_q}};
  assign unit_valid = active_q & {Cores{unit_valid_i}};

  // Not every cipher that there is has such long keys.
  logic unused_key;
  assign unused_key = ^key_i;

  // Two blocks a beat.

  logic two_in_valid, two_in_ready, two_out_valid, two_out_ready, pack_ready, unpack_valid;
  logic [255:0] two_in, two_out_chosen;
  block_t unpacked;
  logic two_active;
  assign two_active = active_q[Cores-1:FastBrw] != '0;

  if (TwoBlocks) begin : gen_two
    logic pack_busy, unpack_busy;
    assign queues_busy = pack_busy || unpack_busy;

    beat_pack #(
      .Depth(Beats)
    ) u_pack (
      .clk_i,
      .rst_ni,
      .busy_o (pack_busy),
      .valid_i(in_valid_i && two_active),
      .ready_o(pack_ready),
      .block_i(in_block_i),
      .valid_o(two_in_valid),
      .ready_i(two_in_ready),
      .beat_o (two_in)
    );

    beat_unpack #(
      .Depth(Beats)
    ) u_unpack (
      .clk_i,
      .rst_ni,
      .busy_o (unpack_busy),
      .valid_i(two_out_valid),
      .ready_o(two_out_ready),
      .beat_i (two_out_chosen),
      .valid_o(unpack_valid),
      .ready_i(out_ready_i && two_active),
      .block_o(unpacked)
    );
  end else begin : gen_no_two
    logic unused;
    assign unused = ^{two_in_ready, two_out_valid, two_out_chosen, two_in_valid, two_in, two_out_ready};
    assign queues_busy = 1'b0;
    assign {pack_ready, two_in_valid, two_out_ready, unpack_valid} = '0;
    assign two_in = '0;
    assign unpacked = '0;
  end

  always_comb begin
    two_in_ready   = (active_q & in_ready) != '0;
    two_out_valid  = 1'b0;
    two_out_chosen = '0;
    for (int i = FastBrw; i < int'(Cores); i++) begin
      if (active_q[i]) begin
        two_out_valid  = two_out_valid || out_valid[i];
        two_out_chosen = two_out_chosen | two_out[i];
      end
    end
  end
  for (genvar i = 0; i < int'(FastBrw); i++) begin : gen_one_block
    logic unused;
    assign unused = ^two_out[i];
    assign two_out[i] = '0;
  end

  assign in_ready_o = two_active ? pack_ready : (active_q & in_ready) != '0;
  assign out_valid_o = two_active ? unpack_valid
      : (active_q[Xts] && out_valid[Xts]) || (active_q[Hctr2] && out_valid[Hctr2]);
  assign out_block_o = two_active ? unpacked : active_q[Hctr2] ? one_out[Hctr2] : one_out[Xts];

  // The cores. All but XTS count their units as runs of one sector.

  if (Built[Xts]) begin : gen_xts
    localparam bit Calls = More && Ciphers[CipherXts];
    localparam int unsigned Bytes = Level == 1 ? 512 : XtsBytes;
    localparam int unsigned MoreWidth = $clog2(Bytes / 16);
    logic rst_n, rst_sectors_n, key_taken, core_idle, unused_last, unused_expanded;
    logic [(Calls?2:1)*KeyBits-1:0] taken_key;
    logic core_unit_valid, core_unit_ready, core_unit_decrypt, core_unit_call;
    logic [MoreWidth-1:0] core_unit_more;
    logic core_in_valid, core_in_ready;
    block_t core_unit_tweak, core_in_block;
    if (MoreWidth < 8) begin : gen_short
      logic unused;
      assign unused = ^unit_more_i[7:MoreWidth];
    end

    sector_port #(
      .KeyWidth    ((Calls ? 2 : 1) * KeyBits),
      .RequestWidth(MoreWidth + 130)
    ) u_port (
      .clk_i,
      .rst_ni,
      .clear_i,
      .rst_no        (rst_n),
      .rst_sectors_no(rst_sectors_n),
      .key_valid_i   (key_valid[Xts]),
      .key_ready_o   (key_ready[Xts]),
      .key_i         (key_i[(Calls?2:1)*KeyBits-1:0]),
      .req_valid_i   (unit_valid[Xts]),
      .req_ready_o   (unit_ready[Xts]),
      .req_i ({
        unit_mode_i == ModeRun,
        unit_decrypt_i,
        unit_more_i[MoreWidth-1:0],
        unit_mode_i == ModeEcb ? '0 : unit_tweak_i
      }),
      .in_valid_i    (in_valid_i && active_q[Xts]),
      .in_ready_o    (in_ready[Xts]),
      .in_data_i     (in_block_i),
      .idle_i        (core_idle),
      .key_taken_o   (key_taken),
      .key_o         (taken_key),
      .req_valid_o   (core_unit_valid),
      .req_ready_i   (core_unit_ready),
      .req_o         ({core_unit_call, core_unit_decrypt, core_unit_more, core_unit_tweak}),
      .in_valid_o    (core_in_valid),
      .in_ready_i    (core_in_ready),
      .in_data_o     (core_in_block)
    );

    xts_core #(
      .SectorBytes(Bytes),
      .KeyBits    (KeyBits),
      .Masked     (Level >= 2),
      .Calls      (Calls)
    ) u_xts (
      .clk_i,
      .rst_ni        (rst_n),
      .rst_sectors_ni(rst_sectors_n),
      .idle_o        (core_idle),
      .key_taken_i   (key_taken),
      .key_i         (taken_key),
      .expanded_o    (unused_expanded),
      .unit_valid_i  (core_unit_valid),
      .unit_ready_o  (core_unit_ready),
      .unit_tweak_i  (core_unit_tweak),
      .unit_more_i   (core_unit_more),
      .unit_decrypt_i(core_unit_decrypt),
      .unit_last_i   (1'b1),
      .unit_call_i   (core_unit_call),
      .in_valid_i    (core_in_valid),
      .in_ready_o    (core_in_ready),
      .in_data_i     (core_in_block),
      .out_valid_o   (out_valid[Xts]),
      .out_ready_i   (out_ready_i && active_q[Xts]),
      .out_data_o    (one_out[Xts]),
      .out_last_o    (unused_last)
    );
  end else begin : gen_no_xts
    logic unused;
    assign unused = ^{unit_more_i, unit_mode_i};
    assign {key_ready[Xts], unit_ready[Xts], in_ready[Xts], out_valid[Xts]} = '0;
    assign one_out[Xts] = '0;
  end

  if (Built[Hctr2]) begin : gen_hctr2
    logic unused_last, unused_expanded;
    hctr2 #(
      .SectorBytes(UnitBytes),
      .KeyBits    (KeyBits),
      .Cores      (1)
    ) u_hctr2 (
      .clk_i,
      .rst_ni,
      .clear_i,
      .key_valid_i  (key_valid[Hctr2]),
      .key_ready_o  (key_ready[Hctr2]),
      .key_i        (key_i[KeyBits-1:0]),
      .expanded_o   (unused_expanded),
      .req_valid_i  (unit_valid[Hctr2]),
      .req_ready_o  (unit_ready[Hctr2]),
      .req_tweak_i  (unit_tweak_i),
      .req_sectors_i(32'd1),
      .req_decrypt_i(unit_decrypt_i),
      .in_valid_i   (in_valid_i && active_q[Hctr2]),
      .in_ready_o   (in_ready[Hctr2]),
      .in_data_i    (in_block_i),
      .out_valid_o  (out_valid[Hctr2]),
      .out_ready_i  (out_ready_i && active_q[Hctr2]),
      .out_data_o   (one_out[Hctr2]),
      .out_last_o   (unused_last)
    );
  end else begin : gen_no_hctr2
    assign {key_ready[Hctr2], unit_ready[Hctr2], in_ready[Hctr2], out_valid[Hctr2]} = '0;
    assign one_out[Hctr2] = '0;
  end

  for (genvar i = FastBrw; i <= int'(FastHorner); i++) begin : gen_fasts
    if (Built[i]) begin : gen_fast
      logic unused_last, unused_expanded;
      // In order, so that it is the count.
      logic [$clog2(UnitBytes/16)-1:0] unused_block;
      fast #(
        .SectorBytes(UnitBytes),
        .KeyBits    (KeyBits),
        .Horner     (i == FastHorner),
        .Cores      (2)
      ) u_fast (
        .clk_i,
        .rst_ni,
        .clear_i,
        .key_valid_i  (key_valid[i]),
        .key_ready_o  (key_ready[i]),
        .key_i        (key_i[KeyBits-1:0]),
        .expanded_o   (unused_expanded),
        .req_valid_i  (unit_valid[i]),
        .req_ready_o  (unit_ready[i]),
        .req_tweak_i  (unit_tweak_i),
        .req_sectors_i(32'd1),
        .req_decrypt_i(unit_decrypt_i),
        .in_valid_i   (two_in_valid && active_q[i]),
        .in_ready_o   (in_ready[i]),
        .in_data_i    (two_in),
        .out_valid_o  (out_valid[i]),
        .out_ready_i  (two_out_ready && active_q[i]),
        .out_data_o   (two_out[i]),
        .out_last_o   (unused_last),
        .out_block_o  (unused_block)
      );
    end else begin : gen_no_fast
      assign {key_ready[i], unit_ready[i], in_ready[i], out_valid[i]} = '0;
      assign two_out[i] = '0;
    end
  end

  if (Built[Eme2]) begin : gen_eme2
    logic unused_last, unused_expanded;
    eme2 #(
      .SectorBytes(UnitBytes),
      .KeyBits    (KeyBits),
      .Cores      (2)
    ) u_eme2 (
      .clk_i,
      .rst_ni,
      .clear_i,
      .key_valid_i  (key_valid[Eme2]),
      .key_ready_o  (key_ready[Eme2]),
      .key_i        (key_i[256+KeyBits-1:0]),
      .expanded_o   (unused_expanded),
      .req_valid_i  (unit_valid[Eme2]),
      .req_ready_o  (unit_ready[Eme2]),
      .req_tweak_i  (unit_tweak_i),
      .req_sectors_i(32'd1),
      .req_decrypt_i(unit_decrypt_i),
      .in_valid_i   (two_in_valid && active_q[Eme2]),
      .in_ready_o   (in_ready[Eme2]),
      .in_data_i    (two_in),
      .out_valid_o  (out_valid[Eme2]),
      .out_ready_i  (two_out_ready && active_q[Eme2]),
      .out_data_o   (two_out[Eme2]),
      .out_last_o   (unused_last)
    );
  end else begin : gen_no_eme2
    assign {key_ready[Eme2], unit_ready[Eme2], in_ready[Eme2], out_valid[Eme2]} = '0;
    assign two_out[Eme2] = '0;
  end

  if (Built[Aez10]) begin : gen_aez10
    logic unused_last, unused_expanded;
    aez10 #(
      .SectorBytes(UnitBytes),
      .KeyBits    (KeyBits)
    ) u_aez10 (
      .clk_i,
      .rst_ni,
      .clear_i,
      .key_valid_i  (key_valid[Aez10]),
      .key_ready_o  (key_ready[Aez10]),
      .key_i        (key_i[KeyBits-1:0]),
      .expanded_o   (unused_expanded),
      .req_valid_i  (unit_valid[Aez10]),
      .req_ready_o  (unit_ready[Aez10]),
      .req_tweak_i  (unit_tweak_i),
      .req_sectors_i(32'd1),
      .req_decrypt_i(unit_decrypt_i),
      .in_valid_i   (two_in_valid && active_q[Aez10]),
      .in_ready_o   (in_ready[Aez10]),
      .in_data_i    (two_in),
      .out_valid_o  (out_valid[Aez10]),
      .out_ready_i  (two_out_ready && active_q[Aez10]),
      .out_data_o   (two_out[Aez10]),
      .out_last_o   (unused_last)
    );
  end else begin : gen_no_aez10
    assign {key_ready[Aez10], unit_ready[Aez10], in_ready[Aez10], out_valid[Aez10]} = '0;
    assign two_out[Aez10] = '0;
  end

endmodule
