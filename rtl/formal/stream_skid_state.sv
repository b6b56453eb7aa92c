// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of the registers of each stream_skid at all times, for its own proof and for those of
// what has one inside: which place is next, and that none follows the input that has an entry.

module stream_skid_state (
  input logic       clk_i,
  input logic       rst_ni,
  input logic [1:0] follow_q,
  input logic       write_q,
  input logic       read_q,
  input logic       valid_q,
  input logic       full_q,
  input logic       ready_q
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;

  always_comb begin
    if (rst_ni && started_q) begin
      assert (!full_q || (valid_q && !ready_q));
      assert (write_q == (read_q ^ valid_q ^ full_q));
      assert (follow_q == (!ready_q ? 2'b00 : write_q ? 2'b10 : 2'b01));
    end
  end

endmodule

bind stream_skid stream_skid_state u_state (
  .*
);
