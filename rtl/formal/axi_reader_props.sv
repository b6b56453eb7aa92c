// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of axi_reader, with clients that ask for bursts as they may, and a bus that
// answers what it was asked, in order: an address stays until it is taken, and its burst
// keeps within 4 KiB; bursts under way are counted right and never too many; every block goes
// to the client whose burst it is in, a cycle after its last beat, with its data and its
// error, and to nobody else; while it is stopped nothing is taken or given, and it is idle
// when the bus has answered.

module axi_reader_props
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
  localparam int unsigned IndexWidth = Outstanding > 1 ? $clog2(Outstanding) : 1
) (
  input logic                     clk_i,
  input logic                     rst_ni,
  input logic                     stop_i,
  input logic                     idle_o,
  input logic     [  Clients-1:0] req_valid_i,
  input logic     [  Clients-1:0] req_ready_o,
  input address_t [  Clients-1:0] req_address_i,
  input burst_t   [  Clients-1:0] req_blocks_i,
  input logic     [  Clients-1:0] rsp_valid_o,
  input block_t                   rsp_block_o,
  input logic                     rsp_last_o,
  input logic                     rsp_error_o,
  input logic                     arvalid_o,
  input logic                     arready_i,
  input logic   [AddressBits-1:0] araddr_o,
  input logic   [            7:0] arlen_o,
  input logic                     rvalid_i,
  input logic                     rready_o,
  input logic   [ 8*BusBytes-1:0] rdata_i,
  input logic   [            1:0] rresp_i,
  input logic                     rlast_i,
  input logic   [ CountWidth-1:0] outstanding,
  input logic   [ClientWidth-1:0] whose,
  input logic   [ClientWidth-1:0] chosen,
  input logic                     take,
  input logic   [  BeatWidth-1:0] count_q,
  input logic                     gathered_error,
  input logic   [ IndexWidth-1:0] head_q,
  input logic   [ IndexWidth-1:0] tail_q,
  input logic   [ClientWidth-1:0] entries_q[Outstanding]
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  // Reset only at the start: it is that of the bus.
  always_comb assume (rst_ni == started_q);

  stream_rules #(
    .Width(AddressBits + 8)
  ) u_ar (
    .clk_i,
    .rst_ni,
    .valid_i(arvalid_o),
    .ready_i(arready_i),
    .data_i ({araddr_o, arlen_o})
  );

  // Clients ask for bursts that are allowed.
  always_comb begin
    for (int i = 0; i < int'(Clients); i++) begin
      assume (req_blocks_i[i] != '0 && req_blocks_i[i] <= BurstWidth'(BurstBlocks));
      assume (req_address_i[i][3:0] == '0);
      assume (9'(req_address_i[i][11:4]) + 9'(req_blocks_i[i]) <= 9'd256);
    end
  end

  // Bursts that the bus has taken and not answered: it answers no others, with whole blocks.
  logic [CountWidth-1:0] taken_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) taken_q <= '0;
    else taken_q <= taken_q + CountWidth'(arvalid_o && arready_i) - CountWidth'(rvalid_i && rready_o && rlast_i);
  end
  always_comb begin
    if (rvalid_i) assume (taken_q != '0);
    if (rvalid_i && rlast_i) assume (count_q == BeatWidth'(Beats - 1));
  end
  // Whoever stops it goes on until it is idle.
  logic stopped_q, idle_q;
  initial stopped_q = 1'b0;
  always_ff @(posedge clk_i) begin
    stopped_q <= stop_i && rst_ni;
    idle_q    <= idle_o;
  end
  always_comb if (stopped_q && !idle_q) assume (stop_i);

  // Any one burst, from its request to its answer.
  logic follows;
  logic [ClientWidth-1:0] client;
  logic [CountWidth-1:0] ahead;
  followed_entry #(
    .Width(ClientWidth),
    .CountWidth(CountWidth)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i  (take),
    .pop_i   (rvalid_i && rready_o && rlast_i),
    .data_i  (chosen),
    .count_i (outstanding),
    .chosen_o(follows),
    .data_o  (client),
    .ahead_o (ahead)
  );

  // The cycle before.
  logic beat_q, whole_q, ours_q, last_q, error_q, stop_q, some_error_q;
  logic [8*BusBytes-1:0] data_q;
  logic [ClientWidth-1:0] client_q;
  initial beat_q = 1'b0;
  initial some_error_q = 1'b0;
  always_ff @(posedge clk_i) begin
    beat_q   <= rst_ni && rvalid_i && rready_o;
    whole_q  <= count_q == BeatWidth'(Beats - 1);
    ours_q   <= rst_ni && follows && ahead == '0;
    client_q <= client;
    last_q   <= rlast_i;
    data_q   <= rdata_i;
    stop_q   <= stop_i;
    error_q  <= rresp_i[1] || some_error_q;
    if (rvalid_i) some_error_q <= count_q != BeatWidth'(Beats - 1) && (some_error_q || rresp_i[1]);
  end

  always_comb begin
    if (rst_ni && started_q) begin
      assert (9'(araddr_o[11:4]) + (9'(arlen_o) + 9'd1) / 9'(Beats) <= 9'd256 || !arvalid_o);
      assert (araddr_o[3:0] == '0 || !arvalid_o);
      assert ((9'(arlen_o) + 9'd1) % 9'(Beats) == '0 || !arvalid_o);
      assert (32'(outstanding) == 32'(taken_q) + 32'(arvalid_o));
      assert (32'(outstanding) <= Outstanding && (taken_q != '0 || count_q == '0));
      assert (rready_o && $onehot0(rsp_valid_o));
      if (follows) begin
        assert (ahead < outstanding);
        assert (entries_q[IndexWidth'((32'(head_q) + 32'(ahead)) % Outstanding)] == client);
      end
      if (follows && ahead == '0) assert (whose == client);
      if (stop_i) assert (req_ready_o == '0 && rsp_valid_o == '0);
      if (!stop_i && !stop_q) begin
        assert ((rsp_valid_o != '0) == (beat_q && whole_q));
        if (beat_q && whole_q) begin
          assert (rsp_block_o[127:128-8*BusBytes] == data_q && rsp_last_o == last_q);
          assert (rsp_error_o == error_q);
          if (ours_q) assert (rsp_valid_o == Clients'(1) << client_q);
        end
      end
      // Stopped, it waits for the bus, and for nothing else.
      if (stop_i && stop_q && taken_q == '0 && !arvalid_o && !beat_q) assert (idle_o);
      if (idle_o) assert (taken_q == '0 && !arvalid_o);
    end
  end

  always_comb begin
    if (rst_ni && started_q) begin
      assert (32'(count_q) < Beats);
      // An error of an earlier beat of the same block is kept.
      if (count_q == '0) assert (!some_error_q);
      else assert (some_error_q == gathered_error);
      for (int i = 0; i < int'(Outstanding); i++) assert (32'(entries_q[i]) < Clients);
      assert (32'(head_q) < Outstanding);
      assert (32'(tail_q) == (32'(head_q) + 32'(outstanding)) % Outstanding);
    end
  end

  always_comb begin
    cover (rst_ni && 32'(taken_q) == Outstanding && rvalid_i);
    cover (rst_ni && ours_q && beat_q && whole_q && last_q && 32'(client_q) == Clients - 1 && !stop_i);
    cover (rst_ni && stop_i && stop_q && idle_o && ours_q);
    cover (rst_ni && |rsp_valid_o && rsp_error_o);
  end

endmodule

bind axi_reader axi_reader_props #(
  .Clients    (Clients),
  .BusBytes   (BusBytes),
  .AddressBits(AddressBits),
  .Outstanding(Outstanding)
) u_props (
  .*,
  .gathered_error(error_q),
  .head_q        (u_whose.head_q),
  .tail_q        (u_whose.tail_q),
  .entries_q     (u_whose.entries_q)
);
