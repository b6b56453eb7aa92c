// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of sector_tweaks, whose queues are never asked whether they have a place: as long as its
// user lets a sector's first pass begin before it takes the sector's result, ends only sectors whose
// results it has taken, and has no more than 2 Depth of these, no sector and no result is lost, and
// it is busy while any sector is open.

module sector_tweaks_props #(
  parameter int unsigned Depth = 2,
  localparam int unsigned CountWidth = $clog2(Depth + 1),
  // Of sums that do not wrap.
  localparam int unsigned SumWidth = CountWidth + 3
) (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic                  sector_valid,
  input logic                  sector_ready,
  input logic                  call_result_valid_i,
  input logic                  waiting_valid_o,
  input logic                  waiting_ready_i,
  input logic                  result_valid_o,
  input logic                  result_ready_i,
  input logic                  done_i,
  input logic                  busy_o,
  input logic [CountWidth-1:0] waiting_count,
  input logic                  waiting_ready,
  input logic [CountWidth-1:0] results_count,
  input logic                  results_ready,
  input logic [CountWidth-1:0] calls_q,
  input logic [CountWidth+1:0] open_q
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;

  // Calls under way; sectors whose first pass has begun, and whose result is not taken; those behind that.
  logic made, begins, used;
  logic [SumWidth-1:0] away_q, ahead_q, behind_q;
  assign made = sector_valid && sector_ready;
  assign begins = waiting_valid_o && waiting_ready_i;
  assign used = result_valid_o && result_ready_i;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      away_q   <= '0;
      ahead_q  <= '0;
      behind_q <= '0;
    end else begin
      away_q   <= away_q + SumWidth'(made) - SumWidth'(call_result_valid_i);
      ahead_q  <= ahead_q + SumWidth'(begins) - SumWidth'(used);
      behind_q <= behind_q + SumWidth'(used) - SumWidth'(done_i);
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    // Its user's part: test/rules has the same for simulations.
    if (away_q == '0) assume (!call_result_valid_i);
    if (ahead_q == '0) assume (!used);
    if (behind_q == '0) assume (!done_i);
    if (32'(behind_q) == 2 * Depth && !done_i) assume (!used);
  end

  always_comb begin
    if (rst_ni && started_q) begin
      assert (32'(calls_q) <= Depth);
      assert (SumWidth'(calls_q) == away_q + SumWidth'(results_count));
      assert (SumWidth'(calls_q) == ahead_q + SumWidth'(waiting_count));
      assert (32'(away_q) <= Depth && 32'(ahead_q) <= Depth && 32'(behind_q) <= 2 * Depth);
      assert (SumWidth'(open_q) == SumWidth'(calls_q) + behind_q);
      // What is never asked.
      if (made) assert (waiting_ready);
      if (call_result_valid_i) assert (results_ready);
      if (!busy_o) assert (!waiting_valid_o && !result_valid_o && behind_q == '0);
    end
  end

  // The interesting cases can happen: as many as there may be; the last one ends.
  always_comb begin
    cover (rst_ni && 32'(open_q) == 3 * Depth);
    cover (rst_ni && call_result_valid_i && used && 32'(results_count) == Depth - 1 && waiting_count != '0);
    cover (rst_ni && done_i && 32'(open_q) == 1);
  end

endmodule

bind sector_tweaks sector_tweaks_props #(
  .Depth(Depth)
) u_props (
  .*,
  .waiting_ready(u_waiting.ready_o),
  .results_count(gen_tweak.u_results.count_o),
  .results_ready(gen_tweak.u_results.ready_o),
  .calls_q      (gen_tweak.calls_q)
);
