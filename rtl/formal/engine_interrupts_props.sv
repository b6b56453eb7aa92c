// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of engine_interrupts: what happens is seen in INT_STATUS until software
// clears it afterwards; a line goes low with each clear, so that what is not cleared raises
// it again; completions wait for an interrupt no longer than their count and,
// with a timer, no longer than its time and the tick after it; only faults that come when
// FAULT is free are in it, and they stay.

module engine_interrupts_props
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  parameter int unsigned Rings = 1,
  parameter int unsigned CyclesPerUs = 2
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             write_i,
  input logic [     12:0] write_address_i,
  input logic [     31:0] write_data_i,
  input logic [Rings-1:0] done_i,
  input logic             done_interrupt_i,
  input logic [Rings-1:0] start_i,
  input logic [      7:0] count_i[Rings],
  input logic [     15:0] us_i[Rings],
  input logic [Rings-1:0] fault_i,
  input logic [Rings:0]   interrupt_o,
  input logic [Rings-1:0] raise,
  input logic [     31:0] status_q,
  input logic [     31:0] mask_q,
  input logic [      7:0] code_q,
  input logic             clear_fault,
  // Of ring 0.
  input logic [      7:0] waiting,
  input logic [     15:0] ticks,
  input logic [$clog2(CyclesPerUs+1)-1:0] tick_q
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  // As they were a cycle ago.
  logic was_q;
  logic [31:0] status_before_q, asked_q;
  logic [Rings-1:0] raised_q, done_now_q;
  logic fault_q, code_kept_q;
  logic [7:0] code_before_q;
  initial was_q = 1'b0;
  always_ff @(posedge clk_i) begin
    was_q           <= rst_ni && started_q;
    status_before_q <= status_q;
    asked_q         <= write_i && 32'(write_address_i) == RegIntStatus ? write_data_i : '0;
    raised_q        <= raise;
    // A completion that must not wait.
    for (int i = 0; i < int'(Rings); i++) begin
      done_now_q[i] <= done_i[i] && (done_interrupt_i || count_i[i] <= 8'd1);
    end
    fault_q         <= fault_i != '0;
    code_kept_q     <= code_q != '0 && !clear_fault;
    code_before_q   <= code_q;
  end

  // The lines a cycle ago, and those that have risen since their last clear.
  logic [Rings-1:0] line_q, edge_q;
  // A clear of ring 0 met something new.
  logic kept_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      line_q <= '0;
      edge_q <= '0;
      kept_q <= 1'b0;
    end else begin
      line_q <= interrupt_o[Rings-1:0];
      kept_q <= was_q && asked_q[0] && status_q[0];
      for (int i = 0; i < int'(Rings); i++) begin
        if (write_i && 32'(write_address_i) == RegIntStatus && write_data_i[i]) edge_q[i] <= 1'b0;
        else if (interrupt_o[i] && !line_q[i]) edge_q[i] <= 1'b1;
      end
    end
  end

  always_comb begin
    if (rst_ni && was_q) begin
      for (int i = 0; i < int'(Rings); i++) begin
        if (raised_q[i]) assert (status_q[i]);
        if (done_now_q[i]) assert (status_q[i]);
      end
      if (fault_q) assert (status_q[IntStatusFaultLow]);
      // Only a clearing write takes a bit away.
      assert ((status_before_q & ~status_q & ~asked_q) == '0);
      if (code_kept_q) assert (code_q == code_before_q);
      // What happened after the last edge, or with a clear, makes another one: a line that
      // stands has had its edge after the last clear.
      for (int i = 0; i < int'(Rings); i++) begin
        if (interrupt_o[i]) assert (edge_q[i] || !line_q[i]);
        if (asked_q[i]) assert (!interrupt_o[i]);
      end
    end
    if (rst_ni && started_q) begin
      for (int i = 0; i < int'(Rings); i++) begin
        assert (interrupt_o[i] == (status_q[i] && mask_q[i] && !(was_q && asked_q[i])));
      end
      assert (interrupt_o[Rings] == (status_q[IntStatusFaultLow] && mask_q[IntStatusFaultLow]
          && !(was_q && asked_q[IntStatusFaultLow])));
    end
  end

  // Ring 0's registers stand still, with a timer.
  logic [7:0] count;
  logic [1:0] us;
  any_constant #(.WIDTH(8)) u_count (.Y(count));
  any_constant #(.WIDTH(2)) u_us (.Y(us));
  always_comb begin
    assume (us != '0);
    assume (us_i[0] == 16'(us));
    assume (count_i[0] == count);
  end

  // Cycles that the first of the waiting has waited, and the tick's phase after it came.
  logic [7:0] age_q, phase_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      age_q   <= '0;
      phase_q <= '0;
    end else if (start_i[0] || raise[0]) begin
      age_q <= '0;
    end else if (waiting != '0) begin
      age_q <= age_q + 1'b1;
    end else if (done_i[0]) begin
      age_q   <= 8'd1;
      phase_q <= 32'(tick_q) == CyclesPerUs - 1 ? '0 : 8'(tick_q) + 1'b1;
    end
  end

  always_comb begin
    if (rst_ni && started_q) begin
      assert (32'(tick_q) < CyclesPerUs && 32'(phase_q) < CyclesPerUs);
      if (waiting == '0) assert (age_q == '0 && ticks == '0);
      else begin
        assert (count > 8'd1 && waiting < count);
        assert (32'(age_q) + 32'(phase_q) == 32'(ticks) * CyclesPerUs + 32'(tick_q) + 1);
        assert (32'(ticks) <= 32'(us));
        assert (32'(age_q) <= (32'(us) + 1) * CyclesPerUs);
      end
      // The timer alone is not early.
      if (raise[0] && done_i == '0) assert (32'(age_q) >= 32'(us) * CyclesPerUs);
    end
  end

  always_comb begin
    cover (rst_ni && raise[0] && done_i == '0);
    cover (rst_ni && was_q && asked_q[0] && raised_q[0] && status_before_q[0]);
    cover (rst_ni && interrupt_o[0] && !line_q[0] && kept_q);
    cover (rst_ni && raise[0] && waiting == 8'd2 && done_i[0] && !done_interrupt_i);
  end

endmodule

bind engine_interrupts engine_interrupts_props #(
  .Rings(Rings),
  .CyclesPerUs(CyclesPerUs)
) u_props (
  .waiting(gen_ring[0].waiting_q),
  .ticks  (gen_ring[0].ticks_q),
  .*
);
