// SPDX-License-Identifier: MIT OR Apache-2.0
//
// HCTR2 for runs of sectors, with tweaks of 32 bytes whose upper half is zero (as
// dm-crypt's are): HCTR2-2 with two AES encryption pipelines and twice two
// multipliers, and one sequential AES decryption. With `Cores` = 1, half of that.
//
// A sector is M, N_1 .. N_(m-1) (when decrypting U, V_1 ..; the same otherwise):
//   hash 1  X = M + H(T, N), with multipliers of its own
//   middle  Y = E_K(X) by a pipeline, or D_K(X) by the SDC; S = X + Y + L
//   counter V_i = N_i + E_K(S + i), into the store at the output and into
//   hash 2  U = Y + H(T, V), with multipliers of its own; then the sector goes out.
// Alone, a sector of n beats (of one block for each core) goes like this with AES of r
// rounds, in cycles from its first beat at the port (three more if its run comes with it):
//     1          first beat of hash 1      n + 2r + 13   first V, beat 0 of hash 2
//     n          last one                  2n + 2r + 12  last V
//     n + 6      hash 1                    2n + 2r + 18  hash 2
//     n + 7      X into AES                2n + 2r + 20  U at the output
//     n + r + 11 S+1 into AES              3n + 2r + 19  last V at the output
// The sectors of a run follow each other at the pace of the counter: n beats, and
// one more when encrypting, for X. Two sectors may be between hash 1 and their counter, so
// that short ones do not wait for each other's calls.

module hctr2
  import aes_pkg::*;
#(
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  // 1 or 2.
  parameter int unsigned Cores       = 2,
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
  // A beat of a short sector waits for longer than two sectors take.
  localparam int unsigned InDepth  = Beats < 64 ? 128 : 2 * Beats;
  localparam int unsigned OutDepth = Beats < 64 ? 4 * Beats : 2 * Beats;
  // Sectors from hash 1 to counter mode.
  localparam int unsigned Middle = 2;

  typedef struct packed {
    logic [127:0] tweak;
    // Of its run.
    logic         last;
  } sector_t;

  // Between hash 1 and AES: the first block, then X.
  typedef struct packed {
    logic    decrypt;
    block_t  x;
    sector_t sector;
  } called_t;

  // From Y on.
  typedef struct packed {
    block_t  y;
    sector_t sector;
  } second_t;

  logic rst_n, rst_sectors_n;

  ///////////////
  // Sectors in
  ///////////////

  logic idle, output_busy, key_ready, take_key;
  logic [KeyWidth-1:0] taken_key;
  logic beat_valid, take_in, first_done, last1, first_decrypt;
  logic [BeatWidth-1:0] beat1;
  logic [128*Lanes-1:0] in_data, kept_data;
  sector_t first;
  logic hash2_now, hash_ready, middle_room_q;

  hash_input #(
    .Lanes    (Lanes),
    .Beats    (Beats),
    .Depth    (InDepth),
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
    .decrypt_o     (first_decrypt),
    .run_last_o    (first.last),
    .kept_o        (kept_data),
    .kept_taken_i  (hash2_now)
  );

  assign take_in = beat_valid && hash_ready && (!last1 || middle_room_q);
  assign first_done = take_in && last1;

  ///////////////
  // Keys
  ///////////////

  logic key_call, key_done, hash_key;
  block_t key_block, l;
  block_t round_keys[1][Rounds+1], inverse_keys[1][Rounds+1];
  block_t aes_out[Lanes];

  hctr2_keys #(
    .KeyBits(KeyBits)
  ) u_keys (
    .clk_i,
    .rst_ni        (rst_n),
    .valid_i       (take_key),
    .ready_o       (key_ready),
    .key_i         (taken_key),
    .expanded_o,
    .call_o        (key_call),
    .block_o       (key_block),
    .done_i        (key_done),
    .block_i       (aes_out[Lanes-1]),
    .hash_key_o    (hash_key),
    .l_o           (l),
    .round_keys_o  (round_keys),
    .inverse_keys_o(inverse_keys)
  );

  ///////////////
  // Hashes
  ///////////////

  logic [1:0] hash_valid;
  logic [1:0][127:0] hash;
  logic [128*Lanes-1:0] result;
  logic [128*Lanes-1:0] hashed[2];
  logic [BeatWidth-1:0] beat2;
  logic hash1_done, hash2_done, unused_last2;
  // Of the sector whose beats go into hash 2; of the one that hash 2 is of.
  logic [127:0] tweak2;
  block_t y2;
  logic run_last2;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_result
    assign result[128*lane+:128] = kept_data[128*lane+:128] ^ aes_out[lane];
  end
  assign hashed[0] = in_data;
  assign hashed[1] = result;
  assign hash1_done = hash_valid[0];
  assign hash2_done = hash_valid[1];

  hctr2_hash #(
    .Lanes (Lanes),
    .Blocks(Blocks)
  ) u_hash (
    .clk_i,
    .rst_ni     (rst_sectors_n),
    .key_valid_i(hash_key),
    .key_i      (aes_out[Lanes-1]),
    .ready_o    (hash_ready),
    .valid_i    ({hash2_now, take_in}),
    .beat_i     ({beat2, beat1}),
    .tweak_i    ({tweak2, first.tweak}),
    .blocks_i   (hashed),
    .valid_o    (hash_valid),
    .hash_o     (hash)
  );

  ///////////////
  // The middle
  ///////////////

  block_t first_block_q;
  // The sector in hash 1; the one whose X goes into AES; the one whose Y comes next.
  called_t held_q, call_q;
  block_t called_x;
  sector_t called_sector;
  logic call_valid_q, call_done, for_key, decrypted, y_done;
  block_t y, sdc_block;
  logic counting, counters_ready, start, start_valid, out_room;
  block_t counters[Lanes];

  assign key_done = call_done && for_key;
  assign y_done = (call_done && !for_key) || decrypted;
  assign y = decrypted ? sdc_block : aes_out[Lanes-1];

  // E_K(S) of block 0 has no use.
  aes_lanes #(
    .KeyBits(KeyBits),
    .Lanes  (Lanes)
  ) u_aes (
    .clk_i,
    .rst_ni          (rst_n),
    .round_keys_i    (round_keys),
    .counters_valid_i(counting && out_room),
    .counters_ready_o(counters_ready),
    .counters_i      (counters),
    .call_valid_i    (key_call || (call_valid_q && !call_q.decrypt)),
    .call_i          (key_call ? key_block : call_q.x),
    .call_key_i      (1'b0),
    .call_tag_i      (key_call),
    .call_valid_o    (call_done),
    .call_tag_o      (for_key),
    .counters_valid_o(hash2_now),
    .blocks_o        (aes_out)
  );

  // It is free: it takes 11 or 15 cycles, and sectors are 16 beats or more apart. For the same
  // reason what it gives and what the pipeline gives come in order.
  logic unused_ready, unused_tag;
  aes_sdc #(
    .KeyBits(KeyBits)
  ) u_sdc (
    .clk_i,
    .rst_ni      (rst_n),
    .round_keys_i(inverse_keys),
    .valid_i     (call_valid_q && call_q.decrypt),
    .block_i     (call_q.x),
    .key_i       (1'b0),
    .tag_i       (1'b0),
    .ready_o     (unused_ready),
    .valid_o     (decrypted),
    .block_o     (sdc_block),
    .tag_o       (unused_tag)
  );

  // Calls under way: two at most, as sectors are no closer than AES is long.
  logic unused_called_valid, unused_called_ready;
  logic [1:0] unused_called_count;
  stream_fifo #(
    .Width(128 + $bits(sector_t)),
    .Depth(2)
  ) u_called (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(call_valid_q),
    .ready_o(unused_called_ready),
    .data_i ({call_q.x, call_q.sector}),
    .valid_o(unused_called_valid),
    .ready_i(y_done),
    .data_o ({called_x, called_sector}),
    .count_o(unused_called_count)
  );

  // S and Y of sectors that wait for their counter.
  logic unused_middle_ready;
  logic [1:0] unused_middle_count, middle_q;
  block_t next_s, s_q;
  second_t next;
  stream_fifo #(
    .Width(128 + $bits(second_t)),
    .Depth(Middle)
  ) u_middle (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(y_done),
    .ready_o(unused_middle_ready),
    .data_i ({called_x ^ y ^ l, y, called_sector}),
    .valid_o(start_valid),
    .ready_i(start),
    .data_o ({next_s, next}),
    .count_o(unused_middle_count)
  );

  ///////////////
  // The counter
  ///////////////

  logic [BeatWidth-1:0] count;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_counter
    assign counters[lane] = s_q ^ 128'(Lanes * 32'(count) + lane);
  end

  hash_counter #(
    .Beats   (Beats),
    .HashInfo(129)
  ) u_counter (
    .clk_i,
    .rst_ni       (rst_n),
    .valid_i      (start_valid),
    .start_o      (start),
    .for_beats_i  (next.sector.tweak),
    .for_hash_i   ({next.y, next.sector.last}),
    .count_valid_o(counting),
    .count_ready_i(out_room && counters_ready),
    .count_o      (count),
    .beat_valid_i (hash2_now),
    .beat_o       (beat2),
    .last_o       (unused_last2),
    .for_beats_o  (tweak2),
    .for_hash_o   ({y2, run_last2})
  );

  ///////////////
  // Sectors out
  ///////////////

  logic out_now;
  logic [128*Lanes-1:0] waiting;

  beat_store #(
    .Width(128 * Lanes),
    .Depth(OutDepth)
  ) u_store (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (output_busy),
    .take_i (counting && out_room && counters_ready),
    .room_o (out_room),
    .write_i(hash2_now),
    .data_i (result),
    .data_o (waiting),
    .read_i (out_now)
  );

  // All V of a sector are there before its U.
  hash_output #(
    .Lanes    (Lanes),
    .Beats    (Beats),
    .LateFirst(1'b1),
    .Sectors  (OutDepth / Beats)
  ) u_out (
    .clk_i,
    .rst_ni      (rst_n),
    .sector_i    (first_done),
    .idle_o      (idle),
    .beat_valid_i(1'b1),
    .beat_ready_o(out_now),
    .beat_i      (waiting),
    .late_valid_i(hash2_done),
    .late_i      (y2 ^ hash[1]),
    .late_last_i (run_last2),
    .out_valid_o,
    .out_ready_i,
    .out_data_o,
    .out_last_o
  );

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      first_block_q <= '0;
      held_q        <= '0;
      call_q        <= '0;
      call_valid_q  <= 1'b0;
      middle_q      <= '0;
      middle_room_q <= 1'b0;
      s_q           <= '0;
    end else begin
      if (take_in && beat1 == '0) first_block_q <= in_data[127:0];
      if (first_done) held_q <= '{decrypt: first_decrypt, x: first_block_q, sector: first};
      call_valid_q <= hash1_done;
      call_q       <= held_q;
      call_q.x     <= held_q.x ^ hash[0];

      middle_q      <= middle_q + 2'(first_done) - 2'(start);
      middle_room_q <= middle_q != 2'(Middle);

      if (start) s_q <= next_s;
    end
  end

endmodule
