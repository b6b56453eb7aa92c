// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Writes bursts of blocks to memory for several clients, by AXI4 with one ID: up to
// `Outstanding` bursts are under way, and are answered in the order in which they were
// asked for. A client asks for a burst when it has the data, or will have it without
// waiting; then it gives exactly its blocks. The last client goes first: completions, of
// which there are few. Constant signals (AWSIZE, AWBURST and so on) are not here.
//
// An address shows on the bus a cycle after the request was taken, and its data not
// before. Addresses go ahead of data, so that bursts follow each other without a gap.
//
// With `stop_i` nothing more is taken from clients or told to them: bursts that the bus
// knows of are ended with zeros that no byte strobe lets through. A beat that the bus was
// already offered stays as it is. Whoever stops it keeps `stop_i` high until `idle_o`. So
// only the reset of the bus itself comes here.

module axi_writer
  import engine_pkg::*;
#(
  parameter int unsigned Clients = 2,
  // Of a beat: 4, 8 or 16.
  parameter int unsigned BusBytes = 16,
  parameter int unsigned AddressBits = 64,
  // Bursts, 2 or more.
  parameter int unsigned Outstanding = 16
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic stop_i,
  output logic idle_o,

  // A burst: 1 to 64 blocks, aligned to 16 bytes, that does not cross 4 KiB.
  input  logic     [Clients-1:0] req_valid_i,
  output logic     [Clients-1:0] req_ready_o,
  input  address_t [Clients-1:0] req_address_i,
  input  burst_t   [Clients-1:0] req_blocks_i,

  input  logic   [Clients-1:0] data_valid_i,
  output logic   [Clients-1:0] data_ready_o,
  input  block_t [Clients-1:0] data_block_i,

  // One for each burst.
  output logic [Clients-1:0] done_valid_o,
  output logic               done_error_o,

  output logic                   awvalid_o,
  input  logic                   awready_i,
  output logic [AddressBits-1:0] awaddr_o,
  output logic [            7:0] awlen_o,
  output logic                   wvalid_o,
  input  logic                   wready_i,
  output logic [ 8*BusBytes-1:0] wdata_o,
  output logic [   BusBytes-1:0] wstrb_o,
  output logic                   wlast_o,
  input  logic                   bvalid_i,
  output logic                   bready_o,
  input  logic [            1:0] bresp_i
);

  localparam int unsigned Beats = 16 / BusBytes;
  localparam int unsigned BeatWidth = Beats > 1 ? $clog2(Beats) : 1;
  localparam int unsigned ClientWidth = Clients > 1 ? $clog2(Clients) : 1;
  localparam int unsigned CountWidth = $clog2(Outstanding + 1);

  logic [ClientWidth-1:0] chosen, feeder, whose;
  burst_t feeder_blocks;
  logic [CountWidth-1:0] outstanding, unfed;
  logic free, take;

  always_comb begin
    chosen = '0;
    for (int i = 0; i < int'(Clients); i++) begin
      if (req_valid_i[i]) chosen = ClientWidth'(unsigned'(i));
    end
  end

  logic aw_valid_q;
  logic [AddressBits-1:0] aw_address_q;
  logic [7:0] aw_len_q;
  assign free = !stop_i && (!aw_valid_q || awready_i) && outstanding != CountWidth'(Outstanding);
  assign take = free && req_valid_i != '0;
  always_comb begin
    req_ready_o = '0;
    req_ready_o[chosen] = free;
  end

  assign awvalid_o = aw_valid_q;
  assign awaddr_o  = aw_address_q;
  assign awlen_o   = aw_len_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      aw_valid_q   <= 1'b0;
      aw_address_q <= '0;
      aw_len_q     <= '0;
    end else begin
      if (take) begin
        aw_address_q <= req_address_i[chosen][AddressBits-1:0];
        aw_len_q     <= 8'(9'(req_blocks_i[chosen]) * 9'(Beats) - 9'd1);
      end
      aw_valid_q <= take || (aw_valid_q && !awready_i);
    end
  end

  // Bursts whose data is not all taken yet; at most as many as are outstanding.
  logic feed_ready, feeding, fed;
  stream_fifo #(
    .Width(ClientWidth + BurstWidth),
    .Depth(Outstanding)
  ) u_feeders (
    .clk_i,
    .rst_ni,
    .valid_i(take),
    .ready_o(feed_ready),
    .data_i ({chosen, req_blocks_i[chosen]}),
    .valid_o(feeding),
    .ready_i(fed),
    .data_o ({feeder, feeder_blocks}),
    .count_o(unfed)
  );

  // The block whose beats are on the bus, its next beat lowest.
  logic w_valid_q, strobe_q, final_q;
  logic [127:0] block_q, rest;
  logic [BeatWidth-1:0] beats_q;
  burst_t taken_q;
  logic load, fill, final_block;

  assign load = feeding && (!w_valid_q || (wready_i && beats_q == '0));
  assign fill = load && (stop_i || data_valid_i[feeder]);
  assign final_block = taken_q + 1'b1 == feeder_blocks;
  assign fed = fill && final_block;
  always_comb begin
    data_ready_o = '0;
    data_ready_o[feeder] = load && !stop_i;
  end

  if (Beats == 1) begin : gen_wide
    assign rest = '0;
  end else begin : gen_narrow
    assign rest = 128'(block_q[127:8*BusBytes]);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      w_valid_q <= 1'b0;
      strobe_q  <= 1'b0;
      final_q   <= 1'b0;
      block_q   <= '0;
      beats_q   <= '0;
      taken_q   <= '0;
    end else begin
      if (fill) begin
        w_valid_q <= 1'b1;
        strobe_q  <= !stop_i;
        final_q   <= final_block;
        block_q   <= stop_i ? '0 : data_block_i[feeder];
        beats_q   <= BeatWidth'(Beats - 1);
        taken_q   <= final_block ? '0 : taken_q + 1'b1;
      end else if (w_valid_q && wready_i) begin
        w_valid_q <= beats_q != '0;
        strobe_q  <= strobe_q && !stop_i;
        block_q   <= stop_i ? '0 : rest;
        beats_q   <= beats_q == '0 ? '0 : beats_q - 1'b1;
      end else if (stop_i) begin
        // All but the beat that the bus was offered.
        block_q <= w_valid_q ? 128'(block_q[8*BusBytes-1:0]) : '0;
      end
    end
  end

  assign wvalid_o = w_valid_q;
  assign wdata_o  = block_q[8*BusBytes-1:0];
  assign wstrb_o  = {BusBytes{strobe_q}};
  assign wlast_o  = final_q && beats_q == '0;

  logic whose_ready, whose_valid;
  stream_fifo #(
    .Width(ClientWidth),
    .Depth(Outstanding)
  ) u_whose (
    .clk_i,
    .rst_ni,
    .valid_i(take),
    .ready_o(whose_ready),
    .data_i (chosen),
    .valid_o(whose_valid),
    .ready_i(bvalid_i),
    .data_o (whose),
    .count_o(outstanding)
  );
  assign bready_o = 1'b1;

  logic [Clients-1:0] done_q;
  logic error_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      done_q  <= '0;
      error_q <= 1'b0;
    end else begin
      done_q <= '0;
      if (bvalid_i && !stop_i) done_q[whose] <= 1'b1;
      error_q <= bresp_i[1];
    end
  end
  assign done_valid_o = stop_i ? '0 : done_q;
  assign done_error_o = error_q;
  assign idle_o = outstanding == '0 && !aw_valid_q && !w_valid_q && done_q == '0;

  // Upper address bits were checked before; of the response only bit 1 says anything here.
  logic unused;
  assign unused = ^{req_address_i, feed_ready, unfed, whose_ready, whose_valid, bresp_i[0]};

endmodule
