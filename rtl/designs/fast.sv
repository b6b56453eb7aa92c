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
//   Feistel     tau u, E(v), E(w), tau y, a sector at each: these calls go before all others
//   counter     one beat a cycle (two cycles: one core with beats of two blocks),
//               from when v ^ w is there
//   hash 2      stream 1, right behind the counter mode, Y into the output's queue along
//               with that; then o1
//
// The cores and multipliers never stop: counter mode takes a place in the queue of Y with
// each beat, and a sector goes into the Feistel part with places in all queues behind it. X waits
// in block RAM for several sectors, if these are short.
//
// One sector with BRW, Blocks = 256, two cores, AES-128, in about so many cycles after the
// key schedule (tau's call goes in while that is under way):
//   2 X goes in, hash 1   146 u   153 E(v)   165 E(w)   166..292 counter
//   304 last beat of Y into hash 2   319 o1, the last beat out (out of order).
//
// o1 is the last that is known, and the first block of the sector or the second.
// In order, output starts once it is there, from a queue of sectors; with
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

  logic busy_in, busy_out, busy_hash, busy_counter, busy_y;

  // ---- Ports, key ----

  logic rst_n, unused_rst_sectors_n, key_taken, idle;
  logic [KeyBits-1:0] taken_key;
  logic run_valid, run_ready, data_valid, data_ready, decrypt;
  logic [127:0] tweak;
  logic [31:0] sectors;
  logic [Width-1:0] data;

  sector_port #(
    .KeyWidth (KeyBits),
    .DataWidth(Width)
  ) u_port (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no        (rst_n),
    // What there is of a sector is gone when a key comes.
    .rst_sectors_no(unused_rst_sectors_n),
    .key_valid_i,
    .key_ready_o,
    .key_i,
    .req_valid_i,
    .req_ready_o,
    .req_i         ({req_tweak_i, req_sectors_i, req_decrypt_i}),
    .in_valid_i,
    .in_ready_o,
    .in_data_i,
    .idle_i        (idle),
    .key_taken_o   (key_taken),
    .key_o         (taken_key),
    .req_valid_o   (run_valid),
    .req_ready_i   (run_ready),
    .req_o         ({tweak, sectors, decrypt}),
    .in_valid_o    (data_valid),
    .in_ready_i    (data_ready),
    .in_data_o     (data)
  );

  logic schedule_ready;
  block_t round_keys[1][Rounds+1];

  block_t unused_inverse_keys[Rounds+1];
  aes_key_schedule #(
    .KeyBits(KeyBits)
  ) u_schedule (
    .clk_i,
    .rst_ni        (rst_n),
    .valid_i       (key_taken),
    .key_i         (taken_key),
    .ready_o       (schedule_ready),
    .valid_o       (expanded_o),
    .round_keys_o  (round_keys[0]),
    .inverse_keys_o(unused_inverse_keys)
  );

  // ---- Runs ----

  logic sector_valid, sector_ready;
  block_t sector_tweak;
  sector_t sector;

  run_expand #(
    .TweakStep(TweakStep)
  ) u_run (
    .clk_i,
    .rst_ni          (rst_n),
    .req_valid_i     (run_valid),
    .req_ready_o     (run_ready),
    .req_tweak_i     (tweak),
    .req_sectors_i   (sectors),
    .req_decrypt_i   (decrypt),
    .sector_valid_o  (sector_valid),
    .sector_ready_i  (sector_ready),
    .sector_tweak_o  (sector_tweak),
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
      .forget_i     (key_taken),
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
      .forget_i      (key_taken),
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

  logic enter, x_take, decrypted;
  logic [255:0] head_pair;
  logic [Width-1:0] x;
  sector_t head_sector;

  fast_input #(
    .Blocks(Blocks),
    .Lanes (Lanes)
  ) u_input (
    .clk_i,
    .rst_ni         (rst_n),
    .busy_o         (busy_in),
    .sector_valid_i (sector_valid),
    .sector_ready_o (sector_ready),
    .tweak_i        (sector_tweak),
    .sector_i       (sector),
    .in_valid_i     (data_valid),
    .in_ready_o     (data_ready),
    .in_data_i      (data),
    .start_valid_o  (start_valid[0]),
    .start_ready_i  (start_ready[0]),
    .start_tweak_o  (start_tweak[0]),
    .start_prime_o  (start_prime[0]),
    .hash_valid_o   (hash_in_valid[0]),
    .hash_ready_i   (hash_in_ready[0]),
    .head_take_i    (enter),
    .head_sector_o  (head_sector),
    .head_pair_o    (head_pair),
    .tweak_take_i   (start_valid[1] && start_ready[1]),
    .tweak_o        (start_tweak[1]),
    .tweak_decrypt_o(decrypted),
    .x_take_i       (x_take),
    .x_o            (x)
  );
  assign hash_in_data[0] = data;
  assign start_prime[1] = !decrypted;

  // ---- AES: single calls, the Feistel part's and tau's, go before counter mode ----

  // Which one it is, no bit without a call.
  typedef struct packed {
    logic tau;
    logic first;
    logic second;
  } call_t;

  // A single call that goes in; tau's result has still to come out.
  logic call_valid_q, tau_away_q;
  call_t call_tag_q, call_done;
  block_t call_q;
  logic unused_call_done, counters_out;
  logic counter_call, counter_ready;
  block_t counter_block[Cores], aes_block[Cores];

  aes_lanes #(
    .KeyBits (KeyBits),
    .Lanes   (Cores),
    .TagWidth($bits(call_t)),
    .Register(1'b0)
  ) u_aes (
    .clk_i,
    .rst_ni          (rst_n),
    .round_keys_i    (round_keys),
    .counters_valid_i(counter_call),
    .counters_ready_o(counter_ready),
    .counters_i      (counter_block),
    .call_valid_i    (call_valid_q),
    .call_i          (call_q),
    .call_key_i      (1'b0),
    .call_tag_i      (call_tag_q),
    .call_valid_o    (unused_call_done),
    .call_tag_o      (call_done),
    .counters_valid_o(counters_out),
    .blocks_o        (aes_block)
  );

  logic feistel_call, feistel_second;
  block_t feistel_block;
  assign aes_out = aes_block[Cores-1];
  assign tau_valid = call_done.tau;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      call_valid_q <= 1'b0;
      call_tag_q   <= '0;
      call_q       <= '0;
      tau_away_q   <= 1'b0;
    end else begin
      // Tau's goes in right behind the key, whose schedule makes a round key a cycle.
      call_valid_q <= feistel_call || key_taken;
      call_tag_q   <= '{
          tau: key_taken,
          first: feistel_call && !feistel_second,
          second: feistel_call && feistel_second
      };
      call_q       <= feistel_call ? feistel_block : '0;
      if (key_taken) tau_away_q <= 1'b1;
      else if (tau_valid) tau_away_q <= 1'b0;
    end
  end

  // ---- Between the hashes ----

  logic z_valid, result_room, result_valid;
  block_t z, result_y, result_o2;
  sector_t result_sector;

  fast_feistel u_feistel (
    .clk_i,
    .rst_ni        (rst_n),
    .hash_valid_i  (hash_valid[0]),
    .hash_ready_o  (hash_ready[0]),
    .hash_i        (hash[0]),
    .enter_o       (enter),
    .room_i        (result_room),
    .head_sector_i (head_sector),
    .head_pair_i   (head_pair),
    .call_valid_o  (feistel_call),
    .call_second_o (feistel_second),
    .call_o        (feistel_block),
    .first_done_i  (call_done.first),
    .second_done_i (call_done.second),
    .done_i        (aes_out),
    .scale_valid_o (scale_valid),
    .scale_second_o(scale_second),
    .scale_o       (scale),
    .scaled_valid_i(scaled_valid),
    .scaled_i      (scaled),
    .z_valid_o     (z_valid),
    .z_o           (z),
    .result_valid_o(result_valid),
    .sector_o      (result_sector),
    .y_o           (result_y),
    .o2_o          (result_o2)
  );

  // ---- Counter mode ----

  logic y_room, y_take;

  fast_counter #(
    .Blocks(Blocks),
    .Cores (Cores),
    .Lanes (Lanes)
  ) u_counter (
    .clk_i,
    .rst_ni       (rst_n),
    .busy_o       (busy_counter),
    .z_valid_i    (z_valid),
    .z_i          (z),
    .start_valid_o(start_valid[1]),
    .start_ready_i(start_ready[1]),
    .room_i       (y_room),
    .take_o       (y_take),
    .others_soon_i(feistel_call || key_taken),
    .call_valid_o (counter_call),
    .call_ready_i (counter_ready),
    .call_o       (counter_block)
  );

  // ---- Y: into hash 2 and, along with that, the output's queue ----

  logic y_push, y_valid, out_ready;
  logic [Width-1:0] y_in, y;

  if (Calls == 1) begin : gen_beat
    for (genvar i = 0; i < Cores; i++) begin : gen_block
      assign y_in[128*i+:128] = x[128*i+:128] ^ aes_block[i];
    end
    assign y_push = counters_out;
  end else begin : gen_halves
    // The beat's first block is here.
    logic half_there_q;
    block_t half_q;
    always_ff @(posedge clk_i or negedge rst_n) begin
      if (!rst_n) begin
        half_there_q <= 1'b0;
        half_q       <= '0;
      end else if (counters_out) begin
        half_there_q <= !half_there_q;
        half_q       <= x[127:0] ^ aes_block[0];
      end
    end
    assign y_in = {x[255:128] ^ aes_block[0], half_q};
    assign y_push = counters_out && half_there_q;
  end
  assign x_take = y_push;

  // Places for as many beats as the cores have inside, so that these never stop.
  credit_fifo #(
    .Width(Width),
    .Depth(32)
  ) u_y (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (busy_y),
    .take_i (y_take),
    .room_o (y_room),
    .valid_i(y_push),
    .data_i (y_in),
    .valid_o(y_valid),
    .ready_i(hash_in_ready[1] && out_ready),
    .data_o (y)
  );
  assign hash_in_valid[1] = y_valid && out_ready;
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
    .enter_i       (enter),
    .room_o        (result_room),
    .result_valid_i(result_valid),
    .sector_i      (result_sector),
    .result_y_i    (result_y),
    .result_o2_i   (result_o2),
    .hash_valid_i  (hash_valid[1]),
    .hash_i        (hash[1]),
    .y_valid_i     (y_valid && hash_in_ready[1]),
    .y_ready_o     (out_ready),
    .y_i           (y),
    .out_valid_o,
    .out_ready_i,
    .out_data_o,
    .out_last_o,
    .out_block_o,
    .sector_o      (sector_done)
  );

  // ---- When a key can be taken ----

  // Memories are being wiped. Sectors inside.
  logic busy_q;
  logic [5:0] sectors_q;
  assign idle = run_ready && schedule_ready && !tau_away_q && !busy_q && sectors_q == '0;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      busy_q    <= 1'b1;
      sectors_q <= '0;
    end else begin
      busy_q    <= busy_in || busy_out || busy_hash || busy_counter || busy_y;
      sectors_q <= sectors_q + 6'(sector_valid && sector_ready) - 6'(sector_done);
    end
  end

endmodule
