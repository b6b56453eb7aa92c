// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the user of fast_input keeps to, from which it is proved that its queues have room
// (formal/fast_input_props.sv), beside what unasked.sv says of them: no sector begins while it is busy, a
// sector's tweak is taken not before its first two blocks, and no more than `Sectors` are between these.

module fast_input_rules
  import fast_pkg::*;
(
  input logic clk_i,
  input logic rst_ni,
  input logic busy_o,
  input logic sector_valid_i,
  input logic head_take_i,
  input logic tweak_take_i
);

  logic [7:0] inside_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) inside_q <= '0;
    else begin
      inside_q <= inside_q + 8'(head_take_i) - 8'(tweak_take_i);
      assert (!busy_o || !sector_valid_i) else $error("a sector begins while memories are wiped");
      assert (!tweak_take_i || head_take_i || inside_q != '0) else $error("a tweak is taken too early");
      assert (!head_take_i || tweak_take_i || 32'(inside_q) < Sectors) else $error("too many sectors wait for their tweak");
    end
  end

endmodule

bind fast_input fast_input_rules u_rules (
  .*
);
