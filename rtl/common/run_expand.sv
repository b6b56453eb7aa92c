// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From extended requests to sectors: takes a run (first tweak, number of sectors,
// direction) and gives the tweak and direction of each of its sectors, in order,
// one a cycle if they are taken. A sector's tweak is the one before it plus
// `TweakStep`, as a little-endian integer over all 128 bits: 1 counts sectors, 8
// counts 512-byte units in 4096-byte sectors, as dm-crypt's plain64 does. A run of
// no sectors is accepted and gives nothing.
//
// Both counters are cut into pieces, so that no path is as long as a carry over all of one.
// After a carry out of the tweak's lowest 16 bits, once in 65,536 steps, no sector is there for
// up to nine cycles. `req_ready_o` is a register: a run is taken in the cycle after the last
// sector of the one before at the earliest, and its first sector is there two cycles later.

module run_expand #(
  // Below 65,536.
  parameter int unsigned TweakStep = 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  output logic         sector_valid_o,
  input  logic         sector_ready_i,
  output logic [127:0] sector_tweak_o,
  output logic         sector_decrypt_o,
  // The last sector of its run.
  output logic         sector_last_o
);

  // Bits of a piece. The tweak has so many of them above its lowest 16 bits.
  localparam int unsigned Piece = 14;
  localparam int unsigned Pieces = 8;

  // A run is under way; it came in the cycle before; the next one can be taken; the sector is
  // the last one.
  logic run_d, run_q, fresh_q, ready_q, last_q, decrypt_q;
  logic take, next, none;

  // Sectors of the run that are still to come, in three pieces; each of the upper ones is zero.
  logic [1:0][Piece-1:0] high_q;
  logic [3:0] low_q;
  logic [1:0] high_none_q;

  // The tweak; carries into its upper pieces that have still to be added; there may be some.
  logic [15:0] tweak_low_q;
  logic [Pieces-1:0][Piece-1:0] tweak_high_q, tweak_high_d;
  logic [Pieces-1:0] carry_q;
  logic [16:0] stepped;
  logic carrying_q;

  assign take = req_valid_i && ready_q;
  assign next = sector_valid_o && sector_ready_i;
  assign none = fresh_q && high_q == '0 && low_q == '0;
  assign run_d = take || (run_q && !none && !(next && last_q));
  assign stepped = 17'(tweak_low_q) + 17'(TweakStep);
  for (genvar i = 0; i < int'(Pieces); i++) begin : gen_piece
    assign tweak_high_d[i] = tweak_high_q[i] + Piece'(carry_q[i]);
  end

  assign req_ready_o = ready_q;
  assign sector_valid_o = run_q && !fresh_q && !carrying_q;
  assign sector_tweak_o = {tweak_high_q, tweak_low_q};
  assign sector_decrypt_o = decrypt_q;
  assign sector_last_o = last_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      run_q        <= 1'b0;
      fresh_q      <= 1'b0;
      ready_q      <= 1'b0;
      last_q       <= 1'b0;
      decrypt_q    <= 1'b0;
      high_q       <= '0;
      low_q        <= '0;
      high_none_q  <= '0;
      tweak_low_q  <= '0;
      tweak_high_q <= '0;
      carry_q      <= '0;
      carrying_q   <= 1'b0;
    end else begin
      run_q      <= run_d;
      fresh_q    <= take;
      ready_q    <= !run_d;
      carrying_q <= (next && stepped[16]) || carry_q != '0;
      if (take) begin
        {high_q, low_q}             <= req_sectors_i;
        decrypt_q                   <= req_decrypt_i;
        {tweak_high_q, tweak_low_q} <= req_tweak_i;
        carry_q                     <= '0;
        carrying_q                  <= 1'b0;
      end else begin
        if (fresh_q) last_q <= high_q == '0 && low_q == 4'd1;
        // There are 16 sectors between two borrows from the upper pieces.
        for (int i = 0; i < 2; i++) high_none_q[i] <= high_q[i] == '0;
        if (next) begin
          low_q       <= low_q - 1'b1;
          last_q      <= high_none_q == '1 && low_q == 4'd2;
          tweak_low_q <= stepped[15:0];
          if (low_q == '0) begin
            high_q[0] <= high_q[0] - 1'b1;
            if (high_none_q[0]) high_q[1] <= high_q[1] - 1'b1;
          end
        end
        // A carry goes on by a piece a cycle.
        tweak_high_q <= tweak_high_d;
        carry_q[0]   <= next && stepped[16];
        for (int i = 1; i < int'(Pieces); i++) carry_q[i] <= carry_q[i-1] && &tweak_high_q[i-1];
      end
    end
  end

endmodule
