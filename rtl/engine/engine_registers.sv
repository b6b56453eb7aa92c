// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The engine's AXI4-Lite slave, and the registers of the whole: ID to STATUS. The others
// lie where what they are about lies: a write is shown to all for a cycle, and reads
// gather what each has at the address, zero if nothing.
//
// A write counts only with all four strobes, and when the engine is ready; CTRL.reset and
// CTRL.zeroize count always. Address and data are taken together, so that no key word
// stays here. There are no errors: what is not there reads zero and ignores writes.

module engine_registers
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  parameter int unsigned Level       = 3,
  parameter int unsigned Ciphers     = 2,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned UnitBytes   = 4096,
  parameter int unsigned XtsBytes    = 512,
  parameter int unsigned Rings       = 1,
  parameter int unsigned Slots       = 8,
  parameter int unsigned BusBytes    = 16,
  parameter int unsigned AddressBits = 64,
  parameter int unsigned CyclesPerUs = 100
) (
  input logic clk_i,
  input logic rst_ni,
  // That of CTRL.reset too.
  input logic rst_registers_ni,

  input  logic [12:0] s_axil_awaddr,
  input  logic        s_axil_awvalid,
  output logic        s_axil_awready,
  input  logic [31:0] s_axil_wdata,
  input  logic [ 3:0] s_axil_wstrb,
  input  logic        s_axil_wvalid,
  output logic        s_axil_wready,
  output logic [ 1:0] s_axil_bresp,
  output logic        s_axil_bvalid,
  input  logic        s_axil_bready,
  input  logic [12:0] s_axil_araddr,
  input  logic        s_axil_arvalid,
  output logic        s_axil_arready,
  output logic [31:0] s_axil_rdata,
  output logic [ 1:0] s_axil_rresp,
  output logic        s_axil_rvalid,
  input  logic        s_axil_rready,

  output logic        write_o,
  output logic [12:0] address_o,
  output logic [31:0] data_o,
  output logic [12:0] read_address_o,
  // What the others have there.
  input  logic [31:0] read_data_i,

  output logic reset_o,
  output logic zeroize_o,
  output logic enable_o,
  input  logic ready_i,
  input  logic idle_i,
  input  logic fault_i
);

  // Writes.

  logic answer_q, accept, whole;
  assign accept = s_axil_awvalid && s_axil_wvalid && (!answer_q || s_axil_bready);
  assign whole = accept && &s_axil_wstrb;
  assign s_axil_awready = accept;
  assign s_axil_wready = accept;
  assign s_axil_bvalid = answer_q;
  assign s_axil_bresp = '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) answer_q <= 1'b0;
    else if (accept) answer_q <= 1'b1;
    else if (s_axil_bready) answer_q <= 1'b0;
  end

  assign write_o = whole && ready_i;
  assign address_o = {s_axil_awaddr[12:2], 2'b0};
  assign data_o = s_axil_wdata;

  logic control;
  assign control = whole && 32'(address_o) == RegCtrl;
  assign reset_o = control && s_axil_wdata[CtrlResetLow];
  assign zeroize_o = control && s_axil_wdata[CtrlZeroizeLow];

  always_ff @(posedge clk_i or negedge rst_registers_ni) begin
    if (!rst_registers_ni) enable_o <= 1'b0;
    else if (write_o && 32'(address_o) == RegCtrl) enable_o <= s_axil_wdata[CtrlEnableLow];
  end

  // Reads: a cycle for the address, one for what is there.

  logic asked_q, valid_q;
  logic [12:2] read_address_q;
  logic [31:0] read_data_q, here;
  assign s_axil_arready = !asked_q && !valid_q;
  assign s_axil_rvalid = valid_q;
  assign s_axil_rdata = read_data_q;
  assign s_axil_rresp = '0;
  assign read_address_o = {read_address_q, 2'b0};

  logic unused;
  assign unused = ^{s_axil_awaddr[1:0], s_axil_araddr[1:0]};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asked_q        <= 1'b0;
      valid_q        <= 1'b0;
      read_address_q <= '0;
      read_data_q    <= '0;
    end else begin
      if (s_axil_arvalid && s_axil_arready) begin
        asked_q        <= 1'b1;
        read_address_q <= s_axil_araddr[12:2];
      end
      if (asked_q) begin
        asked_q     <= 1'b0;
        valid_q     <= 1'b1;
        read_data_q <= here | read_data_i;
      end
      if (valid_q && s_axil_rready) valid_q <= 1'b0;
    end
  end

  // Which of 512, 1024, 2048, 4096 bytes the other ciphers have.
  localparam logic [3:0] OtherUnits = (Ciphers >> 2) == 0 ? 4'b0 : 4'(UnitBytes / 512);
  localparam logic [3:0] XtsUnits = Level < 3 ? 4'b0 : 4'b1111;

  always_comb begin
    here = '0;
    unique case (32'(read_address_o))
      RegId: here = Id;
      RegVersion: begin
        here[VersionMinorLow+:VersionMinorBits] = VersionMinorBits'(Minor);
        here[VersionMajorLow+:VersionMajorBits] = VersionMajorBits'(Major);
      end
      RegCap0: begin
        here[Cap0LevelLow+:Cap0LevelBits] = Cap0LevelBits'(Level);
        here[Cap0RingsLow+:Cap0RingsBits] = Cap0RingsBits'(Rings);
        here[Cap0SlotsLow+:Cap0SlotsBits] = Cap0SlotsBits'(Slots);
        here[Cap0BusBytesLow+:Cap0BusBytesBits] = Cap0BusBytesBits'(BusBytes);
        here[Cap0AddressBitsLow+:Cap0AddressBitsBits] = Cap0AddressBitsBits'(AddressBits);
      end
      RegCap1: begin
        here[Cap1CiphersLow+:Cap1CiphersBits] = Cap1CiphersBits'(Ciphers);
        here[Cap1KeyBitsLow+:Cap1KeyBitsBits] = KeyBits == 256 ? 2'b10 : 2'b01;
        here[Cap1XtsUnitsLow+:Cap1XtsUnitsBits] = XtsUnits;
        here[Cap1OtherUnitsLow+:Cap1OtherUnitsBits] = OtherUnits;
      end
      RegCap2: begin
        here[Cap2Log2BytesLow+:Cap2Log2BytesBits] = Cap2Log2BytesBits'(LogBytes);
        here[Cap2Log2EntriesLow+:Cap2Log2EntriesBits] = Cap2Log2EntriesBits'(LogEntries);
        here[Cap2Log2RingLow+:Cap2Log2RingBits] = Cap2Log2RingBits'(LogRing);
        if (Level >= 2) here[Cap2XtsBlocksLow+:Cap2XtsBlocksBits] = Cap2XtsBlocksBits'(XtsBytes / 16);
      end
      RegCap3: here[Cap3CyclesPerUsLow+:Cap3CyclesPerUsBits] = Cap3CyclesPerUsBits'(CyclesPerUs);
      RegCtrl: here[CtrlEnableLow] = enable_o;
      RegStatus: begin
        here[StatusReadyLow] = ready_i;
        here[StatusIdleLow] = idle_i;
        here[StatusFaultLow] = fault_i;
      end
      default: ;
    endcase
  end

endmodule
