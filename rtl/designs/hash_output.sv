// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The way out of a design whose sectors have one block that is known after all others (XCB's
// last one, HCTR2's first one): beats from a queue, in order, with that block put in its place.

module hash_output #(
  parameter int unsigned Lanes     = 1,
  // Of a sector.
  parameter int unsigned Beats     = 256,
  // The block that is late is the first one, not the last one.
  parameter bit          LateFirst = 1'b0,
  // Sectors that may end among the beats of the queue.
  parameter int unsigned Sectors   = 2,
  localparam int unsigned BeatWidth = $clog2(Beats)
) (
  input  logic clk_i,
  input  logic rst_ni,

  // A sector will come out; none is between this and its last beat at the output.
  input  logic sector_i,
  output logic idle_o,

  input  logic                 beat_valid_i,
  output logic                 beat_ready_o,
  input  logic [128*Lanes-1:0] beat_i,

  input  logic         late_valid_i,
  input  logic [127:0] late_i,
  // Of its run, the last sector.
  input  logic         late_last_i,

  output logic                 out_valid_o,
  input  logic                 out_ready_i,
  output logic [128*Lanes-1:0] out_data_o,
  output logic                 out_last_o
);

  localparam int unsigned Place = LateFirst ? 0 : Lanes - 1;

  logic [BeatWidth-1:0] beat_q;
  logic first_q, last_q, late_now, late_valid, late_last, ready, there, sector_out, unused_ready;
  logic [127:0] late;
  logic [128*Lanes-1:0] data;
  logic [$clog2(Sectors+1)-1:0] unused_count;
  logic [3:0] under_way_q;

  stream_fifo #(
    .Width(129),
    .Depth(Sectors)
  ) u_late (
    .clk_i,
    .rst_ni,
    .valid_i(late_valid_i),
    .ready_o(unused_ready),
    .data_i ({late_last_i, late_i}),
    .valid_o(late_valid),
    .ready_i(sector_out),
    .data_o ({late_last, late}),
    .count_o(unused_count)
  );

  assign late_now = LateFirst ? first_q : last_q;
  assign there = beat_valid_i && (!late_now || late_valid);
  assign beat_ready_o = ready && (!late_now || late_valid);
  assign sector_out = there && ready && last_q;
  assign idle_o = under_way_q == '0 && !out_valid_o;
  always_comb begin
    data = beat_i;
    if (late_now) data[128*Place+:128] = late;
  end

  stream_skid #(
    .Width(128 * Lanes + 1)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(there),
    .ready_o(ready),
    .data_i ({last_q && late_last, data}),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o ({out_last_o, out_data_o})
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      beat_q      <= '0;
      first_q     <= 1'b1;
      last_q      <= 1'b0;
      under_way_q <= '0;
    end else begin
      under_way_q <= under_way_q + 4'(sector_i) - 4'(sector_out);
      if (there && ready) begin
        beat_q  <= beat_q + 1'b1;
        first_q <= last_q;
        last_q  <= beat_q == BeatWidth'(Beats - 2);
      end
    end
  end

endmodule
