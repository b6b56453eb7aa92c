// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of list_walker, whatever the list says, with a reader that answers what it
// was asked: chunks and fetches have the length they may have and keep within 4 KiB; chunks
// follow each other without a gap within an entry, or within a run without list; if the walk
// ends with DONE, they add up to the run without what was to be skipped, and else to less;
// no entry is lost for want of room; a walk that is stopped tells nothing, and ends when the
// reader has answered.

module list_walker_props
  import engine_pkg::*;
#(
  parameter int unsigned AddressBits = 16,
  parameter int unsigned Chunk = 64,
  parameter int unsigned Entries = 8,
  localparam int unsigned CountWidth = $clog2(Entries + 1)
) (
  input logic                    clk_i,
  input logic                    rst_ni,
  input logic                    stop_i,
  input logic                    idle_o,
  input logic                    start_valid_i,
  input logic                    start_ready_o,
  input logic                    list_i,
  input address_t                address_i,
  input logic [EntriesWidth-1:0] entries_i,
  input blocks_t                 blocks_i,
  input blocks_t                 skip_i,
  input logic                    loose_i,
  input logic                    chunk_valid_o,
  input logic                    chunk_ready_i,
  input address_t                chunk_address_o,
  input burst_t                  chunk_blocks_o,
  input logic                    end_valid_o,
  input logic                    end_ready_i,
  input status_t                 end_status_o,
  input logic                    req_valid_o,
  input logic                    req_ready_i,
  input address_t                req_address_o,
  input burst_t                  req_blocks_o,
  input logic                    rsp_valid_i,
  input logic [             1:0] state_q,
  input status_t                 status_q,
  input blocks_t                 run_q,
  input blocks_t                 skip_q,
  input logic [ AddressBits-1:0] address_q,
  input logic [ AddressBits-1:0] fetch_q,
  input logic                    entry_valid,
  input logic                    entry_ready,
  input logic                    fifo_ready,
  input logic                    asked_q,
  input logic [  CountWidth-1:0] awaited_q,
  input logic [  CountWidth-1:0] stored
);

  localparam logic [1:0] Idle = 2'd0, Walk = 2'd1, End = 2'd2;
  localparam status_t StatusDone = 8'(engine_regs_pkg::StatusDone);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb assume (rst_ni == started_q);

  logic stopped_q;
  initial stopped_q = 1'b0;
  always_ff @(posedge clk_i) stopped_q <= stop_i && rst_ni;

  // A chunk stays unless the walk is stopped; a fetch stays in any case.
  stream_rules #(
    .Width(64 + BurstWidth)
  ) u_chunk (
    .clk_i,
    .rst_ni (rst_ni && !stop_i),
    .valid_i(chunk_valid_o),
    .ready_i(chunk_ready_i),
    .data_i ({chunk_address_o, chunk_blocks_o})
  );
  stream_rules #(
    .Width(64 + BurstWidth)
  ) u_fetch (
    .clk_i,
    .rst_ni,
    .valid_i(req_valid_o),
    .ready_i(req_ready_i),
    .data_i ({req_address_o, req_blocks_o})
  );

  always_comb begin
    assume (blocks_i != '0 && 32'(blocks_i) <= (32'd1 << (LogBytes - 4)) && skip_i <= blocks_i);
    if (stopped_q && !idle_o) assume (stop_i);
  end

  // Entries asked for and not come; no others come.
  logic [CountWidth-1:0] asked_for_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) asked_for_q <= '0;
    else asked_for_q <= asked_for_q + (req_valid_o && req_ready_i ? CountWidth'(req_blocks_o) : '0) -
                        CountWidth'(rsp_valid_i);
  end
  always_comb if (rsp_valid_i) assume (asked_for_q != '0);

  // The run at hand: how long, what of it was to be skipped, what chunks have covered; and
  // where the next one begins, once that is known.
  blocks_t total_q, skip_all_q, given_q;
  logic [31:0] covered;
  logic placed_q, loaded_q;
  logic [AddressBits-1:0] place_q;
  logic start, give, load;
  assign start = start_valid_i && start_ready_o;
  assign give = chunk_valid_o && chunk_ready_i;
  assign load = state_q == Walk && entry_valid && entry_ready;
  // By chunks that were taken, and the one that is offered.
  assign covered = 32'(given_q) + (chunk_valid_o ? 32'(chunk_blocks_o) : '0);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      given_q    <= '0;
      total_q    <= '0;
      skip_all_q <= '0;
    end else if (start) begin
      given_q    <= '0;
      total_q    <= blocks_i;
      skip_all_q <= skip_i;
    end else if (give) begin
      given_q <= given_q + BlocksWidth'(chunk_blocks_o);
    end
  end
  // Where the blocks that are left of an entry begin.
  always_ff @(posedge clk_i) begin
    loaded_q <= load || (loaded_q && !give);
    if (start) loaded_q <= 1'b0;
    if (start) begin
      place_q  <= address_i[AddressBits-1:0] + AddressBits'({skip_i, 4'd0});
      placed_q <= !list_i;
    end else if (give) begin
      place_q  <= chunk_address_o[AddressBits-1:0] + AddressBits'({chunk_blocks_o, 4'd0});
      placed_q <= 1'b1;
    end
    if (!rst_ni) placed_q <= 1'b0;
  end

  always_comb begin
    if (rst_ni && started_q) begin
      if (chunk_valid_o) begin
        assert (chunk_blocks_o != '0 && 32'(chunk_blocks_o) <= Chunk);
        assert (9'(chunk_address_o[11:4]) + 9'(chunk_blocks_o) <= 9'd256);
        assert (chunk_address_o[3:0] == '0);
        assert (state_q == Walk || state_q == End);
      end
      if (chunk_valid_o && placed_q && !loaded_q) assert (chunk_address_o[AddressBits-1:0] == place_q);
      if (req_valid_o) begin
        assert (req_blocks_o != '0 && req_blocks_o <= BurstWidth'(4));
        assert (9'(req_address_o[11:4]) + 9'(req_blocks_o) <= 9'd256);
        assert (req_address_o[3:0] == '0);
      end
      // Nothing is lost of what was fetched.
      assert (asked_for_q == awaited_q);
      assert (32'(stored) + 32'(awaited_q) + (asked_q ? 32'd4 : 32'd0) <= Entries);
      if (rsp_valid_i && state_q == Walk) assert (fifo_ready);
      assert (32'(total_q) <= (32'd1 << (LogBytes - 4)) && 32'(given_q) <= (32'd1 << (LogBytes - 4)));
      // The run: what has been given, skipped, and what is left.
      if (state_q == Walk) begin
        assert (skip_q <= skip_all_q && skip_q <= run_q && skip_all_q <= total_q);
        assert (covered + 32'(skip_all_q) - 32'(skip_q) + 32'(run_q) == 32'(total_q));
        if (given_q != '0 || chunk_valid_o) assert (skip_q == '0);
        assert (address_q[3:0] == '0 && fetch_q[3:0] == '0);
      end
      if (state_q == End) begin
        if (status_q == StatusDone) assert (covered + 32'(skip_all_q) == 32'(total_q));
        else assert (covered + 32'(skip_all_q) <= 32'(total_q));
        if (status_q != StatusDone && skip_all_q == '0) assert (covered != 32'(total_q));
      end
      if (end_valid_o) begin
        assert (!chunk_valid_o && end_status_o == status_q);
        if (end_status_o == StatusDone) assert (given_q == total_q - skip_all_q);
      end
      if (asked_q) assert (state_q != Idle);
      if (state_q == Idle) assert (awaited_q == '0 && stored == '0 && !chunk_valid_o && !asked_q);
      if (stopped_q) assert (!chunk_valid_o && !end_valid_o);
    end
  end

  always_comb begin
    cover (rst_ni && end_valid_o && end_status_o == StatusDone && given_q == BlocksWidth'(70));
    cover (rst_ni && end_valid_o && end_status_o != StatusDone && given_q != '0);
    cover (rst_ni && stopped_q && idle_o && asked_for_q == '0 && given_q != '0);
    cover (rst_ni && end_valid_o && end_status_o == StatusDone && skip_all_q == BlocksWidth'(9));
  end

endmodule

bind list_walker list_walker_props #(
  .AddressBits(AddressBits),
  .Chunk      (Chunk),
  .Entries    (Entries)
) u_props (
  .*,
  .state_q(2'(state_q))
);
