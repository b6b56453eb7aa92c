// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of ram_fifo, with wiped_ram and stream_skid inside it: it keeps the rules of a stream and
// gives the entries in the order in which they came, each once; it is busy while the
// memory is wiped, and nothing is left after that.

module ram_fifo_props #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 2,
  localparam int unsigned AddrWidth = $clog2(Depth)
) (
  input logic                 clk_i,
  input logic                 rst_ni,
  input logic                 busy_o,
  input logic                 valid_i,
  input logic                 ready_o,
  input logic [    Width-1:0] data_i,
  input logic                 valid_o,
  input logic                 ready_i,
  input logic [    Width-1:0] data_o,
  input logic [AddrWidth-1:0] write_q,
  input logic [AddrWidth-1:0] read_q,
  input logic [  AddrWidth:0] stored_q,
  input logic                 some_q,
  input logic                 have_q,
  input logic [    Width-1:0] fetched,
  // Of the skid buffer.
  input logic                 out_read_q,
  input logic                 full_q,
  input logic [    Width-1:0] entries_q[2],
  input logic [AddrWidth-1:0] wipe_q,
  input logic [    Width-1:0] memory[Depth]
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
  always_comb begin
    if (!started_q) assume (!rst_ni);
    // Its users' part: nothing goes in while it is busy.
    if (busy_o) assume (!valid_i);
  end

  logic [AddrWidth+1:0] count;
  // Entries in the skid buffer, in all.
  logic [AddrWidth+1:0] out;
  assign out = (AddrWidth + 2)'(valid_o) + (AddrWidth + 2)'(full_q);
  assign count = (AddrWidth + 2)'(stored_q) + (AddrWidth + 2)'(have_q) + out;

  logic chosen_q, push, pop;
  logic [Width-1:0] chosen_data_q;
  logic [AddrWidth+1:0] ahead_q;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  followed_entry #(
    .Width(Width),
    .CountWidth(AddrWidth + 2)
  ) u_followed (
    .clk_i,
    .rst_ni,
    .push_i(push),
    .pop_i(pop),
    .data_i,
    .count_i(count),
    .chosen_o(chosen_q),
    .data_o(chosen_data_q),
    .ahead_o(ahead_q)
  );

  // Where it is in memory, if it is in no register.
  logic [AddrWidth-1:0] place;
  assign place = read_q + AddrWidth'(ahead_q - out) - AddrWidth'(have_q);

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
      assert (32'(stored_q) <= Depth);
      assert (write_q == read_q + AddrWidth'(stored_q));
      assert (some_q == (stored_q != '0));
      // It takes one more while there is room in memory.
      assert (ready_o == (32'(stored_q) < Depth));
      if (chosen_q) begin
        assert (ahead_q < count);
        if (valid_o && ahead_q == '0) assert (data_o == chosen_data_q);
        if (ahead_q < out) assert (entries_q[out_read_q ^ ahead_q[0]] == chosen_data_q);
        else if (have_q && ahead_q == out) assert (fetched == chosen_data_q);
        else assert (memory[place] == chosen_data_q);
      end
      // Empty, and zeros everywhere once it has been wiped.
      if (busy_o) assert (stored_q == '0 && !have_q && !valid_o && write_q == '0 && !chosen_q);
      if (busy_o && entry < wipe_q) assert (memory[entry] == '0);
      if (busy_q && !busy_o) assert (memory[entry] == '0);
    end
  end

  // The interesting cases can happen.
  always_comb begin
    cover (rst_ni && 32'(stored_q) == Depth && have_q && pop);
    cover (rst_ni && chosen_q && pop && ahead_q == '0 && chosen_data_q != '0);
  end

endmodule

bind ram_fifo ram_fifo_props #(
  .Width(Width),
  .Depth(Depth)
) u_props (
  .*,
  .out_read_q(u_out.read_q),
  .full_q    (u_out.full_q),
  .entries_q (u_out.entries_q),
  .wipe_q    (u_ram.u_table.wipe_q),
  .memory    (u_ram.u_table.memory)
);
