// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of engine_ring, whatever software writes and whenever a fault comes: no
// index passes another, nothing is fetched beyond the tail or without room for its
// completion, no completion is written over one that software has not read, requests
// under way are counted right, completions are counted once each, and a fault stays
// until the ring is turned on again.

module engine_ring_props
  import engine_pkg::*;
#(
  parameter int unsigned IndexBits = 16,
  parameter int unsigned LogSize   = LogRing
) (
  input logic        clk_i,
  input logic        rst_ni,
  input logic        wipe_i,
  input logic        serve_i,
  input logic        write_i,
  input logic [ 5:0] write_offset_i,
  input logic [31:0] write_data_i,
  input logic        want_o,
  input logic        issue_i,
  input logic        accept_i,
  input logic        drop_i,
  input logic        lost_i,
  input address_t    submission_o,
  input address_t    completion_o,
  input logic        phase_o,
  input logic        dead_o,
  input logic        post_i,
  input logic        skip_i,
  input logic        not_erased_i,
  input logic        done_i,
  input logic        done_error_i,
  input logic        start_o,
  input logic        fault_o,
  input address_t    sq_q,
  input address_t    cq_q,
  input logic [ 3:0] log2_q,
  input logic        enable_q,
  input logic        faulted_q,
  input logic [ 7:0] code_q,
  input logic [IndexBits-1:0] tail_q,
  input logic [IndexBits-1:0] head_q,
  input logic [IndexBits-1:0] issued_q,
  input logic [IndexBits-1:0] fetched_q,
  input logic [IndexBits-1:0] posted_q,
  input logic [IndexBits-1:0] completed_q,
  input logic [IndexBits-1:0] size,
  input logic        active,
  input logic [LogSize:0] busy_q
);

  typedef logic [IndexBits-1:0] index_t;

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  // Where requests are: asked for; fetched; their completion on the bus.
  index_t asked_q, owing_q, open_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asked_q <= '0;
      owing_q <= '0;
      open_q  <= '0;
    end else if (wipe_i) begin
      asked_q <= '0;
      owing_q <= '0;
      open_q  <= '0;
    end else begin
      asked_q <= asked_q + index_t'(issue_i) - index_t'(accept_i) - index_t'(drop_i);
      owing_q <= owing_q + index_t'(accept_i) - index_t'(post_i) - index_t'(skip_i);
      open_q  <= open_q + index_t'(post_i) - index_t'(done_i);
    end
  end

  // What those around it do: nothing that was not asked for, and each thing once.
  always_comb begin
    assume (!issue_i || want_o);
    assume (!(accept_i || drop_i) || (asked_q != '0 && !(accept_i && drop_i)));
    assume (!lost_i || drop_i);
    assume (!(post_i || skip_i) || owing_q != '0);
    assume (!post_i || !dead_o);
    assume (!skip_i || dead_o);
    assume (!not_erased_i || post_i || skip_i);
    assume (!done_i || open_q != '0);
    // As many as engine_completion has open.
    assume (!post_i || open_q < index_t'(4));
    // A cycle has one write.
    assume (!(wipe_i && write_i));
  end

  // Completions answered without an error before the first with one, since the start.
  index_t good_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) good_q <= '0;
    else if (start_o) good_q <= '0;
    else if (!wipe_i && done_i && !done_error_i && !dead_o) good_q <= good_q + 1'b1;
  end

  function automatic logic ordered(index_t first, index_t second);
    return index_t'(first - head_q) <= index_t'(second - head_q);
  endfunction

  // Where an index lies in a ring of a size that is a power of two.
  function automatic index_t place(index_t index);
    for (int i = 0; i <= int'(LogSize); i++) begin
      if (32'(log2_q) == 32'(i)) return index % index_t'(1 << i);
    end
    return '0;
  endfunction

  always_comb begin
    if (rst_ni && started_q) begin
      assert (ordered(posted_q, fetched_q));
      assert (ordered(fetched_q, issued_q));
      // Off, with a size that cannot be, nothing has moved.
      if (enable_q && !faulted_q) assert (size != '0);
      if (issued_q != head_q || tail_q != issued_q) begin
        assert (index_t'(issued_q - head_q) <= index_t'(1 << LogSize));
        assert (index_t'(tail_q - issued_q) <= index_t'(1 << LogSize));
      end
      if (active) begin
        assert (index_t'(issued_q - head_q) <= size);
        assert (index_t'(tail_q - issued_q) <= size);
      end
      // Nothing on the way is lost from sight.
      assert (index_t'(issued_q - fetched_q) >= asked_q && asked_q <= index_t'(1 << LogSize));
      assert (index_t'(fetched_q - posted_q) >= owing_q && owing_q <= index_t'(1 << LogSize));
      assert (open_q <= index_t'(4));
      assert (index_t'(posted_q - completed_q) >= open_q);
      assert (index_t'(posted_q - completed_q) <= index_t'(4));
      if (!dead_o) assert (index_t'(posted_q - completed_q) == open_q);
      assert (index_t'(busy_q) == asked_q + owing_q + open_q);
      assert (completed_q == good_q);
      if (faulted_q) assert (code_q != '0);
      if (want_o) assert (serve_i && enable_q && !faulted_q && tail_q != issued_q);
      if (issue_i) begin
        assert (index_t'(issued_q - head_q) < size);
        assert (submission_o == sq_q + 64'(place(issued_q)) * 64);
      end
      // It has a place of its own, among those that are read.
      if (post_i) begin
        assert (index_t'(posted_q - head_q) < size);
        assert (completion_o == cq_q + 64'(place(posted_q)) * 16);
        // The number of the round is even.
        assert (phase_o == ((posted_q & size) == '0));
      end
    end
  end

  // What was the case a cycle ago.
  logic was_q, faulted_before_q, started_before_q;
  logic [7:0] code_before_q;
  address_t sq_before_q, cq_before_q;
  logic [3:0] log2_before_q;
  logic active_before_q;
  initial was_q = 1'b0;
  always_ff @(posedge clk_i) begin
    was_q            <= rst_ni && started_q;
    faulted_before_q <= faulted_q || fault_o;
    code_before_q    <= code_q;
    started_before_q <= start_o;
    sq_before_q      <= sq_q;
    cq_before_q      <= cq_q;
    log2_before_q    <= log2_q;
    active_before_q  <= active;
  end
  always_comb begin
    if (rst_ni && was_q) begin
      if (faulted_before_q && !started_before_q) assert (faulted_q);
      if (faulted_before_q) assert (faulted_q || started_before_q);
      if (active_before_q) begin
        assert (sq_q == sq_before_q && cq_q == cq_before_q && log2_q == log2_before_q);
      end
      if (started_before_q) begin
        assert (issued_q == '0 && posted_q == '0 && busy_q == '0 && !dead_o);
      end
    end
  end

  always_comb begin
    // A ring of two goes round, full.
    cover (rst_ni && log2_q == 4'd1 && completed_q == index_t'(2) && !faulted_q && busy_q == 2);
    cover (rst_ni && faulted_q && code_q == 8'(engine_regs_pkg::FaultDoorbell) && busy_q != '0);
    cover (rst_ni && faulted_q && code_q == 8'(engine_regs_pkg::FaultCompletion) && skip_i);
  end

  logic unused;
  assign unused = ^{write_offset_i, write_data_i};

endmodule

bind engine_ring engine_ring_props #(
  .IndexBits(IndexBits),
  .LogSize  (LogSize)
) u_props (
  .*
);
