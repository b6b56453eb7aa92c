// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What CTRL.reset and CTRL.zeroize do. Everything that has keys or data is reset in the
// cycle after the command, with CTRL.reset also the registers; only what stands at the
// bus is not, and ends what the bus has seen begin. The engine is ready again when that
// is over and all memories are wiped.

module engine_reset (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic reset_i,
  input  logic zeroize_i,
  // Nothing is under way at the bus; a memory is being wiped.
  input  logic bus_idle_i,
  input  logic wiping_i,
  // For registers and rings; for keys, data and requests.
  output logic rst_registers_no,
  output logic rst_data_no,
  // To what stands at the bus: nothing new, end what has begun.
  output logic stop_o,
  output logic ready_o
);

  clear_reset u_registers (
    .clk_i,
    .rst_ni,
    .clear_i(reset_i),
    .rst_no (rst_registers_no)
  );

  clear_reset u_data (
    .clk_i,
    .rst_ni,
    .clear_i(reset_i || zeroize_i),
    .rst_no (rst_data_no)
  );

  // What is reset does not say yet that it is wiping.
  logic early_q;
  logic stop_q, ready_q;
  assign stop_o = stop_q;
  assign ready_o = ready_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      early_q <= 1'b1;
      stop_q  <= 1'b0;
      ready_q <= 1'b0;
    end else if (reset_i || zeroize_i) begin
      early_q <= 1'b1;
      stop_q  <= 1'b1;
      ready_q <= 1'b0;
    end else if (early_q) begin
      early_q <= 1'b0;
    end else begin
      if (bus_idle_i) stop_q <= 1'b0;
      if (bus_idle_i && !wiping_i) ready_q <= 1'b1;
    end
  end

endmodule
