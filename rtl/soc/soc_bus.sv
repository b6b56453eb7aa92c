// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One memory bus (AXI4 with one ID, answers in order) for the CPU's caches, its stores and the
// co-processor, who take turns, a burst each. Memory answers all reads in order, so a reader that
// does not take its data holds up the others: these all do.

module soc_bus #(
  // Of a beat: 4, 8 or 16.
  parameter int unsigned BusBytes = 16,
  parameter int unsigned Readers  = 3,
  parameter int unsigned Writers  = 2
) (
  input logic clk_i,
  input logic rst_ni,

  // For how many cycles the last writer's bursts wait, for each 16 bytes: a slower co-processor.
  input logic [15:0] pace_i,

  input  logic [Readers-1:0]       arvalid_i,
  output logic [Readers-1:0]       arready_o,
  input  logic [Readers-1:0][31:0] araddr_i,
  input  logic [Readers-1:0][ 7:0] arlen_i,
  output logic [Readers-1:0]       rvalid_o,
  input  logic [Readers-1:0]       rready_i,

  input  logic [Writers-1:0]                 awvalid_i,
  output logic [Writers-1:0]                 awready_o,
  input  logic [Writers-1:0][31:0]           awaddr_i,
  input  logic [Writers-1:0][ 7:0]           awlen_i,
  input  logic [Writers-1:0]                 wvalid_i,
  output logic [Writers-1:0]                 wready_o,
  input  logic [Writers-1:0][8*BusBytes-1:0] wdata_i,
  input  logic [Writers-1:0][  BusBytes-1:0] wstrb_i,
  input  logic [Writers-1:0]                 wlast_i,
  output logic [Writers-1:0]                 bvalid_o,
  input  logic [Writers-1:0]                 bready_i,

  // Memory. Its data and responses go to whoever waits for them past this module.
  output logic                  arvalid_o,
  input  logic                  arready_i,
  output logic [          31:0] araddr_o,
  output logic [           7:0] arlen_o,
  input  logic                  rvalid_i,
  output logic                  rready_o,
  input  logic                  rlast_i,
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

  localparam int unsigned ReaderWidth = $clog2(Readers);
  localparam int unsigned WriterWidth = $clog2(Writers);
  // More than the memory takes.
  localparam int unsigned Outstanding = 64;

  // ---- Addresses to read from ----

  logic [ReaderWidth-1:0] reader, reader_q, waiter;
  logic read_offered_q, read_room, read_waits;

  // The next one that asks, after the one before. An address that is offered stays.
  always_comb begin
    reader = reader_q;
    for (int i = int'(Readers); i > 0; i--) begin
      if (!read_offered_q && arvalid_i[(int'(reader_q) + i) % int'(Readers)]) begin
        reader = ReaderWidth'((int'(reader_q) + i) % int'(Readers));
      end
    end
  end
  always_comb begin
    arready_o         = '0;
    arready_o[reader] = arready_i && read_room;
  end

  assign arvalid_o = arvalid_i[reader] && read_room;
  assign araddr_o  = araddr_i[reader];
  assign arlen_o   = arlen_i[reader];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      reader_q       <= '0;
      read_offered_q <= 1'b0;
    end else if (arvalid_o) begin
      reader_q       <= reader;
      read_offered_q <= !arready_i;
    end
  end

  stream_fifo #(
    .Width(ReaderWidth),
    .Depth(Outstanding)
  ) u_readers (
    .clk_i,
    .rst_ni,
    .valid_i(arvalid_o && arready_i),
    .ready_o(read_room),
    .data_i (reader),
    .valid_o(read_waits),
    .ready_i(rvalid_i && rready_o && rlast_i),
    .data_o (waiter),
    .count_o()
  );

  always_comb begin
    rvalid_o         = '0;
    rvalid_o[waiter] = rvalid_i && read_waits;
  end
  assign rready_o = rready_i[waiter] && read_waits;

  // ---- Writes ----

  logic [WriterWidth-1:0] writer, writer_q, answered;
  logic busy_q, addressed_q, addressed, granted, write_room, write_waits, paced;
  logic [Writers-1:0] asks;
  logic [31:0] wait_q;

  // Beats of the bus in 16 bytes.
  localparam int unsigned Beats = 16 / BusBytes;
  assign paced = wait_q >= pace_i * (32'(awlen_i[Writers-1]) + 1) / Beats;

  always_comb begin
    asks            = awvalid_i;
    asks[Writers-1] = awvalid_i[Writers-1] && paced;
    writer          = writer_q;
    for (int i = int'(Writers); i > 0; i--) begin
      if (!busy_q && asks[(int'(writer_q) + i) % int'(Writers)]) begin
        writer = WriterWidth'((int'(writer_q) + i) % int'(Writers));
      end
    end
  end
  assign granted = busy_q || (asks[writer] && write_room);

  // A burst at a time, and no data ahead of its address.
  assign awvalid_o = granted && !addressed_q && awvalid_i[writer];
  assign awaddr_o  = awaddr_i[writer];
  assign awlen_o   = awlen_i[writer];
  assign wvalid_o  = addressed && wvalid_i[writer];
  assign wdata_o   = wdata_i[writer];
  assign wstrb_o   = wstrb_i[writer];
  assign wlast_o   = wlast_i[writer];

  assign addressed = addressed_q || (awvalid_o && awready_i);

  always_comb begin
    awready_o         = '0;
    wready_o          = '0;
    awready_o[writer] = awvalid_o && awready_i;
    wready_o[writer]  = addressed && wready_i;
  end

  logic fed;
  assign fed = wvalid_o && wready_i && wlast_o;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      writer_q    <= '0;
      busy_q      <= 1'b0;
      addressed_q <= 1'b0;
    end else if (granted) begin
      writer_q    <= writer;
      busy_q      <= !fed;
      addressed_q <= addressed && !fed;
    end
    if (!rst_ni || !awvalid_i[Writers-1] || awready_o[Writers-1]) wait_q <= '0;
    else if (!paced) wait_q <= wait_q + 1;
  end

  stream_fifo #(
    .Width(WriterWidth),
    .Depth(Outstanding)
  ) u_writers (
    .clk_i,
    .rst_ni,
    .valid_i(granted && !busy_q),
    .ready_o(write_room),
    .data_i (writer),
    .valid_o(write_waits),
    .ready_i(bvalid_i && bready_o),
    .data_o (answered),
    .count_o()
  );

  always_comb begin
    bvalid_o           = '0;
    bvalid_o[answered] = bvalid_i && write_waits;
  end
  assign bready_o = bready_i[answered] && write_waits;

endmodule
