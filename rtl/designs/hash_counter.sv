// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sectors in counter mode and in the hash after it (XCB, HCTR2): one starts as soon as the counter of
// the one before has gone into AES. What its second pass needs goes along: to the beats that come out
// of AES, in order, and to the hash of them. A sector has as many beats as AES has stages or more,
// and so two are there at most, and another one whose beats are all in the hash.

module hash_counter #(
  // Of a sector.
  parameter int unsigned Beats = 256,
  // Of what goes along to its beats, and to their hash.
  parameter int unsigned BeatInfo = 128,
  parameter int unsigned HashInfo = 128,
  localparam int unsigned BeatWidth = $clog2(Beats)
) (
  input  logic clk_i,
  input  logic rst_ni,

  // The next sector; taken as its counter starts.
  input  logic                valid_i,
  output logic                start_o,
  input  logic [BeatInfo-1:0] for_beats_i,
  input  logic [HashInfo-1:0] for_hash_i,

  // There is a beat, with its number, for AES; it goes in.
  output logic                 count_valid_o,
  input  logic                 count_ready_i,
  output logic [BeatWidth-1:0] count_o,

  // A beat comes out and goes into the hash; its number, and whether it is the last one. The hash
  // of a sector has to be there before the last beat of the next one is.
  input  logic                 beat_valid_i,
  output logic [BeatWidth-1:0] beat_o,
  output logic                 last_o,
  output logic [ BeatInfo-1:0] for_beats_o,
  output logic [ HashInfo-1:0] for_hash_o
);

  logic counting_q, count_last_q, count_now, last_q, unused_valid, unused_ready;
  logic [1:0] unused_count;
  logic [BeatWidth-1:0] count_q, beat_q;
  logic [HashInfo-1:0] for_hash, for_hash_q;

  assign count_valid_o = counting_q;
  assign count_o = count_q;
  assign count_now = counting_q && count_ready_i;
  assign start_o = valid_i && (!counting_q || (count_now && count_last_q));
  assign beat_o = beat_q;
  assign last_o = last_q;
  assign for_hash_o = for_hash_q;

  stream_fifo #(
    .Width(BeatInfo + HashInfo),
    .Depth(2)
  ) u_second (
    .clk_i,
    .rst_ni,
    .valid_i(start_o),
    .ready_o(unused_ready),
    .data_i ({for_hash_i, for_beats_i}),
    .valid_o(unused_valid),
    .ready_i(beat_valid_i && last_q),
    .data_o ({for_hash, for_beats_o}),
    .count_o(unused_count)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      counting_q   <= 1'b0;
      count_q      <= '0;
      count_last_q <= 1'b0;
      beat_q       <= '0;
      last_q       <= 1'b0;
      for_hash_q   <= '0;
    end else begin
      counting_q <= start_o || (counting_q && !(count_now && count_last_q));
      if (count_now) begin
        count_q      <= count_q + 1'b1;
        count_last_q <= count_q == BeatWidth'(Beats - 2);
      end
      if (beat_valid_i) begin
        beat_q <= beat_q + 1'b1;
        last_q <= beat_q == BeatWidth'(Beats - 2);
        if (last_q) for_hash_q <= for_hash;
      end
    end
  end

endmodule
