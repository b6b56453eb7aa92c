// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The counter mode of FAST: for blocks i = 1, 2, .. of X the calls z ^ i, `Cores` of
// them a cycle, one sector right behind the other. Sectors wait in a queue; calls
// come out of registers, which are wide: whether they may be written is known a cycle before,
// when it is known who has the cores then.

module fast_counter
  import aes_pkg::*;
  import fast_pkg::*;
#(
  // Of a sector; X is two fewer.
  parameter int unsigned Blocks = 256,
  // Calls a cycle, and blocks a beat.
  parameter int unsigned Cores  = 1,
  parameter int unsigned Lanes  = 2
) (
  input  logic clk_i,
  input  logic rst_ni,
  output logic busy_o,

  // A sector. No more than `Sectors` of them come before they are out of the core.
  input  logic   z_valid_i,
  input  block_t z_i,
  // Its second hash may start.
  output logic   start_valid_o,
  input  logic   start_ready_i,

  // There is a place for a beat, which is taken.
  input  logic   room_i,
  output logic   take_o,

  // The cores are somebody else's in the next cycle; they are in this one, else calls are taken.
  input  logic   others_soon_i,
  output logic   call_valid_o,
  input  logic   call_ready_i,
  output block_t call_o[Cores]
);

  localparam int unsigned NumberWidth = $clog2(Blocks);

  logic there, go, unused_room;
  block_t z;
  // Calls that go in; there is no need to keep them; the next one is the sector's last; it is the
  // second of two that make a beat; the number of its first block.
  logic valid_d, valid_q, free_q, last_q, later;
  block_t call_q[Cores];
  logic [NumberWidth-1:0] number_q;
  // Sectors whose second hash has still to start, while their calls may be over; one may now.
  logic [$clog2(Sectors+1)-1:0] starts_q;
  logic start_q, start;

  credit_fifo #(
    .Width(128),
    .Depth(Sectors)
  ) u_sectors (
    .clk_i,
    .rst_ni,
    .busy_o,
    .take_i (z_valid_i),
    .room_o (unused_room),
    .valid_i(z_valid_i),
    .data_i (z_i),
    .valid_o(there),
    .ready_i(go && last_q),
    .data_o (z)
  );

  assign later = Lanes > Cores && !number_q[0];
  assign go = there && (room_i || later) && free_q;
  assign valid_d = go || (valid_q && !call_ready_i);
  assign take_o = go && !later;
  assign start_valid_o = start_q;
  assign start = start_q && start_ready_i;
  assign call_valid_o = valid_q;
  assign call_o = call_q;

  for (genvar i = 0; i < Cores; i++) begin : gen_call
    logic [NumberWidth-1:0] number;
    assign number = number_q + NumberWidth'(i);
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) call_q[i] <= '0;
      else if (free_q) call_q[i] <= z ^ 128'(number);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q  <= 1'b0;
      free_q   <= 1'b0;
      last_q   <= 1'b0;
      number_q <= NumberWidth'(1);
      starts_q <= '0;
      start_q  <= 1'b0;
    end else begin
      starts_q <= starts_q + $bits(starts_q)'(z_valid_i) - $bits(starts_q)'(start);
      start_q  <= starts_q != '0 && !start;
      valid_q  <= valid_d;
      free_q   <= !(valid_d && others_soon_i);
      if (go) begin
        last_q   <= number_q == NumberWidth'(Blocks - 1 - 2 * Cores);
        number_q <= last_q ? NumberWidth'(1) : number_q + NumberWidth'(Cores);
      end
    end
  end

endmodule
