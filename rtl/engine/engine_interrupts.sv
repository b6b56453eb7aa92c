// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From completions and faults to interrupts: INT_STATUS, its mask, the first fault, and
// when the completions of a ring are enough for an interrupt. What happens in the cycle
// in which software clears a bit sets it again, so nothing is lost; and the line of a bit
// that software clears is low in the cycle after, so that a receiver of edges (MSI) gets
// another one for what happened meanwhile.

module engine_interrupts
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  parameter int unsigned Rings = 1,
  parameter int unsigned CyclesPerUs = 100
) (
  input logic clk_i,
  input logic rst_ni,

  input  logic        write_i,
  input  logic [12:0] write_address_i,
  input  logic [31:0] write_data_i,
  input  logic [12:0] read_address_i,
  output logic [31:0] read_data_o,

  // A completion that memory has answered, its request's flag INTERRUPT, and that nothing
  // is left to do for its ring.
  input logic [Rings-1:0] done_i,
  input logic             done_interrupt_i,
  input logic [Rings-1:0] last_i,
  // Of the rings: turned on; and their registers.
  input logic [Rings-1:0] start_i,
  input logic [Rings-1:0] when_empty_i,
  input logic [      7:0] count_i[Rings],
  input logic [     15:0] us_i[Rings],

  input logic     [Rings-1:0] fault_i,
  input logic     [      7:0] fault_code_i[Rings],
  input address_t             fault_address_i[Rings],

  // The last is that of faults.
  output logic [Rings:0] interrupt_o,
  // Interrupts that begin in this cycle.
  output logic [3:0] raised_o
);

  // A tick each microsecond.
  localparam int unsigned TickWidth = $clog2(CyclesPerUs + 1);
  logic [TickWidth-1:0] tick_q;
  logic tick;
  assign tick = tick_q == TickWidth'(CyclesPerUs - 1);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) tick_q <= '0;
    else tick_q <= tick ? '0 : tick_q + 1'b1;
  end

  // Completions since the ring's last interrupt, and ticks since the first of them.
  logic [Rings-1:0] raise;
  for (genvar i = 0; i < Rings; i++) begin : gen_ring
    logic [7:0] waiting_q;
    logic [8:0] waiting;
    logic [15:0] ticks_q;
    logic timed;
    assign waiting = 9'(waiting_q) + 9'(done_i[i]);
    assign timed = us_i[i] != '0 && waiting_q != '0 && tick && ticks_q >= us_i[i];
    assign raise[i] = timed || (done_i[i] && (done_interrupt_i || waiting >= 9'(count_i[i])
        || (when_empty_i[i] && last_i[i])));

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        waiting_q <= '0;
        ticks_q   <= '0;
      end else if (start_i[i] || raise[i]) begin
        waiting_q <= '0;
        ticks_q   <= '0;
      end else begin
        // As many as the ring is long may wait where neither count nor time is set.
        if (!waiting[8]) waiting_q <= waiting[7:0];
        // The tick under way when the first came does not count.
        if (waiting_q != '0 && tick && ticks_q != '1) ticks_q <= ticks_q + 1'b1;
      end
    end
  end

  // INT_STATUS, in the layout of the register.

  logic [31:0] status_q, mask_q, events, clear, cleared_q, lines, lines_q;
  always_comb begin
    events = '0;
    events[Rings-1:0] = raise;
    events[IntStatusFaultLow] = fault_i != '0;
    clear = '0;
    if (write_i && 32'(write_address_i) == RegIntStatus) clear = write_data_i;
  end
  assign lines = status_q & mask_q & ~cleared_q;

  localparam logic [31:0] There = 32'((1 << Rings) - 1) | 32'(1 << IntStatusFaultLow);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      status_q  <= '0;
      mask_q    <= '0;
      cleared_q <= '0;
      lines_q   <= '0;
    end else begin
      status_q  <= (status_q & ~clear) | events;
      cleared_q <= clear;
      lines_q   <= lines;
      if (write_i && 32'(write_address_i) == RegIntSet) mask_q <= mask_q | (write_data_i & There);
      if (write_i && 32'(write_address_i) == RegIntClear) mask_q <= mask_q & ~write_data_i;
    end
  end

  assign interrupt_o = {lines[IntStatusFaultLow], lines[Rings-1:0]};
  always_comb begin
    raised_o = '0;
    for (int i = 0; i < 32; i++) begin
      if (lines[i] && !lines_q[i]) raised_o = raised_o + 1'b1;
    end
  end

  // The first fault: of those of one cycle the lowest ring's.

  logic [7:0] code_q, ring_q, code, ring;
  address_t address_q, address;
  always_comb begin
    code    = '0;
    ring    = '0;
    address = '0;
    for (int i = int'(Rings) - 1; i >= 0; i--) begin
      if (fault_i[i]) begin
        code    = fault_code_i[i];
        ring    = 8'(i);
        address = fault_address_i[i];
      end
    end
  end

  logic clear_fault;
  assign clear_fault = write_i && 32'(write_address_i) == RegFault && write_data_i != '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      code_q    <= '0;
      ring_q    <= '0;
      address_q <= '0;
    end else if (code_q == '0 || clear_fault) begin
      code_q    <= code;
      ring_q    <= ring;
      address_q <= address;
    end
  end

  always_comb begin
    unique case (32'(read_address_i))
      RegIntStatus: read_data_o = status_q;
      RegIntSet, RegIntClear: read_data_o = mask_q;
      RegFault: read_data_o = {16'b0, ring_q, code_q};
      RegFaultAddrLo: read_data_o = address_q[31:0];
      RegFaultAddrHi: read_data_o = address_q[63:32];
      default: read_data_o = '0;
    endcase
  end

endmodule
