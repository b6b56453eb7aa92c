// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the owner of a beat_store keeps to: it takes a place only while there is room, writes only into
// places taken, before or in the same cycle, and reads only what was written three cycles before.

module beat_store_rules #(
  parameter int unsigned Depth = 8,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input logic clk_i,
  input logic rst_ni,
  input logic take_i,
  input logic room_o,
  input logic write_i,
  input logic read_i
);

  // Places taken and not written; beats at the output and behind it; written one and two cycles ago.
  logic [CountWidth-1:0] away_q, there_q;
  logic [1:0] written_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      away_q    <= '0;
      there_q   <= '0;
      written_q <= '0;
    end else begin
      away_q    <= away_q + CountWidth'(take_i) - CountWidth'(write_i);
      there_q   <= there_q + CountWidth'(written_q[1]) - CountWidth'(read_i);
      written_q <= {written_q[0], write_i};
      assert (!take_i || room_o) else $error("a place is taken, and there is no room");
      assert (!write_i || take_i || away_q != '0) else $error("a beat comes without a place");
      assert (!read_i || there_q != '0) else $error("a beat is read before it is there");
    end
  end

endmodule

bind beat_store beat_store_rules #(
  .Depth(Depth)
) u_rules (
  .*
);
