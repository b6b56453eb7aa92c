// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The owner of a beat_store reads only what was written three cycles before. Its places: places_rules.

module beat_store_rules #(
  parameter int unsigned Depth = 8,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input logic clk_i,
  input logic rst_ni,
  input logic write_i,
  input logic read_i
);

  // Beats at the output and behind it; written one and two cycles ago.
  logic [CountWidth-1:0] there_q;
  logic [1:0] written_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      there_q   <= '0;
      written_q <= '0;
    end else begin
      there_q   <= there_q + CountWidth'(written_q[1]) - CountWidth'(read_i);
      written_q <= {written_q[0], write_i};
      assert (!read_i || there_q != '0) else $error("a beat is read before it is there");
    end
  end

endmodule

bind beat_store beat_store_rules #(
  .Depth(Depth)
) u_rules (
  .*
);
