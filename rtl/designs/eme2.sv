// SPDX-License-Identifier: MIT OR Apache-2.0
//
// EME2-AES (IEEE 1619.2) for extended requests. Each of the `Cores` cores is a PEC
// and a PDC, and a beat is one block for each of them. A sector passes them twice,
// PPP_j = E(P_j ^ L_j) into the sector buffer and C_j = E(PPP_j ^ mask_j) ^ L_j out of
// it, with two calls between them one after the other (eme2_middle). Sectors overlap:
// in each cycle the cores take, in this order, a call between the passes, a beat of
// the second pass, a tweak, a beat of the first pass of a later sector.
//
// Schedule, AES-128, a single sector of n = 256 / Cores beats after its request in
// cycle 0:
//   1              the tweak, for T*
//   2 .. n+1       first pass in, PPP_j out 11 cycles later
//   n+13           MP in;  n+25 MP' in;  n+37 the first mask from M_0 ^ M_128
//   n+38 .. 2n+37  second pass in, C_j out 11 cycles later, the last at 2n+48
// so 2n + 47 cycles from the first beat in to the last one out, and in a run 2n + 3
// cycles a sector: the waits of one are filled with the first pass of the next.
// Sectors of up to 2048 bytes have no MP' and spare 12 cycles.

module eme2
  import aes_pkg::*;
#(
  // 512 to 4096.
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  // 1 or 2.
  parameter int unsigned Cores       = 1,
  localparam int unsigned Lanes      = Cores,
  localparam int unsigned KeyWidth   = 256 + KeyBits
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,

  // K_AD || K_ECB || K_AES.
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

  localparam int unsigned Blocks = SectorBytes / 16;
  localparam int unsigned Beats = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  localparam int unsigned Rounds = rounds(KeyBits);
  // The beat with block 128; one that there is not in a short sector.
  localparam int unsigned HighBeat = 128 / Lanes;
  // Sectors between the passes: a second one fills the waits of the first, and where
  // a pass is shorter than they are it takes more.
  localparam int unsigned Slots = Beats < 64 ? 4 : 2;
  localparam int unsigned SlotCount = $clog2(Slots + 1);

  // What a block in the cores is for.
  typedef enum logic [1:0] {
    Tweak,
    FirstPass,
    Middle,
    SecondPass
  } kind_e;

  typedef struct packed {
    kind_e kind;
    logic  decrypt;
    // The sector is the last one of its run.
    logic  last;
    // The beat is the first one, that of block 128, the last one of its sector.
    logic  begins;
    logic  high;
    logic  ends;
  } tag_t;

  // A blocked output stops everything.
  logic enable;
  assign enable = !out_valid_o || out_ready_i;

  // Keys.

  block_t round_keys[1][Rounds+1];
  block_t tweak_key_q, ecb_key_q, tweak_mask;
  logic schedule_ready, loaded_q, wiping, busy, key_taken;

  // Low while everything is zeroized; while everything but keys and sector buffers is: with
  // a new key nothing is under way, but what is left of the old one.
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

  assign key_ready_o = rst_n && schedule_ready && !busy && !wiping;
  assign key_taken = key_valid_i && key_ready_o;
  assign tweak_mask = gf128_pkg::double(tweak_key_q);

  aes_key_schedule #(
    .KeyBits(KeyBits)
  ) u_schedule (
    .clk_i,
    .rst_ni      (rst_n),
    .valid_i     (key_taken),
    .key_i       (key_i[256+:KeyBits]),
    .ready_o     (schedule_ready),
    .valid_o     (expanded_o),
    .round_keys_o(round_keys[0])
  );

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      loaded_q    <= 1'b0;
      tweak_key_q <= '0;
      ecb_key_q   <= '0;
    end else if (key_taken) begin
      loaded_q    <= 1'b1;
      tweak_key_q <= key_i[127:0];
      ecb_key_q   <= key_i[255:128];
    end
  end

  // The cores: what came out of them.

  tag_t tag_in, tag;
  logic core_valid;
  logic [Lanes-1:0][127:0] core_block;
  logic result_tweak, result_first, result_middle, out_taken, out_done;

  assign result_tweak = core_valid && tag.kind == Tweak && enable;
  assign result_first = core_valid && tag.kind == FirstPass && enable;
  assign result_middle = core_valid && tag.kind == Middle && enable;

  // Sectors, and T* of each.

  logic requests_ready, tweak_request, tweak_call, middle_call, second_call, first_call;
  logic star_valid, star_ready, waiting_valid, waiting_decrypt, waiting_last, first_done;
  block_t sector_tweak, star;

  assign req_ready_o = rst_sectors_n && requests_ready && loaded_q && !key_valid_i;
  // Not before the first round key is there; then the others come one a cycle, as fast
  // as a block goes through the rounds of encryption.
  assign tweak_call = tweak_request && enable && !middle_call && !second_call;

  sector_tweaks #(
    .TweakStep(TweakStep),
    .Depth    (Slots)
  ) u_tweaks (
    .clk_i,
    .rst_ni             (rst_sectors_n),
    .req_valid_i        (req_valid_i && loaded_q && !key_valid_i),
    .req_ready_o        (requests_ready),
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .call_valid_o       (tweak_request),
    .call_ready_i       (tweak_call),
    .call_tweak_o       (sector_tweak),
    .call_result_valid_i(result_tweak),
    .call_result_i      (core_block[0] ^ tweak_mask),
    .waiting_valid_o    (waiting_valid),
    .waiting_ready_i    (first_done),
    .waiting_decrypt_o  (waiting_decrypt),
    .waiting_last_o     (waiting_last),
    .result_valid_o     (star_valid),
    .result_ready_i     (star_ready),
    .result_o           (star),
    .done_i             (out_done),
    .busy_o             (busy)
  );

  // First pass in. The second pass has the cores first, so that output, once begun,
  // goes on, and a slot is free when the waits begin.

  logic [BeatWidth-1:0] first_beat_q, second_beat_q;
  logic [SlotCount-1:0] slots_q;
  logic second_done;
  logic [Lanes-1:0][127:0] in_masks, out_masks, second_masks;

  assign in_ready_o = waiting_valid && expanded_o
      && (first_beat_q != '0 || slots_q != SlotCount'(Slots))
      && enable && !middle_call && !second_call && !tweak_call;
  assign first_call = in_valid_i && in_ready_o;
  assign first_done = first_call && first_beat_q == BeatWidth'(Beats - 1);

  mask_chain #(
    .Lanes(Lanes)
  ) u_in_masks (
    .clk_i,
    .rst_ni       (rst_sectors_n),
    .step_i       (first_call),
    .start_i      (first_beat_q == '0),
    .start_value_i(ecb_key_q),
    .masks_o      (in_masks)
  );

  // First pass out: the sum of a sector's PPP_j, and PPP_128.

  block_t sum_q, sum_d, head_q;
  logic passed_valid, passed_ready, passed_decrypt, passed_last;
  block_t passed_sum, passed_head;
  logic unused_passed_ready;
  logic [SlotCount-1:0] unused_passed_count;

  always_comb begin
    sum_d = tag.begins ? '0 : sum_q;
    for (int i = 0; i < int'(Lanes); i++) sum_d ^= core_block[i];
  end

  stream_fifo #(
    .Width(258),
    .Depth(Slots)
  ) u_passed (
    .clk_i,
    .rst_ni (rst_sectors_n),
    .valid_i(result_first && tag.ends),
    .ready_o(unused_passed_ready),
    .data_i ({tag.decrypt, tag.last, sum_d, head_q}),
    .valid_o(passed_valid),
    .ready_i(passed_ready),
    .data_o ({passed_decrypt, passed_last, passed_sum, passed_head}),
    .count_o(unused_passed_count)
  );

  // Between the passes.

  logic middle_ready, middle_soon, middle_valid, middle_release, middle_call_decrypt;
  logic middle_decrypt, middle_last, middle_request;
  block_t middle_block, first_mask, low_mask, high_mask;

  assign passed_ready = middle_ready && star_valid;
  assign star_ready = middle_ready && passed_valid;
  assign middle_call = middle_request && enable;

  eme2_middle #(
    .Blocks(Blocks)
  ) u_middle (
    .clk_i,
    .rst_ni        (rst_sectors_n),
    .start_valid_i (passed_valid && star_valid),
    .start_ready_o (middle_ready),
    .decrypt_i     (passed_decrypt),
    .last_i        (passed_last),
    .sum_i         (passed_sum ^ star),
    .head_i        (passed_head),
    .call_valid_o  (middle_request),
    .call_ready_i  (enable),
    .call_decrypt_o(middle_call_decrypt),
    .call_block_o  (middle_block),
    .result_valid_i(result_middle),
    .result_i      (core_block[0]),
    .soon_o        (middle_soon),
    .valid_o       (middle_valid),
    .release_i     (middle_release),
    .decrypt_o     (middle_decrypt),
    .last_o        (middle_last),
    .first_mask_o  (first_mask),
    .low_mask_o    (low_mask),
    .high_mask_o   (high_mask)
  );

  logic buffer_valid;
  logic [Lanes-1:0][127:0] buffer_block;

  sector_buffer #(
    .Width(128 * Lanes),
    .Beats(Beats),
    .Slots(Slots)
  ) u_buffer (
    .clk_i,
    .rst_ni      (rst_n),
    .busy_o      (wiping),
    .write_i     (result_first),
    .write_data_i(core_block),
    .fetch_i     (middle_soon),
    .valid_o     (buffer_valid),
    .ready_i     (second_call),
    .data_o      (buffer_block)
  );

  // Second pass in. The masks are needed until the last of them is in the chain.

  logic second_decrypt_q, second_last_q, second_decrypt, second_last, second_begins, second_high;

  assign second_begins = second_beat_q == '0;
  assign second_high = Blocks > 128 && second_beat_q == BeatWidth'(HighBeat);
  assign second_call = buffer_valid && (!second_begins || middle_valid) && enable && !middle_call;
  assign second_done = second_call && second_beat_q == BeatWidth'(Beats - 1);
  assign second_decrypt = second_begins ? middle_decrypt : second_decrypt_q;
  assign second_last = second_begins ? middle_last : second_last_q;
  assign middle_release = second_call && (Blocks > 128 ? second_high : second_begins);

  mask_chain #(
    .Lanes(Lanes)
  ) u_second_masks (
    .clk_i,
    .rst_ni       (rst_sectors_n),
    .step_i       (second_call),
    .start_i      (second_begins || second_high),
    .start_value_i(second_high ? high_mask : low_mask),
    .masks_o      (second_masks)
  );

  // Into the cores.

  logic call_decrypt;
  logic [Lanes-1:0][127:0] call_block;

  always_comb begin
    tag_in = '0;
    if (middle_call) begin
      tag_in.kind  = Middle;
      call_decrypt = middle_call_decrypt;
    end else if (second_call) begin
      tag_in.kind   = SecondPass;
      call_decrypt  = second_decrypt;
      tag_in.last   = second_last;
      tag_in.begins = second_begins;
      tag_in.ends   = second_beat_q == BeatWidth'(Beats - 1);
    end else if (tweak_call) begin
      tag_in.kind  = Tweak;
      call_decrypt = 1'b0;
    end else begin
      tag_in.kind   = FirstPass;
      call_decrypt  = waiting_decrypt;
      tag_in.last   = waiting_last;
      tag_in.begins = first_beat_q == '0;
      tag_in.high   = Blocks > 128 && first_beat_q == BeatWidth'(HighBeat);
      tag_in.ends   = first_beat_q == BeatWidth'(Beats - 1);
    end
    tag_in.decrypt = call_decrypt;
    for (int i = 0; i < int'(Lanes); i++) begin
      call_block[i] = second_call ? buffer_block[i] ^ second_masks[i]
                                  : in_data_i[128*i+:128] ^ in_masks[i];
    end
    if (middle_call) call_block[0] = middle_block;
    else if (second_call && second_begins) call_block[0] = buffer_block[0] ^ first_mask;
    else if (tweak_call) call_block[0] = sector_tweak ^ tweak_mask;
  end

  for (genvar i = 0; i < int'(Lanes); i++) begin : gen_core
    tag_t lane_tag;
    logic lane_valid;
    aes_duplex #(
      .KeyBits (KeyBits),
      .TagWidth($bits(tag_t))
    ) u_core (
      .clk_i,
      .rst_ni      (rst_sectors_n),
      .enable_i    (enable),
      .round_keys_i(round_keys),
      .valid_i     (first_call || second_call || (i == 0 && (middle_call || tweak_call))),
      .decrypt_i   (call_decrypt),
      .block_i     (call_block[i]),
      .key_i       (1'b0),
      .tag_i       (tag_in),
      .valid_o     (lane_valid),
      .block_o     (core_block[i]),
      .tag_o       (lane_tag)
    );
    if (i == 0) begin : gen_tag
      assign core_valid = lane_valid;
      assign tag = lane_tag;
    end else begin : gen_same
      // As in lane 0.
      logic unused;
      assign unused = ^{lane_valid, lane_tag};
    end
    // Tweaks and what is between the passes stay inside.
    assign out_data_o[128*i+:128] = out_valid_o ? core_block[i] ^ out_masks[i] : '0;
  end

  // Data out.

  assign out_valid_o = core_valid && tag.kind == SecondPass;
  assign out_taken = out_valid_o && out_ready_i;
  assign out_done = out_taken && tag.ends;
  assign out_last_o = tag.last && tag.ends;

  mask_chain #(
    .Lanes(Lanes)
  ) u_out_masks (
    .clk_i,
    .rst_ni       (rst_sectors_n),
    .step_i       (out_taken),
    .start_i      (tag.begins),
    .start_value_i(ecb_key_q),
    .masks_o      (out_masks)
  );

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      first_beat_q     <= '0;
      second_beat_q    <= '0;
      slots_q          <= '0;
      sum_q            <= '0;
      head_q           <= '0;
      second_decrypt_q <= 1'b0;
      second_last_q    <= 1'b0;
    end else begin
      // Beats is a power of two.
      if (first_call) first_beat_q <= first_beat_q + 1'b1;
      if (second_call) begin
        second_beat_q    <= second_beat_q + 1'b1;
        second_decrypt_q <= second_decrypt;
        second_last_q    <= second_last;
      end
      slots_q <= slots_q + SlotCount'(first_call && first_beat_q == '0)
          - SlotCount'(second_done);
      if (result_first) begin
        sum_q <= sum_d;
        if (tag.high) head_q <= core_block[0];
      end
    end
  end

endmodule
