// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads bursts of blocks from memory for several clients, by AXI4 with one ID: up to
// `Outstanding` bursts are under way, and come back in the order in which they were asked
// for. Who asks has room for the answer, so answers do not wait: RREADY is always high.
// Client 0 goes before 1 and so on, but the last one, the data, gets every fourth turn at
// least. Constant signals (ARSIZE, ARBURST and so on) are not here.
//
// A request shows on the bus a cycle after it was taken, a block with its client a cycle
// after its last beat.
//
// With `stop_i` nothing is taken or given to clients; what the bus has seen is seen through
// and forgotten. Whoever stops it keeps `stop_i` high until `idle_o`. So only the reset of
// the bus itself comes here.

module axi_reader
  import engine_pkg::*;
#(
  parameter int unsigned Clients = 4,
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

  output logic   [Clients-1:0] rsp_valid_o,
  output block_t               rsp_block_o,
  // Of the burst.
  output logic                 rsp_last_o,
  // The bus reported an error for this block, which is not to be used.
  output logic                 rsp_error_o,

  output logic                   arvalid_o,
  input  logic                   arready_i,
  output logic [AddressBits-1:0] araddr_o,
  output logic [            7:0] arlen_o,
  input  logic                   rvalid_i,
  output logic                   rready_o,
  input  logic [ 8*BusBytes-1:0] rdata_i,
  input  logic [            1:0] rresp_i,
  input  logic                   rlast_i
);

  localparam int unsigned Beats = 16 / BusBytes;
  localparam int unsigned BeatWidth = Beats > 1 ? $clog2(Beats) : 1;
  localparam int unsigned ClientWidth = Clients > 1 ? $clog2(Clients) : 1;
  localparam int unsigned CountWidth = $clog2(Outstanding + 1);

  logic [ClientWidth-1:0] chosen, whose;
  logic [CountWidth-1:0] outstanding;
  // Turns of others while the last client waited.
  logic [1:0] passed_q;
  logic free, take, beat, whole;

  always_comb begin
    chosen = '0;
    for (int i = int'(Clients) - 1; i >= 0; i--) begin
      if (req_valid_i[i]) chosen = ClientWidth'(unsigned'(i));
    end
    if (req_valid_i[Clients-1] && passed_q == 2'd3) chosen = ClientWidth'(Clients - 1);
  end

  logic ar_valid_q;
  logic [AddressBits-1:0] ar_address_q;
  logic [7:0] ar_len_q;
  assign free = !stop_i && (!ar_valid_q || arready_i) && outstanding != CountWidth'(Outstanding);
  assign take = free && req_valid_i != '0;
  always_comb begin
    req_ready_o = '0;
    req_ready_o[chosen] = free;
  end

  assign arvalid_o = ar_valid_q;
  assign araddr_o  = ar_address_q;
  assign arlen_o   = ar_len_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      passed_q     <= '0;
      ar_valid_q   <= 1'b0;
      ar_address_q <= '0;
      ar_len_q     <= '0;
    end else begin
      if (take) begin
        if (!req_valid_i[Clients-1] || 32'(chosen) == Clients - 1) passed_q <= '0;
        else passed_q <= passed_q + 1'b1;
        ar_address_q <= req_address_i[chosen][AddressBits-1:0];
        ar_len_q     <= 8'(9'(req_blocks_i[chosen]) * 9'(Beats) - 9'd1);
      end
      ar_valid_q <= take || (ar_valid_q && !arready_i);
    end
  end

  logic fifo_ready, fifo_valid;
  stream_fifo #(
    .Width(ClientWidth),
    .Depth(Outstanding)
  ) u_whose (
    .clk_i,
    .rst_ni,
    .valid_i(take),
    .ready_o(fifo_ready),
    .data_i (chosen),
    .valid_o(fifo_valid),
    .ready_i(beat && rlast_i),
    .data_o (whose),
    .count_o(outstanding)
  );

  assign rready_o = 1'b1;
  assign beat = rvalid_i;

  logic [Clients-1:0] valid_q;
  logic [127:0] block_q, gathered;
  logic [BeatWidth-1:0] count_q;
  logic last_q, error_q, error;

  assign whole = beat && count_q == BeatWidth'(Beats - 1);
  assign error = rresp_i[1] || (count_q != '0 && error_q);
  if (Beats == 1) begin : gen_wide
    assign gathered = rdata_i;
  end else begin : gen_narrow
    assign gathered = {rdata_i, block_q[127:8*BusBytes]};
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= '0;
      block_q <= '0;
      count_q <= '0;
      last_q  <= 1'b0;
      error_q <= 1'b0;
    end else begin
      valid_q <= '0;
      if (whole && !stop_i) valid_q[whose] <= 1'b1;
      if (beat) begin
        block_q <= gathered;
        count_q <= whole ? '0 : count_q + 1'b1;
        last_q  <= rlast_i;
        error_q <= error;
      end
      if (stop_i) block_q <= '0;
    end
  end

  assign rsp_valid_o = stop_i ? '0 : valid_q;
  assign rsp_block_o = block_q;
  assign rsp_last_o  = last_q;
  assign rsp_error_o = error_q;
  assign idle_o = outstanding == '0 && !ar_valid_q && valid_q == '0;

  // Upper address bits were checked before; of the response only bit 1 says anything here.
  logic unused;
  assign unused = ^{req_address_i, fifo_ready, fifo_valid, rresp_i[0]};

endmodule
