// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From a stream of beats of two blocks to one of blocks, the low half first, with a queue
// in block RAM, so that a core that gives a beat a cycle is not stopped by it. While it is
// `busy_o`, after reset, it wipes itself and may be given nothing.

module beat_unpack #(
  // Beats in the queue: a power of two, 2 or more.
  parameter int unsigned Depth = 128
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  input  logic         valid_i,
  output logic         ready_o,
  input  logic [255:0] beat_i,

  output logic         valid_o,
  input  logic         ready_i,
  output logic [127:0] block_o
);

  logic high_q;
  logic [255:0] beat;

  ram_fifo #(
    .Width(256),
    .Depth(Depth)
  ) u_queue (
    .clk_i,
    .rst_ni,
    .busy_o,
    .valid_i,
    .ready_o,
    .data_i (beat_i),
    .valid_o,
    .ready_i(ready_i && high_q),
    .data_o (beat)
  );

  assign block_o = high_q ? beat[255:128] : beat[127:0];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) high_q <= 1'b0;
    else if (valid_o && ready_i) high_q <= !high_q;
  end

endmodule
