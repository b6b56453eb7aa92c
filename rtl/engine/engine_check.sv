// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From submissions to requests: gathers the blocks of one, checks it, and gives the
// request to the source, the cipher and the destination, each when it takes it. A
// submission with a mistake is a request without data that carries its status, so that it
// completes in its turn.
//
// Two cycles: sums and products first, with what the key slot holds; then the status, the
// first of those that hold in the order of registers.toml.

module engine_check
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  parameter int unsigned Level       = 3,
  parameter int unsigned Rings       = 1,
  parameter int unsigned Slots       = 1,
  parameter int unsigned AddressBits = 64,
  // Of the largest unit of op XTS.
  parameter int unsigned XtsBytes    = 512,
  // Of a unit in other ciphers than XTS.
  parameter int unsigned UnitBytes   = 4096
) (
  input logic clk_i,
  input logic rst_ni,

  // Submissions, four blocks each.
  input  logic       block_valid_i,
  output logic       block_ready_o,
  input  block_t     block_i,
  input  logic       block_error_i,
  input  logic [2:0] ring_i,
  output logic       used_o,

  // What becomes of the submission of a ring, as engine_ring has it, and that the ring
  // is turned on again.
  output logic [Rings-1:0] accept_o,
  output logic [Rings-1:0] drop_o,
  output logic             lost_o,
  input  logic [Rings-1:0] start_i,

  // Key slots, which stand still while a request is under way.
  input  logic [31:0] slot_valid_i,
  input  logic [31:0][3:0] slot_cipher_i,
  // They want to change: nothing more goes on.
  input  logic        hold_i,
  output logic        pipe_idle_o,

  output logic     [2:0] request_valid_o,
  input  logic     [2:0] request_ready_i,
  output request_t       request_o,
  // A request has come to its end.
  input  logic           ended_i
);

  // Requests between here and their end; their numbers have four bits.
  localparam int unsigned Most = 12;
  localparam int unsigned CountWidth = $clog2(Most + 1);

  // Gathering.

  logic [1:0] place_q;
  logic full_q, error_q, take;
  logic [511:0] sqe_q;
  assign block_ready_o = !full_q;
  assign take = block_valid_i && block_ready_o;

  logic accept, drop;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      place_q <= '0;
      full_q  <= 1'b0;
      error_q <= 1'b0;
      sqe_q   <= '0;
    end else if (take) begin
      place_q                         <= place_q + 1'b1;
      full_q                          <= &place_q;
      error_q                         <= block_error_i || (error_q && place_q != '0);
      sqe_q[128*32'(place_q)+:128] <= block_i;
    end else if (accept || drop) begin
      full_q <= 1'b0;
    end
  end

  logic [7:0] op, flags, slot, log2_unit;
  logic [15:0] step;
  logic [31:0] units, source_entries, destination_entries;
  logic [63:0] source, destination;
  block_t tweak;
  assign op = sqe_q[8*SqeOp+:8];
  assign flags = sqe_q[8*SqeFlags+:8];
  assign slot = sqe_q[8*SqeSlot+:8];
  assign log2_unit = sqe_q[8*SqeLog2Unit+:8];
  assign step = sqe_q[8*SqeStep+:16];
  assign units = sqe_q[8*SqeUnits+:32];
  assign tweak = sqe_q[8*SqeTweak+:128];
  assign source = sqe_q[8*SqeSource+:64];
  assign destination = sqe_q[8*SqeDestination+:64];
  assign source_entries = sqe_q[8*SqeSourceEntries+:32];
  assign destination_entries = sqe_q[8*SqeDestinationEntries+:32];

  logic is_nop, is_ecb, is_xts, is_run;
  assign is_nop = op == 8'(OpNop);
  assign is_ecb = op == 8'(OpEcb);
  assign is_xts = op == 8'(OpXts) && Level >= 2;
  assign is_run = op == 8'(OpRun) && Level >= 3;

  logic in_place, source_list, destination_list;
  assign in_place = flags[FlagInPlace];
  assign source_list = flags[FlagSourceList];
  assign destination_list = flags[FlagDestinationList];

  // A ring that lost a submission uses none of those behind it.
  logic [Rings-1:0] mine, behind_q;
  logic stage_q, request_free, start;
  logic [CountWidth-1:0] count_q;
  always_comb begin
    for (int i = 0; i < int'(Rings); i++) mine[i] = ring_i == 3'(i);
  end
  assign drop = full_q && !stage_q && (error_q || (mine & behind_q) != '0);
  assign lost_o = error_q && (mine & behind_q) == '0;
  assign drop_o = drop ? mine : '0;
  assign accept_o = accept ? mine : '0;
  assign used_o = accept || drop;
  assign start = full_q && !stage_q && !drop && !hold_i && count_q != CountWidth'(Most);
  assign accept = stage_q && request_free;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) behind_q <= '0;
    else begin
      behind_q <= (behind_q | (error_q ? drop_o : '0)) & ~start_i;
    end
  end

  // The first cycle.

  // The product of the steps: units are at most 2^17 where it matters.
  localparam int unsigned StepsWidth = LogBytes - 9 + 1;
  logic [16+StepsWidth-1:0] steps, steps_q;
  logic [StepsWidth-1:0] units_after;
  assign units_after = units[StepsWidth-1:0] - 1'b1;
  assign steps = step * units_after;

  // Bytes, where units and their size are right.
  logic [LogBytes:0] bytes;
  logic [3:0] log2_unit_blocks;
  assign log2_unit_blocks = is_ecb ? '0 : 4'(log2_unit - 8'd4);
  assign bytes = (LogBytes + 1)'(units) << (log2_unit_blocks + 4'd4);

  // Beyond the end of what an address can say.
  function automatic logic beyond(logic [63:0] address, logic [LogBytes:0] length);
    logic [64:0] last;
    last = {1'b0, address} + 65'(length);
    return last > (65'b1 << AddressBits);
  endfunction

  function automatic logic entries_bad(logic [31:0] entries);
    return entries == '0 || entries > 32'(1 << LogEntries);
  endfunction

  function automatic logic [LogBytes:0] extent(logic list, logic [31:0] entries,
                                               logic [LogBytes:0] data);
    // Too many entries are for LIST to say.
    if (!list) return data;
    return entries_bad(entries) ? '0 : {entries[LogBytes-4:0], 4'b0};
  endfunction

  logic unit_sized, too_many, slot_there;
  logic [3:0] slot_cipher;
  assign unit_sized = log2_unit >= 8'd9 && log2_unit <= 8'd12;
  assign too_many = units > (32'(1 << (LogBytes - 4)) >> log2_unit_blocks);
  assign slot_there = 32'(slot) < Slots && slot_valid_i[slot[4:0]];
  assign slot_cipher = slot_cipher_i[slot[4:0]];

  logic reserved, reserved_q, unit_bad, unit_bad_q, units_bad_q, alignment_q;
  logic slot_bad_q, cipher_bad_q, list_bad_q;

  always_comb begin
    // Fields that an operation does not have.
    reserved = flags[7:5] != '0 || sqe_q[8*SqeZero0+:16] != '0 || sqe_q[8*SqeZero1+:32] != '0;
    if (!is_run && step != '0) reserved = 1'b1;
    if (is_ecb && tweak != '0) reserved = 1'b1;
    if (!source_list && source_entries != '0) reserved = 1'b1;
    if (!destination_list && destination_entries != '0) reserved = 1'b1;
    if (in_place && (destination != '0 || destination_list)) reserved = 1'b1;
    if (is_nop) begin
      if ((flags & ~8'(1 << FlagInterrupt)) != '0 || slot != '0 || log2_unit != '0
          || units != '0 || tweak != '0 || source != '0 || destination != '0) begin
        reserved = 1'b1;
      end
    end
  end

  always_comb begin
    unit_bad = !unit_sized;
    if (is_ecb) unit_bad = log2_unit != 8'd4;
    if (is_xts && unit_sized && log2_unit > 8'($clog2(XtsBytes))) unit_bad = 1'b1;
    // What no cipher in the slot has is for CIPHER to say.
    if (is_run && slot_there && slot_cipher != 4'(CipherXts) && slot_cipher != 4'(CipherEcb)
        && log2_unit != 8'($clog2(UnitBytes))) begin
      unit_bad = 1'b1;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      stage_q      <= 1'b0;
      steps_q      <= '0;
      reserved_q   <= 1'b0;
      unit_bad_q   <= 1'b0;
      units_bad_q  <= 1'b0;
      alignment_q  <= 1'b0;
      slot_bad_q   <= 1'b0;
      cipher_bad_q <= 1'b0;
      list_bad_q   <= 1'b0;
    end else if (start) begin
      stage_q     <= 1'b1;
      steps_q     <= steps;
      reserved_q  <= reserved;
      unit_bad_q  <= unit_bad;
      units_bad_q <= units == '0 || too_many || (is_xts && units != 32'd1);
      alignment_q <= source[3:0] != '0 || beyond(source, extent(source_list, source_entries, bytes))
          || destination[3:0] != '0
          || beyond(destination, extent(destination_list, destination_entries, bytes));
      slot_bad_q   <= !slot_there;
      cipher_bad_q <= is_run == (slot_cipher == 4'(CipherEcb));
      list_bad_q <= (source_list && entries_bad(source_entries))
          || (destination_list && entries_bad(destination_entries));
    end else if (accept) begin
      stage_q <= 1'b0;
    end
  end

  // The second cycle.

  status_t status;
  logic tweak_over;
  block_t unused_last;
  assign {tweak_over, unused_last} = {1'b0, tweak} + 129'(steps_q);
  always_comb begin
    if (!(is_nop || is_ecb || is_xts || is_run)) status = 8'(StatusOp);
    else if (reserved_q) status = 8'(StatusReserved);
    else if (is_nop) status = 8'(StatusDone);
    else if (unit_bad_q) status = 8'(StatusUnit);
    else if (units_bad_q) status = 8'(StatusUnits);
    else if (alignment_q) status = 8'(StatusAlignment);
    else if (slot_bad_q) status = 8'(StatusSlot);
    else if (cipher_bad_q) status = 8'(StatusCipher);
    else if (is_run && tweak_over) status = 8'(StatusTweak);
    else if (list_bad_q) status = 8'(StatusList);
    else status = 8'(StatusDone);
  end

  request_t request, request_q;
  logic [3:0] number_q;
  logic empty;
  assign empty = is_nop || status != 8'(StatusDone);
  always_comb begin
    request           = '0;
    request.ring      = ring_i;
    request.number    = number_q;
    request.cookie    = sqe_q[8*SqeCookie+:64];
    request.interrupt = flags[FlagInterrupt];
    request.status    = status;
    request.empty     = empty;
    if (!empty) begin
      request.decrypt             = flags[FlagDecrypt];
      request.mode                = is_ecb ? ModeEcb : is_xts ? ModeEncrypted : ModeRun;
      request.slot                = slot[4:0];
      request.unit_blocks         = 9'b1 << log2_unit_blocks;
      request.blocks              = bytes[LogBytes:4];
      request.tweak               = tweak;
      request.step                = step;
      request.source_list         = source_list;
      request.source              = source;
      request.source_entries      = source_entries[EntriesWidth-1:0];
      request.destination_list    = in_place ? source_list : destination_list;
      request.destination         = in_place ? source : destination;
      request.destination_entries = in_place ? source_entries[EntriesWidth-1:0]
          : destination_entries[EntriesWidth-1:0];
    end
  end

  // The request waits here until all three have it.
  logic [2:0] pending_q, pending;
  assign pending = pending_q & ~request_ready_i;
  assign request_free = pending == '0;
  assign request_valid_o = pending_q;
  assign request_o = request_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      pending_q <= '0;
      request_q <= '0;
      number_q  <= '0;
    end else if (accept) begin
      pending_q <= '1;
      request_q <= request;
      number_q  <= number_q + 1'b1;
    end else begin
      pending_q <= pending;
    end
  end

  assign pipe_idle_o = !stage_q && count_q == '0;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) count_q <= '0;
    else count_q <= count_q + CountWidth'(accept) - CountWidth'(ended_i);
  end

endmodule
