// SPDX-License-Identifier: MIT OR Apache-2.0
//
// EME2-AES (IEEE 1619.2) for extended requests. Each of the `Cores` cores is a PEC
// and a PDC, and a beat is one block for each of them. A sector passes them twice,
// PPP_j = E(P_j ^ L_j) into the sector buffer and C_j = E(PPP_j ^ mask_j) ^ L_j out of
// it, with two calls between them one after the other (eme2_middle). Sectors overlap:
// in each cycle the cores take, in this order, a call between the passes, a beat of
// the second pass, a tweak, a beat of the first pass of a later sector. Which of them is
// decided two cycles ahead; in the cycle between, calls and beats of the second pass go into
// registers of their own that are zero at all other times, so that nothing is chosen in
// front of the cores: what goes in is the sum of these and, in its turn, of the port's register. That
// costs no cycle, since it is known before when a result comes. Nothing stops in the cores: a beat of
// the second pass has taken its place in the queue of the output before.
//
// Schedule, AES-128, a single sector of n = 256 / Cores beats after its request in
// cycle 0:
//   5              the tweak, for T*
//   6 .. n+5       first pass in, PPP_j out 11 cycles later
//   n+17           MP in;  n+29 MP' in;  n+40 MC' out;  n+41 the first mask from M_0 ^ M_128
//   n+42 .. 2n+41  second pass in, C_j out 11 cycles later, at the port 12, the last at 2n+53
// A sector whose request was there earlier goes in a cycle after its beats are at the port, so that
// it takes 2n + 49 cycles from the first of them to the last one out, and in a run 2n + 3
// cycles: the waits of one sector are filled with the first pass of the next.
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

  // What is in the cores, in step with them: a call of one kind at most.
  typedef struct packed {
    logic tweak;
    logic first;
    logic middle;
    logic second;
    logic decrypt;
    // The sector is the last one of its run.
    logic last;
    // The beat is the first one, that of block 128, the last one of its sector.
    logic begins;
    logic high;
    logic ends;
  } flight_t;

  // Ports.

  block_t round_keys[1][Rounds+1], inverse_keys[1][Rounds+1];
  block_t tweak_key_q, ecb_key_q, tweak_mask;
  // `rst_sectors_n` is for everything but keys and sector buffers.
  logic rst_n, rst_sectors_n;
  logic schedule_ready, wiping, output_wiping, busy, key_taken;
  logic [KeyWidth-1:0] taken_key;
  logic req_valid, req_ready, req_decrypt, in_valid, first_turn_q;
  logic [31:0] req_sectors;
  block_t req_tweak;
  logic [Lanes-1:0][127:0] in_block;

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
    .idle_i        (schedule_ready && !busy && !out_valid_o && !wiping && !output_wiping),
    .key_taken_o   (key_taken),
    .key_o         (taken_key),
    .req_valid_o   (req_valid),
    .req_ready_i   (req_ready),
    .req_o         ({req_decrypt, req_sectors, req_tweak}),
    .in_valid_o    (in_valid),
    .in_ready_i    (first_turn_q),
    .in_data_o     (in_block)
  );

  aes_key_schedule #(
    .KeyBits(KeyBits),
    .Inverse(1'b1)
  ) u_schedule (
    .clk_i,
    .rst_ni        (rst_n),
    .valid_i       (key_taken),
    .key_i         (taken_key[256+:KeyBits]),
    .ready_o       (schedule_ready),
    .valid_o       (expanded_o),
    .round_keys_o  (round_keys[0]),
    .inverse_keys_o(inverse_keys[0])
  );

  assign tweak_mask = gf128_pkg::double(tweak_key_q);

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      tweak_key_q <= '0;
      ecb_key_q   <= '0;
    end else if (key_taken) begin
      tweak_key_q <= taken_key[127:0];
      ecb_key_q   <= taken_key[255:128];
    end
  end

  // Whose turn it is, decided two cycles before: these, and in eme2_back. The first pass, which has
  // what the others leave, is decided about a cycle before.

  logic tweak_next_q, tweak_turn_q, second_after, second_next, second_turn, second_ends;
  logic second_soon, output_room, middle_after, middle_next, tweak_after;
  logic tweak_request, second_request, first_d;

  assign second_request = second_soon && output_room;
  assign second_after = second_request && !middle_after;
  // Not before the first round key is there; then the others come one a cycle, as fast
  // as a block goes through the rounds of encryption.
  assign tweak_after = tweak_request && !tweak_next_q && !second_request && !middle_after;

  always_ff @(posedge clk_i or negedge rst_sectors_n) begin
    if (!rst_sectors_n) begin
      tweak_next_q <= 1'b0;
      tweak_turn_q <= 1'b0;
      first_turn_q <= 1'b0;
    end else begin
      tweak_next_q <= tweak_after;
      tweak_turn_q <= tweak_next_q;
      first_turn_q <= first_d && expanded_o && !tweak_next_q && !second_next && !middle_next;
    end
  end

  // What comes out of the cores.

  flight_t call, result;
  flight_t [Rounds:0] flight_q;
  logic [Lanes-1:0][127:0] core_block;

  always_ff @(posedge clk_i or negedge rst_sectors_n) begin
    if (!rst_sectors_n) flight_q <= '0;
    else flight_q <= {flight_q[Rounds-1:0], call};
  end

  assign result = flight_q[Rounds];

  // Sectors, and T* of each, with which the sum of its PPP_j begins.

  logic star_begins, unused_star_valid, waiting_valid, waiting_decrypt, waiting_last, first_load;
  block_t sector_tweak, star;

  assign star_begins = result.first && result.begins;

  sector_tweaks #(
    .TweakStep(TweakStep),
    .Depth    (Slots)
  ) u_tweaks (
    .clk_i,
    .rst_ni             (rst_sectors_n),
    .req_valid_i        (req_valid),
    .req_ready_o        (req_ready),
    .req_tweak_i        (req_tweak),
    .req_sectors_i      (req_sectors),
    .req_decrypt_i      (req_decrypt),
    .call_valid_o       (tweak_request),
    .call_ready_i       (tweak_next_q),
    .call_tweak_o       (sector_tweak),
    .call_result_valid_i(result.tweak),
    .call_result_i      (core_block[0] ^ tweak_mask),
    .waiting_valid_o    (waiting_valid),
    .waiting_ready_i    (first_load),
    .waiting_decrypt_o  (waiting_decrypt),
    .waiting_last_o     (waiting_last),
    .result_valid_o     (unused_star_valid),
    .result_ready_i     (star_begins),
    .result_o           (star),
    .done_i             (result.second && result.ends),
    .busy_o             (busy)
  );

  // First pass in: a sector that has one of the slots. The flags are of the next beat.

  logic [BeatWidth-1:0] first_beat_q;
  logic [SlotCount-1:0] slots_q;
  logic first_q, first_decrypt_q, first_last_q, first_begins_q, first_high_q, first_ends_q;
  logic first_call;
  logic [Lanes-1:0][127:0] in_masks;

  assign first_call = first_turn_q && in_valid;
  assign first_load = waiting_valid && slots_q != SlotCount'(Slots)
      && (!first_q || (first_call && first_ends_q));
  assign first_d = first_load || (first_q && !(first_call && first_ends_q));

  always_ff @(posedge clk_i or negedge rst_sectors_n) begin
    if (!rst_sectors_n) begin
      first_q         <= 1'b0;
      first_decrypt_q <= 1'b0;
      first_last_q    <= 1'b0;
      first_beat_q    <= '0;
      first_begins_q  <= 1'b1;
      first_high_q    <= 1'b0;
      first_ends_q    <= 1'b0;
      slots_q         <= '0;
    end else begin
      first_q <= first_d;
      if (first_load) begin
        first_decrypt_q <= waiting_decrypt;
        first_last_q    <= waiting_last;
      end
      if (first_call) begin
        // Beats is a power of two.
        first_beat_q   <= first_beat_q + 1'b1;
        first_begins_q <= first_ends_q;
        first_high_q   <= Blocks > 128 && first_beat_q == BeatWidth'(HighBeat - 1);
        first_ends_q   <= first_beat_q == BeatWidth'(Beats - 2);
      end
      slots_q <= slots_q + SlotCount'(first_load) - SlotCount'(second_turn && second_ends);
    end
  end

  mask_chain #(
    .Lanes(Lanes)
  ) u_in_masks (
    .clk_i,
    .rst_ni       (rst_sectors_n),
    .step_i       (first_call),
    .start_i      (first_begins_q),
    .start_value_i(ecb_key_q),
    .masks_o      (in_masks)
  );

  // First pass out, between the passes, and second pass in.

  logic middle_call, middle_decrypt, second_decrypt, second_last, second_begins;
  logic [Lanes-1:0][127:0] second_blocks;
  block_t second_mask, middle_block;

  eme2_back #(
    .Blocks(Blocks),
    .Lanes (Lanes),
    .Slots (Slots)
  ) u_back (
    .clk_i,
    .rst_ni            (rst_sectors_n),
    .rst_buffer_ni     (rst_n),
    .buffer_busy_o     (wiping),
    .results_i         (core_block),
    .first_valid_i     (result.first),
    .first_decrypt_i   (result.decrypt),
    .first_last_i      (result.last),
    .first_begins_i    (result.begins),
    .first_high_i      (result.high),
    .first_ends_i      (result.ends),
    .star_i            (star),
    .call_valid_i      (result.middle),
    .first_soon_i      (flight_q[Rounds-1].first && flight_q[Rounds-1].ends),
    .call_result_soon_i(flight_q[Rounds-1].middle),
    .call_soon_o       (middle_after),
    .call_next_o       (middle_next),
    .call_block_o      (middle_block),
    .call_o            (middle_call),
    .call_decrypt_o    (middle_decrypt),
    .soon_o            (second_soon),
    .take_i            (second_after),
    .next_o            (second_next),
    .valid_o           (second_turn),
    .blocks_o          (second_blocks),
    .first_mask_o      (second_mask),
    .decrypt_o         (second_decrypt),
    .last_o            (second_last),
    .begins_o          (second_begins),
    .ends_o            (second_ends)
  );

  // Into the cores.

  // A call between the passes or for a tweak; zero without.
  block_t single_q;
  logic [Lanes-1:0][127:0] call_block;

  always_comb begin
    call        = '0;
    call.tweak  = tweak_turn_q;
    call.first  = first_call;
    call.middle = middle_call;
    call.second = second_turn;
    if (middle_call) begin
      call.decrypt = middle_decrypt;
    end else if (second_turn) begin
      call.decrypt = second_decrypt;
      call.last    = second_last;
      call.begins  = second_begins;
      call.ends    = second_ends;
    end else if (first_turn_q) begin
      call.decrypt = first_decrypt_q;
      call.last    = first_last_q;
      call.begins  = first_begins_q;
      call.high    = first_high_q;
      call.ends    = first_ends_q;
    end
    for (int i = 0; i < int'(Lanes); i++) begin
      call_block[i] = second_blocks[i] ^ (first_turn_q ? in_block[i] ^ in_masks[i] : '0);
    end
    call_block[0] ^= second_mask ^ single_q;
  end

  always_ff @(posedge clk_i or negedge rst_sectors_n) begin
    if (!rst_sectors_n) single_q <= '0;
    else begin
      single_q <= (middle_next ? middle_block : '0)
          ^ (tweak_next_q ? sector_tweak ^ tweak_mask : '0);
    end
  end

  for (genvar i = 0; i < int'(Lanes); i++) begin : gen_core
    logic unused_valid, unused_tag;
    aes_duplex #(
      .KeyBits(KeyBits)
    ) u_core (
      .clk_i,
      .rst_ni        (rst_sectors_n),
      .round_keys_i  (round_keys),
      .inverse_keys_i(inverse_keys),
      .valid_i       (call.first || call.second || (i == 0 && (call.middle || call.tweak))),
      .decrypt_i     (call.decrypt),
      .block_i       (call_block[i]),
      .key_i         (1'b0),
      .tag_i         (1'b0),
      .valid_o       (unused_valid),
      .block_o       (core_block[i]),
      .tag_o         (unused_tag)
    );
  end

  // Data out.

  logic [Lanes-1:0][127:0] out_masks;

  mask_chain #(
    .Lanes(Lanes)
  ) u_out_masks (
    .clk_i,
    .rst_ni       (rst_sectors_n),
    .step_i       (result.second),
    .start_i      (result.begins),
    .start_value_i(ecb_key_q),
    .masks_o      (out_masks)
  );

  credit_fifo #(
    .Width(128 * Lanes + 1),
    .Depth(32)
  ) u_output (
    .clk_i,
    .rst_ni (rst_sectors_n),
    .busy_o (output_wiping),
    .take_i (second_after),
    .room_o (output_room),
    .valid_i(result.second),
    .data_i ({result.last && result.ends, core_block ^ out_masks}),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o ({out_last_o, out_data_o})
  );

endmodule
