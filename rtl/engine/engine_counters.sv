// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Where the cycles go. Each cycle belongs to one row, by what the oldest request is at;
// exactly one of them counts with TOTAL, so they sum to it whatever the inputs are.

module engine_counters
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  // Of a counter: less only to prove what holds of it.
  parameter int unsigned Width = 64
) (
  input logic clk_i,
  input logic rst_ni,

  input  logic        write_i,
  input  logic [12:0] write_address_i,
  input  logic [31:0] write_data_i,
  input  logic [12:0] read_address_i,
  output logic [31:0] read_data_o,

  // What is the case in this cycle. A completion is being written;
  input logic completing_i,
  // a request has been checked and is not at its end;
  input logic piped_i,
  // all of the oldest one is through the cipher;
  input logic through_i,
  // its destination list, or source list, is being waited for;
  input logic destination_list_i,
  input logic source_list_i,
  // the cipher waits for room; waits for data;
  input logic blocked_i,
  input logic starved_i,
  // there is something to do, or under way;
  input logic busy_i,
  // an interrupt stands.
  input logic interrupt_i,

  // A completion.
  input logic    done_i,
  input logic    done_failed_i,
  input blocks_t done_units_i,
  input blocks_t done_blocks_i,
  input logic [3:0] raised_i,
  input logic read_wait_i,
  input logic write_wait_i
);

  typedef logic [Width-1:0] counter_t;

  // Places in the list of registers.toml.
  localparam int unsigned Fetch = (RegCounterFetch - RegCounterTotal) / 8;
  localparam int unsigned Source = (RegCounterSource - RegCounterTotal) / 8;
  localparam int unsigned Cipher = (RegCounterCipher - RegCounterTotal) / 8;
  localparam int unsigned Destination = (RegCounterDestination - RegCounterTotal) / 8;
  localparam int unsigned Completion = (RegCounterCompletion - RegCounterTotal) / 8;
  localparam int unsigned Interrupt = (RegCounterInterrupt - RegCounterTotal) / 8;
  localparam int unsigned Idle = (RegCounterIdle - RegCounterTotal) / 8;
  localparam int unsigned Requests = (RegCounterRequests - RegCounterTotal) / 8;
  localparam int unsigned Failed = (RegCounterFailed - RegCounterTotal) / 8;
  localparam int unsigned Units = (RegCounterUnits - RegCounterTotal) / 8;
  localparam int unsigned Bytes = (RegCounterBytes - RegCounterTotal) / 8;
  localparam int unsigned Interrupts = (RegCounterInterrupts - RegCounterTotal) / 8;
  localparam int unsigned ReadWaits = (RegCounterReadWaits - RegCounterTotal) / 8;
  localparam int unsigned WriteWaits = (RegCounterWriteWaits - RegCounterTotal) / 8;

  logic [3:0] row;
  always_comb begin
    if (completing_i) row = 4'(Completion);
    else if (piped_i && through_i) row = 4'(Destination);
    else if (piped_i && destination_list_i) row = 4'(Fetch);
    else if (piped_i && blocked_i) row = 4'(Destination);
    else if (piped_i && starved_i && source_list_i) row = 4'(Fetch);
    else if (piped_i && starved_i) row = 4'(Source);
    else if (piped_i) row = 4'(Cipher);
    else if (busy_i) row = 4'(Fetch);
    else if (interrupt_i) row = 4'(Interrupt);
    else row = 4'(Idle);
  end

  logic [Width-1:0] added[Counters];
  always_comb begin
    for (int i = 0; i < int'(Counters); i++) added[i] = counter_t'(row == 4'(i));
    added[0] = counter_t'(1);
    added[Requests] = counter_t'(done_i);
    added[Failed] = counter_t'(done_i && done_failed_i);
    added[Units] = done_i ? counter_t'(done_units_i) : '0;
    added[Bytes] = done_i ? counter_t'({done_blocks_i, 4'b0}) : '0;
    added[Interrupts] = counter_t'(raised_i);
    added[ReadWaits] = counter_t'(read_wait_i);
    added[WriteWaits] = counter_t'(write_wait_i);
  end

  logic snapshot, clear, control;
  assign control = write_i && 32'(write_address_i) == RegCounterCtrl;
  assign snapshot = control && write_data_i[CounterCtrlSnapshotLow];
  assign clear = control && write_data_i[CounterCtrlClearLow];

  counter_t running_q[Counters], shown_q[Counters];
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < int'(Counters); i++) begin
        running_q[i] <= '0;
        shown_q[i]   <= '0;
      end
    end else begin
      for (int i = 0; i < int'(Counters); i++) begin
        running_q[i] <= clear ? '0 : running_q[i] + added[i];
        if (snapshot) shown_q[i] <= running_q[i];
      end
    end
  end

  logic [63:0] shown;
  always_comb begin
    shown = '0;
    for (int i = 0; i < int'(Counters); i++) begin
      if (read_address_i[12:3] == 10'(RegCounterTotal / 8 + 32'(i))) shown = 64'(shown_q[i]);
    end
  end
  logic unused;
  assign unused = ^read_address_i[1:0];
  assign read_data_o = read_address_i[2] ? shown[63:32] : shown[31:0];

endmodule
