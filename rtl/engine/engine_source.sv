// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads the data of requests, in order, and ahead of its use as far as the buffer has room:
// one item a block, then one that says how it ended. That is DONE after all blocks of the
// request, or another status after fewer. Room is set aside before a burst is asked for.
//
// What has been asked for is written down in `u_plan`, bursts and ends in their order;
// items are given by it. A block that the bus could not read, and all after it up to the
// end of its request, are left out; the end says READ then. An abandoned request is ended
// in the same way.
//
// From a request to its first burst on the bus: 5 cycles, without a list.

module engine_source
  import engine_pkg::*;
#(
  parameter int unsigned AddressBits = 64,
  // Blocks that can be there before they are used, a power of two; 64 or more.
  parameter int unsigned Depth = 512,
  // Of them, blocks that the bus may be asked for at a time: more would only keep the
  // fetches of lists waiting, which come back behind them. 64 or more, up to Depth.
  parameter int unsigned Ahead = 256,
  // Bursts and ends read ahead, 4 or more.
  parameter int unsigned Plans = 32
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Memory is being wiped after reset.
  output logic busy_o,
  // The oldest request waits for its list.
  output logic fetching_o,

  input  logic     request_valid_i,
  output logic     request_ready_o,
  input  request_t request_i,

  // The request of this number is to end soon, whatever has come of it.
  input logic       abandon_i,
  input logic [3:0] abandon_number_i,

  output logic  item_valid_o,
  input  logic  item_ready_i,
  output item_t item_o,

  // To the reader: entries of lists, and data.
  output logic     list_req_valid_o,
  input  logic     list_req_ready_i,
  output address_t list_req_address_o,
  output burst_t   list_req_blocks_o,
  input  logic     list_rsp_valid_i,
  output logic     data_req_valid_o,
  input  logic     data_req_ready_i,
  output address_t data_req_address_o,
  output burst_t   data_req_blocks_o,
  input  logic     data_rsp_valid_i,
  input  block_t   rsp_block_i,
  input  logic     rsp_error_i
);

  localparam int unsigned AddrWidth = $clog2(Depth);
  // Chunks and ends that wait: more than 4 KiB have in one piece.
  localparam int unsigned Steps = 8;
  localparam status_t StatusDone = 8'(engine_regs_pkg::StatusDone);
  localparam status_t StatusRead = 8'(engine_regs_pkg::StatusRead);

  // A burst of `blocks`, or an end with `status`.
  typedef struct packed {
    logic       last;
    logic [3:0] number;
    burst_t     blocks;
    status_t    status;
  } plan_t;

  // Requests, of which the oldest is walked.
  logic queued, done;
  request_t request;
  logic [1:0] queue_count;
  stream_fifo #(
    .Width($bits(request_t)),
    .Depth(2)
  ) u_requests (
    .clk_i,
    .rst_ni,
    .valid_i(request_valid_i),
    .ready_o(request_ready_o),
    .data_i (request_i),
    .valid_o(queued),
    .ready_i(done),
    .data_o (request),
    .count_o(queue_count)
  );

  // The walk of the oldest request has begun; it is broken off.
  logic walking_q, broken_q, break_off, start_valid, start_ready, walk_idle, empty;
  logic chunk_valid, chunk_ready, end_valid, end_ready;
  address_t chunk_address;
  burst_t chunk_blocks;
  status_t end_status;
  assign empty = request.empty || request.status != StatusDone;
  assign start_valid = queued && !walking_q && !empty && !break_off;
  list_walker #(
    .AddressBits(AddressBits)
  ) u_walker (
    .clk_i,
    .rst_ni,
    .stop_i         (broken_q),
    .idle_o         (walk_idle),
    .fetching_o,
    .start_valid_i  (start_valid),
    .start_ready_o  (start_ready),
    .list_i         (request.source_list),
    .address_i      (request.source),
    .entries_i      (request.source_entries),
    .blocks_i       (request.blocks),
    .skip_i         ('0),
    .loose_i        (1'b0),
    .chunk_valid_o  (chunk_valid),
    .chunk_ready_i  (chunk_ready),
    .chunk_address_o(chunk_address),
    .chunk_blocks_o (chunk_blocks),
    .end_valid_o    (end_valid),
    .end_ready_i    (end_ready),
    .end_status_o   (end_status),
    .req_valid_o    (list_req_valid_o),
    .req_ready_i    (list_req_ready_i),
    .req_address_o  (list_req_address_o),
    .req_blocks_o   (list_req_blocks_o),
    .rsp_valid_i    (list_rsp_valid_i),
    .rsp_block_i,
    .rsp_error_i
  );

  // What the walk gives, chunks and ends, goes through a queue. So the next list is fetched
  // while bursts wait for room. Ends: of a walk, of a walk that was broken off, and of a
  // request without data.
  typedef struct packed {
    plan_t                  plan;
    logic [AddressBits-1:0] address;
  } step_t;
  step_t walked, next;
  logic walked_valid, walked_ready, next_valid, next_pop;
  logic [$clog2(Steps+1)-1:0] next_count;
  assign end_ready = walked_ready && !broken_q;
  assign chunk_ready = walked_ready && !broken_q;
  always_comb begin
    done = 1'b0;
    walked.plan.status = request.status;
    if (queued && walked_ready) begin
      if (!walking_q) begin
        done = empty || break_off;
        if (!empty) walked.plan.status = StatusRead;
      end else if (broken_q) begin
        done = walk_idle;
        walked.plan.status = StatusRead;
      end else begin
        done = end_valid;
        walked.plan.status = end_status;
      end
    end
  end
  assign walked_valid = done || (chunk_valid && !broken_q);
  assign walked.plan.last = done;
  assign walked.plan.number = request.number;
  assign walked.plan.blocks = chunk_blocks;
  assign walked.address = chunk_address[AddressBits-1:0];
  stream_fifo #(
    .Width($bits(step_t)),
    .Depth(Steps)
  ) u_walked (
    .clk_i,
    .rst_ni,
    .valid_i(walked_valid),
    .ready_o(walked_ready),
    .data_i (walked),
    .valid_o(next_valid),
    .ready_i(next_pop),
    .data_o (next),
    .count_o(next_count)
  );

  // Answers come in order: a list that is asked for after the data of the request before
  // would come after them, and then its own data be too late. So if the walk is about to
  // get to the next list, data wait for the few cycles until that has been asked for.
  logic hold;
  assign hold = queued && !fetching_o && next_count != ($clog2(Steps + 1))'(Steps) &&
                (queue_count == 2'd2 ||
                 (request.source_list && !empty && next.plan.number != request.number));

  // A chunk is a burst once there is room for it, which then stays: room only grows, and
  // so does that of the plan. It is left out if nobody wants it any more, and all that follow
  // it in its request, whose end then is not DONE.
  logic [AddrWidth:0] room_q, awaited_q;
  logic plan_room, plan_push, plan_valid, plan_pop, asks, asked_q, pop, unwanted, cut, cut_q;
  plan_t plan_in, plan;
  logic [$clog2(Plans+1)-1:0] plan_count;
  assign plan_room = 32'(plan_count) != Plans;
  assign cut = next_valid && !next.plan.last && !asked_q && (cut_q || unwanted);
  assign data_req_valid_o = asked_q || (next_valid && !next.plan.last && !cut && plan_room &&
                                        !busy_o && !hold && room_q >= (AddrWidth + 1)'(next.plan.blocks) &&
                                        32'(awaited_q) + 32'(next.plan.blocks) <= Ahead);
  assign data_req_address_o = 64'(next.address);
  assign data_req_blocks_o = next.plan.blocks;
  assign asks = data_req_valid_o && data_req_ready_i;
  assign plan_push = asks || (next_valid && next.plan.last && plan_room);
  assign next_pop = plan_push || cut;
  always_comb begin
    plan_in = next.plan;
    if (cut_q) plan_in.status = StatusRead;
  end

  logic plan_ready;
  stream_fifo #(
    .Width($bits(plan_t)),
    .Depth(Plans)
  ) u_plan (
    .clk_i,
    .rst_ni,
    .valid_i(plan_push),
    .ready_o(plan_ready),
    .data_i (plan_in),
    .valid_o(plan_valid),
    .ready_i(plan_pop),
    .data_o (plan),
    .count_o(plan_count)
  );

  // Blocks, each with whether the bus failed.
  logic [AddrWidth-1:0] write_q, read_q;
  logic [AddrWidth:0] stored_q;
  logic read, failed;
  block_t block;
  wiped_ram #(
    .Width(129),
    .Depth(Depth)
  ) u_ram (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i     (data_rsp_valid_i),
    .write_addr_i(write_q),
    .write_data_i({rsp_error_i, rsp_block_i}),
    .read_i      (read),
    .read_addr_i (read_q),
    .read_data_o ({failed, block})
  );

  // At most one of a block, in the memory's output register, and an end is given.
  logic have_q, end_q, drop, drop_q, advance, abandoned;
  logic [3:0] number_q;
  status_t status_q;
  burst_t given_q;
  assign abandoned = abandon_i && plan.number == abandon_number_i;
  assign drop = drop_q || (have_q && failed);
  assign item_valid_o = end_q || (have_q && !drop);
  assign item_o.last = end_q;
  assign item_o.status = drop_q ? StatusRead : status_q;
  assign item_o.block = end_q ? '0 : block;
  assign pop = have_q && (drop || item_ready_i);
  assign advance = (!have_q && !end_q) || pop || (end_q && item_ready_i);
  assign read = advance && plan_valid && !plan.last && stored_q != '0;
  assign plan_pop = advance && plan_valid &&
                    (plan.last || (stored_q != '0 && given_q + 1'b1 == plan.blocks));

  // Of no use any more is what belongs to a request whose items are being left out.
  assign break_off = (drop_q && number_q == request.number) ||
                     (abandon_i && abandon_number_i == request.number);
  assign unwanted = (drop_q && number_q == next.plan.number) ||
                    (abandon_i && abandon_number_i == next.plan.number);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      walking_q <= 1'b0;
      broken_q  <= 1'b0;
      asked_q   <= 1'b0;
      cut_q     <= 1'b0;
      awaited_q <= '0;
      room_q    <= (AddrWidth + 1)'(Depth);
      write_q   <= '0;
      read_q    <= '0;
      stored_q  <= '0;
      have_q    <= 1'b0;
      end_q     <= 1'b0;
      drop_q    <= 1'b0;
      number_q  <= '0;
      status_q  <= '0;
      given_q   <= '0;
    end else begin
      asked_q <= data_req_valid_o && !data_req_ready_i;
      if (start_valid && start_ready) walking_q <= 1'b1;
      else if (walking_q && break_off) broken_q <= 1'b1;
      if (done) begin
        walking_q <= 1'b0;
        broken_q  <= 1'b0;
      end

      if (next_pop) cut_q <= cut;
      awaited_q <= awaited_q + (asks ? (AddrWidth + 1)'(next.plan.blocks) : '0) -
                   (AddrWidth + 1)'(data_rsp_valid_i);
      room_q <= room_q - (asks ? (AddrWidth + 1)'(next.plan.blocks) : '0) + (AddrWidth + 1)'(pop);
      stored_q <= stored_q + (AddrWidth + 1)'(data_rsp_valid_i) - (AddrWidth + 1)'(read);
      if (data_rsp_valid_i) write_q <= write_q + 1'b1;
      if (read) read_q <= read_q + 1'b1;

      if (advance) begin
        have_q <= read;
        end_q  <= plan_valid && plan.last;
        if (plan_valid) begin
          number_q <= plan.number;
          status_q <= plan.status;
        end
        if (read) given_q <= plan_pop ? '0 : given_q + 1'b1;
      end
      // What was offered already is not taken back.
      if ((have_q && failed) || (read && abandoned)) drop_q <= 1'b1;
      else if (end_q && item_ready_i) drop_q <= 1'b0;
    end
  end

  logic unused;
  assign unused = ^{plan_ready, request, chunk_address};

endmodule
