// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Requests through the cipher, in order. The issuing side goes through a request's units,
// counting tweaks, and gives them to the core as early as it takes them, so that tweaks are
// encrypted before the data arrives; it may be one request ahead. The data side gives the
// core the blocks that come from the source.
//
// A request's data may end before all of its blocks. Then no more units are issued, and those
// that have been get zeros; what comes out is told apart by the request's verdict, which is
// always there before the last of its blocks: that one is not given to the core before it is
// known how the data ends, and an end takes no effect before there is such a block.
//
// A request with a key other than the one loaded waits until all before it is out of the core.
// After `forget_i` none is loaded.

module engine_cipher
  import engine_pkg::*;
#(
  // As engine_core's.
  parameter int unsigned Level     = 3,
  parameter int unsigned Ciphers   = 3,
  parameter int unsigned KeyBits   = 256,
  parameter int unsigned XtsBytes  = 4096,
  parameter int unsigned UnitBytes = 4096
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Wiping after reset is over.
  output logic wiped_o,

  input  logic     request_valid_i,
  output logic     request_ready_o,
  input  request_t request_i,

  input  logic  item_valid_i,
  output logic  item_ready_o,
  input  item_t item_i,

  // The slot of the next request, and its key. `forget_i`: keys have changed, so what is
  // loaded is wiped; no request is under way then.
  output logic [         4:0] slot_o,
  input  logic [SlotBits-1:0] key_i,
  input  logic [         3:0] key_cipher_i,
  input  logic                forget_i,

  output logic     out_valid_o,
  input  logic     out_ready_i,
  output block_t   out_block_o,
  output logic     verdict_valid_o,
  input  logic     verdict_ready_i,
  output verdict_t verdict_o,

  // For counters: the core could take a block, and there is none; a block waits to be taken;
  // requests with data are under way.
  output logic starved_o,
  output logic blocked_o,
  output logic core_busy_o
);

  // Blocks of ECB that are a unit for the core.
  localparam int unsigned Piece = 32;
  // Of blocks that were issued, and not yet given to the core: some units; of those inside.
  localparam int unsigned OwedWidth = 12;
  localparam int unsigned InsideWidth = 14;

  // ---- Requests ----

  typedef struct packed {
    logic [3:0]  number;
    status_t     status;
    logic        empty;
    logic        decrypt;
    mode_e       mode;
    logic [4:0]  slot;
    logic [8:0]  unit_blocks;
    blocks_t     blocks;
    block_t      tweak;
    logic [15:0] step;
  } asked_t;

  asked_t asked;
  logic asked_valid, start;
  logic [1:0] unused_asked;

  // The rest is for others.
  logic unused_request;
  assign unused_request = ^request_i;

  stream_fifo #(
    .Width($bits(asked_t)),
    .Depth(2)
  ) u_requests (
    .clk_i,
    .rst_ni,
    .valid_i(request_valid_i),
    .ready_o(request_ready_o),
    .data_i ({
      request_i.number,
      request_i.status,
      request_i.empty,
      request_i.decrypt,
      request_i.mode,
      request_i.slot,
      request_i.unit_blocks,
      request_i.blocks,
      request_i.tweak,
      request_i.step
    }),
    .valid_o(asked_valid),
    .ready_i(start),
    .data_o (asked),
    .count_o(unused_asked)
  );

  // ---- What is under way: two requests, used in turn ----

  // The one that is issued (or is next), whose items are taken, and whose blocks go in.
  logic issue_q, take_q, feed_q;
  // It is started; all units that there will be are issued; the end of its data has come.
  logic [1:0] valid_q, final_q, ended_q, empty_q;
  logic [1:0][3:0] number_q;
  status_t [1:0] status_q;
  // Blocks of its unit, less one; that came from the source; that were issued.
  logic [1:0][7:0] more_q;
  blocks_t [1:0] got_q, issued_q;
  // Issued, and not yet given to the core.
  logic [1:0][OwedWidth-1:0] owed_q;

  // ---- Issuing ----

  logic active_q, unit_valid_q, unit_ready, unit_room, stop, push, push_last;
  mode_e mode_q, unit_mode_q;
  logic decrypt_q, unit_decrypt_q;
  logic [8:0] unit_blocks_q, piece;
  blocks_t left_q;
  block_t tweak_q, unit_tweak_q;
  logic [15:0] step_q;
  logic [7:0] unit_more_q;

  // The key.
  logic loaded_q, key_valid, key_ready, key_fits, empty_core;
  logic [4:0] slot_q;
  logic [InsideWidth-1:0] inside_q;

  assign slot_o = asked.slot;
  assign key_fits = loaded_q && slot_q == asked.slot;
  assign empty_core = valid_q == '0 && inside_q == '0 && !unit_valid_q;
  assign key_valid = asked_valid && !asked.empty && !key_fits && empty_core && !forget_i;
  assign start = asked_valid && !active_q && !valid_q[issue_q] && (asked.empty || key_fits)
      && !forget_i;

  // At least two blocks are owed then, so that one of them can wait for the verdict.
  assign stop = active_q && ended_q[issue_q] && owed_q[issue_q][OwedWidth-1:1] != '0;
  assign unit_room = !unit_valid_q || unit_ready;
  assign push = active_q && unit_room && !stop;
  assign push_last = left_q <= blocks_t'(piece);
  always_comb begin
    piece = unit_blocks_q;
    if (mode_q == ModeEcb) piece = left_q < blocks_t'(Piece) ? left_q[8:0] : 9'(Piece);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      issue_q        <= 1'b0;
      active_q       <= 1'b0;
      mode_q         <= ModeEcb;
      decrypt_q      <= 1'b0;
      unit_blocks_q  <= '0;
      left_q         <= '0;
      tweak_q        <= '0;
      step_q         <= '0;
      unit_valid_q   <= 1'b0;
      unit_mode_q    <= ModeEcb;
      unit_decrypt_q <= 1'b0;
      unit_tweak_q   <= '0;
      unit_more_q    <= '0;
      loaded_q       <= 1'b0;
      slot_q         <= '0;
    end else begin
      if (start) begin
        active_q      <= !asked.empty;
        mode_q        <= asked.mode;
        decrypt_q     <= asked.decrypt;
        unit_blocks_q <= asked.unit_blocks;
        left_q        <= asked.blocks;
        tweak_q       <= asked.tweak;
        step_q        <= asked.step;
      end
      if (stop || (push && push_last)) active_q <= 1'b0;
      if (stop || (push && push_last) || (start && asked.empty)) issue_q <= !issue_q;
      if (unit_room) unit_valid_q <= push;
      if (push) begin
        left_q         <= left_q - blocks_t'(piece);
        tweak_q        <= tweak_q + 128'(step_q);
        unit_mode_q    <= mode_q;
        unit_decrypt_q <= decrypt_q;
        unit_tweak_q   <= tweak_q;
        unit_more_q    <= 8'(piece - 1'b1);
      end
      if (forget_i) loaded_q <= 1'b0;
      else if (key_valid) loaded_q <= key_ready;
      if (key_valid && key_ready) slot_q <= asked.slot;
    end
  end

  // ---- Blocks from the source ----

  logic hold_valid_q, hold_owner_q, take_block, take_end;
  block_t hold_q;
  logic feed, feed_hold, feed_valid, in_ready, last_owed, push_verdict, sent_q, finish;

  // A block waits here until the core takes it, and the last one of all until it is known how
  // the data ends.
  assign item_ready_o = valid_q[take_q] && !ended_q[take_q]
      && (item_i.last || !hold_valid_q || (feed && feed_hold));
  assign take_block = item_valid_i && item_ready_o && !item_i.last;
  assign take_end = item_valid_i && item_ready_o && item_i.last;

  assign feed_hold = hold_valid_q && hold_owner_q == feed_q;
  assign last_owed = final_q[feed_q] && owed_q[feed_q] == OwedWidth'(1);
  assign feed_valid = owed_q[feed_q] != '0 && (feed_hold || ended_q[feed_q])
      && (!last_owed || sent_q || push_verdict);
  assign feed = feed_valid && in_ready;

  // ---- Verdicts ----

  logic [1:0] verdicts;
  logic unused_verdict_ready;
  verdict_t verdict;

  assign push_verdict = valid_q[feed_q] && ended_q[feed_q] && final_q[feed_q] && !sent_q
      && verdicts != 2'd2;
  // Units are powers of two.
  assign verdict = '{
          number: number_q[feed_q],
          status: status_q[feed_q],
          good: got_q[feed_q] & ~blocks_t'(more_q[feed_q]),
          issued: issued_q[feed_q]
      };
  assign finish = (sent_q || push_verdict)
      && (owed_q[feed_q] == '0 || (owed_q[feed_q] == OwedWidth'(1) && feed));

  stream_fifo #(
    .Width($bits(verdict_t)),
    .Depth(2)
  ) u_verdicts (
    .clk_i,
    .rst_ni,
    .valid_i(push_verdict),
    .ready_o(unused_verdict_ready),
    .data_i (verdict),
    .valid_o(verdict_valid_o),
    .ready_i(verdict_ready_i),
    .data_o (verdict_o),
    .count_o(verdicts)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      take_q       <= 1'b0;
      feed_q       <= 1'b0;
      hold_valid_q <= 1'b0;
      hold_owner_q <= 1'b0;
      hold_q       <= '0;
      sent_q       <= 1'b0;
      inside_q     <= '0;
    end else begin
      if (take_end) take_q <= !take_q;
      if (finish) feed_q <= !feed_q;
      if (take_block) begin
        hold_valid_q <= 1'b1;
        hold_owner_q <= take_q;
        hold_q       <= item_i.block;
      end else if (feed && feed_hold) begin
        hold_valid_q <= 1'b0;
      end
      if (finish) sent_q <= 1'b0;
      else if (push_verdict) sent_q <= 1'b1;
      inside_q <= inside_q + InsideWidth'(feed) - InsideWidth'(out_valid_o && out_ready_i);
    end
  end

  for (genvar i = 0; i < 2; i++) begin : gen_under_way
    logic started, pushed, fed;
    assign started = start && issue_q == i[0];
    assign pushed = push && issue_q == i[0];
    assign fed = feed && feed_q == i[0];
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        valid_q[i]  <= 1'b0;
        final_q[i]  <= 1'b0;
        ended_q[i]  <= 1'b0;
        empty_q[i]  <= 1'b0;
        number_q[i] <= '0;
        status_q[i] <= '0;
        more_q[i]   <= '0;
        got_q[i]    <= '0;
        issued_q[i] <= '0;
        owed_q[i]   <= '0;
      end else if (started) begin
        valid_q[i]  <= 1'b1;
        final_q[i]  <= asked.empty;
        ended_q[i]  <= 1'b0;
        empty_q[i]  <= asked.empty;
        number_q[i] <= asked.number;
        status_q[i] <= asked.status;
        more_q[i]   <= 8'(asked.unit_blocks - 1'b1);
        got_q[i]    <= '0;
        issued_q[i] <= '0;
        owed_q[i]   <= '0;
      end else begin
        if (finish && feed_q == i[0]) valid_q[i] <= 1'b0;
        if (issue_q == i[0] && (stop || (push && push_last))) final_q[i] <= 1'b1;
        if (take_block && take_q == i[0]) got_q[i] <= got_q[i] + 1'b1;
        if (take_end && take_q == i[0]) begin
          ended_q[i] <= 1'b1;
          // An empty request's status is its own.
          if (!empty_q[i]) status_q[i] <= item_i.status;
        end
        if (pushed) issued_q[i] <= issued_q[i] + blocks_t'(piece);
        owed_q[i] <= owed_q[i] + (pushed ? OwedWidth'(piece) : '0) - OwedWidth'(fed);
      end
    end
  end

  // ---- The core ----

  logic core_valid, core_room, unused_out_ready;
  block_t core_block;
  logic [1:0] outs;

  engine_core #(
    .Level    (Level),
    .Ciphers  (Ciphers),
    .KeyBits  (KeyBits),
    .XtsBytes (XtsBytes),
    .UnitBytes(UnitBytes)
  ) u_core (
    .clk_i,
    .rst_ni,
    .clear_i       (forget_i),
    .wiped_o,
    .key_valid_i   (key_valid),
    .key_ready_o   (key_ready),
    .key_i,
    .key_cipher_i,
    .unit_valid_i  (unit_valid_q),
    .unit_ready_o  (unit_ready),
    .unit_tweak_i  (unit_tweak_q),
    .unit_more_i   (unit_more_q),
    .unit_decrypt_i(unit_decrypt_q),
    .unit_mode_i   (unit_mode_q),
    .in_valid_i    (feed_valid),
    .in_ready_o    (in_ready),
    .in_block_i    (feed_hold ? hold_q : '0),
    .out_valid_o   (core_valid),
    .out_ready_i   (core_room),
    .out_block_o   (core_block)
  );

  // Whether the core goes on comes out of registers.
  assign core_room = outs != 2'd2;
  stream_fifo #(
    .Width(128),
    .Depth(2)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(core_valid && core_room),
    .ready_o(unused_out_ready),
    .data_i (core_block),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o (out_block_o),
    .count_o(outs)
  );

  assign starved_o = in_ready && owed_q[feed_q] != '0 && !feed_valid;
  assign blocked_o = out_valid_o && !out_ready_i;
  assign core_busy_o = inside_q != '0 || (valid_q & ~empty_q) != '0;

endmodule
