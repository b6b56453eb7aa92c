// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XTS-AES (IEEE 1619) for data units in order, each of as many blocks as it says: their
// tweaks go through the AES cores under K2 ahead of the data, and the power of alpha starts
// again in each unit. Each of the `Cores` cores is a PEC and a PDC, and a beat is one
// block for each of them. A unit may also come with its tweak encrypted, or have no masks at
// all: ECB, under K1. Whoever has this takes keys and wipes: see sector_port.
//
// Schedule, AES-128, one unit of n beats that is taken in cycle 0:
//   1              the tweak into the PEC under K2
//   13             the mask T_0 is there, the first beat goes in
//   13 .. n+12     C or P ^ x^j T_0 into the PEC or PDC under K1
//   24 .. n+23     ^ x^j T_0 of a second chain of masks, into the queue of the output
//   25 .. n+24     out
// so n + 12 cycles from the first beat in to the last one out. In a run the tweak
// of a later unit takes the slot of one beat (two units' tweaks that of one beat
// with two cores), and nothing else comes between the beats: n + 1 (n + 1/2)
// cycles a unit.

module xts_core
  import aes_pkg::*;
#(
  // Of the longest data unit: 32 Cores to 4096.
  parameter int unsigned SectorBytes = 4096,
  parameter int unsigned KeyBits     = 128,
  // 1 or 2.
  parameter int unsigned Cores       = 1,
  // Without, there are no masks: only ECB.
  parameter bit          Masked      = 1'b1,
  // Without, no tweaks are encrypted, and there is no K2.
  parameter bit          Calls       = Masked,
  localparam int unsigned Lanes      = Cores,
  localparam int unsigned NumKeys    = Calls ? 2 : 1,
  localparam int unsigned BeatWidth  = $clog2(SectorBytes / 16 / Lanes)
) (
  input  logic clk_i,
  // Low while everything is zeroized; while everything but keys is.
  input  logic rst_ni,
  input  logic rst_sectors_ni,
  // Nothing is inside, and a key may come.
  output logic idle_o,

  // K1 || K2, or K1.
  input  logic                       key_taken_i,
  input  logic [NumKeys*KeyBits-1:0] key_i,
  output logic                       expanded_o,

  input  logic                 unit_valid_i,
  output logic                 unit_ready_o,
  input  logic [        127:0] unit_tweak_i,
  // Its beats, less one.
  input  logic [BeatWidth-1:0] unit_more_i,
  input  logic                 unit_decrypt_i,
  // The last unit of its run, whose units all have their tweaks encrypted here, or none.
  input  logic                 unit_last_i,
  // The tweak is encrypted here; otherwise it is the first mask itself, zero for ECB.
  input  logic                 unit_call_i,

  input  logic                 in_valid_i,
  output logic                 in_ready_o,
  input  logic [128*Lanes-1:0] in_data_i,

  output logic                 out_valid_o,
  input  logic                 out_ready_i,
  output logic [128*Lanes-1:0] out_data_o,
  output logic                 out_last_o
);

  localparam int unsigned Rounds = rounds(KeyBits);

  // Keys: 0 is K1, 1 is K2.

  block_t round_keys[NumKeys][Rounds+1], inverse_keys[NumKeys][Rounds+1], decrypt_keys[1][Rounds+1];
  logic [NumKeys-1:0] schedules_ready, schedules_valid;

  assign expanded_o = &schedules_valid;
  assign decrypt_keys[0] = inverse_keys[0];

  for (genvar i = 0; i < int'(NumKeys); i++) begin : gen_key
    aes_key_schedule #(
      .KeyBits(KeyBits),
      .Inverse(i == 0)
    ) u_schedule (
      .clk_i,
      .rst_ni,
      .valid_i       (key_taken_i),
      .key_i         (key_i[KeyBits*i+:KeyBits]),
      .ready_o       (schedules_ready[i]),
      .valid_o       (schedules_valid[i]),
      .round_keys_o  (round_keys[i]),
      .inverse_keys_o(inverse_keys[i])
    );
  end

  // What goes through the cores beside the blocks.

  typedef struct packed {
    // A beat of data; the first of its unit; the last of its run.
    logic             beat;
    logic             first;
    logic             last;
    // The lanes with a tweak.
    logic [Lanes-1:0] call;
  } flight_t;

  flight_t entering;
  flight_t [Rounds:0] flight_q;

  // Units and their first masks.

  logic tweaks_busy, unit_valid, unit_taken, unit_decrypt, unit_single, unit_last;
  logic [BeatWidth-1:0] unit_more;
  logic [Lanes-1:0] call_valid;
  logic [Lanes-1:0][127:0] call_block, core_block;
  block_t unit_mask;

  xts_tweaks #(
    .Lanes    (Lanes),
    .BeatWidth(BeatWidth),
    .Calls    (Calls)
  ) u_tweaks (
    .clk_i,
    .rst_ni        (rst_sectors_ni),
    .busy_o        (tweaks_busy),
    .unit_valid_i,
    .unit_ready_o,
    .unit_tweak_i,
    .unit_more_i,
    .unit_decrypt_i,
    .unit_last_i,
    .unit_call_i,
    .keys_ready_i  (expanded_o),
    .call_valid_o  (call_valid),
    .call_block_o  (call_block),
    .result_valid_i(flight_q[Rounds].call),
    .result_i      (core_block),
    .unit_valid_o  (unit_valid),
    .unit_ready_i  (unit_taken),
    .unit_mask_o   (unit_mask),
    .unit_more_o   (unit_more),
    .unit_single_o (unit_single),
    .unit_decrypt_o(unit_decrypt),
    .unit_last_o   (unit_last)
  );

  // Data in: calls come first. A unit is taken with its last beat. Whether a beat is the
  // first or the last of its unit is known before it comes.

  logic in_first_q, in_last_q, in_last, in_taken, out_room;
  logic [BeatWidth-1:0] in_more_q, in_more;
  logic [Lanes-1:0][127:0] in_masks, out_masks;

  assign in_ready_o = unit_valid && out_room && !call_valid[0];
  assign in_taken = in_valid_i && in_ready_o;
  assign in_more = in_first_q ? unit_more : in_more_q;
  assign in_last = in_first_q ? unit_single : in_last_q;
  assign unit_taken = in_taken && in_last;

  // The cores.

  logic flying;

  for (genvar i = 0; i < int'(Lanes); i++) begin : gen_core
    logic unused_valid, unused_tag;
    aes_duplex #(
      .KeyBits(KeyBits),
      .NumKeys(NumKeys)
    ) u_core (
      .clk_i,
      .rst_ni        (rst_sectors_ni),
      .round_keys_i  (round_keys),
      .inverse_keys_i(decrypt_keys),
      .valid_i       (in_taken || call_valid[i]),
      .decrypt_i     (unit_decrypt && !call_valid[0]),
      .block_i       (call_valid[0] ? call_block[i] : in_data_i[128*i+:128] ^ in_masks[i]),
      .key_i         (Calls && call_valid[0]),
      .tag_i         (1'b0),
      .valid_o       (unused_valid),
      .block_o       (core_block[i]),
      .tag_o         (unused_tag)
    );
  end

  assign entering = '{
          beat: in_taken,
          first: in_first_q,
          last: in_last && unit_last,
          call: call_valid
      };

  always_comb begin
    flying = 1'b0;
    for (int i = 0; i <= int'(Rounds); i++) flying = flying || flight_q[i].beat;
  end

  always_ff @(posedge clk_i or negedge rst_sectors_ni) begin
    if (!rst_sectors_ni) begin
      in_first_q <= 1'b1;
      in_last_q  <= 1'b0;
      in_more_q  <= '0;
      flight_q   <= '0;
    end else begin
      if (in_taken) begin
        in_first_q <= in_last;
        in_last_q  <= in_more == BeatWidth'(1);
        in_more_q  <= in_more - 1'b1;
      end
      flight_q <= {flight_q[Rounds-1:0], entering};
    end
  end

  // Masks, for what goes in and once more for what comes out.

  if (Masked) begin : gen_masks
    // A place for each beat in the cores, since it may be a unit.
    localparam int unsigned Depth = 16;
    logic unused_busy, write, read;
    logic [$clog2(Depth)-1:0] write_q, read_q, read_addr[1];
    block_t read_mask[1], out_mask_q;

    assign write = in_taken && in_first_q;
    // In the cycle before.
    assign read = flight_q[Rounds-1].beat && flight_q[Rounds-1].first;
    assign read_addr[0] = read_q;

    mask_chain #(
      .Lanes(Lanes)
    ) u_in_masks (
      .clk_i,
      .rst_ni       (rst_sectors_ni),
      .step_i       (in_taken),
      .start_i      (in_first_q),
      .start_value_i(unit_mask),
      .masks_o      (in_masks)
    );

    // Wiped before the output's queue, without which nothing goes in.
    wiped_table #(
      .Width(128),
      .Depth(Depth)
    ) u_table (
      .clk_i,
      .rst_ni,
      .busy_o      (unused_busy),
      .write_i     (write),
      .write_addr_i(write_q),
      .write_data_i(unit_mask),
      .read_addr_i (read_addr),
      .read_data_o (read_mask)
    );

    mask_chain #(
      .Lanes(Lanes)
    ) u_out_masks (
      .clk_i,
      .rst_ni       (rst_sectors_ni),
      .step_i       (flight_q[Rounds].beat),
      .start_i      (flight_q[Rounds].first),
      .start_value_i(out_mask_q),
      .masks_o      (out_masks)
    );

    always_ff @(posedge clk_i or negedge rst_sectors_ni) begin
      if (!rst_sectors_ni) begin
        write_q    <= '0;
        read_q     <= '0;
        out_mask_q <= '0;
      end else begin
        if (write) write_q <= write_q + 1'b1;
        if (read) read_q <= read_q + 1'b1;
        if (read) out_mask_q <= read_mask[0];
      end
    end
  end else begin : gen_no_masks
    logic unused;
    assign unused = ^unit_mask;
    assign in_masks = '0;
    assign out_masks = '0;
  end

  // Data out.

  logic out_busy;

  credit_fifo #(
    .Width(128 * Lanes + 1),
    .Depth(32)
  ) u_out (
    .clk_i,
    .rst_ni,
    .busy_o (out_busy),
    .take_i (in_taken),
    .room_o (out_room),
    .valid_i(flight_q[Rounds].beat),
    .data_i ({flight_q[Rounds].last, core_block ^ out_masks}),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o ({out_last_o, out_data_o})
  );

  assign idle_o = &schedules_ready && !tweaks_busy && !flying && !out_valid_o && !out_busy;

endmodule
