// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A cache's reads, from Wishbone to the memory bus: a line of 32 bytes, whose words the cache takes
// in order as they come, or one word for what is not cached.

module soc_reader #(
  // Of a beat: 4, 8 or 16.
  parameter int unsigned BusBytes = 16
) (
  input logic clk_i,
  input logic rst_ni,

  // Strobe and address stay until the word is there.
  input  logic        stb_i,
  input  logic        line_i,
  input  logic [29:0] adr_i,
  output logic        ack_o,
  output logic [31:0] data_o,

  // Not yet: what is to be read has not been written.
  input logic hold_i,

  output logic                  arvalid_o,
  input  logic                  arready_i,
  output logic [          31:0] araddr_o,
  output logic [           7:0] arlen_o,
  input  logic                  rvalid_i,
  input  logic [8*BusBytes-1:0] rdata_i
);

  localparam int unsigned Words = BusBytes / 4;

  logic waiting_q;
  logic [7:0][31:0] words_q;
  // Of them, those that have come.
  logic [3:0] come_q;
  logic [2:0] index;

  assign arvalid_o = stb_i && !waiting_q && !hold_i;
  assign araddr_o  = line_i ? {adr_i[29:3], 5'b0} : {adr_i[29:2], 4'b0};
  assign arlen_o   = line_i ? 8'(8 / Words - 1) : 8'(4 / Words - 1);

  assign index  = line_i ? adr_i[2:0] : {1'b0, adr_i[1:0]};
  assign ack_o  = stb_i && waiting_q && (line_i ? come_q > {1'b0, index} : come_q == 4);
  assign data_o = words_q[index];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      waiting_q <= 1'b0;
      come_q    <= '0;
    end else begin
      if (arvalid_o && arready_i) waiting_q <= 1'b1;
      if (rvalid_i) begin
        for (int unsigned i = 0; i < Words; i++) words_q[3'(32'(come_q)+i)] <= rdata_i[32*i+:32];
        come_q <= come_q + 4'(Words);
      end
      // The last word.
      if (ack_o && (!line_i || index == 7)) begin
        waiting_q <= 1'b0;
        come_q    <= '0;
      end
    end
  end

endmodule
