// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XTS-AES (IEEE 1619) for extended requests: a run is any number of data units of as many
// blocks as it says; their tweaks count up, go through the AES cores under K2 ahead of
// the data, and the power of alpha starts again in each unit. Each of the `Cores`
// cores is a PEC and a PDC, and a beat is one block for each of them. A run may also come
// with its tweaks encrypted, or have no masks at all: ECB, under K1.
//
// Schedule, AES-128, one sector of n beats after its request in cycle 0:
//   1              the tweak into the PEC under K2
//   13             the mask T_0 is there, the first beat goes in
//   13 .. n+12     C or P ^ x^j T_0 into the PEC or PDC under K1
//   24 .. n+23     out, ^ x^j T_0 of a second chain of masks
// so n + 11 cycles from the first beat in to the last one out. In a run the tweak
// of a later unit takes the slot of one beat (two units' tweaks that of one beat
// with two cores), and nothing else comes between the beats: n + 1 (n + 1/2)
// cycles a unit.

module xts_core
  import aes_pkg::*;
#(
  // Of the longest data unit: 16 Cores to 4096.
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  // 1 or 2.
  parameter int unsigned Cores       = 1,
  // Units that may be on their way out at once. Input waits where they are more; with units
  // longer than the pipelines they are two.
  parameter int unsigned Leaving     = 2,
  // Without, there are no masks: only ECB.
  parameter bit          Masked      = 1'b1,
  // Without, no tweaks are encrypted, and there is no K2.
  parameter bit          Calls       = Masked,
  localparam int unsigned Lanes      = Cores,
  localparam int unsigned KeyWidth   = (Calls ? 2 : 1) * KeyBits,
  localparam int unsigned Beats      = SectorBytes / 16 / Lanes,
  localparam int unsigned BeatWidth  = Beats > 1 ? $clog2(Beats) : 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,

  // K1 || K2, or K1.
  input  logic                key_valid_i,
  output logic                key_ready_o,
  input  logic [KeyWidth-1:0] key_i,
  output logic                expanded_o,

  input  logic                 req_valid_i,
  output logic                 req_ready_o,
  input  logic [        127:0] req_tweak_i,
  input  logic [         31:0] req_sectors_i,
  input  logic                 req_decrypt_i,
  // Beats in each of the run's units, less one.
  input  logic [BeatWidth-1:0] req_more_i,
  // Tweaks are encrypted here; they are the first masks as they come; with neither there are
  // no masks.
  input  logic                 req_call_i,
  input  logic                 req_masked_i,

  input  logic                 in_valid_i,
  output logic                 in_ready_o,
  input  logic [128*Lanes-1:0] in_data_i,

  output logic                 out_valid_o,
  input  logic                 out_ready_i,
  output logic [128*Lanes-1:0] out_data_o,
  output logic                 out_last_o
);

  localparam int unsigned NumKeys = Calls ? 2 : 1;
  localparam int unsigned Rounds = rounds(KeyBits);

  // A blocked output stops everything.
  logic enable;
  assign enable = !out_valid_o || out_ready_i;

  // Keys: 0 is K1, 1 is K2.

  block_t round_keys[NumKeys][Rounds+1];
  logic [NumKeys-1:0] schedules_ready, schedules_valid;
  logic loaded_q, busy, key_taken;

  // Low while everything is zeroized; while everything but keys is: with a new key
  // nothing is under way, but what is left of the old one.
  logic rst_n, rst_sectors_n;
  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no(rst_n)
  );
  clear_reset u_reset_sectors (
    .clk_i,
    .rst_ni,
    .clear_i(clear_i || key_taken),
    .rst_no (rst_sectors_n)
  );

  assign key_ready_o = rst_n && &schedules_ready && !busy;
  assign key_taken = key_valid_i && key_ready_o;
  assign expanded_o = &schedules_valid;

  for (genvar i = 0; i < int'(NumKeys); i++) begin : gen_key
    aes_key_schedule #(
      .KeyBits(KeyBits)
    ) u_schedule (
      .clk_i,
      .rst_ni      (rst_n),
      .valid_i     (key_taken),
      .key_i       (key_i[KeyBits*i+:KeyBits]),
      .ready_o     (schedules_ready[i]),
      .valid_o     (schedules_valid[i]),
      .round_keys_o(round_keys[i])
    );
  end

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) loaded_q <= 1'b0;
    else if (key_taken) loaded_q <= 1'b1;
  end

  // Units and their first masks.

  logic requests_ready, tweaks_busy;
  logic [Lanes-1:0] tweak_valid, tweak_result_valid;
  logic [Lanes-1:0][127:0] tweak_block, core_block;
  logic unit_valid, unit_decrypt, unit_single, unit_last, unit_taken;
  logic [BeatWidth-1:0] unit_more;
  block_t unit_mask;

  assign req_ready_o = rst_sectors_n && requests_ready && loaded_q && !key_valid_i;

  xts_tweaks #(
    .TweakStep(TweakStep),
    .Lanes    (Lanes),
    .BeatWidth(BeatWidth),
    .Masked   (Masked),
    .Calls    (Calls)
  ) u_tweaks (
    .clk_i,
    .rst_ni        (rst_sectors_n),
    .req_valid_i   (req_valid_i && loaded_q && !key_valid_i),
    .req_ready_o   (requests_ready),
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .req_more_i,
    .req_call_i,
    .req_masked_i,
    .keys_ready_i  (expanded_o),
    // Not before the first round key is there; then the others come one a cycle, as
    // fast as a block goes through the rounds. No data comes before a tweak is through.
    .call_ready_i  (enable && loaded_q),
    .call_valid_o  (tweak_valid),
    .call_block_o  (tweak_block),
    .result_valid_i(tweak_result_valid),
    .result_i      (core_block),
    .unit_valid_o  (unit_valid),
    .unit_ready_i  (unit_taken),
    .unit_mask_o   (unit_mask),
    .unit_decrypt_o(unit_decrypt),
    .unit_more_o   (unit_more),
    .unit_single_o (unit_single),
    .unit_last_o   (unit_last),
    .busy_o        (tweaks_busy)
  );

  // Data in: tweaks come first. A unit is taken with its last beat. Whether a beat is the
  // first or the last of its unit is known before it comes.

  logic in_first_q, in_last_q, in_last, in_taken;
  logic [BeatWidth-1:0] in_more_q, in_more;
  logic out_first_q, out_last_q, out_last, out_taken, out_done;
  logic [BeatWidth-1:0] out_more_q, out_more;
  logic [Lanes-1:0][127:0] in_masks, out_masks;
  logic leaving_full;

  assign in_ready_o = unit_valid && enable && tweak_valid == '0 && !(in_first_q && leaving_full);
  assign in_taken = in_valid_i && in_ready_o;
  assign in_more = in_first_q ? unit_more : in_more_q;
  assign in_last = in_first_q ? unit_single : in_last_q;
  assign unit_taken = in_taken && in_last;

  // Units whose output is not complete.
  logic leaving_valid, leaving_single, leaving_last;
  logic [BeatWidth-1:0] leaving_more;
  block_t leaving_mask;
  logic unused_ready;
  logic [$clog2(Leaving+1)-1:0] leaving_count;

  stream_fifo #(
    .Width(130 + BeatWidth),
    .Depth(Leaving)
  ) u_leaving (
    .clk_i,
    .rst_ni (rst_sectors_n),
    .valid_i(in_taken && in_first_q),
    .ready_o(unused_ready),
    .data_i ({unit_last, unit_single, unit_more, unit_mask}),
    .valid_o(leaving_valid),
    .ready_i(out_done),
    .data_o ({leaving_last, leaving_single, leaving_more, leaving_mask}),
    .count_o(leaving_count)
  );
  assign leaving_full = leaving_count == ($clog2(Leaving + 1))'(Leaving);

  assign busy = tweaks_busy || leaving_valid;

  // The cores. The tag says that a block is a tweak.

  logic [Lanes-1:0] core_valid, core_tweak;
  for (genvar i = 0; i < int'(Lanes); i++) begin : gen_core
    aes_duplex #(
      .KeyBits(KeyBits),
      .NumKeys(NumKeys)
    ) u_core (
      .clk_i,
      .rst_ni      (rst_sectors_n),
      .enable_i    (enable),
      .round_keys_i(round_keys),
      .valid_i     (in_taken || tweak_valid[i]),
      .decrypt_i   (unit_decrypt && !tweak_valid[i]),
      .block_i     (tweak_valid[i] ? tweak_block[i] : in_data_i[128*i+:128] ^ in_masks[i]),
      .key_i       (Calls && tweak_valid[i]),
      .tag_i       (tweak_valid[i]),
      .valid_o     (core_valid[i]),
      .block_o     (core_block[i]),
      .tag_o       (core_tweak[i])
    );
    assign tweak_result_valid[i] = core_valid[i] && core_tweak[i] && enable;
    // Tweaks stay inside.
    assign out_data_o[128*i+:128] = out_valid_o ? core_block[i] ^ out_masks[i] : '0;
  end

  // Data out.

  assign out_valid_o = core_valid[0] && !core_tweak[0];
  assign out_taken = out_valid_o && out_ready_i;
  assign out_more = out_first_q ? leaving_more : out_more_q;
  assign out_last = out_first_q ? leaving_single : out_last_q;
  assign out_done = out_taken && out_last;
  assign out_last_o = leaving_last && out_last;

  if (Masked) begin : gen_masks
    mask_chain #(
      .Lanes(Lanes)
    ) u_in_masks (
      .clk_i,
      .rst_ni       (rst_sectors_n),
      .step_i       (in_taken),
      .start_i      (in_first_q),
      .start_value_i(unit_mask),
      .masks_o      (in_masks)
    );

    mask_chain #(
      .Lanes(Lanes)
    ) u_out_masks (
      .clk_i,
      .rst_ni       (rst_sectors_n),
      .step_i       (out_taken),
      .start_i      (out_first_q),
      .start_value_i(leaving_mask),
      .masks_o      (out_masks)
    );
  end else begin : gen_no_masks
    logic unused;
    assign unused = ^leaving_mask;
    assign in_masks = '0;
    assign out_masks = '0;
  end

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      in_first_q  <= 1'b1;
      in_last_q   <= 1'b0;
      in_more_q   <= '0;
      out_first_q <= 1'b1;
      out_last_q  <= 1'b0;
      out_more_q  <= '0;
    end else begin
      if (in_taken) begin
        in_first_q <= in_last;
        in_last_q  <= in_more == BeatWidth'(1);
        in_more_q  <= in_more - 1'b1;
      end
      if (out_taken) begin
        out_first_q <= out_last;
        out_last_q  <= out_more == BeatWidth'(1);
        out_more_q  <= out_more - 1'b1;
      end
    end
  end

endmodule
