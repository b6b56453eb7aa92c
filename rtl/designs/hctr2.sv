// SPDX-License-Identifier: MIT OR Apache-2.0
//
// HCTR2 for runs of sectors, with tweaks of 32 bytes whose upper half is zero (as
// dm-crypt's are): HCTR2-2 with two AES encryption pipelines and twice two
// multipliers, and one sequential AES decryption. With `Cores` = 1, half of that.
//
// A sector is M, N_1 .. N_(m-1) (when decrypting U, V_1 ..; the same otherwise):
//   hash 1  X = M + H(T, N), with multipliers of its own
//   middle  Y = E_K(X) by a pipeline, or D_K(X) by the SDC; S = X + Y + L
//   counter V_i = N_i + E_K(S + i), into the buffer at the output and into
//   hash 2  U = Y + H(T, V), with multipliers of its own; then the sector goes out.
// Alone, a sector of n beats (of one block for each core) goes like this with AES of r
// rounds, in cycles from its first beat:
//     0          first beat of hash 1      n + 2r + 7     first V, beat 0 of hash 2
//     n - 1      last one                  2n + 2r + 6    last V
//     n + 3      hash 1                    2n + 2r + 10   hash 2
//     n + 4      X into AES                2n + 2r + 12   U at the output
//     n + r + 6  S+1 into AES              3n + 2r + 11   last V at the output
// The sectors of a run follow each other at the pace of the counter: n beats, and
// one more when encrypting, for X. A sector may be in each of hash 1, the
// middle (until its counter starts), counter, hash 2, and at the output.

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
  localparam logic [BeatWidth-1:0] LastBeat = BeatWidth'(Beats - 1);

  typedef struct packed {
    logic [127:0] tweak;
    logic         decrypt;
    // Of its run.
    logic         last;
  } sector_t;

  // In the middle: its first block, then X; and Y once it is there.
  typedef struct packed {
    logic    valid;
    sector_t sector;
    block_t  x;
    logic    x_there;
    block_t  y;
    logic    y_there;
  } middle_t;

  // In counter mode.
  typedef struct packed {
    logic                 valid;
    logic [BeatWidth-1:0] beat;
    block_t               s;
    block_t               y;
    logic [127:0]         tweak;
    logic                 last;
  } counter_t;

  // In hash 2: what it is added to.
  typedef struct packed {
    block_t y;
    logic   last;
  } second_t;

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

  logic idle, input_busy, output_busy, key_ready, take_key, have_key;
  logic key_call, key_done, hash_key;
  block_t key_block, l;
  block_t round_keys[1][Rounds+1];
  block_t aes_out[Lanes];

  assign key_ready_o = rst_n && key_ready && idle && !input_busy && !output_busy;
  assign take_key = key_valid_i && key_ready_o;

  hctr2_keys #(
    .KeyBits(KeyBits)
  ) u_keys (
    .clk_i,
    .rst_ni      (rst_n),
    .enable_i    (enable),
    .valid_i     (take_key),
    .ready_o     (key_ready),
    .key_i,
    .key_o       (have_key),
    .expanded_o,
    .call_o      (key_call),
    .block_o     (key_block),
    .done_i      (key_done),
    .block_i     (aes_out[Lanes-1]),
    .hash_key_o  (hash_key),
    .l_o         (l),
    .round_keys_o(round_keys)
  );

  ///////////////
  // Sectors in
  ///////////////

  sector_t first;
  middle_t middle_q;
  counter_t counter_q;
  logic first_valid, first_done, run_ready, run_valid;
  logic [BeatWidth-1:0] beat1_q, beat2_q;
  logic take_in, hash2_now, hash_ready, buffer_ready, buffer_valid;
  logic [128*Lanes-1:0] buffer_data;
  block_t first_block_q;

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

  assign in_ready_o = enable && first_valid && hash_ready && buffer_ready
      && (beat1_q != LastBeat || !middle_q.valid);
  assign take_in = in_valid_i && in_ready_o;
  assign first_done = take_in && beat1_q == LastBeat;

  ram_fifo #(
    .Width(128 * Lanes),
    .Depth(2 * Beats)
  ) u_input (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (input_busy),
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

  logic [1:0] hash_valid;
  logic [1:0][127:0] hash;
  logic hash1_done, hash2_done;
  assign hash1_done = hash_valid[0];
  assign hash2_done = hash_valid[1];

  logic call_done, for_key, encrypted, decrypted, y_done, start, counters_ready, count_now;
  block_t y, sdc_block;
  assign key_done = call_done && for_key;
  assign encrypted = call_done && !for_key;
  assign y_done = encrypted || decrypted;
  assign y = middle_q.y_there ? middle_q.y : decrypted ? sdc_block : aes_out[Lanes-1];
  assign count_now = counter_q.valid && counters_ready;
  assign start = (middle_q.y_there || y_done)
      && (!counter_q.valid || (count_now && counter_q.beat == LastBeat));

  block_t counters[Lanes];
  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_counter
    assign counters[lane] = counter_q.s ^ 128'(Lanes * 32'(counter_q.beat) + lane);
  end

  // E_K(S) of block 0 has no use.
  aes_lanes #(
    .KeyBits(KeyBits),
    .Lanes  (Lanes)
  ) u_aes (
    .clk_i,
    .rst_ni          (rst_n),
    .enable_i        (enable),
    .round_keys_i    (round_keys),
    .counters_valid_i(counter_q.valid),
    .counters_ready_o(counters_ready),
    .counters_i      (counters),
    .call_valid_i    (key_call || (middle_q.x_there && !middle_q.sector.decrypt)),
    .call_i          (key_call ? key_block : middle_q.x),
    .call_key_i      (1'b0),
    .call_tag_i      (key_call),
    .call_valid_o    (call_done),
    .call_tag_o      (for_key),
    .counters_valid_o(hash2_now),
    .blocks_o        (aes_out)
  );

  logic unused_ready, unused_tag;
  aes_sdc #(
    .KeyBits(KeyBits)
  ) u_sdc (
    .clk_i,
    .rst_ni      (rst_n),
    .enable_i    (enable),
    .round_keys_i(round_keys),
    .valid_i     (middle_q.x_there && middle_q.sector.decrypt),
    .block_i     (middle_q.x),
    .key_i       (1'b0),
    .tag_i       (1'b0),
    .ready_o     (unused_ready),
    .valid_o     (decrypted),
    .block_o     (sdc_block),
    .tag_o       (unused_tag)
  );

  ///////////////
  // Hashes
  ///////////////

  logic [128*Lanes-1:0] result;
  logic [128*Lanes-1:0] hashed[2];
  // The sector whose beats go in; the one that hash 2 is of.
  second_t second_q, summed_q;

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_result
    assign result[128*lane+:128] = buffer_data[128*lane+:128] ^ aes_out[lane];
  end
  assign hashed[0] = in_data_i;
  assign hashed[1] = result;

  // The sector in counter mode is still the one whose first V comes out: a
  // sector has at least as many beats as the pipeline has stages.
  hctr2_hash #(
    .Lanes (Lanes),
    .Blocks(Blocks)
  ) u_hash (
    .clk_i,
    .rst_ni     (rst_n),
    .enable_i   (enable),
    .forget_i   (take_key),
    .key_valid_i(hash_key),
    .key_i      (aes_out[Lanes-1]),
    .ready_o    (hash_ready),
    .valid_i    ({hash2_now, take_in}),
    .beat_i     ({beat2_q, beat1_q}),
    .tweak_i    ({counter_q.tweak, first.tweak}),
    .blocks_i   (hashed),
    .valid_o    (hash_valid),
    .hash_o     (hash)
  );

  ///////////////
  // Sectors out
  ///////////////

  // U, for as long as it takes the output to begin with its sector.
  block_t u_q;
  logic u_there_q, u_last_q;
  // The sector at the output.
  logic [BeatWidth-1:0] beat3_q;
  logic out_push, out_last, out_last_q, output_ready, output_valid;
  logic [128*Lanes-1:0] output_data, out_data;
  logic [1:0] out_count;
  logic out_unused;

  ram_fifo #(
    .Width(128 * Lanes),
    .Depth(2 * Beats)
  ) u_output (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (output_busy),
    .valid_i(enable && hash2_now),
    .ready_o(output_ready),
    .data_i (result),
    .valid_o(output_valid),
    .ready_i(out_push),
    .data_o (output_data)
  );

  assign out_push = enable && output_valid && (beat3_q != '0 || u_there_q);
  assign out_last = beat3_q == LastBeat && out_last_q;
  always_comb begin
    out_data = output_data;
    if (beat3_q == '0) out_data[127:0] = u_q;
  end
  assign enable = out_count != 2'd2;

  stream_fifo #(
    .Width(128 * Lanes + 1),
    .Depth(2)
  ) u_out (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(out_push),
    .ready_o(out_unused),
    .data_i ({out_last, out_data}),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o ({out_last_o, out_data_o}),
    .count_o(out_count)
  );

  // The buffers hold what is asked for, and have room for what comes; the SDC is
  // free for every sector in the middle.
  logic unused;
  assign unused = ^{buffer_valid, output_ready, out_unused, unused_ready, unused_tag};

  // Sectors from the start of their counter to the end of their output.
  logic [1:0] under_way_q;
  logic sector_out;
  assign sector_out = out_push && beat3_q == LastBeat;
  assign idle = !first_valid && beat1_q == '0 && !middle_q.valid && under_way_q == '0
      && out_count == '0;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      beat1_q       <= '0;
      beat2_q       <= '0;
      beat3_q       <= '0;
      first_block_q <= '0;
      middle_q      <= '0;
      counter_q     <= '0;
      second_q      <= '0;
      summed_q      <= '0;
      u_q           <= '0;
      u_there_q     <= 1'b0;
      u_last_q      <= 1'b0;
      out_last_q    <= 1'b0;
      under_way_q   <= '0;
    end else if (enable) begin
      if (take_in) beat1_q <= beat1_q + 1'b1;
      if (take_in && beat1_q == '0) first_block_q <= in_data_i[127:0];

      if (first_done) begin
        middle_q.valid  <= 1'b1;
        middle_q.sector <= first;
        middle_q.x      <= first_block_q;
      end
      middle_q.x_there <= hash1_done;
      if (hash1_done) middle_q.x <= middle_q.x ^ hash[0];
      if (y_done) begin
        middle_q.y       <= y;
        middle_q.y_there <= 1'b1;
      end

      if (count_now) begin
        counter_q.beat  <= counter_q.beat + 1'b1;
        counter_q.valid <= counter_q.beat != LastBeat;
      end
      if (start) begin
        middle_q.valid   <= 1'b0;
        middle_q.y_there <= 1'b0;
        counter_q.valid  <= 1'b1;
        counter_q.s      <= middle_q.x ^ y ^ l;
        counter_q.y      <= y;
        counter_q.tweak  <= middle_q.sector.tweak;
        counter_q.last   <= middle_q.sector.last;
      end

      if (hash2_now) beat2_q <= beat2_q + 1'b1;
      if (hash2_now && beat2_q == '0) second_q <= '{y: counter_q.y, last: counter_q.last};
      if (hash2_now && beat2_q == LastBeat) summed_q <= second_q;

      if (out_push) begin
        beat3_q <= beat3_q + 1'b1;
        if (beat3_q == '0) begin
          u_there_q  <= 1'b0;
          out_last_q <= u_last_q;
        end
      end
      if (hash2_done) begin
        u_q       <= summed_q.y ^ hash[1];
        u_there_q <= 1'b1;
        u_last_q  <= summed_q.last;
      end

      if (start && !sector_out) under_way_q <= under_way_q + 1'b1;
      if (sector_out && !start) under_way_q <= under_way_q - 1'b1;
    end
  end

endmodule
