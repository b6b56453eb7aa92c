// SPDX-License-Identifier: MIT OR Apache-2.0
//
// AEZ10 (AEZ-core of whole AES calls, see aez10_pkg) for extended requests, with two
// PEC. Each is a lane in which the calls of a pair of blocks that follow from each
// other go round (aez10_lane), so that its slots are either taken by such a call or
// free for the next one in this order, at most one of each line a cycle:
//   back    the one call between the passes; the second pass, a pair of the sector
//           buffer or, after Y is complete, the last pair (aez10_back)
//   front   the tweak's call for a later sector; the first pass, a pair of the input
// A pair takes 2 slots in the first pass and 3 in the second, so that one can come in
// each cycle and two can go out in three. Pairs come out in the order in which they
// were taken, since all take the same time.
//
// Schedule, AES-128, a single 4096-byte sector with its first pair in cycle 0:
//   0 .. 126       first pass: W_i 11 cycles later, X_i 22
//   127            the last pair, for M_x ^ E(M_y)
//   149 .. 160     S_x is there; the call for S_y
//   161 .. 342     second pass: 22 pairs every 33 cycles into the two lanes
//   354            the last pair, when S'_127 has completed Y
//   194 .. 376     out
// In a run a sector takes 640 slots of two lanes, 320 cycles, and a few that are free
// when only one kind of call could go.

module aez10
  import aes_pkg::*;
  import aez10_pkg::*;
#(
  // 512 to 4096.
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  // Masks in block RAM, formed when a key is loaded, or formed when they are needed.
  parameter bit          Precomputed = 1'b1,
  // Without, Delta = 0: every sector is encrypted alike, as in the paper's cores.
  parameter bit          WithTweak   = 1'b1,
  localparam int unsigned Lanes      = 2,
  localparam int unsigned KeyWidth   = KeyBits
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

  // Without the last one.
  localparam int unsigned Pairs = SectorBytes / 32 - 1;
  localparam int unsigned PairWidth = $clog2(Pairs + 1);
  localparam int unsigned Rounds = rounds(KeyBits);
  // Sectors between the passes: a second one fills the waits of the first, and where
  // a pass is shorter than they are it takes more.
  localparam int unsigned Slots = Pairs < 64 ? 4 : 2;
  localparam int unsigned SlotCount = $clog2(Slots + 1);

  // A blocked output stops everything.
  logic enable;
  assign enable = !out_valid_o || out_ready_i;

  // What comes out of the lanes. Of most kinds only one is out in a cycle.

  logic [1:0] lane_free, lane_valid;
  item_t [1:0] lane_item;
  logic [1:0][127:0] lane_result, lane_a, lane_b, lane_u, lane_v;

  function automatic logic [1:0] which(kind_e kind);
    return {lane_valid[1] && lane_item[1].kind == kind, lane_valid[0] && lane_item[0].kind == kind};
  endfunction

  logic [1:0] at_i, at_d, at_delta, at_x, at_s, at_z, at_c, at_in, at_last_s, at_last_x;
  assign at_i = which(SetupI);
  assign at_d = which(SetupD);
  assign at_delta = which(Delta);
  assign at_x = which(PairX);
  assign at_s = which(PairS);
  assign at_z = which(PairZ);
  assign at_c = which(PairC);
  assign at_in = which(LastIn);
  assign at_last_s = which(LastS);
  assign at_last_x = which(LastX);

  // Keys.

  block_t round_keys[1][Rounds+1];
  block_t i, j, delta_key;
  logic schedule_ready, masks_busy, buffer_busy, busy, loaded, key_taken;
  logic [1:0] lanes_busy;
  logic call_ij, call_delta_key, load_masks, tweaks_ready, pairs_ready;

  // Low while everything is zeroized; while everything but keys, cores and block RAM is:
  // with a new key nothing is under way, but what is left of the old one.
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

  assign key_ready_o = rst_n && schedule_ready && !busy && !masks_busy && !buffer_busy
      && lanes_busy == '0;
  assign key_taken = key_valid_i && key_ready_o;

  aez10_keys #(
    .KeyBits(KeyBits)
  ) u_keys (
    .clk_i,
    .rst_ni       (rst_n),
    .key_valid_i  (key_taken),
    .key_i,
    .ready_o      (schedule_ready),
    .loaded_o     (loaded),
    .expanded_o,
    .round_keys_o (round_keys),
    .call_ij_o    (call_ij),
    .call_delta_o (call_delta_key),
    .ij_valid_i   (at_i != '0),
    .i_i          (lane_result[0]),
    .j_i          (lane_result[1]),
    .delta_valid_i(at_d != '0),
    .delta_i      (lane_result[at_d[1]]),
    .i_o          (i),
    .j_o          (j),
    .delta_o      (delta_key),
    .load_o       (load_masks),
    .tweaks_o     (tweaks_ready),
    .pairs_o      (pairs_ready)
  );

  // Masks, and the streams of i J for the first pass, for S'_i and for C_i.

  block_t i2, i3, i5;
  logic in_step, back_step;
  logic [2:0][127:0] columns;
  block_t column1, column2, zero_mask, first_mask, second_mask, out_mask, delta_mask, key_mask;

  assign i2 = gf128_pkg::double(i);
  assign i3 = i2 ^ i;
  assign i5 = gf128_pkg::double(i2) ^ i;

  aez10_masks #(
    .Pairs      (Pairs),
    .Precomputed(Precomputed)
  ) u_masks (
    .clk_i,
    .rst_ni   (rst_n),
    .restart_i(key_taken),
    .busy_o   (masks_busy),
    .load_i   (load_masks),
    .j_i      (j),
    .step_i   ({at_z != '0 && enable, back_step, in_step}),
    .mask_o   (columns)
  );

  function automatic block_t turn(block_t mask);
    return gf128_pkg::swap_bytes(mask);
  endfunction

  assign column1 = turn(j);
  assign column2 = turn(gf128_pkg::double(j));
  assign zero_mask = turn(i);
  assign first_mask = turn(i2 ^ columns[0]);
  assign second_mask = turn(i3 ^ columns[1]);
  assign out_mask = turn(i2 ^ columns[2]);
  assign delta_mask = turn(i5 ^ j);
  assign key_mask = turn(i5 ^ i ^ j);

  // Sectors, and Delta of each.

  logic requests_ready, tweak_request, tweak_call, front_ready;
  logic delta_valid, delta_ready, waiting_valid, waiting_decrypt, waiting_last;
  logic in_taken, in_last, out_done;
  block_t sector_tweak, delta;

  assign req_ready_o = rst_sectors_n && requests_ready && loaded && !key_valid_i;
  assign tweak_call = tweak_request && tweaks_ready && front_ready;

  sector_tweaks #(
    .TweakStep(TweakStep),
    .Depth    (Slots),
    .WithTweak(WithTweak)
  ) u_tweaks (
    .clk_i,
    .rst_ni             (rst_sectors_n),
    .req_valid_i        (req_valid_i && loaded && !key_valid_i),
    .req_ready_o        (requests_ready),
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .call_valid_o       (tweak_request),
    .call_ready_i       (tweak_call),
    .call_tweak_o       (sector_tweak),
    .call_result_valid_i(at_delta != '0 && enable),
    .call_result_i      (lane_result[at_delta[1]] ^ delta_key),
    .waiting_valid_o    (waiting_valid),
    .waiting_ready_i    (in_taken && in_last),
    .waiting_decrypt_o  (waiting_decrypt),
    .waiting_last_o     (waiting_last),
    .result_valid_o     (delta_valid),
    .result_ready_i     (delta_ready),
    .result_o           (delta),
    .done_i             (out_done),
    .busy_o             (busy)
  );

  // First pass in.

  logic [PairWidth-1:0] in_pair_q;
  logic [SlotCount-1:0] slots_q;
  logic slot_free;

  assign in_last = in_pair_q == PairWidth'(Pairs);
  assign in_ready_o = waiting_valid && pairs_ready && front_ready && !tweak_call
      && (in_pair_q != '0 || slots_q != SlotCount'(Slots));
  assign in_taken = in_valid_i && in_ready_o;
  assign in_step = in_taken && !in_last;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      in_pair_q <= '0;
      slots_q   <= '0;
    end else begin
      if (in_taken) in_pair_q <= in_last ? '0 : in_pair_q + 1'b1;
      slots_q <= slots_q + SlotCount'(in_taken && in_pair_q == '0) - SlotCount'(slot_free);
    end
  end

  // First pass out, and second pass in.

  logic back_ready, back_request;
  item_t second_item;
  block_t second_block, second_a, second_b;

  aez10_back #(
    .Pairs(Pairs),
    .Slots(Slots)
  ) u_back (
    .clk_i,
    .rst_ni        (rst_sectors_n),
    .rst_buffer_ni (rst_n),
    .buffer_busy_o (buffer_busy),
    .x_valid_i     (at_x != '0 && enable),
    .x_begins_i    (lane_item[at_x[1]].begins),
    .x_ends_i      (lane_item[at_x[1]].ends),
    .w_i           (lane_a[at_x[1]]),
    .x_i           (lane_v[at_x[1]]),
    .in_valid_i    (at_in != '0 && enable),
    .in_item_i     (lane_item[at_in[1]]),
    .in_left_i     (lane_u[at_in[1]]),
    .in_right_i    (lane_b[at_in[1]]),
    .last_s_valid_i(at_last_s != '0 && enable),
    .last_s_i      (lane_v[at_last_s[1]]),
    .y_valid_i     (at_s != '0 && enable),
    .y_begins_i    (lane_item[at_s[1]].begins),
    .y_ends_i      (lane_item[at_s[1]].ends),
    .y_i           (lane_u[at_s[1]]),
    .delta_valid_i (delta_valid),
    .delta_ready_o (delta_ready),
    .delta_i       (delta),
    .mask_i        (second_mask),
    .mask_step_o   (back_step),
    .j_i           (column1),
    .j2_i          (column2),
    .valid_o       (back_request),
    .ready_i       (back_ready),
    .item_o        (second_item),
    .block_o       (second_block),
    .a_o           (second_a),
    .b_o           (second_b),
    .free_o        (slot_free)
  );

  // Into the lanes: `back` into the first that is free, `front` into the other one. The
  // keys' calls find both free.

  logic back_valid, front_valid;
  item_t back_item, front_item;
  block_t back_block, front_block;

  assign back_ready = lane_free != '0 && enable;
  assign back_valid = call_ij || (back_request && enable);
  assign back_item = call_ij ? item_t'{kind: SetupI, default: '0} : second_item;
  assign back_block = call_ij ? '0 : second_block;
  assign front_ready = enable && (&lane_free || (lane_free != '0 && !back_valid));
  assign front_valid = call_ij || call_delta_key || tweak_call || in_taken;

  always_comb begin
    front_item  = '0;
    front_block = in_data_i[255:128];
    if (call_ij) begin
      front_item.kind = SetupJ;
      front_block     = {8'h01, 120'b0};
    end else if (call_delta_key) begin
      front_item.kind = SetupD;
      front_block     = key_mask;
    end else if (tweak_call) begin
      front_item.kind = Delta;
      front_block     = sector_tweak ^ delta_mask;
    end else begin
      front_item.decrypt = waiting_decrypt;
      front_item.last    = waiting_last;
      front_item.begins  = in_pair_q == '0;
      front_item.ends    = in_pair_q == PairWidth'(Pairs - 1);
      if (in_last) begin
        front_item.kind = LastIn;
        front_block ^= zero_mask ^ (waiting_decrypt ? column2 : column1);
      end else begin
        front_item.kind = PairW;
        front_block ^= first_mask;
      end
    end
  end

  for (genvar k = 0; k < 2; k++) begin : gen_lane
    logic from_back;
    assign from_back = back_valid && (k == 0 || !lane_free[0]);
    aez10_lane #(
      .KeyBits(KeyBits)
    ) u_lane (
      .clk_i,
      .rst_ni        (rst_n),
      .busy_o        (lanes_busy[k]),
      .enable_i      (enable),
      .round_keys_i  (round_keys),
      .mask_zero_i   (zero_mask),
      .mask_pair_i   (out_mask),
      .mask_encrypt_i(zero_mask ^ column2),
      .mask_decrypt_i(zero_mask ^ column1),
      .free_o        (lane_free[k]),
      .valid_i       (from_back || (front_valid && (k == 0 || back_valid || !lane_free[0]))),
      .item_i        (from_back ? back_item : front_item),
      .block_i       (from_back ? back_block : front_block),
      .a_i           (from_back ? second_a : in_data_i[127:0]),
      .b_i           (from_back ? second_b : in_data_i[255:128]),
      .valid_o       (lane_valid[k]),
      .item_o        (lane_item[k]),
      .result_o      (lane_result[k]),
      .a_o           (lane_a[k]),
      .u_o           (lane_u[k]),
      .v_o           (lane_v[k]),
      .b_o           (lane_b[k])
    );
  end

  // Data out.

  logic [1:0] at_out;
  assign at_out = at_c | at_last_x;
  assign out_valid_o = at_out != '0;
  // What is not the result stays inside.
  assign out_data_o = out_valid_o ? {lane_a[at_out[1]], lane_v[at_out[1]]} : '0;
  assign out_done = at_last_x != '0 && out_ready_i;
  assign out_last_o = at_last_x != '0 && lane_item[at_last_x[1]].last;

endmodule
