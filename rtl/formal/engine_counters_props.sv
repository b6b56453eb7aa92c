// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of engine_counters: the rows of cycles sum to TOTAL, in what runs and in
// what is shown, whatever the inputs are and whenever software clears or copies them.

module engine_counters_props #(
  parameter int unsigned Width = 64
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic             snapshot,
  input logic             clear,
  input logic [Width-1:0] running_q[engine_regs_pkg::Counters],
  input logic [Width-1:0] shown_q[engine_regs_pkg::Counters]
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  logic [Width-1:0] running, shown;
  always_comb begin
    running = '0;
    shown   = '0;
    for (int i = 1; i <= 7; i++) begin
      running = running + running_q[i];
      shown   = shown + shown_q[i];
    end
    if (rst_ni && started_q) begin
      assert (running == running_q[0]);
      assert (shown == shown_q[0]);
    end
  end

  // Cycles since the last that cleared.
  logic [Width-1:0] cycles_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) cycles_q <= '0;
    else cycles_q <= clear ? '0 : cycles_q + 1'b1;
  end
  always_comb if (rst_ni && started_q) assert (running_q[0] == cycles_q);

  always_comb begin
    cover (rst_ni && snapshot && clear && running_q[0] == Width'(6));
    cover (rst_ni && shown_q[0] == Width'(7) && running_q[1] != '0 && running_q[7] != '0);
  end

endmodule

bind engine_counters engine_counters_props #(
  .Width(Width)
) u_props (
  .*
);
