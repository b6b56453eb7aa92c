// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of fast_counter: calls that the cores do not take, because they are somebody else's,
// stay as they are, although the registers that they are in are written whenever `free_q` says so,
// which was decided a cycle before; and it is said only where calls need not stay.

module fast_counter_props
  import aes_pkg::*;
#(
  parameter int unsigned Cores = 1
) (
  input logic   clk_i,
  input logic   rst_ni,
  input logic   others_soon_i,
  input logic   call_valid_o,
  input logic   call_ready_i,
  input block_t call_o[Cores],
  input logic   free_q
);

  // The cores are somebody else's in the cycle after it was said.
  logic others_q, there_q;
  initial begin
    others_q = 1'b0;
    there_q  = 1'b0;
  end
  always_ff @(posedge clk_i) begin
    others_q <= rst_ni && others_soon_i;
    there_q  <= 1'b1;
  end

  for (genvar i = 0; i < Cores; i++) begin : g_calls
    stream_rules #(
      .Width(128)
    ) u_calls (
      .clk_i,
      .rst_ni,
      .valid_i(call_valid_o),
      .ready_i(call_ready_i),
      .data_i (call_o[i])
    );
  end

  always_comb begin
    if (!there_q) assume (!rst_ni);
    assume (call_ready_i == !others_q);
    if (rst_ni && call_valid_o && !call_ready_i) assert (!free_q);
    cover (rst_ni && call_valid_o && !call_ready_i);
    cover (rst_ni && call_valid_o && call_ready_i && free_q);
  end

endmodule

bind fast_counter fast_counter_props #(.Cores(Cores)) u_props (.*);
