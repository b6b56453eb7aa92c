// SPDX-License-Identifier: MIT OR Apache-2.0
//
// FAST[AES,BRW] and FAST[AES,Horner] on runs of sectors (Chakraborty, Ghosh,
// Mancillas-Lopez, Sarkar; the fixed-length setting). With i1 and i2 the first two
// blocks, swapped for decryption, X the others going in, Y coming out, and g1, g2
// the hashes h, h', swapped for decryption, both directions are the same:
//
//   u = i1 ^ g1(X, T)     v = i2 ^ tau u     w = u ^ E(v)     y = v ^ E(w)
//   Y = X ^ counter mode from v ^ w          o2 = w ^ tau y    o1 = y ^ g2(Y, T)
//
// Sectors overlap, each stage going on as soon as it can:
//
//   hash 1      blocks go in, into the queue of X and stream 0 of the hashes
//   Feistel     tau u, E(v), E(w), tau y: these calls go before all others
//   counter     one beat a cycle (two cycles: one core with beats of two blocks),
//               from when v ^ w is there; Y into the output's queue and hash 2
//   hash 2      stream 1, right behind the counter mode; then o1
//
// One sector with BRW, Blocks = 256, two cores, AES-128, in about so many cycles after the
// key schedule (tau's call goes in while that is under way):
//   2 X goes in, hash 1   140 u   146 E(v)   157 E(w)   158..284 counter
//   296 last beat of Y into hash 2   308 o1, the last beat out (out of order).
//
// o1 is the last that is known, and the first block of the sector or the second.
// In order, output starts once it is there, from a queue of two sectors; with
// InOrder = 0 beats come as they are known, with their place in the sector.

module fast
  import aes_pkg::*;
  import fast_pkg::*;
#(
  // 512 to 4096, a power of two.
  parameter int unsigned SectorBytes = 4096,
  // Of AES: 128 or 256.
  parameter int unsigned KeyBits     = 128,
  // What to add to the tweak from sector to sector.
  parameter int unsigned TweakStep   = 1,
  // Horner's rule in place of BRW polynomials.
  parameter bit          Horner      = 1'b0,
  // AES cores, 1 or 2.
  parameter int unsigned Cores       = 2,
  // BRW: multipliers, 1 or 2. Horner has as many as cores.
  parameter int unsigned Multipliers = 1,
  // Blocks come out in order; else X first and the first two blocks last.
  parameter bit          InOrder     = 1'b1,
  // Blocks a beat.
  localparam int unsigned Lanes      = Horner ? Cores : 2,
  localparam int unsigned Width      = 128 * Lanes,
  localparam int unsigned Blocks     = SectorBytes / 16,
  localparam int unsigned BlockWidth = $clog2(Blocks)
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Overwrites keys, what is derived from them and everything in flight with zeros.
  input  logic clear_i,

  input  logic               key_valid_i,
  output logic               key_ready_o,
  input  logic [KeyBits-1:0] key_i,
  output logic               expanded_o,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  input  logic             in_valid_i,
  output logic             in_ready_o,
  input  logic [Width-1:0] in_data_i,

  output logic                  out_valid_o,
  input  logic                  out_ready_i,
  output logic [     Width-1:0] out_data_o,
  // The last beat of its run.
  output logic                  out_last_o,
  // The number of its first block in the sector.
  output logic [BlockWidth-1:0] out_block_o
);

  // Calls that make a beat.
  localparam int unsigned Calls = Lanes / Cores;
  localparam int unsigned Rounds = rounds(KeyBits);

  // ---- Reset ----

  // Low while everything is zeroized.
  logic rst_n;
  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no(rst_n)
  );

  // ---- Key ----

  // tau's call has still to go in, its result to come out.
  logic schedule_ready, has_key_q, tau_due_q, tau_away_q;
  logic key_take, idle, busy_in, busy_out, busy_hash;
  block_t round_keys[1][Rounds+1];

  assign key_ready_o = rst_n && schedule_ready && idle && !tau_away_q && !busy_in && !busy_out
      && !busy_hash;
  assign key_take = key_valid_i && key_ready_o;

  aes_key_schedule #(
    .KeyBits(KeyBits)
  ) u_schedule (
    .clk_i,
    .rst_ni      (rst_n),
    .valid_i     (key_take),
    .key_i,
    .ready_o     (schedule_ready),
    .valid_o     (expanded_o),
    .round_keys_o(round_keys[0])
  );

  // ---- Runs ----

  logic run_ready, sector_valid, sector_take;
  sector_t sector;
  assign req_ready_o = run_ready && has_key_q;

  run_expand #(
    .TweakStep(TweakStep)
  ) u_run (
    .clk_i,
    .rst_ni          (rst_n),
    .req_valid_i     (req_valid_i && has_key_q),
    .req_ready_o     (run_ready),
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .sector_valid_o  (sector_valid),
    .sector_ready_i  (sector_take),
    .sector_tweak_o  (sector.tweak),
    .sector_decrypt_o(sector.decrypt),
    .sector_last_o   (sector.last)
  );

  // ---- Hashes ----

  logic start_valid[2], start_ready[2], start_prime[2], hash_in_valid[2], hash_in_ready[2];
  block_t start_tweak[2];
  logic [Width-1:0] hash_in_data[2];
  logic hash_ready[2], hash_valid[2];
  block_t hash[2];
  logic tau_valid, scale_valid, scale_second, scaled_valid;
  block_t scale, scaled, aes_out;

  if (Horner) begin : gen_horner
    fast_hash_horner #(
      .Blocks(Blocks),
      .Lanes (Lanes)
    ) u_hash (
      .clk_i,
      .rst_ni       (rst_n),
      .forget_i     (key_take),
      .tau_valid_i  (tau_valid),
      .tau_i        (aes_out),
      .start_valid_i(start_valid),
      .start_ready_o(start_ready),
      .tweak_i      (start_tweak),
      .prime_i      (start_prime),
      .in_valid_i   (hash_in_valid),
      .in_ready_o   (hash_in_ready),
      .in_data_i    (hash_in_data),
      .hash_ready_i (hash_ready),
      .hash_valid_o (hash_valid),
      .hash_o       (hash),
      .scale_valid_i(scale_valid),
      .scale_i      (scale),
      .scale_valid_o(scaled_valid),
      .scaled_o     (scaled)
    );
    logic unused;
    assign unused = scale_second;
    assign busy_hash = 1'b0;
  end else begin : gen_brw
    fast_hash_brw #(
      .Blocks     (Blocks),
      .Multipliers(Multipliers)
    ) u_hash (
      .clk_i,
      .rst_ni        (rst_n),
      .busy_o        (busy_hash),
      .forget_i      (key_take),
      .tau_valid_i   (tau_valid),
      .tau_i         (aes_out),
      .start_valid_i (start_valid),
      .start_ready_o (start_ready),
      .tweak_i       (start_tweak),
      .prime_i       (start_prime),
      .in_valid_i    (hash_in_valid),
      .in_ready_o    (hash_in_ready),
      .in_data_i     (hash_in_data),
      .hash_ready_i  (hash_ready),
      .hash_valid_o  (hash_valid),
      .hash_o        (hash),
      .scale_valid_i (scale_valid),
      .scale_second_i(scale_second),
      .scale_i       (scale),
      .scale_valid_o (scaled_valid),
      .scaled_o      (scaled)
    );
  end

  // ---- Input: the first blocks wait for hash 1, the others for counter mode ----

  logic head_take, x_take;
  logic [255:0] head_pair;
  logic [Width-1:0] x;
  sector_t head_sector;

  fast_input #(
    .Blocks(Blocks),
    .Lanes (Lanes)
  ) u_input (
    .clk_i,
    .rst_ni        (rst_n),
    .busy_o        (busy_in),
    .sector_valid_i(sector_valid),
    .sector_take_o (sector_take),
    .sector_i      (sector),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .start_valid_o (start_valid[0]),
    .start_ready_i (start_ready[0]),
    .hash_valid_o  (hash_in_valid[0]),
    .hash_ready_i  (hash_in_ready[0]),
    .head_take_i   (head_take),
    .head_sector_o (head_sector),
    .head_pair_o   (head_pair),
    .x_take_i      (x_take),
    .x_o           (x)
  );
  assign start_tweak[0] = sector.tweak;
  assign start_prime[0] = sector.decrypt;
  assign hash_in_data[0] = in_data_i;

  // ---- AES: single calls, the Feistel part's and tau's, go before counter mode ----

  typedef enum logic [1:0] {
    Tau,
    First,
    Second
  } call_e;

  logic aes_enable, call_valid, call_out, call_done, counters_out;
  logic [1:0] call_tag, call_out_tag;
  block_t call;
  logic counter_call, counter_ready;
  block_t counter_block[Cores], aes_block[Cores];

  aes_lanes #(
    .KeyBits (KeyBits),
    .Lanes   (Cores),
    .TagWidth(2)
  ) u_aes (
    .clk_i,
    .rst_ni          (rst_n),
    .enable_i        (aes_enable),
    .round_keys_i    (round_keys),
    .counters_valid_i(counter_call),
    .counters_ready_o(counter_ready),
    .counters_i      (counter_block),
    .call_valid_i    (call_valid),
    .call_i          (call),
    .call_key_i      (1'b0),
    .call_tag_i      (call_tag),
    .call_valid_o    (call_out),
    .call_tag_o      (call_out_tag),
    .counters_valid_o(counters_out),
    .blocks_o        (aes_block)
  );

  logic feistel_call, feistel_second;
  block_t feistel_block;
  assign call_valid = feistel_call || tau_due_q;
  assign call = feistel_call ? feistel_block : '0;
  assign call_tag = !feistel_call ? Tau : feistel_second ? Second : First;

  assign aes_out = aes_block[Cores-1];
  assign call_done = call_out && aes_enable;
  assign tau_valid = call_done && call_out_tag == Tau;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      has_key_q  <= 1'b0;
      tau_due_q  <= 1'b0;
      tau_away_q <= 1'b0;
    end else if (key_take) begin
      has_key_q  <= 1'b1;
      tau_due_q  <= 1'b1;
      tau_away_q <= 1'b1;
    end else begin
      // Its call goes in at once, without a sector to stop the cores: the pipeline needs a
      // round key a cycle, and the schedule makes one.
      tau_due_q <= 1'b0;
      if (tau_valid) tau_away_q <= 1'b0;
    end
  end

  // ---- Between the hashes ----

  logic first_done, second_done, z_valid, z_ready, result_valid, result_ready;
  block_t z, result_y, result_o2;
  sector_t feistel_sector;
  assign first_done = call_done && call_out_tag == First;
  assign second_done = call_done && call_out_tag == Second;

  fast_feistel u_feistel (
    .clk_i,
    .rst_ni        (rst_n),
    .hash_valid_i  (hash_valid[0]),
    .hash_ready_o  (hash_ready[0]),
    .hash_i        (hash[0]),
    .head_take_o   (head_take),
    .head_sector_i (head_sector),
    .head_pair_i   (head_pair),
    .aes_enable_i  (aes_enable),
    .call_valid_o  (feistel_call),
    .call_second_o (feistel_second),
    .call_o        (feistel_block),
    .first_done_i  (first_done),
    .second_done_i (second_done),
    .done_i        (aes_out),
    .scale_valid_o (scale_valid),
    .scale_second_o(scale_second),
    .scale_o       (scale),
    .scaled_valid_i(scaled_valid),
    .scaled_i      (scaled),
    .sector_o      (feistel_sector),
    .z_valid_o     (z_valid),
    .z_ready_i     (z_ready),
    .z_o           (z),
    .result_valid_o(result_valid),
    .result_ready_i(result_ready),
    .y_o           (result_y),
    .o2_o          (result_o2)
  );

  // ---- Counter mode ----

  logic room, counter_first, counter_later;

  fast_counter #(
    .Blocks(Blocks),
    .Cores (Cores),
    .Lanes (Lanes)
  ) u_counter (
    .clk_i,
    .rst_ni       (rst_n),
    .z_valid_i    (z_valid),
    .z_ready_o    (z_ready),
    .z_i          (z),
    .tweak_i      (feistel_sector.tweak),
    .decrypt_i    (feistel_sector.decrypt),
    .start_valid_o(start_valid[1]),
    .start_ready_i(start_ready[1]),
    .start_tweak_o(start_tweak[1]),
    .start_prime_o(start_prime[1]),
    .room_i       (room),
    .call_valid_o (counter_call),
    .call_ready_i (counter_ready && aes_enable),
    .call_first_o (counter_first),
    .call_later_o (counter_later),
    .call_o       (counter_block)
  );

  // ---- Y: into hash 2 and the output's queue ----

  logic y_push, y_valid, unused_y_ready;
  logic [Width-1:0] y_in, y;
  logic [1:0] y_count;

  if (Calls == 1) begin : gen_beat
    for (genvar i = 0; i < Cores; i++) begin : gen_block
      assign y_in[128*i+:128] = x[128*i+:128] ^ aes_block[i];
    end
    assign y_push = counters_out && aes_enable;
  end else begin : gen_halves
    // The beat's first block is here.
    logic half_there_q;
    block_t half_q;
    always_ff @(posedge clk_i or negedge rst_n) begin
      if (!rst_n) begin
        half_there_q <= 1'b0;
        half_q       <= '0;
      end else if (counters_out && aes_enable) begin
        half_there_q <= !half_there_q;
        half_q       <= x[127:0] ^ aes_block[0];
      end
    end
    assign y_in = {x[255:128] ^ aes_block[0], half_q};
    assign y_push = counters_out && aes_enable && half_there_q;
  end
  assign x_take = y_push;

  // The cores stand still when hash 2 is behind.
  assign aes_enable = y_count != 2'd2;

  stream_fifo #(
    .Width(Width),
    .Depth(2)
  ) u_y (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(y_push),
    .ready_o(unused_y_ready),
    .data_i (y_in),
    .valid_o(y_valid),
    .ready_i(hash_in_ready[1]),
    .data_o (y),
    .count_o(y_count)
  );
  assign hash_in_valid[1] = y_valid;
  assign hash_in_data[1] = y;

  // ---- Output ----

  logic sector_done;
  assign hash_ready[1] = 1'b1;

  fast_output #(
    .Blocks (Blocks),
    .Lanes  (Lanes),
    .InOrder(InOrder)
  ) u_output (
    .clk_i,
    .rst_ni        (rst_n),
    .busy_o        (busy_out),
    .begin_i       (counter_call && counter_ready && aes_enable && !counter_later),
    .begin_first_i (counter_first),
    .room_o        (room),
    .y_valid_i     (y_push),
    .y_i           (y_in),
    .result_valid_i(result_valid),
    .result_ready_o(result_ready),
    .result_y_i    (result_y),
    .result_o2_i   (result_o2),
    .decrypt_i     (feistel_sector.decrypt),
    .last_i        (feistel_sector.last),
    .hash_valid_i  (hash_valid[1]),
    .hash_i        (hash[1]),
    .out_valid_o,
    .out_ready_i,
    .out_data_o,
    .out_last_o,
    .out_block_o,
    .sector_o      (sector_done)
  );

  // Sectors between input and output.
  logic [3:0] sectors_q;
  assign idle = sectors_q == '0 && !sector_valid;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) sectors_q <= '0;
    else sectors_q <= sectors_q + 4'(sector_take) - 4'(sector_done);
  end

endmodule
