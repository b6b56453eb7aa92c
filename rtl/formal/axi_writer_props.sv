// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of axi_writer, with clients that ask for bursts as they may, and a bus that
// answers bursts that it has seen whole, in order: what is offered stays until it is taken, also when
// it is stopped meanwhile; a burst keeps within 4 KiB; each beat belongs to a burst whose
// address has been offered, carries the next bytes of a block that its client gave, and WLAST
// is with the last beat of the burst; bursts under way are counted right, and each is answered
// to its client alone. Stopped, it takes and tells nothing, sends no byte but those that the bus
// had been offered, and is idle when the bus has answered.

module axi_writer_props
  import engine_pkg::*;
#(
  parameter int unsigned Clients = 2,
  parameter int unsigned BusBytes = 16,
  parameter int unsigned AddressBits = 16,
  parameter int unsigned Outstanding = 2,
  localparam int unsigned Beats = 16 / BusBytes,
  localparam int unsigned BeatWidth = Beats > 1 ? $clog2(Beats) : 1,
  localparam int unsigned ClientWidth = Clients > 1 ? $clog2(Clients) : 1,
  localparam int unsigned CountWidth = $clog2(Outstanding + 1),
  localparam int unsigned IndexWidth = Outstanding > 1 ? $clog2(Outstanding) : 1,
  localparam int unsigned FeedWidth = ClientWidth + BurstWidth
) (
  input logic                     clk_i,
  input logic                     rst_ni,
  input logic                     stop_i,
  input logic                     idle_o,
  input logic     [  Clients-1:0] req_valid_i,
  input logic     [  Clients-1:0] req_ready_o,
  input address_t [  Clients-1:0] req_address_i,
  input burst_t   [  Clients-1:0] req_blocks_i,
  input logic     [  Clients-1:0] data_valid_i,
  input logic     [  Clients-1:0] data_ready_o,
  input block_t   [  Clients-1:0] data_block_i,
  input logic     [  Clients-1:0] done_valid_o,
  input logic                     done_error_o,
  input logic                     awvalid_o,
  input logic                     awready_i,
  input logic   [AddressBits-1:0] awaddr_o,
  input logic   [            7:0] awlen_o,
  input logic                     wvalid_o,
  input logic                     wready_i,
  input logic   [ 8*BusBytes-1:0] wdata_o,
  input logic   [   BusBytes-1:0] wstrb_o,
  input logic                     wlast_o,
  input logic                     bvalid_i,
  input logic                     bready_o,
  input logic   [            1:0] bresp_i,
  input logic                     take,
  input logic   [ClientWidth-1:0] chosen,
  input logic   [ClientWidth-1:0] whose,
  input logic   [ClientWidth-1:0] feeder,
  input logic   [ CountWidth-1:0] outstanding,
  input logic   [ CountWidth-1:0] unfed,
  input logic   [  BeatWidth-1:0] beats_q,
  input logic                     final_q,
  input burst_t                   taken_q,
  input logic   [ IndexWidth-1:0] head_q,
  input logic   [ IndexWidth-1:0] tail_q,
  input logic   [ClientWidth-1:0] entries_q[Outstanding],
  input logic   [ IndexWidth-1:0] feed_head_q,
  input logic   [ IndexWidth-1:0] feed_tail_q,
  input logic   [  FeedWidth-1:0] feed_entries_q[Outstanding]
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  // Reset only at the start: it is that of the bus.
  always_comb assume (rst_ni == started_q);

  stream_rules #(
    .Width(AddressBits + 8)
  ) u_aw (
    .clk_i,
    .rst_ni,
    .valid_i(awvalid_o),
    .ready_i(awready_i),
    .data_i ({awaddr_o, awlen_o})
  );
  stream_rules #(
    .Width(9 * BusBytes + 1)
  ) u_w (
    .clk_i,
    .rst_ni,
    .valid_i(wvalid_o),
    .ready_i(wready_i),
    .data_i ({wdata_o, wstrb_o, wlast_o})
  );

  // Clients ask for bursts that are allowed.
  always_comb begin
    for (int i = 0; i < int'(Clients); i++) begin
      assume (req_blocks_i[i] != '0 && req_blocks_i[i] <= BurstWidth'(BurstBlocks));
      assume (req_address_i[i][3:0] == '0);
      assume (9'(req_address_i[i][11:4]) + 9'(req_blocks_i[i]) <= 9'd256);
    end
  end
  // Whoever stops it goes on until it is idle.
  logic stopped_q, idle_q;
  initial stopped_q = 1'b0;
  always_ff @(posedge clk_i) begin
    stopped_q <= stop_i && rst_ni;
    idle_q    <= idle_o;
  end
  always_comb if (stopped_q && !idle_q) assume (stop_i);

  // Bursts of which the bus has the address, of which it has all data, and of which it has given
  // no answer; it answers those of which it has both.
  logic [CountWidth-1:0] addressed_q, written_q;
  logic last_taken, answered;
  assign last_taken = wvalid_o && wready_i && wlast_o;
  assign answered = bvalid_i && bready_o;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      addressed_q <= '0;
      written_q   <= '0;
    end else begin
      addressed_q <= addressed_q + CountWidth'(awvalid_o && awready_i) - CountWidth'(answered);
      written_q   <= written_q + CountWidth'(last_taken) - CountWidth'(answered);
    end
  end
  always_comb if (bvalid_i) assume (addressed_q != '0 && written_q != '0);

  // Any one burst, from its request to its answer, and to its beats.
  logic follows, fed_follows;
  logic [ClientWidth-1:0] client;
  logic [CountWidth-1:0] ahead, beats_ahead;
  followed_entry #(
    .Width(ClientWidth),
    .CountWidth(CountWidth)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i  (take),
    .pop_i   (answered),
    .data_i  (chosen),
    .count_i (outstanding),
    .chosen_o(follows),
    .data_o  (client),
    .ahead_o (ahead)
  );
  // Bursts whose last beat is not taken: those not fed, and one whose last block is on the bus.
  logic [8:0] beats;
  logic [CountWidth-1:0] unsent;
  logic [7:0] beat_q;
  logic [ClientWidth+8:0] fed_burst;
  assign unsent = unfed + CountWidth'(wvalid_o && final_q);
  followed_entry #(
    .Width(ClientWidth + 9),
    .CountWidth(CountWidth)
  ) u_sent (
    .clk_i,
    .rst_ni,
    .push_i  (take),
    .pop_i   (last_taken),
    .data_i  ({chosen, 9'(req_blocks_i[chosen]) * 9'(Beats)}),
    .count_i (unsent),
    .chosen_o(fed_follows),
    .data_o  (fed_burst),
    .ahead_o (beats_ahead)
  );
  assign beats = fed_burst[8:0];
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) beat_q <= '0;
    else if (wvalid_o && wready_i) beat_q <= wlast_o ? '0 : beat_q + 1'b1;
  end
  // Where that burst is, if it is not fed wholly.
  logic [FeedWidth-1:0] fed_entry;
  logic [CountWidth-1:0] place;
  assign place = beats_ahead - CountWidth'(wvalid_o && final_q);
  assign fed_entry = feed_entries_q[IndexWidth'((32'(feed_head_q) + 32'(place)) % Outstanding)];

  // The cycle before: an answer, a block that a client gave.
  logic answer_q, ours_q, error_q, gave_q, held_q, strobed_q;
  logic [ClientWidth-1:0] client_q;
  logic [8*BusBytes-1:0] first_q;
  initial gave_q = 1'b0;
  initial answer_q = 1'b0;
  initial held_q = 1'b0;
  always_ff @(posedge clk_i) begin
    answer_q  <= rst_ni && answered && !stop_i;
    ours_q    <= follows && ahead == '0;
    client_q  <= client;
    error_q   <= bresp_i[1];
    gave_q    <= rst_ni && |(data_valid_i & data_ready_o);
    first_q   <= data_block_i[feeder][8*BusBytes-1:0];
    held_q    <= rst_ni && wvalid_o && !wready_i;
    strobed_q <= wstrb_o != '0;
  end

  always_comb begin
    if (rst_ni && started_q) begin
      if (awvalid_o) begin
        assert (9'(awaddr_o[11:4]) + (9'(awlen_o) + 9'd1) / 9'(Beats) <= 9'd256);
        assert (awaddr_o[3:0] == '0 && (9'(awlen_o) + 9'd1) % 9'(Beats) == '0);
      end
      assert (32'(outstanding) == 32'(addressed_q) + 32'(awvalid_o));
      assert (32'(outstanding) <= Outstanding);
      assert (32'(outstanding) == 32'(written_q) + 32'(unfed) + 32'(wvalid_o && final_q));
      assert (bready_o && $onehot0(done_valid_o) && $onehot0(data_ready_o));
      // Beats only of bursts whose address has been offered, and all of a burst.
      if (wvalid_o) assert (unsent != '0 && 32'(written_q) < 32'(addressed_q) + 32'(awvalid_o));
      if (!wvalid_o) assert (beats_q == '0);
      if (fed_follows && beats_ahead == '0 && wvalid_o) assert (wlast_o == (9'(beat_q) + 9'd1 == beats));
      if (follows && ahead == '0) assert (whose == client);
      // What a client gives goes out next, and with strobes.
      if (gave_q) assert (wvalid_o && wdata_o == first_q && wstrb_o == '1);
      assert (wstrb_o == '0 || wstrb_o == '1);
      if (answer_q && !stop_i) begin
        assert (done_valid_o != '0 && done_error_o == error_q);
        if (ours_q) assert (done_valid_o == Clients'(1) << client_q);
      end
      if (!answer_q) assert (done_valid_o == '0);
      if (stop_i) assert (req_ready_o == '0 && data_ready_o == '0 && done_valid_o == '0);
      // Once stopped, only the beat that was being offered has strobes.
      if (stopped_q && stop_i && wvalid_o && wstrb_o != '0) assert (held_q && strobed_q);
      if (stopped_q && stop_i && wvalid_o && wstrb_o == '0 && !held_q) assert (wdata_o == '0);
      if (stop_i && stopped_q && outstanding == '0) assert (idle_o);
      if (idle_o) assert (outstanding == '0 && !awvalid_o && !wvalid_o);

      // By which it follows from one cycle to the next.
      if (follows) begin
        assert (ahead < outstanding);
        assert (entries_q[IndexWidth'((32'(head_q) + 32'(ahead)) % Outstanding)] == client);
      end
      for (int i = 0; i < int'(Outstanding); i++) begin
        assert (32'(entries_q[i]) < Clients);
        assert (32'(feed_entries_q[i][FeedWidth-1:BurstWidth]) < Clients);
        assert (feed_entries_q[i][BurstWidth-1:0] <= BurstWidth'(BurstBlocks));
      end
      assert (32'(head_q) < Outstanding && 32'(feed_head_q) < Outstanding);
      assert (32'(tail_q) == (32'(head_q) + 32'(outstanding)) % Outstanding);
      assert (32'(feed_tail_q) == (32'(feed_head_q) + 32'(unfed)) % Outstanding);
      // Of the burst that is fed so many blocks were taken, the last of which is on the bus.
      if (wvalid_o && final_q) assert (taken_q == '0);
      else assert (9'(beat_q) + (wvalid_o ? 9'(beats_q) + 9'd1 : 9'd0) == 9'(taken_q) * 9'(Beats));
      if (unfed == '0) assert (taken_q == '0);
      else assert (taken_q < feed_entries_q[feed_head_q][BurstWidth-1:0]);
      for (int i = 0; i < int'(Outstanding); i++) begin
        if (32'(unsigned'(i)) < 32'(unfed)) begin
          assert (feed_entries_q[IndexWidth'((32'(feed_head_q) + 32'(unsigned'(i))) % Outstanding)][BurstWidth-1:0] != '0);
        end
      end
      assert (32'(beats_q) < Beats);
      if (fed_follows) begin
        assert (beats_ahead < unsent && beats != '0);
        if (!(wvalid_o && final_q && beats_ahead == '0)) begin
          assert (fed_entry == {fed_burst[ClientWidth+8:9], BurstWidth'(beats / 9'(Beats))});
          assert (beats % 9'(Beats) == '0 && beats <= 9'(BurstBlocks * Beats));
        end
        if (beats_ahead == '0) begin
          if (wvalid_o && final_q) assert (9'(beat_q) + 9'(beats_q) + 9'd1 == beats);
          else assert (9'(taken_q) * 9'(Beats) < beats);
        end
      end
    end
  end

  always_comb begin
    cover (rst_ni && 32'(addressed_q) == Outstanding && bvalid_i);
    cover (rst_ni && fed_follows && beats_ahead == '0 && wvalid_o && wlast_o && 32'(beats) == 2 * Beats && wstrb_o != '0);
    cover (rst_ni && ours_q && answer_q && 32'(client_q) == Clients - 1 && !stop_i && done_error_o);
    cover (rst_ni && stop_i && stopped_q && wvalid_o && wlast_o && wstrb_o == '0);
    cover (rst_ni && stop_i && stopped_q && idle_o && !idle_q);
  end

endmodule

bind axi_writer axi_writer_props #(
  .Clients    (Clients),
  .BusBytes   (BusBytes),
  .AddressBits(AddressBits),
  .Outstanding(Outstanding)
) u_props (
  .*,
  .head_q        (u_whose.head_q),
  .tail_q        (u_whose.tail_q),
  .entries_q     (u_whose.entries_q),
  .feed_head_q   (u_feeders.head_q),
  .feed_tail_q   (u_feeders.tail_q),
  .feed_entries_q(u_feeders.entries_q)
);
