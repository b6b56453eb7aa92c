// SPDX-License-Identifier: MIT OR Apache-2.0
//
// AEZ10 (AEZ-core of whole AES calls, see aez10_pkg) for extended requests, with two
// PEC. Each is a lane in which the calls of a pair of blocks that follow from each
// other go round (aez10_lane), so that its slots are either taken by such a call or
// free for the next one in this order, at most one of each line a cycle:
//   back    the one call between the passes; the second pass, a pair of the sector
//           buffer or, after them, the last pair (aez10_back)
//   front   the tweak's call for a later sector; the first pass, a pair of the input
// Each line has its next call in a register, which it leaves for the first slot. A pair
// takes 2 slots in the first pass and 3 in the second, so that one can come in each cycle
// and two can go out in three. Pairs come out in the order in which they were taken, since
// all take the same time, into a queue in which each has a place from the start.
//
// Schedule, AES-128, a single 4096-byte sector, its request and first pair at the ports in
// cycle 0:
//   5 .. 131       first pass: W_i 11 cycles later, X_i 22
//   132            the last pair, for M_x ^ E(M_y)
//   155 .. 166     the call for S_y; X_127 was there in 153, S_x in 154
//   168 .. 349     second pass: 22 pairs every 33 cycles into the two lanes
//   350            the last pair; its first call is done in 361, as is Y
//   202 .. 384     out
// In a run a sector takes 641 slots of the two lanes: 5 for each of 127 pairs, 3 for the calls of
// the last one and 1 in which that waits, 1 each for S_y and the tweak. That is 320.5 cycles,
// and for 512 bytes, of 15 pairs, 81 slots and 40.5. Measured are 323 and 41.75: a few slots stay
// free when both lanes have one and only one line has a call. What the first pass has while a
// sector waits for S_y, the second has after it, so that the wait costs nothing in a run.

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

  // What comes out of the lanes. Of most kinds only one is out in a cycle.

  logic [1:0] lane_free, lane_valid;
  item_t [1:0] lane_item;
  logic [1:0][127:0] lane_result, lane_a, lane_b, lane_u, lane_v;

  function automatic logic [1:0] which(kind_e kind);
    return {lane_valid[1] && lane_item[1].kind == kind, lane_valid[0] && lane_item[0].kind == kind};
  endfunction

  logic [1:0] at_i, at_d, at_delta, at_x, at_s, at_c, at_in, at_last_s, at_last_x;
  assign at_i = which(SetupI);
  assign at_d = which(SetupD);
  assign at_delta = which(Delta);
  assign at_x = which(PairX);
  assign at_s = which(PairS);
  assign at_c = which(PairC);
  assign at_in = which(LastIn);
  assign at_last_s = which(LastS);
  assign at_last_x = which(LastX);

  // Ports and keys.

  block_t round_keys[1][Rounds+1];
  block_t i, j, delta_key;
  logic rst_n, rst_sectors_n, idle, key_taken;
  logic [KeyWidth-1:0] taken_key;
  logic schedule_ready, masks_busy, buffer_busy, out_busy, busy;
  logic [1:0] lanes_busy;
  logic call_ij, call_delta_key, load_masks, tweaks_ready, pairs_ready;
  logic req_valid, req_ready, req_decrypt, in_valid, in_ready;
  logic [31:0] req_sectors;
  block_t req_tweak, in_left, in_right;

  // Lanes, memories and the output's queue are not reset with a new key: nothing is under way in
  // them then.
  assign idle = schedule_ready && !masks_busy && !buffer_busy && !out_busy && lanes_busy == '0
      && !busy;

  sector_port #(
    .KeyWidth (KeyWidth),
    .DataWidth(256)
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
    .idle_i        (idle),
    .key_taken_o   (key_taken),
    .key_o         (taken_key),
    .req_valid_o   (req_valid),
    .req_ready_i   (req_ready),
    .req_o         ({req_decrypt, req_sectors, req_tweak}),
    .in_valid_o    (in_valid),
    .in_ready_i    (in_ready),
    .in_data_o     ({in_right, in_left})
  );

  aez10_keys #(
    .KeyBits(KeyBits)
  ) u_keys (
    .clk_i,
    .rst_ni       (rst_n),
    .key_valid_i  (key_taken),
    .key_i         (taken_key),
    .ready_o      (schedule_ready),
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
  logic [1:0] out_step;
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
    .step_i   ({out_step != '0, back_step, in_step}),
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

  logic tweak_request, tweak_call, front_room;
  logic delta_valid, delta_ready, waiting_valid, waiting_decrypt, waiting_last;
  logic in_taken, in_last_q, out_done_q;
  block_t sector_tweak, delta;

  assign tweak_call = tweak_request && tweaks_ready && front_room;

  sector_tweaks #(
    .TweakStep(TweakStep),
    .Depth    (Slots),
    .WithTweak(WithTweak)
  ) u_tweaks (
    .clk_i,
    .rst_ni             (rst_sectors_n),
    .req_valid_i        (req_valid),
    .req_ready_o        (req_ready),
    .req_tweak_i        (req_tweak),
    .req_sectors_i      (req_sectors),
    .req_decrypt_i      (req_decrypt),
    .call_valid_o       (tweak_request),
    .call_ready_i       (tweak_call),
    .call_tweak_o       (sector_tweak),
    .call_result_valid_i(at_delta != '0),
    .call_result_i      (lane_result[at_delta[1]] ^ delta_key),
    .waiting_valid_o    (waiting_valid),
    .waiting_ready_i    (in_taken && in_last_q),
    .waiting_decrypt_o  (waiting_decrypt),
    .waiting_last_o     (waiting_last),
    .result_valid_o     (delta_valid),
    .result_ready_i     (delta_ready),
    .result_o           (delta),
    .done_i             (out_done_q),
    .busy_o             (busy)
  );

  // First pass in.

  logic [PairWidth-1:0] in_pair_q;
  logic [SlotCount-1:0] slots_q;
  logic in_begins_q, in_ends_q, slot_free;

  assign in_ready = waiting_valid && pairs_ready && front_room && !tweak_request
      && !(in_begins_q && slots_q == SlotCount'(Slots));
  assign in_taken = in_valid && in_ready;
  assign in_step = in_taken && !in_last_q;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      in_pair_q   <= '0;
      in_begins_q <= 1'b1;
      in_ends_q   <= 1'b0;
      in_last_q   <= 1'b0;
      slots_q     <= '0;
    end else begin
      if (in_taken) begin
        in_pair_q   <= in_last_q ? '0 : in_pair_q + 1'b1;
        in_begins_q <= in_last_q;
        in_ends_q   <= in_pair_q == PairWidth'(Pairs - 2);
        in_last_q   <= in_ends_q;
      end
      slots_q <= slots_q + SlotCount'(in_taken && in_begins_q) - SlotCount'(slot_free);
    end
  end

  // First pass out, and second pass in.

  logic back_room, back_valid, out_take, out_room;
  call_t back_call;
  block_t y_sum;

  aez10_back #(
    .Pairs(Pairs),
    .Slots(Slots)
  ) u_back (
    .clk_i,
    .rst_ni        (rst_sectors_n),
    .rst_buffer_ni (rst_n),
    .buffer_busy_o (buffer_busy),
    .x_valid_i     (at_x != '0),
    .x_begins_i    (lane_item[at_x[1]].begins),
    .x_ends_i      (lane_item[at_x[1]].ends),
    .w_i           (lane_a[at_x[1]]),
    .x_i           (lane_v[at_x[1]]),
    .in_valid_i    (at_in != '0),
    .in_decrypt_i  (lane_item[at_in[1]].decrypt),
    .in_last_i     (lane_item[at_in[1]].last),
    .in_left_i     (lane_u[at_in[1]]),
    .in_right_i    (lane_b[at_in[1]]),
    .last_s_valid_i(at_last_s != '0),
    .s_x_i         (lane_a[at_last_s[1]]),
    .s_y_i         (lane_v[at_last_s[1]]),
    .y_valid_i     (at_s != '0),
    .y_begins_i    (lane_item[at_s[1]].begins),
    .y_i           (lane_u[at_s[1]]),
    .y_sum_o       (y_sum),
    .delta_valid_i (delta_valid),
    .delta_ready_o (delta_ready),
    .delta_i       (delta),
    .mask_i        (second_mask),
    .mask_step_o   (back_step),
    .j_i           (column1),
    .j2_i          (column2),
    .valid_o       (back_valid),
    .ready_i       (back_room),
    .call_o        (back_call),
    .room_i        (out_room),
    .take_o        (out_take),
    .free_o        (slot_free)
  );

  // The next call of each line, in a register until a slot is free: for `back` in the first
  // lane that has one, for `front` in the other. The keys' calls find both registers free.

  logic front_valid, back_valid_q, front_valid_q;
  call_t front_call, back_q, front_q;

  assign back_room = !back_valid_q || lane_free != '0;
  assign front_room = !front_valid_q || &lane_free || (lane_free != '0 && !back_valid_q);
  assign front_valid = call_ij || call_delta_key || tweak_call || in_taken;

  always_comb begin
    front_call = '{item: '0, block: in_right, a: in_left, b: in_right};
    if (call_ij) begin
      front_call.item.kind = SetupJ;
      front_call.block     = {8'h01, 120'b0};
    end else if (call_delta_key) begin
      front_call.item.kind = SetupD;
      front_call.block     = key_mask;
    end else if (tweak_request) begin
      front_call.item.kind = Delta;
      front_call.block     = sector_tweak ^ delta_mask;
    end else begin
      front_call.item = '{
          kind: in_last_q ? LastIn : PairW,
          decrypt: waiting_decrypt,
          last: waiting_last,
          begins: in_begins_q,
          ends: in_ends_q
      };
      if (!in_last_q) front_call.block ^= first_mask;
      else front_call.block ^= zero_mask ^ (waiting_decrypt ? column2 : column1);
    end
  end

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      back_valid_q  <= 1'b0;
      back_q        <= '0;
      front_valid_q <= 1'b0;
      front_q       <= '0;
    end else begin
      if (back_room) begin
        back_valid_q <= call_ij || back_valid;
        back_q       <= call_ij ? '{item: '{kind: SetupI, default: '0}, default: '0} : back_call;
      end
      if (front_room) begin
        front_valid_q <= front_valid;
        front_q       <= front_call;
      end
    end
  end

  logic [1:0] from_back, from_front;
  assign from_back = {back_valid_q && !lane_free[0], back_valid_q};
  assign from_front[0] = front_valid_q && !back_valid_q;
  assign from_front[1] = front_valid_q && back_valid_q == lane_free[0];

  for (genvar k = 0; k < 2; k++) begin : gen_lane
    aez10_lane #(
      .KeyBits(KeyBits)
    ) u_lane (
      .clk_i,
      .rst_ni          (rst_n),
      .busy_o          (lanes_busy[k]),
      .round_keys_i    (round_keys),
      .mask_zero_i     (zero_mask),
      .mask_pair_i     (out_mask),
      .mask_pair_step_o(out_step[k]),
      .mask_encrypt_i  (zero_mask ^ column2),
      .mask_decrypt_i  (zero_mask ^ column1),
      .y_i             (y_sum),
      .free_o          (lane_free[k]),
      .valid_i         (from_back[k] || from_front[k]),
      .call_i          (from_back[k] ? back_q : front_q),
      .valid_o         (lane_valid[k]),
      .item_o          (lane_item[k]),
      .result_o        (lane_result[k]),
      .a_o             (lane_a[k]),
      .u_o             (lane_u[k]),
      .v_o             (lane_v[k]),
      .b_o             (lane_b[k])
    );
  end

  // Data out.

  logic [1:0] at_out;
  logic out_end;
  assign at_out = at_c | at_last_x;

  credit_fifo #(
    .Width(258),
    .Depth(32)
  ) u_out (
    .clk_i,
    .rst_ni (rst_n),
    .busy_o (out_busy),
    .take_i (out_take),
    .room_o (out_room),
    .valid_i(at_out != '0),
    .data_i ({
      at_last_x != '0,
      at_last_x != '0 && lane_item[at_last_x[1]].last,
      lane_a[at_out[1]],
      lane_v[at_out[1]]
    }),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o ({out_end, out_last_o, out_data_o})
  );

  always_ff @(posedge clk_i or negedge rst_sectors_n) begin
    if (!rst_sectors_n) out_done_q <= 1'b0;
    else out_done_q <= out_valid_o && out_ready_i && out_end;
  end

endmodule
