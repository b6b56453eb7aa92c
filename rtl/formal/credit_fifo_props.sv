// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of credit_fifo, with wiped_table inside it: as long as its writer sends only what it
// has taken a place for, before or in the same cycle, and takes places only while there is room, no
// entry is lost, though nothing ever stops the writer. It keeps the rules of a stream and gives the
// entries in the order in which they came, each once; places come back as entries leave, all but
// one of them can be taken; and nothing is left after wiping.

module credit_fifo_props #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 4,
  localparam int unsigned IndexWidth = $clog2(Depth),
  localparam int unsigned CountWidth = $clog2(Depth + 1),
  // Of sums that do not wrap.
  localparam int unsigned SumWidth = CountWidth + 2
) (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic                  busy_o,
  input logic                  take_i,
  input logic                  room_o,
  input logic                  valid_i,
  input logic [     Width-1:0] data_i,
  input logic                  valid_o,
  input logic                  ready_i,
  input logic [     Width-1:0] data_o,
  input logic [CountWidth-1:0] taken_q,
  input logic                  room_q,
  input logic [IndexWidth-1:0] write_q,
  input logic [IndexWidth-1:0] read_q,
  input logic                  valid_q,
  input logic [IndexWidth-1:0] wipe_q,
  input logic [     Width-1:0] memory[Depth]
);

  stream_rules #(
    .Width(Width)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(valid_o),
    .ready_i,
    .data_i (data_o)
  );

  // It starts with a reset.
  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  // Entries inside, and places taken for those that are still to come.
  logic [IndexWidth-1:0] between;
  logic [SumWidth-1:0] entries, away_q;
  assign between = write_q - read_q;
  assign entries = valid_q && between == '0 ? SumWidth'(Depth) : SumWidth'(between);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) away_q <= '0;
    else away_q <= away_q + SumWidth'(take_i) - SumWidth'(valid_i);
  end
  always_comb begin
    // Its writer's part.
    if (!room_o) assume (!take_i);
    if (away_q == '0 && !take_i) assume (!valid_i);
  end

  logic chosen_q, pop;
  logic [Width-1:0] chosen_data_q;
  logic [SumWidth-1:0] ahead_q;
  assign pop = valid_o && ready_i;
  followed_entry #(
    .Width(Width),
    .CountWidth(SumWidth)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i(valid_i),
    .pop_i(pop),
    .data_i,
    .count_i(entries),
    .chosen_o(chosen_q),
    .data_o(chosen_data_q),
    .ahead_o(ahead_q)
  );

  // Where it is in memory.
  logic [IndexWidth-1:0] place;
  assign place = read_q + IndexWidth'(ahead_q);

  // Any one entry, to see that it is wiped.
  logic [IndexWidth-1:0] entry;
  any_constant #(
    .WIDTH(IndexWidth)
  ) u_entry (
    .Y(entry)
  );

  logic busy_q, taken_room_q;
  initial busy_q = 1'b0;
  always_ff @(posedge clk_i) busy_q <= busy_o && rst_ni;
  // There was room two places below the last, and it was not wiping.
  always_ff @(posedge clk_i) taken_room_q <= rst_ni && !busy_o && 32'(taken_q) < Depth - 1;
  initial taken_room_q = 1'b0;

  always_comb begin
    if (rst_ni && started_q) begin
      // No place is given twice.
      assert (32'(taken_q) <= Depth);
      assert (32'(away_q) <= Depth);
      assert (SumWidth'(taken_q) == entries + away_q);
      if (room_o) assert (32'(taken_q) < Depth);
      assert (room_o == room_q && room_o == taken_room_q);
      assert (valid_o == valid_q && valid_q == (entries != '0));
      if (chosen_q) begin
        assert (ahead_q < entries);
        assert (memory[place] == chosen_data_q);
        if (ahead_q == '0) assert (valid_o && data_o == chosen_data_q);
      end
      // Empty, and zeros everywhere once it has been wiped.
      if (busy_o) assert (taken_q == '0 && write_q == '0 && read_q == '0 && !room_o);
      if (busy_o && entry < wipe_q) assert (memory[entry] == '0);
      if (busy_q && !busy_o) assert (memory[entry] == '0);
    end
  end

  // The interesting cases can happen: full; empty but for one.
  always_comb begin
    cover (rst_ni && 32'(entries) == Depth && pop && chosen_q);
    cover (rst_ni && chosen_q && pop && ahead_q == '0 && chosen_data_q != '0 && entries == SumWidth'(1));
  end

endmodule

bind credit_fifo credit_fifo_props #(
  .Width(Width),
  .Depth(Depth)
) u_props (
  .*,
  .wipe_q(u_table.wipe_q),
  .memory(u_table.memory)
);
