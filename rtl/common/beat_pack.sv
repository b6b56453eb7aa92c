// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From a stream of blocks to one of beats of two, the first block in the low half, with a
// queue in block RAM: blocks come evenly, and cores with two passes take their input in
// spurts. While it is `busy_o`, after reset, it wipes itself and may be given nothing.

module beat_pack #(
  // Beats in the queue: a power of two, 2 or more.
  parameter int unsigned Depth = 128
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input  logic         valid_i,
  output logic         ready_o,
  input  logic [127:0] block_i,

  output logic         valid_o,
  input  logic         ready_i,
  output logic [255:0] beat_o
);

  logic have_q, room;
  logic [127:0] low_q;

  assign ready_o = !have_q || room;

  ram_fifo #(
    .Width(256),
    .Depth(Depth)
  ) u_queue (
    .clk_i,
    .rst_ni,
    .busy_o,
    .valid_i(valid_i && have_q),
    .ready_o(room),
    .data_i ({block_i, low_q}),
    .valid_o,
    .ready_i,
    .data_o (beat_o)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      have_q <= 1'b0;
      low_q  <= '0;
    end else if (valid_i && ready_o) begin
      have_q <= !have_q;
      low_q  <= have_q ? '0 : block_i;
    end
  end

endmodule
