// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What every design has behind its ports: resets, the key's handshake, and registers in the
// streams of requests and of data, so that no path goes through a port.
//
// A key is taken while nothing is under way, requests not before one. A request that is taken
// in the same cycle as a key comes after it. What is inside the design is reset in the
// cycle after a key (`rst_sectors_no`), but for what is in these registers: that
// belongs to the new key's runs. In that cycle the design gets its key, out of a register: the
// enables of hundreds of flip-flops do not wait for the handshake at the port.

module sector_port #(
  parameter int unsigned KeyWidth     = 128,
  parameter int unsigned RequestWidth = 161,
  parameter int unsigned DataWidth    = 128
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,
  // Low while everything is zeroized; while everything but keys is.
  output logic rst_no,
  output logic rst_sectors_no,

  // The design's ports.
  input  logic                    key_valid_i,
  output logic                    key_ready_o,
  input  logic [    KeyWidth-1:0] key_i,
  input  logic                    req_valid_i,
  output logic                    req_ready_o,
  input  logic [RequestWidth-1:0] req_i,
  input  logic                    in_valid_i,
  output logic                    in_ready_o,
  input  logic [   DataWidth-1:0] in_data_i,

  // A key could be taken: no sector is inside, memories are wiped, the schedule is ready.
  // It has to fall with the taking of a key or of a request.
  input  logic                idle_i,
  output logic                key_taken_o,
  output logic [KeyWidth-1:0] key_o,

  output logic                    req_valid_o,
  input  logic                    req_ready_i,
  output logic [RequestWidth-1:0] req_o,
  output logic                    in_valid_o,
  input  logic                    in_ready_i,
  output logic [   DataWidth-1:0] in_data_o
);

  logic idle_q, loaded_q, take_key, taken_q, request_room;
  logic [KeyWidth-1:0] key_q;

  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no
  );
  clear_reset u_reset_sectors (
    .clk_i,
    .rst_ni,
    .clear_i(clear_i || take_key),
    .rst_no (rst_sectors_no)
  );

  // What was idle a cycle ago still is, if no request has come.
  assign key_ready_o = idle_q && !req_valid_o;
  assign take_key = key_valid_i && key_ready_o;
  assign key_taken_o = taken_q;
  assign key_o = key_q;
  assign req_ready_o = request_room && loaded_q;

  stream_skid #(
    .Width(RequestWidth)
  ) u_requests (
    .clk_i,
    .rst_ni (rst_no),
    .valid_i(req_valid_i && loaded_q),
    .ready_o(request_room),
    .data_i (req_i),
    .valid_o(req_valid_o),
    .ready_i(req_ready_i),
    .data_o (req_o)
  );

  stream_skid #(
    .Width(DataWidth)
  ) u_in (
    .clk_i,
    .rst_ni (rst_no),
    .valid_i(in_valid_i),
    .ready_o(in_ready_o),
    .data_i (in_data_i),
    .valid_o(in_valid_o),
    .ready_i(in_ready_i),
    .data_o (in_data_o)
  );

  always_ff @(posedge clk_i or negedge rst_no) begin
    if (!rst_no) begin
      idle_q   <= 1'b0;
      loaded_q <= 1'b0;
      taken_q  <= 1'b0;
      key_q    <= '0;
    end else begin
      idle_q  <= idle_i && !take_key && !taken_q && !req_valid_o;
      taken_q <= take_key;
      // What is offered, taken or not.
      key_q   <= key_valid_i ? key_i : '0;
      if (take_key) loaded_q <= 1'b1;
    end
  end

endmodule
