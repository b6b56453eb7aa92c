// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The co-processor's two ends, source and destination, with its masters of the memory bus,
// joined by what stands for the cipher: it inverts all bits, pads units whose data end early
// with a pattern that must never stay in memory, and gives verdicts. The reader's first and
// the writer's last client, rings and completions, are ports.

module engine_dma_tb
  import engine_pkg::*;
#(
  parameter int unsigned BusBytes = 16,
  parameter int unsigned AddressBits = 40
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Soft reset; `stop_i` is held until `idle_o`.
  input  logic clear_i,
  input  logic stop_i,
  output logic idle_o,
  output logic busy_o,

  input  logic                    request_valid_i,
  output logic                    request_ready_o,
  input  logic [             3:0] number_i,
  input  logic [            63:0] cookie_i,
  input  logic                    empty_i,
  input  logic [             7:0] status_i,
  input  logic [             8:0] unit_blocks_i,
  input  logic [ BlocksWidth-1:0] blocks_i,
  input  logic                    source_list_i,
  input  logic [            63:0] source_i,
  input  logic [EntriesWidth-1:0] source_entries_i,
  input  logic                    destination_list_i,
  input  logic [            63:0] destination_i,
  input  logic [EntriesWidth-1:0] destination_entries_i,

  output logic                   result_valid_o,
  input  logic                   result_ready_i,
  output logic [           63:0] result_cookie_o,
  output logic [            7:0] result_status_o,
  output logic [BlocksWidth-1:0] result_blocks_o,
  output logic [            3:0] result_log2_unit_o,
  output logic                   result_not_erased_o,

  // A block leaves what stands for the cipher.
  output logic out_taken_o,

  input  logic                  ring_valid_i,
  output logic                  ring_ready_o,
  input  logic [          63:0] ring_address_i,
  input  logic [BurstWidth-1:0] ring_blocks_i,
  output logic                  ring_rsp_valid_o,
  output logic [         127:0] ring_rsp_block_o,
  output logic                  ring_rsp_last_o,
  output logic                  ring_rsp_error_o,

  input  logic         post_valid_i,
  output logic         post_ready_o,
  input  logic [ 63:0] post_address_i,
  input  logic         post_data_valid_i,
  output logic         post_data_ready_o,
  input  logic [127:0] post_block_i,
  output logic         post_done_o,
  output logic         post_error_o,

  output logic                   arvalid_o,
  input  logic                   arready_i,
  output logic [AddressBits-1:0] araddr_o,
  output logic [            7:0] arlen_o,
  input  logic                   rvalid_i,
  output logic                   rready_o,
  input  logic [ 8*BusBytes-1:0] rdata_i,
  input  logic [            1:0] rresp_i,
  input  logic                   rlast_i,
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

  // What units are padded with.
  localparam block_t Pad = {16{8'ha5}};

  logic rst_n;
  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no(rst_n)
  );

  request_t request;
  always_comb begin
    request = '0;
    request.number = number_i;
    request.cookie = cookie_i;
    request.empty = empty_i;
    request.status = status_i;
    request.unit_blocks = unit_blocks_i;
    request.blocks = blocks_i;
    request.source_list = source_list_i;
    request.source = source_i;
    request.source_entries = source_entries_i;
    request.destination_list = destination_list_i;
    request.destination = destination_i;
    request.destination_entries = destination_entries_i;
  end

  // A request goes to all three at once.
  logic source_ready, cipher_ready, destination_ready, take, busy_source, busy_destination;
  assign request_ready_o = source_ready && cipher_ready && destination_ready;
  assign take = request_valid_i && request_ready_o;
  assign busy_o = busy_source || busy_destination;

  logic [3:0] read_valid, read_ready, rsp_valid;
  address_t [3:0] read_address;
  burst_t [3:0] read_blocks;
  block_t rsp_block;
  logic rsp_last, rsp_error, read_idle, write_idle;
  assign read_valid[0] = ring_valid_i;
  assign read_address[0] = ring_address_i;
  assign read_blocks[0] = ring_blocks_i;
  assign ring_ready_o = read_ready[0];
  assign ring_rsp_valid_o = rsp_valid[0];
  assign ring_rsp_block_o = rsp_block;
  assign ring_rsp_last_o = rsp_last;
  assign ring_rsp_error_o = rsp_error;
  axi_reader #(
    .Clients(4),
    .BusBytes(BusBytes),
    .AddressBits(AddressBits)
  ) u_reader (
    .clk_i,
    .rst_ni,
    .stop_i,
    .idle_o       (read_idle),
    .req_valid_i  (read_valid),
    .req_ready_o  (read_ready),
    .req_address_i(read_address),
    .req_blocks_i (read_blocks),
    .rsp_valid_o  (rsp_valid),
    .rsp_block_o  (rsp_block),
    .rsp_last_o   (rsp_last),
    .rsp_error_o  (rsp_error),
    .arvalid_o, .arready_i, .araddr_o, .arlen_o,
    .rvalid_i, .rready_o, .rdata_i, .rresp_i, .rlast_i
  );

  logic [1:0] write_valid, write_ready, data_valid, data_ready, done_valid;
  address_t [1:0] write_address;
  burst_t [1:0] write_blocks;
  block_t [1:0] data_block;
  logic done_error;
  assign write_valid[1] = post_valid_i;
  assign write_address[1] = post_address_i;
  assign write_blocks[1] = 7'd1;
  assign data_valid[1] = post_data_valid_i;
  assign data_block[1] = post_block_i;
  assign post_ready_o = write_ready[1];
  assign post_data_ready_o = data_ready[1];
  assign post_done_o = done_valid[1];
  assign post_error_o = done_error;
  axi_writer #(
    .Clients(2),
    .BusBytes(BusBytes),
    .AddressBits(AddressBits)
  ) u_writer (
    .clk_i,
    .rst_ni,
    .stop_i,
    .idle_o       (write_idle),
    .req_valid_i  (write_valid),
    .req_ready_o  (write_ready),
    .req_address_i(write_address),
    .req_blocks_i (write_blocks),
    .data_valid_i (data_valid),
    .data_ready_o (data_ready),
    .data_block_i (data_block),
    .done_valid_o (done_valid),
    .done_error_o (done_error),
    .awvalid_o, .awready_i, .awaddr_o, .awlen_o,
    .wvalid_o, .wready_i, .wdata_o, .wstrb_o, .wlast_o,
    .bvalid_i, .bready_o, .bresp_i
  );
  assign idle_o = read_idle && write_idle;

  logic item_valid, item_ready, cancel, fetching_source, fetching_destination, waiting;
  logic [3:0] cancel_number;
  item_t item;
  engine_source #(
    .AddressBits(AddressBits)
  ) u_source (
    .clk_i,
    .rst_ni            (rst_n),
    .busy_o            (busy_source),
    .fetching_o        (fetching_source),
    .request_valid_i   (take),
    .request_ready_o   (source_ready),
    .request_i         (request),
    .abandon_i         (cancel),
    .abandon_number_i  (cancel_number),
    .item_valid_o      (item_valid),
    .item_ready_i      (item_ready),
    .item_o            (item),
    .list_req_valid_o  (read_valid[1]),
    .list_req_ready_i  (read_ready[1]),
    .list_req_address_o(read_address[1]),
    .list_req_blocks_o (read_blocks[1]),
    .list_rsp_valid_i  (rsp_valid[1]),
    .data_req_valid_o  (read_valid[3]),
    .data_req_ready_i  (read_ready[3]),
    .data_req_address_o(read_address[3]),
    .data_req_blocks_o (read_blocks[3]),
    .data_rsp_valid_i  (rsp_valid[3]),
    .rsp_block_i       (rsp_block),
    .rsp_error_i       (rsp_error)
  );

  // The cipher's part.
  logic at_work, finished;
  request_t at;
  logic [3:0] count;
  stream_fifo #(
    .Width($bits(request_t)),
    .Depth(8)
  ) u_requests (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(take),
    .ready_o(cipher_ready),
    .data_i (request),
    .valid_o(at_work),
    .ready_i(finished),
    .data_o (at),
    .count_o(count)
  );
  // The last block stays here until what follows it is known, so that the verdict is first.
  logic kept_valid_q;
  block_t kept_q;
  blocks_t fed_q, pad_q, whole, issued;
  logic push_valid, push_ready, out_valid, out_ready, verdict_valid, verdict_ready, ends;
  block_t push_block, out_block;
  verdict_t verdict;
  assign ends = item.last;
  assign item_ready = at_work && pad_q == '0 && push_ready && (!ends || verdict_ready);
  assign push_valid = pad_q != '0 || (item_valid && item_ready && kept_valid_q);
  assign push_block = kept_valid_q ? kept_q : Pad;
  assign verdict_valid = item_valid && at_work && pad_q == '0 && push_ready && ends;
  assign whole = fed_q & ~(BlocksWidth'(at.unit_blocks) - 1'b1);
  // The unit that was begun is ended, and some have begun the next one.
  always_comb begin
    issued = whole;
    if (fed_q != whole) issued = issued + BlocksWidth'(at.unit_blocks);
    if (at.number[0] && issued < at.blocks && !at.empty) issued = issued + BlocksWidth'(at.unit_blocks);
  end
  assign verdict.number = at.number;
  assign verdict.status = item.status;
  assign verdict.good = whole;
  assign verdict.issued = issued;
  assign finished = verdict_valid && verdict_ready;
  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      kept_valid_q <= 1'b0;
      kept_q       <= '0;
      fed_q        <= '0;
      pad_q        <= '0;
    end else if (pad_q != '0) begin
      if (push_ready) begin
        pad_q        <= pad_q - 1'b1;
        kept_valid_q <= 1'b0;
      end
    end else if (item_valid && item_ready) begin
      kept_valid_q <= !ends;
      kept_q       <= ~item.block;
      fed_q        <= ends ? '0 : fed_q + 1'b1;
      if (ends) pad_q <= issued - fed_q;
    end
  end
  logic [3:0] out_count;
  stream_fifo #(
    .Width(128),
    .Depth(8)
  ) u_out (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(push_valid),
    .ready_o(push_ready),
    .data_i (push_block),
    .valid_o(out_valid),
    .ready_i(out_ready),
    .data_o (out_block),
    .count_o(out_count)
  );
  assign out_taken_o = out_valid && out_ready;

  result_t result;
  engine_destination #(
    .AddressBits(AddressBits)
  ) u_destination (
    .clk_i,
    .rst_ni            (rst_n),
    .busy_o            (busy_destination),
    .waiting_o         (waiting),
    .fetching_o        (fetching_destination),
    .request_valid_i   (take),
    .request_ready_o   (destination_ready),
    .request_i         (request),
    .out_valid_i       (out_valid),
    .out_ready_o       (out_ready),
    .out_block_i       (out_block),
    .verdict_valid_i   (verdict_valid),
    .verdict_ready_o   (verdict_ready),
    .verdict_i         (verdict),
    .cancel_o          (cancel),
    .cancel_number_o   (cancel_number),
    .result_valid_o    (result_valid_o),
    .result_ready_i,
    .result_o          (result),
    .list_req_valid_o  (read_valid[2]),
    .list_req_ready_i  (read_ready[2]),
    .list_req_address_o(read_address[2]),
    .list_req_blocks_o (read_blocks[2]),
    .list_rsp_valid_i  (rsp_valid[2]),
    .rsp_block_i       (rsp_block),
    .rsp_error_i       (rsp_error),
    .req_valid_o       (write_valid[0]),
    .req_ready_i       (write_ready[0]),
    .req_address_o     (write_address[0]),
    .req_blocks_o      (write_blocks[0]),
    .data_valid_o      (data_valid[0]),
    .data_ready_i      (data_ready[0]),
    .data_block_o      (data_block[0]),
    .done_valid_i      (done_valid[0]),
    .done_error_i      (done_error)
  );
  assign result_cookie_o = result.cookie;
  assign result_status_o = result.status;
  assign result_blocks_o = result.blocks;
  assign result_log2_unit_o = result.log2_unit_blocks;
  assign result_not_erased_o = result.not_erased;

  logic unused;
  assign unused = ^{count, out_count, at, result, fetching_source, fetching_destination, waiting};

endmodule
