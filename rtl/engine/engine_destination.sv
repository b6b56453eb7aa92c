// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Writes the cipher's output to memory, request by request, and says how each ended.
//
// Up to `Requests` are here at a time, in a table, at three stages in order:
//
//   walk     where its blocks go is being found out, ahead of them
//   collect  its blocks come in; as soon as those of a burst are there, the burst begins
//   answer   all of its bursts have begun; the bus has not answered all of them
//
// So bursts of consecutive requests follow each other without a gap. Bursts are short, and
// half as long at the end of a request, for what counts there is the time from the last block
// to the last beat.
//
// A request fails when the bus refuses a burst, its list ends or is wrong, or the verdict says that
// not all of its blocks are good. Then no more of it is written, its remaining blocks are
// swallowed, and its good blocks are the whole units before the first that is not written or
// not good. What has been offered to the bus beyond them is written over with zeros
// before the result: all bursts under way, also of later requests, are waited for, and the
// list is walked again. `cancel_o` tells the cipher that no more is wanted.

module engine_destination
  import engine_pkg::*;
#(
  parameter int unsigned AddressBits = 64,
  // Blocks of a burst, a power of two.
  parameter int unsigned Burst = 16,
  // Blocks that can wait for the bus, a power of two; four bursts or more.
  parameter int unsigned Depth = 128,
  // In the table, a power of two.
  parameter int unsigned Requests = 8,
  // Bursts under way: as many as the writer takes, and two that wait for it.
  parameter int unsigned Bursts = 18
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Memory is being wiped after reset.
  output logic busy_o,
  // The oldest request is through the cipher, but not written.
  output logic waiting_o,
  // A block can not go on since its list is not there.
  output logic fetching_o,

  input  logic     request_valid_i,
  output logic     request_ready_o,
  input  request_t request_i,

  input  logic     out_valid_i,
  output logic     out_ready_o,
  input  block_t   out_block_i,
  input  logic     verdict_valid_i,
  output logic     verdict_ready_o,
  input  verdict_t verdict_i,

  output logic       cancel_o,
  output logic [3:0] cancel_number_o,

  output logic    result_valid_o,
  input  logic    result_ready_i,
  output result_t result_o,

  // To the reader: entries of lists.
  output logic     list_req_valid_o,
  input  logic     list_req_ready_i,
  output address_t list_req_address_o,
  output burst_t   list_req_blocks_o,
  input  logic     list_rsp_valid_i,
  input  block_t   rsp_block_i,
  input  logic     rsp_error_i,

  // To the writer.
  output logic     req_valid_o,
  input  logic     req_ready_i,
  output address_t req_address_o,
  output burst_t   req_blocks_o,
  output logic     data_valid_o,
  input  logic     data_ready_i,
  output block_t   data_block_o,
  input  logic     done_valid_i,
  input  logic     done_error_i
);

  localparam int unsigned IndexWidth = $clog2(Requests);
  localparam int unsigned CountWidth = $clog2(Depth) + 1;
  localparam int unsigned BurstsWidth = $clog2(Bursts + 1);
  localparam status_t StatusDone = 8'(engine_regs_pkg::StatusDone);
  localparam status_t StatusWrite = 8'(engine_regs_pkg::StatusWrite);

  typedef logic [IndexWidth-1:0] index_t;
  // With a bit more, so that full and empty differ.
  typedef logic [IndexWidth:0] pointer_t;

  // What is kept of a request.
  typedef struct packed {
    logic [2:0]              ring;
    logic [3:0]              number;
    logic [63:0]             cookie;
    logic                    wakes;
    logic                    empty;
    logic [8:0]              unit_blocks;
    blocks_t                 blocks;
    logic                    by_list;
    address_t                address;
    logic [EntriesWidth-1:0] entries;
  } entry_t;

  entry_t entries_q[Requests];
  status_t status_q[Requests];
  // Blocks offered to the bus; of them, from the first on, written; and bursts not answered.
  blocks_t offered_q[Requests], written_q[Requests];
  logic [BurstsWidth-1:0] pending_q[Requests];
  // The bus refused a burst.
  logic refused_q[Requests];
  // As the verdict has it, from when all blocks have come.
  blocks_t good_q[Requests];

  // Of the next to be taken in, walked, collected and answered.
  pointer_t head_q, walk_q, collect_q, answer_q;
  index_t head, walk, collect, answer;
  assign head = head_q[IndexWidth-1:0];
  assign walk = walk_q[IndexWidth-1:0];
  assign collect = collect_q[IndexWidth-1:0];
  assign answer = answer_q[IndexWidth-1:0];

  logic accept, close, finish;
  assign request_ready_o = head_q - answer_q != (IndexWidth + 1)'(Requests);
  assign accept = request_valid_i && request_ready_o;

  // What the erasing needs. While it is `held_q`, no other burst begins and no request is closed.
  typedef enum logic [1:0] {
    // For the oldest request to be answered.
    Wait,
    // For all bursts to be answered, before zeros are written.
    Settle,
    Erase,
    // The result is there.
    Tell
  } state_e;
  state_e state_q;
  logic held, erasing, erase_run_q, erase_failed_q, settled;
  blocks_t done_q;
  assign erasing = state_q == Erase;
  assign held = state_q == Settle || erasing;

  // Walk.
  logic run_valid, run_ready, no_data, flush, flushing, next_run, bursts_empty;
  entry_t walked;
  assign walked = entries_q[held ? answer : walk];
  assign no_data = walked.empty;
  assign next_run = walk_q != head_q && !held && !flush;
  assign run_valid = held ? erase_run_q : next_run && !no_data;

  // Bursts.
  logic chunk_valid, fault_valid, fault_ready;
  address_t chunk_address;
  burst_t chunk_size, take;
  status_t fault_status;
  logic fetching;
  destination_bursts #(
    .AddressBits(AddressBits),
    .Burst      (Burst)
  ) u_bursts (
    .clk_i,
    .rst_ni,
    .flush_i       (flush),
    .flushing_o    (flushing),
    .fetching_o    (fetching),
    .empty_o       (bursts_empty),
    .run_valid_i   (run_valid),
    .run_ready_o   (run_ready),
    .list_i        (walked.by_list),
    .address_i     (walked.address),
    .entries_i     (walked.entries),
    .blocks_i      (held ? offered_q[answer] : walked.blocks),
    .skip_i        (held ? done_q : walk_q == collect_q ? offered_q[walk] : '0),
    .loose_i       (held),
    .valid_o       (chunk_valid),
    .address_o     (chunk_address),
    .size_o        (chunk_size),
    .take_i        (take),
    .fault_valid_o (fault_valid),
    .fault_ready_i (fault_ready),
    .fault_status_o(fault_status),
    .req_valid_o   (list_req_valid_o),
    .req_ready_i   (list_req_ready_i),
    .req_address_o (list_req_address_o),
    .req_blocks_o  (list_req_blocks_o),
    .rsp_valid_i   (list_rsp_valid_i),
    .rsp_block_i,
    .rsp_error_i
  );

  // Verdicts come in order, at most one for each request here.
  logic verdict_valid;
  verdict_t verdict;
  logic [$clog2(Requests+1)-1:0] verdict_count;
  stream_fifo #(
    .Width($bits(verdict_t)),
    .Depth(Requests)
  ) u_verdicts (
    .clk_i,
    .rst_ni,
    .valid_i(verdict_valid_i),
    .ready_o(verdict_ready_o),
    .data_i (verdict_i),
    .valid_o(verdict_valid),
    .ready_i(close),
    .data_o (verdict),
    .count_o(verdict_count)
  );

  // Collect.
  logic collecting, failing, wanted, buffer_ready, buffer_push, discard, incoming;
  logic [CountWidth-1:0] unassigned;
  blocks_t taken_q, expected;
  assign collecting = collect_q != head_q;
  assign failing = status_q[collect] != StatusDone || refused_q[collect];
  // Blocks of it that come, and of those the ones that go on.
  assign expected = verdict_valid ? verdict.issued : entries_q[collect].blocks;
  assign wanted = !failing && !(verdict_valid && taken_q >= verdict.good);
  assign out_ready_o = collecting && !entries_q[collect].empty && taken_q != expected &&
                       (buffer_ready || (!wanted && !busy_o));
  assign incoming = out_valid_i && out_ready_o;
  assign buffer_push = incoming && wanted;
  assign discard = (collecting && failing) || close;

  logic buffer_valid;
  block_t buffer_block;
  destination_buffer #(
    .Depth(Depth)
  ) u_buffer (
    .clk_i,
    .rst_ni,
    .busy_o,
    .valid_i     (buffer_push),
    .ready_o     (buffer_ready),
    .block_i     (out_block_i),
    .unassigned_o(unassigned),
    .assign_i    (held ? '0 : take),
    .discard_i   (discard),
    .valid_o     (buffer_valid),
    .ready_i     (data_ready_i && !erasing),
    .block_o     (buffer_block)
  );
  assign data_valid_o = erasing || buffer_valid;
  assign data_block_o = erasing ? '0 : buffer_block;

  // The next burst: as long as the chunk at hand allows, half as long near the end.
  burst_t size;
  blocks_t to_write, to_come;
  logic burst_valid_q, burst_free, meta_room, enough;
  address_t burst_address_q;
  burst_t burst_blocks_q;
  assign to_write = verdict_valid ? verdict.good : entries_q[collect].blocks;
  assign to_come = to_write > offered_q[collect] ? to_write - offered_q[collect] : '0;
  always_comb begin
    size = chunk_size;
    if (!held) begin
      if (to_come <= BlocksWidth'(Burst) && to_come > BlocksWidth'(Burst / 2) &&
          size > BurstWidth'(Burst / 2)) begin
        size = BurstWidth'(Burst / 2);
      end
      if (to_come < BlocksWidth'(size)) size = BurstWidth'(to_come);
    end
  end
  assign enough = held ? erasing : collecting && !failing && !entries_q[collect].empty &&
                  size != '0 && unassigned + CountWidth'(buffer_push) >= CountWidth'(size);
  assign burst_free = !burst_valid_q || req_ready_i;
  assign take = chunk_valid && burst_free && meta_room && enough ? size : '0;
  assign req_valid_o = burst_valid_q;
  assign req_address_o = burst_address_q;
  assign req_blocks_o = burst_blocks_q;

  // The run ended too early; that is of the request at hand if this has blocks to be placed.
  logic all_placed;
  assign all_placed = collecting && !entries_q[collect].empty &&
                      offered_q[collect] == entries_q[collect].blocks;
  assign fault_ready = held ? erasing :
                       collecting && !failing && !entries_q[collect].empty && !all_placed;

  // Of bursts under way: whose, and how long.
  logic meta_ready, meta_valid;
  index_t whose;
  burst_t whose_blocks;
  logic [BurstsWidth-1:0] under_way;
  stream_fifo #(
    .Width(IndexWidth + BurstWidth),
    .Depth(Bursts)
  ) u_under_way (
    .clk_i,
    .rst_ni,
    .valid_i(take != '0),
    .ready_o(meta_ready),
    .data_i ({held ? answer : collect, take}),
    .valid_o(meta_valid),
    .ready_i(done_valid_i),
    .data_o ({whose, whose_blocks}),
    .count_o(under_way)
  );
  assign meta_room = under_way != BurstsWidth'(Bursts);
  assign settled = under_way == '0;

  // All blocks of a request have come, and those that are good are in bursts. One without
  // data has been passed by the walk, which may still be busy with what comes before.
  assign close = collecting && verdict_valid && !held &&
                 ((entries_q[collect].empty && walk_q != collect_q) ||
                  (!entries_q[collect].empty && taken_q == verdict.issued &&
                   (failing || offered_q[collect] >= verdict.good)));
  // Where the runs that were walked ahead do not begin where the next request does.
  logic short_run, begin_hold;
  assign short_run = close && !entries_q[collect].empty && !all_placed;
  assign flush = short_run || begin_hold;

  assign cancel_o = collecting && failing && !entries_q[collect].empty && !verdict_valid;
  assign cancel_number_o = entries_q[collect].number;

  // Answer: whole units from the first on.
  blocks_t whole;
  always_comb begin
    whole = written_q[answer] < good_q[answer] ? written_q[answer] : good_q[answer];
    whole = whole & ~(BlocksWidth'(entries_q[answer].unit_blocks) - 1'b1);
  end
  logic answered;
  // Not while runs are forgotten: its list may still be read, and after the completion its
  // memory is software's again.
  assign answered = state_q == Wait && answer_q != collect_q && pending_q[answer] == '0
      && !flushing;
  assign begin_hold = answered && offered_q[answer] > whole;
  assign finish = result_valid_o && result_ready_i;

  assign result_valid_o = state_q == Tell;
  assign result_o.ring = entries_q[answer].ring;
  assign result_o.cookie = entries_q[answer].cookie;
  assign result_o.interrupt = entries_q[answer].wakes;
  assign result_o.status = status_q[answer];
  assign result_o.blocks = done_q;
  assign result_o.not_erased = erase_failed_q;
  always_comb begin
    result_o.log2_unit_blocks = '0;
    for (int i = 0; i < 9; i++) begin
      if (entries_q[answer].unit_blocks[i]) result_o.log2_unit_blocks = 4'(unsigned'(i));
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < int'(Requests); i++) begin
        entries_q[i] <= '0;
        status_q[i]  <= '0;
        offered_q[i] <= '0;
        written_q[i] <= '0;
        pending_q[i] <= '0;
        refused_q[i] <= 1'b0;
        good_q[i]    <= '0;
      end
      head_q          <= '0;
      walk_q          <= '0;
      collect_q       <= '0;
      answer_q        <= '0;
      taken_q         <= '0;
      burst_valid_q   <= 1'b0;
      burst_address_q <= '0;
      burst_blocks_q  <= '0;
      state_q         <= Wait;
      erase_run_q     <= 1'b0;
      erase_failed_q  <= 1'b0;
      done_q          <= '0;
    end else begin
      if (accept) begin
        head_q          <= head_q + 1'b1;
        entries_q[head] <= '{
          ring: request_i.ring,
          number: request_i.number,
          cookie: request_i.cookie,
          wakes: request_i.interrupt,
          empty: request_i.empty || request_i.status != StatusDone,
          unit_blocks: request_i.unit_blocks,
          blocks: request_i.blocks,
          by_list: request_i.destination_list,
          address: request_i.destination,
          entries: request_i.destination_entries
        };
        status_q[head]  <= request_i.status;
        offered_q[head] <= '0;
        written_q[head] <= '0;
        refused_q[head] <= 1'b0;
      end

      if (next_run && (no_data ? !flushing : run_ready)) walk_q <= walk_q + 1'b1;

      if (req_ready_i) burst_valid_q <= 1'b0;
      if (take != '0) begin
        burst_valid_q   <= 1'b1;
        burst_address_q <= chunk_address;
        burst_blocks_q  <= take;
      end

      if (incoming) taken_q <= taken_q + 1'b1;
      if (fault_valid && fault_ready && !held) status_q[collect] <= fault_status;
      if (!held && take != '0) offered_q[collect] <= offered_q[collect] + BlocksWidth'(take);
      if (!erasing) begin
        for (int i = 0; i < int'(Requests); i++) begin
          pending_q[i] <= pending_q[i] -
                          BurstsWidth'(done_valid_i && whose == index_t'(unsigned'(i))) +
                          BurstsWidth'(!held && take != '0 && collect == index_t'(unsigned'(i)));
        end
      end
      if (close) begin
        collect_q       <= collect_q + 1'b1;
        taken_q         <= '0;
        good_q[collect] <= verdict.good;
        if (status_q[collect] == StatusDone) status_q[collect] <= verdict.status;
        if (short_run) walk_q <= collect_q + 1'b1;
      end

      if (done_valid_i && !erasing) begin
        if (done_error_i) begin
          refused_q[whose] <= 1'b1;
          if (!refused_q[whose] && status_q[whose] == StatusDone) status_q[whose] <= StatusWrite;
        end else if (!refused_q[whose]) begin
          written_q[whose] <= written_q[whose] + BlocksWidth'(whose_blocks);
        end
      end

      if (held && run_valid && run_ready) erase_run_q <= 1'b0;
      unique case (state_q)
        Wait: begin
          if (answered) begin
            done_q         <= whole;
            erase_failed_q <= 1'b0;
            state_q        <= Tell;
            if (begin_hold) begin
              state_q     <= Settle;
              erase_run_q <= 1'b1;
            end
          end
        end
        Settle: begin
          if (settled && !flushing) state_q <= Erase;
        end
        Erase: begin
          if (done_valid_i && done_error_i) erase_failed_q <= 1'b1;
          if (fault_valid) erase_failed_q <= 1'b1;
          if (!erase_run_q && bursts_empty && settled) begin
            state_q <= Tell;
            // What had been walked ahead is walked again.
            walk_q  <= all_placed ? collect_q + 1'b1 : collect_q;
          end
        end
        Tell: begin
          if (result_ready_i) state_q <= Wait;
        end
      endcase
      if (finish) answer_q <= answer_q + 1'b1;
    end
  end

  assign waiting_o = answer_q != collect_q;
  assign fetching_o = fetching && collecting && walk_q - collect_q <= (IndexWidth + 1)'(1);

  logic unused;
  assign unused = ^{meta_ready, meta_valid, verdict_count, verdict.number, request_i, walked};

endmodule
