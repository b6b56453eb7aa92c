// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the user of sector_tweaks keeps to, from which it is proved that no sector and no result is lost
// (formal/sector_tweaks_props.sv): a result comes for a call; a sector's first pass begins before its result is
// taken, which is before the sector is done; and no more than 2 Depth are between these.

module sector_tweaks_rules #(
  parameter int unsigned Depth     = 2,
  parameter bit          WithTweak = 1'b1,
  localparam int unsigned SumWidth = $clog2(Depth + 1) + 3
) (
  input logic clk_i,
  input logic rst_ni,
  input logic call_valid_o,
  input logic call_ready_i,
  input logic call_result_valid_i,
  input logic waiting_valid_o,
  input logic waiting_ready_i,
  input logic result_valid_o,
  input logic result_ready_i,
  input logic done_i
);

  logic made, comes, begins, used, done;
  // Calls under way; sectors whose first pass has begun, and whose result is not taken; those behind that.
  logic [SumWidth-1:0] away_q, ahead_q, behind_q;
  assign made = WithTweak && call_valid_o && call_ready_i;
  assign comes = WithTweak && call_result_valid_i;
  assign begins = WithTweak && waiting_valid_o && waiting_ready_i;
  assign used = WithTweak && result_valid_o && result_ready_i;
  assign done = WithTweak && done_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      away_q   <= '0;
      ahead_q  <= '0;
      behind_q <= '0;
    end else begin
      away_q   <= away_q + SumWidth'(made) - SumWidth'(comes);
      ahead_q  <= ahead_q + SumWidth'(begins) - SumWidth'(used);
      behind_q <= behind_q + SumWidth'(used) - SumWidth'(done);
      assert (!comes || away_q != '0) else $error("a result comes without a call");
      assert (!used || ahead_q != '0) else $error("a result is taken before the first pass has begun");
      assert (!done || behind_q != '0) else $error("a sector is done before its result is taken");
      assert (!used || done || 32'(behind_q) < 2 * Depth) else $error("too many sectors are not done");
    end
  end

endmodule

bind sector_tweaks sector_tweaks_rules #(
  .Depth    (Depth),
  .WithTweak(WithTweak)
) u_rules (
  .*
);
