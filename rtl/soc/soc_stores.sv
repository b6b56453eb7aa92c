// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The CPU's stores on their way to memory, 16 bytes each: its data cache writes through, a word at a
// time, and would wait for each. Words for the youngest entry are merged into it, until it is full, has
// waited a while, another follows it, or someone wants to see it in memory.

module soc_stores #(
  // Of a beat: 4, 8 or 16.
  parameter int unsigned BusBytes = 16,
  // Entries, a power of two.
  parameter int unsigned Depth = 8
) (
  input logic clk_i,
  input logic rst_ni,

  // A word, of the memory's addresses.
  input  logic        stb_i,
  input  logic [29:0] adr_i,
  input  logic [31:0] data_i,
  input  logic [ 3:0] sel_i,
  output logic        ack_o,

  // Do not wait for more words.
  input  logic flush_i,
  output logic empty_o,

  // Whether of this line there is any.
  input  logic [26:0] line_i,
  output logic        line_here_o,

  output logic                  awvalid_o,
  input  logic                  awready_i,
  output logic [          31:0] awaddr_o,
  output logic [           7:0] awlen_o,
  output logic                  wvalid_o,
  input  logic                  wready_i,
  output logic [8*BusBytes-1:0] wdata_o,
  output logic [  BusBytes-1:0] wstrb_o,
  output logic                  wlast_o,
  input  logic                  bvalid_i,
  output logic                  bready_o
);

  localparam int unsigned Beats = 16 / BusBytes;
  localparam int unsigned IndexWidth = $clog2(Depth);
  // Cycles that an entry waits for more words.
  localparam logic [3:0] Patience = 15;
  typedef logic [IndexWidth-1:0] index_t;
  typedef logic [IndexWidth:0] count_t;

  logic [27:0] address_q[Depth];
  logic [127:0] data_q[Depth];
  logic [15:0] strobes_q[Depth];
  // Entries from `head_q` are on the bus and not answered, from `next_q` not yet on the bus.
  count_t head_q, next_q, tail_q;
  logic [3:0] idle_q;
  logic sending_q, addressed_q;
  logic [1:0] beat_q;

  index_t current, youngest;
  logic unsent, merges, room, store, start, send_last;
  assign current  = next_q[IndexWidth-1:0];
  assign youngest = index_t'(tail_q - count_t'(1));
  assign unsent   = next_q != tail_q;
  assign empty_o  = head_q == tail_q;
  assign room     = count_t'(tail_q - head_q) != count_t'(Depth);
  // Not into what the bus has been offered.
  assign merges   = unsent && address_q[youngest] == adr_i[29:2] && !(wvalid_o && youngest == current);
  assign ack_o    = stb_i && (merges || room);
  assign store    = ack_o;

  always_comb begin
    line_here_o = 1'b0;
    for (int unsigned i = 0; i < Depth; i++) begin
      if (count_t'(i) < count_t'(tail_q - head_q) &&
          address_q[index_t'(head_q+count_t'(i))][27:1] == line_i) begin
        line_here_o = 1'b1;
      end
    end
  end

  assign start = unsent && (flush_i || count_t'(tail_q - next_q) != 1 || &strobes_q[current] ||
                            idle_q == Patience);
  assign awvalid_o = (sending_q || start) && !addressed_q;
  assign awaddr_o  = {address_q[current], 4'b0};
  assign awlen_o   = 8'(Beats - 1);
  assign wvalid_o  = sending_q || start;
  assign wdata_o   = data_q[current][8*BusBytes*beat_q+:8*BusBytes];
  assign wstrb_o   = strobes_q[current][BusBytes*beat_q+:BusBytes];
  assign wlast_o   = beat_q == 2'(Beats - 1);
  assign bready_o  = 1'b1;
  // The bus takes data with its address, or later.
  assign send_last = wvalid_o && wready_i && wlast_o;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q      <= '0;
      next_q      <= '0;
      tail_q      <= '0;
      idle_q      <= '0;
      sending_q   <= 1'b0;
      addressed_q <= 1'b0;
      beat_q      <= '0;
    end else begin
      if (store) begin
        if (merges) begin
          strobes_q[youngest] <= strobes_q[youngest] | 16'(sel_i) << {adr_i[1:0], 2'b0};
          for (int unsigned i = 0; i < 4; i++) begin
            if (sel_i[i]) data_q[youngest][32*adr_i[1:0]+8*i+:8] <= data_i[8*i+:8];
          end
        end else begin
          address_q[tail_q[IndexWidth-1:0]] <= adr_i[29:2];
          data_q[tail_q[IndexWidth-1:0]]    <= {4{data_i}};
          strobes_q[tail_q[IndexWidth-1:0]] <= 16'(sel_i) << {adr_i[1:0], 2'b0};
          tail_q                            <= tail_q + 1;
        end
      end
      idle_q <= store || !unsent ? '0 : idle_q != Patience ? idle_q + 1 : idle_q;

      if (wvalid_o) begin
        sending_q   <= !send_last;
        addressed_q <= !send_last && (addressed_q || awready_i);
        if (wready_i) beat_q <= wlast_o ? '0 : beat_q + 1;
        if (send_last) next_q <= next_q + 1;
      end
      if (bvalid_i) head_q <= head_q + 1;
    end
  end

endmodule
