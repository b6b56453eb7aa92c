// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of beat_store, with ram_fifo inside it: as long as its owner takes a place only while there
// is room, writes only into places taken and reads only what was written three cycles before, no
// beat is written over, and the output is the next one, in the order of writing; all places but a
// few come to be used; and nothing is left after wiping.

module beat_store_props #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 8,
  localparam int unsigned AddrWidth = $clog2(Depth),
  // Of sums that do not wrap.
  localparam int unsigned SumWidth = AddrWidth + 2
) (
  input logic                 clk_i,
  input logic                 rst_ni,
  input logic                 busy_o,
  input logic                 take_i,
  input logic                 room_o,
  input logic                 write_i,
  input logic [    Width-1:0] data_i,
  input logic [    Width-1:0] data_o,
  input logic                 read_i,
  input logic [  AddrWidth:0] taken_q,
  input logic [  AddrWidth:0] used_q,
  input logic [  AddrWidth:0] read_q,
  input logic [AddrWidth-1:0] write_q,
  input logic [AddrWidth-1:0] next_q,
  input logic [  AddrWidth:0] stored_q,
  input logic                 some_q,
  input logic                 have_q,
  input logic [    Width-1:0] fetched,
  // Of the skid buffer behind the memory.
  input logic                 out_read_q,
  input logic                 out_valid_q,
  input logic                 full_q,
  input logic                 ready_q,
  input logic [    Width-1:0] entries_q[2],
  input logic                 room_q,
  input logic [AddrWidth-1:0] wipe_q,
  input logic [    Width-1:0] memory[Depth]
);

  // It starts with a reset.
  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  // Places taken and not read; of these, written; and written three cycles ago or before.
  logic [SumWidth-1:0] taken_count_q, written_q, there_q;
  logic write_1_q, write_2_q, take_1_q, take_2_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      taken_count_q <= '0;
      written_q     <= '0;
      there_q       <= '0;
      write_1_q     <= 1'b0;
      write_2_q     <= 1'b0;
      take_1_q      <= 1'b0;
      take_2_q      <= 1'b0;
    end else begin
      taken_count_q <= taken_count_q + SumWidth'(take_i) - SumWidth'(read_i);
      written_q     <= written_q + SumWidth'(write_i) - SumWidth'(read_i);
      there_q       <= there_q + SumWidth'(write_2_q) - SumWidth'(read_i);
      write_1_q     <= write_i;
      write_2_q     <= write_1_q;
      take_1_q      <= take_i;
      take_2_q      <= take_1_q;
    end
  end
  always_comb begin
    // Its owner's part.
    if (!room_o) assume (!take_i);
    if (written_q == taken_count_q && !take_i) assume (!write_i);
    if (there_q == '0) assume (!read_i);
  end

  logic chosen_q;
  logic [Width-1:0] chosen_data_q;
  logic [SumWidth-1:0] ahead_q;
  followed_entry #(
    .Width(Width),
    .CountWidth(SumWidth)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i(write_i),
    .pop_i(read_i),
    .data_i,
    .count_i(written_q),
    .chosen_o(chosen_q),
    .data_o(chosen_data_q),
    .ahead_o(ahead_q)
  );
  // Entries in the skid buffer.
  logic [SumWidth-1:0] out;
  assign out = SumWidth'(out_valid_q) + SumWidth'(full_q);
  // Where it is in memory, if it is in no register.
  logic [AddrWidth-1:0] place;
  assign place = next_q + AddrWidth'(ahead_q - out) - AddrWidth'(have_q);

  // Any one entry, to see that it is wiped.
  logic [AddrWidth-1:0] entry;
  any_constant #(
    .WIDTH(AddrWidth)
  ) u_entry (
    .Y(entry)
  );
  logic busy_q;
  initial busy_q = 1'b0;
  always_ff @(posedge clk_i) busy_q <= busy_o && rst_ni;

  always_comb begin
    if (rst_ni && started_q) begin
      // No place is given twice.
      assert (32'(taken_count_q) <= Depth);
      assert (there_q <= written_q && written_q <= taken_count_q);
      assert (written_q == there_q + SumWidth'(write_1_q) + SumWidth'(write_2_q));
      assert ((AddrWidth + 1)'(taken_count_q) == taken_q - read_q);
      assert (written_q == SumWidth'(stored_q) + SumWidth'(have_q) + out);
      assert (write_q == next_q + AddrWidth'(stored_q));
      assert (some_q == (stored_q != '0));
      // It is at the output, or on its way there.
      if (there_q != '0) assert (out_valid_q);
      if (there_q == '0 && write_2_q) assert (have_q || out_valid_q);
      // What was written before the last cycle stays in memory only behind another.
      if (SumWidth'(stored_q) > SumWidth'(write_1_q)) assert (have_q && out_valid_q);
      if (have_q && out == '0 && written_q != '0) assert (ready_q);
      assert (ready_q || full_q || written_q == '0);
      assert (room_o == room_q);
      // What room is known of is late by no more than what was taken since.
      assert (32'(used_q) <= Depth);
      assert (32'(taken_count_q) <= 32'(used_q) + 32'(take_1_q));
      if (room_o) assert (32'(taken_count_q) <= Depth - 5 + 32'(take_1_q) + 32'(take_2_q));
      if (chosen_q) begin
        assert (ahead_q < written_q);
        // The next beat is at the output.
        if (out_valid_q && ahead_q == '0) assert (data_o == chosen_data_q);
        if (ahead_q < out) assert (entries_q[out_read_q ^ ahead_q[0]] == chosen_data_q);
        else if (have_q && ahead_q == out) assert (fetched == chosen_data_q);
        else assert (memory[place] == chosen_data_q);
      end
      // Empty, and zeros everywhere once it has been wiped.
      if (busy_o) assert (taken_count_q == '0 && write_q == '0 && next_q == '0 && !room_o);
      if (busy_o && entry < wipe_q) assert (memory[entry] == '0);
      if (busy_q && !busy_o) assert (memory[entry] == '0);
    end
  end

  // The interesting cases can happen: as full as it becomes; a beat read that was.
  always_comb begin
    cover (rst_ni && 32'(taken_count_q) == Depth - 2 && read_i);
    cover (rst_ni && chosen_q && read_i && ahead_q == '0 && chosen_data_q != '0);
  end

endmodule

bind beat_store beat_store_props #(
  .Width(Width),
  .Depth(Depth)
) u_props (
  .*,
  .write_q (u_fifo.write_q),
  .next_q  (u_fifo.read_q),
  .stored_q(u_fifo.stored_q),
  .some_q  (u_fifo.some_q),
  .have_q  (u_fifo.have_q),
  .fetched (u_fifo.fetched),
  .out_read_q (u_fifo.u_out.read_q),
  .out_valid_q(u_fifo.u_out.valid_q),
  .full_q  (u_fifo.u_out.full_q),
  .ready_q (u_fifo.u_out.ready_q),
  .entries_q(u_fifo.u_out.entries_q),
  .wipe_q  (u_fifo.u_ram.u_table.wipe_q),
  .memory  (u_fifo.u_ram.u_table.memory)
);
