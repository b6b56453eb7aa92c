// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The counter mode of FAST: for blocks i = 1, 2, .. of X the calls z ^ i, `Cores` of
// them a cycle, one sector right behind the other. It also starts the sector's second
// hash, and keeps the sector until then.

module fast_counter
  import aes_pkg::*;
#(
  // Of a sector; X is two fewer.
  parameter int unsigned Blocks = 256,
  // Calls a cycle, and blocks a beat.
  parameter int unsigned Cores  = 1,
  parameter int unsigned Lanes  = 2
) (
  input  logic clk_i,
  input  logic rst_ni,

  // A sector.
  input  logic   z_valid_i,
  output logic   z_ready_o,
  input  block_t z_i,
  input  block_t tweak_i,
  input  logic   decrypt_i,

  // Its second hash.
  output logic   start_valid_o,
  input  logic   start_ready_i,
  output block_t start_tweak_o,
  output logic   start_prime_o,

  // Its calls. `first`: of the sector; `later`: of a beat made by two calls.
  input  logic   room_i,
  output logic   call_valid_o,
  input  logic   call_ready_i,
  output logic   call_first_o,
  output logic   call_later_o,
  output block_t call_o[Cores]
);

  localparam int unsigned BlockWidth = $clog2(Blocks);

  logic valid_q, started_q, decrypt_q;
  block_t tweak_q, z_q;
  // The number of the next call's first block.
  logic [BlockWidth-1:0] number_q;
  logic last, go;

  assign last = number_q == BlockWidth'(Blocks - 1 - Cores);
  assign call_first_o = number_q == BlockWidth'(1);
  assign call_later_o = Lanes > Cores && !number_q[0];
  assign call_valid_o = valid_q && (room_i || call_later_o) && (started_q || !last);
  assign go = call_valid_o && call_ready_i;
  assign z_ready_o = z_valid_i && (!valid_q || (go && last));

  assign start_valid_o = valid_q && !started_q;
  assign start_tweak_o = tweak_q;
  assign start_prime_o = !decrypt_q;

  for (genvar i = 0; i < Cores; i++) begin : gen_call
    logic [BlockWidth-1:0] number;
    assign number = number_q + BlockWidth'(i);
    assign call_o[i] = z_q ^ 128'(number);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q   <= 1'b0;
      started_q <= 1'b0;
      decrypt_q <= 1'b0;
      tweak_q   <= '0;
      z_q       <= '0;
      number_q  <= '0;
    end else if (z_ready_o) begin
      valid_q   <= 1'b1;
      started_q <= 1'b0;
      decrypt_q <= decrypt_i;
      tweak_q   <= tweak_i;
      z_q       <= z_i;
      number_q  <= BlockWidth'(1);
    end else begin
      if (start_valid_o && start_ready_i) started_q <= 1'b1;
      if (go) begin
        number_q <= number_q + BlockWidth'(Cores);
        if (last) valid_q <= 1'b0;
      end
    end
  end

endmodule
