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
// rounds, in cycles from its first beat:
//     0        first beat of hash 1           n + 2r + 2    first E, beat 0 of hash 2
//     n - 1    last one; A into AES           2n + 2r + 1   its last beat, in A's place
//     n + r    D                              2n + 2r + 5   F into the SDC
//     n + r+1  D into AES, the counter starts 2n + 3r + 7   last block out (550 or 294)
// Hash 2 goes before hash 1, which takes every cycle that hash 2 leaves: while one sector
// waits for AES and after its end, the next ones are in hash 1, and the
// multipliers never rest: 2n cycles a sector. There is one sector at most in
// each of hash 1, the middle (A in AES, or D waiting), the counter with hash 2, and
// the SDC. A counter starts once the sector before is in the SDC, r + 1 cycles from
// its end, and gives its first E r + 1 cycles later: output is in order.
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
  localparam logic [BeatWidth-1:0] LastBeat = BeatWidth'(Beats - 1);

  typedef struct packed {
    logic [127:0] tweak;
    logic         decrypt;
    // Of its run.
    logic         last;
  } sector_t;

  // A full output stops everything.
  logic enable;

  // Low while everything is zeroized.
  logic rst_n;
  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no(rst_n)
  );

  ///////////////
  // Keys
  ///////////////

  logic idle, ram_busy, have_key, derived, take_key;
  logic key_ready, key_call, key_done, hash_key;
  block_t key_block;
  block_t round_keys[3][Rounds+1];
  block_t aes_out[Lanes];

  assign key_ready_o = rst_n && key_ready && idle && !ram_busy;
  assign take_key = key_valid_i && key_ready_o;

  xcb_keys #(
    .KeyBits(KeyBits)
  ) u_keys (
    .clk_i,
    .rst_ni      (rst_n),
    .enable_i    (enable),
    .valid_i     (key_valid_i && idle && !ram_busy),
    .ready_o     (key_ready),
    .key_i,
    .key_o       (have_key),
    .expanded_o,
    .derived_o   (derived),
    .call_o      (key_call),
    .block_o     (key_block),
    .done_i      (key_done),
    .block_i     (aes_out[Lanes-1]),
    .hash_key_o  (hash_key),
    .round_keys_o(round_keys)
  );

  ///////////////
  // Sectors in
  ///////////////

  sector_t first;
  logic first_valid, first_done, run_ready;
  logic run_valid;

  assign run_valid = req_valid_i && have_key && !take_key;
  assign req_ready_o = run_ready && have_key && !take_key;

  run_expand #(
    .TweakStep(TweakStep)
  ) u_run (
    .clk_i,
    .rst_ni          (rst_n),
    .req_valid_i     (run_valid),
    .req_ready_o     (run_ready),
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .sector_valid_o  (first_valid),
    .sector_ready_i  (first_done),
    .sector_tweak_o  (first.tweak),
    .sector_decrypt_o(first.decrypt),
    .sector_last_o   (first.last)
  );

  // Of hash 1, before all powers and keys are there.
  localparam logic [BeatWidth-1:0] EarlyBeats = BeatWidth'(Beats - 5);

  logic [BeatWidth-1:0] beat1_q, beat2_q;
  logic hash_early_ready, hash_ready;
  logic take_in, hash2_now, middle_valid_q, buffer_ready, buffer_valid;
  logic [128*Lanes-1:0] buffer_data;

  assign in_ready_o = enable && first_valid && hash_early_ready && !hash2_now
      && buffer_ready && (beat1_q < EarlyBeats || (hash_ready && derived))
      && (beat1_q != LastBeat || !middle_valid_q);
  assign take_in = in_valid_i && in_ready_o;
  assign first_done = take_in && beat1_q == LastBeat;

  ram_fifo #(
    .Width(128 * Lanes),
    .Depth(2 * Beats)
  ) u_buffer (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (ram_busy),
    .valid_i(take_in),
    .ready_o(buffer_ready),
    .data_i (in_data_i),
    .valid_o(buffer_valid),
    .ready_i(enable && hash2_now),
    .data_o (buffer_data)
  );

  ///////////////
  // The middle, and the counter
  ///////////////

  // Hash 1 complete, or what it lacks; with D once AES is done with the last block.
  sector_t middle_q;
  block_t middle_data_q;
  logic middle_complete_q;

  // The sector in counter mode and hash 2.
  sector_t second_q;
  block_t d_q;
  logic second_valid_q, counting_q;
  logic [31:0] counter_q;
  logic [BeatWidth-1:0] count_q;

  logic hash_valid, hash_second;
  block_t h1, h2;
  logic hash1_done, hash2_done, last_done;
  assign hash1_done = hash_valid && !hash_second;
  assign hash2_done = hash_valid && hash_second;

  block_t d;
  logic start;
  assign d = middle_complete_q ? middle_data_q : middle_data_q ^ aes_out[Lanes-1];
  assign start = (middle_complete_q || last_done) && (!second_valid_q || hash2_done);

  logic counters_ready, count_now;
  assign count_now = counting_q && counters_ready;

  ///////////////
  // AES
  ///////////////

  block_t counters[Lanes];
  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_counter
    logic [31:0] counter;
    assign counter = counter_q + 32'(lane);
    assign counters[lane] = {
      counter[7:0], counter[15:8], counter[23:16], counter[31:24], d_q[95:0]
    };
  end

  // Calls are for a key, or encrypt a last block.
  logic call_done, call_for_key;
  assign key_done = call_done && call_for_key;
  assign last_done = call_done && !call_for_key;

  aes_lanes #(
    .KeyBits(KeyBits),
    .Lanes  (Lanes),
    .NumKeys(3)
  ) u_aes (
    .clk_i,
    .rst_ni          (rst_n),
    .enable_i        (enable),
    .round_keys_i    (round_keys),
    .counters_valid_i(counting_q),
    .counters_ready_o(counters_ready),
    .counters_i      (counters),
    .call_valid_i    (key_call || first_done),
    .call_i          (key_call ? key_block : in_data_i[128*(Lanes-1)+:128]),
    .call_key_i      (key_call ? 2'd0 : first.decrypt ? 2'd2 : 2'd1),
    .call_tag_i      (key_call),
    .call_valid_o    (call_done),
    .call_tag_o      (call_for_key),
    .counters_valid_o(hash2_now),
    .blocks_o        (aes_out)
  );

  ///////////////
  // Hashes
  ///////////////

  block_t result[Lanes];
  block_t hashed[Lanes];
  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_hashed
    assign result[lane] = buffer_data[128*lane+:128] ^ aes_out[lane];
    assign hashed[lane] = hash2_now ? result[lane] : in_data_i[128*lane+:128];
  end

  // Hash 1 is h1 when encrypting, hash 2 when decrypting.
  xcb_hash #(
    .Lanes (Lanes),
    .Blocks(Blocks)
  ) u_hash (
    .clk_i,
    .rst_ni       (rst_n),
    .enable_i     (enable),
    .forget_i     (take_key),
    .key_valid_i  (hash_key),
    .key_i        (aes_out[Lanes-1]),
    .early_ready_o(hash_early_ready),
    .ready_o      (hash_ready),
    .valid_i      (take_in || hash2_now),
    .context_i    (hash2_now),
    .beat_i       (hash2_now ? beat2_q : beat1_q),
    .blocks_i     (hashed),
    .tweak_i      (hash2_now ? second_q.tweak : first.tweak),
    .h2_i         (hash2_now ? !second_q.decrypt : first.decrypt),
    .valid_o      (hash_valid),
    .context_o    (hash_second),
    .h1_o         (h1),
    .h2_o         (h2)
  );

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      beat1_q           <= '0;
      beat2_q           <= '0;
      middle_valid_q    <= 1'b0;
      middle_complete_q <= 1'b0;
      middle_q          <= '0;
      middle_data_q     <= '0;
      second_valid_q    <= 1'b0;
      second_q          <= '0;
      d_q               <= '0;
      counting_q        <= 1'b0;
      counter_q         <= '0;
      count_q           <= '0;
    end else if (enable) begin
      if (take_in) beat1_q <= beat1_q + 1'b1;
      if (hash2_now) beat2_q <= beat2_q + 1'b1;

      if (first_done) begin
        middle_valid_q <= 1'b1;
        middle_q       <= first;
      end
      if (hash1_done) middle_data_q <= middle_q.decrypt ? h2 : h1;
      if (last_done) begin
        middle_data_q     <= d;
        middle_complete_q <= 1'b1;
      end

      if (hash2_done) second_valid_q <= 1'b0;
      if (count_now) begin
        counter_q  <= counter_q + 32'(Lanes);
        count_q    <= count_q + 1'b1;
        counting_q <= count_q != LastBeat;
      end
      if (start) begin
        middle_valid_q    <= 1'b0;
        middle_complete_q <= 1'b0;
        second_valid_q    <= 1'b1;
        second_q          <= middle_q;
        d_q               <= d;
        counter_q         <= {d[103:96], d[111:104], d[119:112], d[127:120]};
        counting_q        <= 1'b1;
      end
    end
  end

  ///////////////
  // The last block
  ///////////////

  logic sdc_ready, last_valid, last_of_run;
  block_t last_block;
  block_t sdc_keys[2][Rounds+1];

  // K_e and K_d.
  assign sdc_keys[0] = round_keys[1];
  assign sdc_keys[1] = round_keys[2];

  aes_sdc #(
    .KeyBits(KeyBits),
    .NumKeys(2)
  ) u_sdc (
    .clk_i,
    .rst_ni      (rst_n),
    .enable_i    (enable),
    .round_keys_i(sdc_keys),
    .valid_i     (hash2_done),
    .block_i     (d_q ^ (second_q.decrypt ? h1 : h2)),
    .key_i       (!second_q.decrypt),
    .tag_i       (second_q.last),
    .ready_o     (sdc_ready),
    .valid_o     (last_valid),
    .block_o     (last_block),
    .tag_o       (last_of_run)
  );

  ///////////////
  // Sectors out
  ///////////////

  logic out_push, out_unused;
  logic [128*Lanes-1:0] out_data;
  logic [1:0] out_count;

  if (Lanes == 1) begin : gen_out_1
    assign out_data = last_valid ? last_block : result[0];
  end else begin : gen_out_2
    // The blocks before the last one wait for it.
    logic [128*(Lanes-1)-1:0] waiting_q, others;
    for (genvar lane = 0; lane < Lanes - 1; lane++) begin : gen_others
      assign others[128*lane+:128] = result[lane];
    end
    always_ff @(posedge clk_i or negedge rst_n) begin
      if (!rst_n) waiting_q <= '0;
      else if (enable && hash2_now && beat2_q == LastBeat) waiting_q <= others;
    end
    assign out_data = last_valid ? {last_block, waiting_q} : {result[Lanes-1], others};
  end
  assign out_push = enable && (last_valid || (hash2_now && beat2_q != LastBeat));
  assign enable = out_count != 2'd2;

  stream_fifo #(
    .Width(128 * Lanes + 1),
    .Depth(2)
  ) u_out (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(out_push),
    .ready_o(out_unused),
    .data_i ({last_valid && last_of_run, out_data}),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o ({out_last_o, out_data_o}),
    .count_o(out_count)
  );

  // The buffer holds what is asked for, and there is room at the output.
  logic unused;
  assign unused = ^{buffer_valid, out_unused};

  assign idle = !first_valid && beat1_q == '0 && !middle_valid_q && !second_valid_q
      && sdc_ready && !last_valid && out_count == '0;

endmodule
