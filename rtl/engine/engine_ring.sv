// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One ring: its registers, its indices, and what can be wrong with it.
//
// Indices count without end, modulo 2^16, and none passes another:
//
//   head, completed <= posted <= fetched <= issued <= tail
//
// head: completions that software has read; completed: completion entries that the bus has
// answered; posted: those given to it; fetched: submissions that arrived; issued: those
// asked for. A submission is asked for only while issued - head < size, so that there is
// room for its completion whatever becomes of it. Doorbells are held against what software
// can have seen in memory, which is ahead of what the bus has answered: TAIL against
// `issued`, CQ_HEAD against `posted`.
//
// A fault stops fetching. What was fetched completes, unless the completion ring itself
// is in doubt.

module engine_ring
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  parameter int unsigned AddressBits = 64,
  // Of an index, and of the size of the largest ring: less only to prove what holds.
  parameter int unsigned IndexBits   = 16,
  parameter int unsigned LogSize     = LogRing
) (
  input logic clk_i,
  input logic rst_ni,
  // CTRL.zeroize: requests under way are gone.
  input logic wipe_i,
  // CTRL.enable.
  input logic serve_i,

  input  logic        write_i,
  input  logic [ 5:0] write_offset_i,
  input  logic [31:0] write_data_i,
  input  logic [ 5:0] read_offset_i,
  output logic [31:0] read_data_o,

  // A submission to be asked for, and that it is.
  output logic     want_o,
  output address_t submission_o,
  input  logic     issue_i,
  // Of the oldest that was asked for: it arrived and goes its way; or it does not.
  input  logic     accept_i,
  input  logic     drop_i,
  // With `drop_i`: the bus reported an error, which stops the ring.
  input  logic     lost_i,

  // Where the next completion goes.
  output address_t    completion_o,
  output logic [15:0] posted_o,
  output logic        phase_o,
  // Completions are no longer written.
  output logic        dead_o,
  // Of the oldest request: its completion goes to the bus; or nowhere.
  input  logic        post_i,
  input  logic        skip_i,
  // The request left data behind that was to be erased.
  input  logic        not_erased_i,
  // Of the oldest completion on the bus: answered, with an error or not.
  input  logic        done_i,
  input  logic        done_error_i,

  // For interrupts. `start_o`: the ring is turned on; `last_o`: with the completion that
  // is answered nothing is left to do.
  output logic        start_o,
  output logic        last_o,
  output logic        when_empty_o,
  output logic [ 7:0] count_o,
  output logic [15:0] us_o,

  output logic       busy_o,
  // With faults that are there to stay, and with a new one.
  output logic       faulted_o,
  output logic       fault_o,
  output logic [7:0] fault_code_o,
  output address_t   fault_address_o
);

  typedef logic [IndexBits-1:0] index_t;
  localparam int unsigned SizeWidth = LogSize + 1;

  address_t sq_q, cq_q;
  logic [3:0] log2_q;
  logic enable_q, when_empty_q, faulted_q, dead_q;
  logic [7:0] code_q;
  logic [7:0] count_q;
  logic [15:0] us_q;
  index_t tail_q, head_q, issued_q, fetched_q, posted_q, completed_q;
  // Requests under way, from the question for the submission to the end of the completion.
  logic [SizeWidth-1:0] busy_q;

  logic active, size_bad;
  index_t size, mask;
  assign active = enable_q || busy_q != '0;
  assign size_bad = log2_q > 4'(LogSize);
  assign size = size_bad ? '0 : index_t'(1) << log2_q;
  assign mask = size - 1'b1;

  assign want_o = serve_i && enable_q && !faulted_q && tail_q != issued_q
      && index_t'(issued_q - head_q) < size;
  assign submission_o = sq_q + 64'(index_t'(issued_q & mask)) * 64;
  assign completion_o = cq_q + 64'(index_t'(posted_q & mask)) * 16;
  assign posted_o = 16'(posted_q);
  // One in the first round.
  assign phase_o = (posted_q & size) == '0;
  assign dead_o = dead_q;
  assign last_o = index_t'(completed_q + 1'b1) == tail_q;
  assign when_empty_o = when_empty_q;
  assign count_o = count_q;
  assign us_o = us_q;
  assign busy_o = busy_q != '0 || want_o;
  assign faulted_o = faulted_q;

  // Writes.

  logic write_config, doorbell, write_control;
  assign write_config = write_i && !active;
  assign write_control = write_i && 32'(write_offset_i) == RingControl;
  assign start_o = write_control && !active && write_data_i[RingControlEnableLow];
  assign doorbell = write_i && enable_q && !faulted_q;

  logic write_tail, write_head, tail_good, head_good;
  index_t index;
  assign index = write_data_i[IndexBits-1:0];
  assign write_tail = doorbell && 32'(write_offset_i) == RingTail;
  assign write_head = doorbell && 32'(write_offset_i) == RingCqHead;
  assign tail_good = index_t'(index - issued_q) <= size
      && index_t'(index - issued_q) >= index_t'(tail_q - issued_q);
  assign head_good = index_t'(index - head_q) <= index_t'(posted_q - head_q);

  // Where the rings would end, and whether that is beyond what the bus can say.
  logic [64:0] sq_end, cq_end;
  logic config_bad;
  assign sq_end = {1'b0, sq_q} + 65'(size) * 64;
  assign cq_end = {1'b0, cq_q} + 65'(size) * 16;
  assign config_bad = size_bad || sq_q[5:0] != '0 || cq_q[5:0] != '0
      || sq_end > (65'b1 << AddressBits) || cq_end > (65'b1 << AddressBits);

  // Faults. The first one stays until the ring is turned on again.

  logic fault;
  always_comb begin
    fault = 1'b1;
    fault_code_o = 8'(FaultNone);
    fault_address_o = '0;
    if (wipe_i && active) begin
      fault_code_o = 8'(FaultWiped);
    end else if (start_o && config_bad) begin
      fault_code_o = 8'(FaultRing);
    end else if (done_i && done_error_i && !dead_q) begin
      fault_code_o = 8'(FaultCompletion);
      fault_address_o = cq_q + 64'(index_t'(completed_q & mask)) * 16;
    end else if (not_erased_i) begin
      fault_code_o = 8'(FaultErase);
    end else if (drop_i && lost_i) begin
      fault_code_o = 8'(FaultDescriptor);
      fault_address_o = sq_q + 64'(index_t'(fetched_q & mask)) * 64;
    end else if ((write_tail && !tail_good) || (write_head && !head_good)) begin
      fault_code_o = 8'(FaultDoorbell);
    end else begin
      fault = 1'b0;
    end
  end
  assign fault_o = fault && (!faulted_q || start_o);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      sq_q         <= '0;
      cq_q         <= '0;
      log2_q       <= '0;
      enable_q     <= 1'b0;
      when_empty_q <= 1'b0;
      count_q      <= '0;
      us_q         <= '0;
      faulted_q    <= 1'b0;
      code_q       <= '0;
    end else begin
      if (write_config) begin
        unique case (32'(write_offset_i))
          RingSqLo: sq_q[31:0] <= write_data_i;
          RingSqHi: sq_q[63:32] <= write_data_i;
          RingCqLo: cq_q[31:0] <= write_data_i;
          RingCqHi: cq_q[63:32] <= write_data_i;
          RingSize: log2_q <= write_data_i[3:0];
          RingControl: when_empty_q <= write_data_i[RingControlWhenEmptyLow];
          default: ;
        endcase
      end
      if (write_i && 32'(write_offset_i) == RingCoalesce) begin
        count_q <= write_data_i[RingCoalesceCountLow+:RingCoalesceCountBits];
        us_q    <= write_data_i[RingCoalesceUsLow+:RingCoalesceUsBits];
      end
      if (start_o) enable_q <= 1'b1;
      else if (write_control && !write_data_i[RingControlEnableLow]) enable_q <= 1'b0;
      if (start_o || fault_o) begin
        faulted_q <= fault_o;
        code_q    <= fault_code_o;
      end
    end
  end

  // Indices.

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      tail_q      <= '0;
      head_q      <= '0;
      issued_q    <= '0;
      fetched_q   <= '0;
      posted_q    <= '0;
      completed_q <= '0;
      busy_q      <= '0;
      dead_q      <= 1'b0;
    end else if (start_o) begin
      tail_q      <= '0;
      head_q      <= '0;
      issued_q    <= '0;
      fetched_q   <= '0;
      posted_q    <= '0;
      completed_q <= '0;
      busy_q      <= '0;
      dead_q      <= 1'b0;
    end else if (wipe_i) begin
      busy_q <= '0;
      dead_q <= 1'b1;
    end else begin
      if (write_tail && tail_good) tail_q <= index;
      if (write_head && head_good) head_q <= index;
      if (issue_i) issued_q <= issued_q + 1'b1;
      if (accept_i) fetched_q <= fetched_q + 1'b1;
      if (post_i) posted_q <= posted_q + 1'b1;
      if (done_i && !done_error_i && !dead_q) completed_q <= completed_q + 1'b1;
      if (done_i && done_error_i) dead_q <= 1'b1;
      // The three that end a request come from different places.
      busy_q <= busy_q + SizeWidth'(issue_i) - SizeWidth'(drop_i) - SizeWidth'(skip_i)
          - SizeWidth'(done_i);
    end
  end

  always_comb begin
    unique case (32'(read_offset_i))
      RingSqLo: read_data_o = sq_q[31:0];
      RingSqHi: read_data_o = sq_q[63:32];
      RingCqLo: read_data_o = cq_q[31:0];
      RingCqHi: read_data_o = cq_q[63:32];
      RingSize: read_data_o = 32'(log2_q);
      RingControl: read_data_o = {30'b0, when_empty_q, enable_q};
      RingTail: read_data_o = 32'(tail_q);
      RingCqHead: read_data_o = 32'(head_q);
      RingCoalesce: read_data_o = {us_q, 8'b0, count_q};
      RingState: read_data_o = {16'(fetched_q), code_q, 6'b0, faulted_q, active};
      RingCompleted: read_data_o = 32'(completed_q);
      default: read_data_o = '0;
    endcase
  end

endmodule
