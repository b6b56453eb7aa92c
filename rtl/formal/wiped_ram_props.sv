// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of wiped_ram: it is busy for as many cycles as it has entries after reset,
// and no longer; then every entry is zero; otherwise an entry is what
// was last written to it, and reading gives it a cycle later.

module wiped_ram_props #(
  parameter int unsigned Width = 1,
  parameter int unsigned Depth = 2,
  localparam int unsigned AddrWidth = $clog2(Depth)
) (
  input logic                 clk_i,
  input logic                 rst_ni,
  input logic                 busy_o,
  input logic                 write_i,
  input logic [AddrWidth-1:0] write_addr_i,
  input logic [    Width-1:0] write_data_i,
  input logic                 read_i,
  input logic [AddrWidth-1:0] read_addr_i,
  input logic [    Width-1:0] read_data_o,
  input logic [AddrWidth-1:0] wipe_q,
  input logic [    Width-1:0] memory[Depth]
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb begin
    if (!started_q) assume (!rst_ni);
    // Its users' part: addresses exist.
    assume (32'(write_addr_i) < Depth && 32'(read_addr_i) < Depth);
  end

  // Cycles since the last reset.
  logic [AddrWidth+1:0] cycles_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) cycles_q <= '0;
    else if (32'(cycles_q) <= Depth) cycles_q <= cycles_q + 1'b1;
  end

  // Any one entry, and what it ought to be.
  logic [AddrWidth-1:0] chosen;
  any_constant #(
    .WIDTH(AddrWidth)
  ) u_chosen (
    .Y(chosen)
  );
  always_comb assume (32'(chosen) < Depth);
  logic [Width-1:0] expected_q;
  always_ff @(posedge clk_i) begin
    if (busy_o) expected_q <= '0;
    else if (write_i && write_addr_i == chosen) expected_q <= write_data_i;
  end

  // The read of that entry in the last cycle.
  logic read_q;
  logic [Width-1:0] read_expected_q;
  always_ff @(posedge clk_i) begin
    read_q          <= rst_ni && !busy_o && read_i && read_addr_i == chosen;
    read_expected_q <= expected_q;
  end
  initial read_q = 1'b0;

  always_comb begin
    if (rst_ni && started_q) begin
      assert (busy_o == (32'(cycles_q) < Depth));
      if (busy_o) assert (32'(wipe_q) == 32'(cycles_q));
      // What the wiping has passed is zero already.
      if (busy_o && chosen < wipe_q) assert (memory[chosen] == '0);
      if (!busy_o) assert (memory[chosen] == expected_q);
      if (read_q) assert (read_data_o == read_expected_q);
      // The output register is wiped as well.
      if (busy_o && 32'(cycles_q) >= 2) assert (read_data_o == '0);
      if (32'(cycles_q) == Depth && !read_q) assert (read_data_o == '0);
    end
  end

  always_comb begin
    cover (rst_ni && read_q && read_data_o != '0);
    cover (rst_ni && busy_o && 32'(cycles_q) == Depth - 1 && expected_q == '0);
  end

endmodule

bind wiped_ram wiped_ram_props #(
  .Width(Width),
  .Depth(Depth)
) u_props (
  .*,
  .wipe_q(u_table.wipe_q),
  .memory(u_table.memory)
);
