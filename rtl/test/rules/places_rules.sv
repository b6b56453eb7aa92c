// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the owner of a queue keeps to whose places are taken ahead, or entries are lost: it takes a
// place only while there is room, and writes only into places taken, before or in the same cycle.

module places_rules #(
  parameter int unsigned Depth = 4,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input logic clk_i,
  input logic rst_ni,
  input logic take_i,
  input logic room_i,
  input logic write_i
);

  // Places taken and not written.
  logic [CountWidth-1:0] away_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) away_q <= '0;
    else begin
      away_q <= away_q + CountWidth'(take_i) - CountWidth'(write_i);
      assert (!take_i || room_i) else $error("a place is taken, and there is no room");
      assert (!write_i || take_i || away_q != '0) else $error("an entry comes without a place");
    end
  end

endmodule

bind credit_fifo places_rules #(
  .Depth(Depth)
) u_places (
  .clk_i,
  .rst_ni,
  .take_i,
  .room_i (room_o),
  .write_i(valid_i)
);

bind beat_store places_rules #(
  .Depth(Depth)
) u_places (
  .clk_i,
  .rst_ni,
  .take_i,
  .room_i(room_o),
  .write_i
);
