// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The CPU's way to registers: those of the co-processor by AXI4-Lite, and the test bench's. One access
// at a time, and the CPU waits for its end.

module soc_registers (
  input logic clk_i,
  input logic rst_ni,

  input  logic        stb_i,
  input  logic        we_i,
  input  logic [29:0] adr_i,
  input  logic [31:0] data_i,
  output logic        ack_o,
  output logic [31:0] data_o,

  // To the test bench: writes at 0xf000_0000; reads there give 0.
  output logic        bench_valid_o,
  output logic [ 5:0] bench_index_o,
  output logic [31:0] bench_data_o,

  output logic [12:0] awaddr_o,
  output logic        awvalid_o,
  input  logic        awready_i,
  output logic [31:0] wdata_o,
  output logic        wvalid_o,
  input  logic        wready_i,
  input  logic        bvalid_i,
  output logic        bready_o,
  output logic [12:0] araddr_o,
  output logic        arvalid_o,
  input  logic        arready_i,
  input  logic [31:0] rdata_i,
  input  logic        rvalid_i,
  output logic        rready_o
);

  logic bench, engine, address_taken_q, data_taken_q;
  assign bench  = stb_i && adr_i[29:26] == 4'hf;
  assign engine = stb_i && adr_i[29:26] == 4'he;

  assign bench_valid_o = bench && we_i;
  assign bench_index_o = adr_i[5:0];
  assign bench_data_o  = data_i;

  assign awaddr_o  = {adr_i[10:0], 2'b0};
  assign awvalid_o = engine && we_i && !address_taken_q;
  assign wdata_o   = data_i;
  assign wvalid_o  = engine && we_i && !data_taken_q;
  assign bready_o  = 1'b1;
  assign araddr_o  = {adr_i[10:0], 2'b0};
  assign arvalid_o = engine && !we_i && !address_taken_q;
  assign rready_o  = 1'b1;

  // What is nowhere ends too, so that software's mistakes do not hang.
  assign ack_o  = stb_i && (engine ? bvalid_i || rvalid_i : 1'b1);
  assign data_o = engine ? rdata_i : '0;

  always_ff @(posedge clk_i) begin
    if (!rst_ni || ack_o) begin
      address_taken_q <= 1'b0;
      data_taken_q    <= 1'b0;
    end else begin
      if ((awvalid_o && awready_i) || (arvalid_o && arready_i)) address_taken_q <= 1'b1;
      if (wvalid_o && wready_i) data_taken_q <= 1'b1;
    end
  end

  logic unused;
  assign unused = &{1'b0, adr_i[25:11]};

endmodule
