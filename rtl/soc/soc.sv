// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A small computer for the test bench: a RISC-V CPU (VexRiscv, "Full": one instruction at a time in five
// stages, caches of 4 KiB for instructions and data) and the co-processor on one memory bus.
//
//   0x0000_0000  memory
//   0x8000_0000  the same memory, past the data cache
//   0xe000_0000  the co-processor's registers
//   0xf000_0000  the test bench
//
// Stores are posted, and reads and registers are held back until memory has what was stored before
// to the line, or at all. Memory is behind the port `ar*` to `b*`, as in the co-processor's tests.

module soc #(
  // Of the co-processor.
  parameter int unsigned Level    = 3,
  parameter int unsigned KeyBits  = 256,
  // Of a beat of the memory bus: 4, 8 or 16.
  parameter int unsigned BusBytes = 16
) (
  input logic clk_i,
  input logic rst_ni,

  // Cycles that each 16 bytes which the co-processor writes are held back.
  input logic [15:0] pace_i,

  output logic        bench_valid_o,
  output logic [ 5:0] bench_index_o,
  output logic [31:0] bench_data_o,

  output logic                  arvalid_o,
  input  logic                  arready_i,
  output logic [          31:0] araddr_o,
  output logic [           7:0] arlen_o,
  input  logic                  rvalid_i,
  output logic                  rready_o,
  input  logic [8*BusBytes-1:0] rdata_i,
  input  logic [           1:0] rresp_i,
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
  output logic                  bready_o,
  input  logic [           1:0] bresp_i
);

  // ---- CPU ----

  logic i_stb, i_ack, d_stb, d_ack, d_we;
  logic [29:0] i_adr, d_adr;
  logic [31:0] i_data, d_data, d_written;
  logic [3:0] d_sel;
  logic [2:0] d_cti;
  logic [1:0] irqs;

  VexRiscv u_cpu (
    .externalResetVector   (32'h0),
    .timerInterrupt        (1'b0),
    .softwareInterrupt     (1'b0),
    .externalInterruptArray({31'b0, irqs != 0}),
    .iBusWishbone_CYC      (),
    .iBusWishbone_STB      (i_stb),
    .iBusWishbone_ACK      (i_ack),
    .iBusWishbone_WE       (),
    .iBusWishbone_ADR      (i_adr),
    .iBusWishbone_DAT_MISO (i_data),
    .iBusWishbone_DAT_MOSI (),
    .iBusWishbone_SEL      (),
    .iBusWishbone_ERR      (1'b0),
    .iBusWishbone_CTI      (),
    .iBusWishbone_BTE      (),
    .dBusWishbone_CYC      (),
    .dBusWishbone_STB      (d_stb),
    .dBusWishbone_ACK      (d_ack),
    .dBusWishbone_WE       (d_we),
    .dBusWishbone_ADR      (d_adr),
    .dBusWishbone_DAT_MISO (d_data),
    .dBusWishbone_DAT_MOSI (d_written),
    .dBusWishbone_SEL      (d_sel),
    .dBusWishbone_ERR      (1'b0),
    .dBusWishbone_CTI      (d_cti),
    .dBusWishbone_BTE      (),
    .clk                   (clk_i),
    .reset                 (!rst_ni)
  );

  // ---- Its accesses ----

  localparam int unsigned Instructions = 0;
  localparam int unsigned Data = 1;
  localparam int unsigned Engine = 2;
  logic [2:0] arvalid, arready, rvalid, rready;
  logic [2:0][31:0] araddr;
  logic [2:0][7:0] arlen;

  localparam int unsigned Stores = 0;
  localparam int unsigned EngineWrites = 1;
  logic [1:0] awvalid, awready, wvalid, wready, wlast, bvalid, bready;
  logic [1:0][31:0] awaddr;
  logic [1:0][7:0] awlen;
  logic [1:0][8*BusBytes-1:0] wdata;
  logic [1:0][BusBytes-1:0] wstrb;

  logic registers, read, store, read_ack, store_ack, registers_ack;
  logic stores_empty, line_stored;
  logic [31:0] read_data, registers_data;
  assign registers = d_stb && d_adr[29:28] == 2'b11;
  assign read      = d_stb && !d_we && d_adr[29:28] != 2'b11;
  assign store     = d_stb && d_we && d_adr[29:28] != 2'b11;
  assign d_ack     = registers ? registers_ack : d_we ? store_ack : read_ack;
  assign d_data    = registers ? registers_data : read_data;

  soc_reader #(
    .BusBytes(BusBytes)
  ) u_instructions (
    .clk_i,
    .rst_ni,
    .stb_i    (i_stb),
    .line_i   (1'b1),
    .adr_i    ({1'b0, i_adr[28:0]}),
    .ack_o    (i_ack),
    .data_o   (i_data),
    .hold_i   (1'b0),
    .arvalid_o(arvalid[Instructions]),
    .arready_i(arready[Instructions]),
    .araddr_o (araddr[Instructions]),
    .arlen_o  (arlen[Instructions]),
    .rvalid_i (rvalid[Instructions]),
    .rdata_i  (rdata_i)
  );

  soc_reader #(
    .BusBytes(BusBytes)
  ) u_data (
    .clk_i,
    .rst_ni,
    .stb_i    (read),
    .line_i   (d_cti != 3'b000),
    .adr_i    ({1'b0, d_adr[28:0]}),
    .ack_o    (read_ack),
    .data_o   (read_data),
    .hold_i   (line_stored),
    .arvalid_o(arvalid[Data]),
    .arready_i(arready[Data]),
    .araddr_o (araddr[Data]),
    .arlen_o  (arlen[Data]),
    .rvalid_i (rvalid[Data]),
    .rdata_i  (rdata_i)
  );

  assign rready[Instructions] = 1'b1;
  assign rready[Data]         = 1'b1;

  soc_stores #(
    .BusBytes(BusBytes)
  ) u_stores (
    .clk_i,
    .rst_ni,
    .stb_i      (store),
    .adr_i      ({1'b0, d_adr[28:0]}),
    .data_i     (d_written),
    .sel_i      (d_sel),
    .ack_o      (store_ack),
    .flush_i    (registers || (read && line_stored)),
    .empty_o    (stores_empty),
    .line_i     ({1'b0, d_adr[28:3]}),
    .line_here_o(line_stored),
    .awvalid_o  (awvalid[Stores]),
    .awready_i  (awready[Stores]),
    .awaddr_o   (awaddr[Stores]),
    .awlen_o    (awlen[Stores]),
    .wvalid_o   (wvalid[Stores]),
    .wready_i   (wready[Stores]),
    .wdata_o    (wdata[Stores]),
    .wstrb_o    (wstrb[Stores]),
    .wlast_o    (wlast[Stores]),
    .bvalid_i   (bvalid[Stores]),
    .bready_o   (bready[Stores])
  );

  logic [12:0] lite_awaddr, lite_araddr;
  logic lite_awvalid, lite_awready, lite_wvalid, lite_wready, lite_bvalid, lite_bready;
  logic lite_arvalid, lite_arready, lite_rvalid, lite_rready;
  logic [31:0] lite_wdata, lite_rdata;

  soc_registers u_registers (
    .clk_i,
    .rst_ni,
    .stb_i    (registers && stores_empty),
    .we_i     (d_we),
    .adr_i    (d_adr),
    .data_i   (d_written),
    .ack_o    (registers_ack),
    .data_o   (registers_data),
    .bench_valid_o,
    .bench_index_o,
    .bench_data_o,
    .awaddr_o (lite_awaddr),
    .awvalid_o(lite_awvalid),
    .awready_i(lite_awready),
    .wdata_o  (lite_wdata),
    .wvalid_o (lite_wvalid),
    .wready_i (lite_wready),
    .bvalid_i (lite_bvalid),
    .bready_o (lite_bready),
    .araddr_o (lite_araddr),
    .arvalid_o(lite_arvalid),
    .arready_i(lite_arready),
    .rdata_i  (lite_rdata),
    .rvalid_i (lite_rvalid),
    .rready_o (lite_rready)
  );

  // Instructions are in the lower half of memory's addresses.
  logic unused;
  assign unused = i_adr[29];

  // ---- Co-processor ----

  xtent_engine #(
    .Level      (Level),
    .Ciphers    (Level == 3 ? 3 : 1),
    .KeyBits    (KeyBits),
    .Rings      (1),
    .Slots      (4),
    .BusBytes   (BusBytes),
    .AddressBits(32)
  ) u_engine (
    .aclk          (clk_i),
    .aresetn       (rst_ni),
    .s_axil_awaddr (lite_awaddr),
    .s_axil_awprot (3'b0),
    .s_axil_awvalid(lite_awvalid),
    .s_axil_awready(lite_awready),
    .s_axil_wdata  (lite_wdata),
    .s_axil_wstrb  (4'hf),
    .s_axil_wvalid (lite_wvalid),
    .s_axil_wready (lite_wready),
    .s_axil_bresp  (),
    .s_axil_bvalid (lite_bvalid),
    .s_axil_bready (lite_bready),
    .s_axil_araddr (lite_araddr),
    .s_axil_arprot (3'b0),
    .s_axil_arvalid(lite_arvalid),
    .s_axil_arready(lite_arready),
    .s_axil_rdata  (lite_rdata),
    .s_axil_rresp  (),
    .s_axil_rvalid (lite_rvalid),
    .s_axil_rready (lite_rready),
    .m_axi_awid    (),
    .m_axi_awaddr  (awaddr[EngineWrites]),
    .m_axi_awlen   (awlen[EngineWrites]),
    .m_axi_awsize  (),
    .m_axi_awburst (),
    .m_axi_awcache (),
    .m_axi_awprot  (),
    .m_axi_awvalid (awvalid[EngineWrites]),
    .m_axi_awready (awready[EngineWrites]),
    .m_axi_wdata   (wdata[EngineWrites]),
    .m_axi_wstrb   (wstrb[EngineWrites]),
    .m_axi_wlast   (wlast[EngineWrites]),
    .m_axi_wvalid  (wvalid[EngineWrites]),
    .m_axi_wready  (wready[EngineWrites]),
    .m_axi_bid     (1'b0),
    .m_axi_bresp   (bresp_i),
    .m_axi_bvalid  (bvalid[EngineWrites]),
    .m_axi_bready  (bready[EngineWrites]),
    .m_axi_arid    (),
    .m_axi_araddr  (araddr[Engine]),
    .m_axi_arlen   (arlen[Engine]),
    .m_axi_arsize  (),
    .m_axi_arburst (),
    .m_axi_arcache (),
    .m_axi_arprot  (),
    .m_axi_arvalid (arvalid[Engine]),
    .m_axi_arready (arready[Engine]),
    .m_axi_rid     (1'b0),
    .m_axi_rdata   (rdata_i),
    .m_axi_rresp   (rresp_i),
    .m_axi_rlast   (rlast_i),
    .m_axi_rvalid  (rvalid[Engine]),
    .m_axi_rready  (rready[Engine]),
    .interrupt     (irqs)
  );

  // ---- Bus ----

  soc_bus #(
    .BusBytes(BusBytes)
  ) u_bus (
    .clk_i,
    .rst_ni,
    .pace_i,
    .arvalid_i(arvalid),
    .arready_o(arready),
    .araddr_i (araddr),
    .arlen_i  (arlen),
    .rvalid_o (rvalid),
    .rready_i (rready),
    .awvalid_i(awvalid),
    .awready_o(awready),
    .awaddr_i (awaddr),
    .awlen_i  (awlen),
    .wvalid_i (wvalid),
    .wready_o (wready),
    .wdata_i  (wdata),
    .wstrb_i  (wstrb),
    .wlast_i  (wlast),
    .bvalid_o (bvalid),
    .bready_i (bready),
    .arvalid_o(arvalid_o),
    .arready_i(arready_i),
    .araddr_o (araddr_o),
    .arlen_o  (arlen_o),
    .rvalid_i (rvalid_i),
    .rready_o (rready_o),
    .rlast_i  (rlast_i),
    .awvalid_o(awvalid_o),
    .awready_i(awready_i),
    .awaddr_o (awaddr_o),
    .awlen_o  (awlen_o),
    .wvalid_o (wvalid_o),
    .wready_i (wready_i),
    .wdata_o  (wdata_o),
    .wstrb_o  (wstrb_o),
    .wlast_o  (wlast_o),
    .bvalid_i (bvalid_i),
    .bready_o (bready_o)
  );

endmodule
