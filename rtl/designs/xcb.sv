// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XCB-AES (IEEE 1619.2, section 5.7's XCB: broken, for comparison and old volumes
// only) for runs of sectors: XCB-1 and XCB-2 of the papers, with `Cores` AES encryption
// pipelines and as many multipliers, and one sequential AES decryption.
//
// A sector is B_1 .. B_(m-1), A. Both hashes share the multipliers:
//   hash 1  takes the B as they come in, and in the place of A the tweak times
//           a power of its own; AES encrypts A meanwhile. D is the sum of both.
//   counter AES encrypts D, D+1, ..; E_i = B_i ^ keystream goes out and into
//   hash 2  which gives F; decrypted, that is the last block.
// Alone, a sector of n beats (of one block for each core) goes like this with AES of r
// rounds, in cycles from its first beat at the port (three more if its run comes with it):
//     1         first beat of hash 1          n + 2r + 7    first E, beat 0 of hash 2
//     n         last one                      2n + 2r + 6   its last beat, in A's place
//     n + 2     A into AES                    2n + 2r + 12  F into the SDC
//     n + r + 4 D                             2n + 3r + 15  last block at the output
//     n + r + 5 D into AES, the counter starts
// Hash 2 goes before hash 1, which takes every cycle that hash 2 leaves: while one sector
// waits for AES and after its end, the next ones are in hash 1, and the
// multipliers never rest: 2n cycles a sector. There is one sector at most in hash 1 and in
// the middle (A in AES, or D waiting). A counter starts once that of the sector before is
// in AES; what comes out of it waits at the output for the last block before it.
//
// H^4 or H^8 is enough to begin with; the other powers and the derived keys come
// meanwhile, and beats that need them wait.

module xcb
  import aes_pkg::*;
#(
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  // 1 or 2.
  parameter int unsigned Cores       = 1,
  localparam int unsigned Lanes    = Cores,
  localparam int unsigned KeyWidth = KeyBits
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,

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

  localparam int unsigned Rounds    = rounds(KeyBits);
  localparam int unsigned Blocks    = SectorBytes / 16;
  localparam int unsigned Beats     = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  // Beats from counter mode to the output, and sectors that may end among them.
  localparam int unsigned OutDepth = 64;
  localparam int unsigned OutEnds  = Beats < OutDepth ? OutDepth / Beats : 1;

  typedef struct packed {
    logic [127:0] tweak;
    logic         decrypt;
    // Of its run.
    logic         last;
  } sector_t;

  logic rst_n, rst_sectors_n;

  ///////////////
  // Sectors in
  ///////////////

  logic idle, output_busy, key_ready, take_key;
  logic [KeyWidth-1:0] taken_key;
  logic beat_valid, take_in, first_done, last1;
  logic [BeatWidth-1:0] beat1;
  logic [Lanes-1:0][127:0] in_data, kept_data;
  sector_t first;
  logic hash2_now;

  hash_input #(
    .Lanes    (Lanes),
    .Beats    (Beats),
    .Depth    (2 * Beats < 128 ? 128 : 2 * Beats),
    .TweakStep(TweakStep),
    .KeyWidth (KeyWidth)
  ) u_in (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no        (rst_n),
    .rst_sectors_no(rst_sectors_n),
    .key_valid_i,
    .key_ready_o,
    .key_i,
    .key_taken_o   (take_key),
    .key_o         (taken_key),
    .req_valid_i,
    .req_ready_o,
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .idle_i        (idle && key_ready && !output_busy),
    .valid_o       (beat_valid),
    .take_i        (take_in),
    .data_o        (in_data),
    .beat_o        (beat1),
    .last_o        (last1),
    .tweak_o       (first.tweak),
    .decrypt_o     (first.decrypt),
    .run_last_o    (first.last),
    .kept_o        (kept_data),
    .kept_taken_i  (hash2_now)
  );

  // Beats of hash 1 before all powers and keys are there.
  localparam logic [BeatWidth-1:0] EarlyBeats = BeatWidth'(Beats - 8);

  logic hash_early_ready, hash_ready, derived, early_q, ready_q, middle_valid_q;

  assign take_in = beat_valid && hash_early_ready && (early_q || ready_q) && !hash2_now
      && (!last1 || !middle_valid_q);
  assign first_done = take_in && last1;

  ///////////////
  // Keys
  ///////////////

  logic key_call, key_done, hash_key;
  block_t key_block;
  block_t round_keys[3][Rounds+1], inverse_keys[2][Rounds+1];
  block_t aes_out[Lanes];

  xcb_keys #(
    .KeyBits(KeyBits)
  ) u_keys (
    .clk_i,
    .rst_ni        (rst_n),
    .valid_i       (take_key),
    .ready_o       (key_ready),
    .key_i         (taken_key),
    .expanded_o,
    .derived_o     (derived),
    .call_o        (key_call),
    .block_o       (key_block),
    .done_i        (key_done),
    .block_i       (aes_out[Lanes-1]),
    .hash_key_o    (hash_key),
    .round_keys_o  (round_keys),
    .inverse_keys_o(inverse_keys)
  );

  ///////////////
  // Hashes
  ///////////////

  logic [BeatWidth-1:0] beat2;
  logic last2, hash_valid, hash_second, hash1_done, hash2_done;
  logic [Lanes-1:0][127:0] result;
  block_t hashed[Lanes];
  // Of the sector whose beats go into hash 2; of the one that hash 2 is of.
  logic [127:0] tweak2;
  logic decrypt2, summed_decrypt, summed_last;
  block_t summed_d;
  block_t h1, h2;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_result
    assign result[lane] = kept_data[lane] ^ aes_out[lane];
  end
  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_hashed
    assign hashed[lane] = hash2_now ? result[lane] : in_data[lane];
  end
  assign hash1_done = hash_valid && !hash_second;
  assign hash2_done = hash_valid && hash_second;

  // Hash 1 is h1 when encrypting, hash 2 when decrypting.
  xcb_hash #(
    .Lanes (Lanes),
    .Blocks(Blocks)
  ) u_hash (
    .clk_i,
    .rst_ni       (rst_sectors_n),
    .key_valid_i  (hash_key),
    .key_i        (aes_out[Lanes-1]),
    .early_ready_o(hash_early_ready),
    .ready_o      (hash_ready),
    .valid_i      (take_in || hash2_now),
    .context_i    (hash2_now),
    .beat_i       (hash2_now ? beat2 : beat1),
    .last_i       (hash2_now ? last2 : last1),
    .blocks_i     (hashed),
    .tweak_i      (hash2_now ? tweak2 : first.tweak),
    .h2_i         (hash2_now ? !decrypt2 : first.decrypt),
    .valid_o      (hash_valid),
    .context_o    (hash_second),
    .h1_o         (h1),
    .h2_o         (h2)
  );

  ///////////////
  // The middle, and the counter
  ///////////////

  // Its hash 1, and D once AES is done with the last block.
  sector_t middle_q;
  block_t middle_data_q;
  logic middle_complete_q;

  logic last_done, counting, counters_ready, out_room, count_now, start;
  logic [95:0] low_d_q;
  logic [BeatWidth-1:0] unused_count;
  // The number's upper bits with and without a carry out of the lowest nine, of which there is one
  // at most in a sector.
  logic [22:0] high_q, high_next_q;
  logic [31:0] number;
  block_t counters[Lanes];

  assign number = {
    middle_data_q[103:96], middle_data_q[111:104], middle_data_q[119:112], middle_data_q[127:120]
  };
  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_counter
    logic [9:0] low_q;
    logic [31:0] counter;
    always_ff @(posedge clk_i or negedge rst_n) begin
      if (!rst_n) low_q <= '0;
      else if (start) low_q <= 10'(number[8:0]) + 10'(lane);
      else if (count_now) low_q <= low_q + 10'(Lanes);
    end
    assign counter = {low_q[9] ? high_next_q : high_q, low_q[8:0]};
    assign counters[lane] = {
      counter[7:0], counter[15:8], counter[23:16], counter[31:24], low_d_q
    };
  end
  assign count_now = counting && out_room && counters_ready;

  // A last block to encrypt, or a call for a key.
  logic call_q, call_decrypt_q, call_done, call_for_key;
  block_t call_block_q;
  assign key_done = call_done && call_for_key;
  assign last_done = call_done && !call_for_key;

  aes_lanes #(
    .KeyBits(KeyBits),
    .Lanes  (Lanes),
    .NumKeys(3)
  ) u_aes (
    .clk_i,
    .rst_ni          (rst_n),
    .round_keys_i    (round_keys),
    .counters_valid_i(counting && out_room),
    .counters_ready_o(counters_ready),
    .counters_i      (counters),
    .call_valid_i    (key_call || call_q),
    .call_i          (key_call ? key_block : call_block_q),
    .call_key_i      (key_call ? 2'd0 : call_decrypt_q ? 2'd2 : 2'd1),
    .call_tag_i      (key_call),
    .call_valid_o    (call_done),
    .call_tag_o      (call_for_key),
    .counters_valid_o(hash2_now),
    .blocks_o        (aes_out)
  );

  hash_counter #(
    .Beats   (Beats),
    .BeatInfo(129),
    .HashInfo(130)
  ) u_counter (
    .clk_i,
    .rst_ni       (rst_n),
    .valid_i      (middle_complete_q),
    .start_o      (start),
    .for_beats_i  ({middle_q.decrypt, middle_q.tweak}),
    .for_hash_i   ({middle_q.decrypt, middle_q.last, middle_data_q}),
    .count_valid_o(counting),
    .count_ready_i(out_room && counters_ready),
    .count_o      (unused_count),
    .beat_valid_i (hash2_now),
    .beat_o       (beat2),
    .last_o       (last2),
    .for_beats_o  ({decrypt2, tweak2}),
    .for_hash_o   ({summed_decrypt, summed_last, summed_d})
  );

  ///////////////
  // The last block
  ///////////////

  logic last_valid, last_of_run;
  block_t last_block;

  // It is free: it takes 11 or 15 cycles, and sectors are 16 beats or more apart.
  logic unused_ready;
  aes_sdc #(
    .KeyBits(KeyBits),
    .NumKeys(2)
  ) u_sdc (
    .clk_i,
    .rst_ni      (rst_n),
    .round_keys_i(inverse_keys),
    .valid_i     (hash2_done),
    .block_i     (summed_d ^ (summed_decrypt ? h1 : h2)),
    .key_i       (!summed_decrypt),
    .tag_i       (summed_last),
    .ready_o     (unused_ready),
    .valid_o     (last_valid),
    .block_o     (last_block),
    .tag_o       (last_of_run)
  );

  ///////////////
  // Sectors out
  ///////////////

  logic waiting_valid, waiting_ready;
  logic [128*Lanes-1:0] waiting;

  credit_fifo #(
    .Width(128 * Lanes),
    .Depth(OutDepth)
  ) u_waiting (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (output_busy),
    .take_i (count_now),
    .room_o (out_room),
    .valid_i(hash2_now),
    .data_i (result),
    .valid_o(waiting_valid),
    .ready_i(waiting_ready),
    .data_o (waiting)
  );

  hash_output #(
    .Lanes  (Lanes),
    .Beats  (Beats),
    .Sectors(OutEnds)
  ) u_out (
    .clk_i,
    .rst_ni      (rst_n),
    .sector_i    (first_done),
    .idle_o      (idle),
    .beat_valid_i(waiting_valid),
    .beat_ready_o(waiting_ready),
    .beat_i      (waiting),
    .late_valid_i(last_valid),
    .late_i      (last_block),
    .late_last_i (last_of_run),
    .out_valid_o,
    .out_ready_i,
    .out_data_o,
    .out_last_o
  );

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      early_q           <= 1'b0;
      ready_q           <= 1'b0;
      call_q            <= 1'b0;
      call_decrypt_q    <= 1'b0;
      call_block_q      <= '0;
      middle_valid_q    <= 1'b0;
      middle_complete_q <= 1'b0;
      middle_q          <= '0;
      middle_data_q     <= '0;
      low_d_q           <= '0;
      high_q            <= '0;
      high_next_q       <= '0;
    end else begin
      early_q <= beat1 < EarlyBeats;
      ready_q <= hash_ready && derived;

      call_q         <= first_done;
      call_decrypt_q <= first.decrypt;
      call_block_q   <= in_data[Lanes-1];

      middle_valid_q <= first_done || (middle_valid_q && !start);
      if (first_done) middle_q <= first;
      if (hash1_done) middle_data_q <= middle_q.decrypt ? h2 : h1;
      if (last_done) middle_data_q <= middle_data_q ^ aes_out[Lanes-1];
      middle_complete_q <= last_done || (middle_complete_q && !start);

      if (start) begin
        low_d_q     <= middle_data_q[95:0];
        high_q      <= number[31:9];
        high_next_q <= number[31:9] + 1'b1;
      end
    end
  end

endmodule
