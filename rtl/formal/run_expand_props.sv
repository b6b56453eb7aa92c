// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of run_expand: a run of n sectors gives n, with tweaks that count up from
// the run's, its direction, and `last` at the last; it never waits for more than a carry through
// the tweak; nothing is left after reset.

module run_expand_props #(
  parameter int unsigned TweakStep = 1
) (
  input logic         clk_i,
  input logic         rst_ni,
  input logic         req_valid_i,
  input logic         req_ready_o,
  input logic [127:0] req_tweak_i,
  input logic [ 31:0] req_sectors_i,
  input logic         req_decrypt_i,
  input logic         sector_valid_o,
  input logic         sector_ready_i,
  input logic [127:0] sector_tweak_o,
  input logic         sector_decrypt_o,
  input logic         sector_last_o,
  input logic             run_q,
  input logic             fresh_q,
  input logic             ready_q,
  input logic [1:0][13:0] high_q,
  input logic [ 3:0]      low_q,
  input logic [1:0]       high_none_q,
  input logic [15:0]      tweak_low_q,
  input logic [7:0][13:0] tweak_high_q,
  input logic [ 7:0]      carry_q,
  input logic             carrying_q
);

  stream_rules #(
    .Width(130)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(sector_valid_o),
    .ready_i(sector_ready_i),
    .data_i ({sector_tweak_o, sector_decrypt_o, sector_last_o})
  );

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  // The run under way as it was asked for, and the sectors of it that were taken.
  logic [127:0] first_q;
  logic [31:0] sectors_q, taken_q, left;
  logic decrypt_q;
  logic take, give;
  assign take = req_valid_i && req_ready_o;
  assign give = sector_valid_o && sector_ready_i;
  assign left = {high_q, low_q};

  always_ff @(posedge clk_i) begin
    if (take) begin
      first_q   <= req_tweak_i;
      sectors_q <= req_sectors_i;
      decrypt_q <= req_decrypt_i;
      taken_q   <= '0;
    end else if (give) begin
      taken_q <= taken_q + 1'b1;
    end
  end

  // The tweak with the carries that have still to be added.
  logic [127:0] tweak;
  always_comb begin
    tweak = {tweak_high_q, tweak_low_q};
    for (int i = 0; i < 8; i++) tweak += 128'(carry_q[i]) << (16 + 14 * i);
  end

  // Cycles in a row without a sector of the run.
  logic [3:0] waited_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) waited_q <= '0;
    else waited_q <= run_q && !sector_valid_o && !take ? waited_q + 1'b1 : '0;
  end

  // In reset, or the first cycle after it.
  logic reset_q;
  initial reset_q = 1'b0;
  always_ff @(posedge clk_i) reset_q <= !rst_ni;

  always_comb begin
    if (rst_ni && started_q) begin
      assert (req_ready_o == (!run_q && !reset_q));
      assert (!fresh_q || run_q);
      if (sector_valid_o) assert (run_q);
      if (run_q) begin
        assert (left == sectors_q - taken_q && sector_decrypt_o == decrypt_q);
        assert (tweak == first_q + 128'(taken_q) * 128'(TweakStep));
        if (fresh_q) assert (taken_q == '0 && carry_q == '0 && !carrying_q);
        else assert (taken_q < sectors_q);
      end
      if (sector_valid_o) begin
        assert (carry_q == '0 && sector_tweak_o == tweak);
        assert (sector_last_o == (left == 32'd1));
      end
      // The flags that `last` comes from.
      if (run_q && !fresh_q) begin
        assert (sector_last_o == (left == 32'd1));
        for (int i = 0; i < 2; i++) begin
          if (low_q != 4'd15) assert (high_none_q[i] == (high_q[i] == '0));
        end
      end
      assert (carrying_q || carry_q == '0);
      // A carry is where it has come to by now.
      for (int i = 0; i < 8; i++) if (run_q && carry_q[i]) assert (waited_q == 4'(i) && carry_q == 8'b1 << i);
      if (fresh_q) assert (waited_q == '0);
      if (!sector_valid_o) assert (waited_q <= 4'd8);
      assert (waited_q <= 4'd9);
    end
  end

  always_comb begin
    if (reset_q) begin
      assert (!sector_valid_o && left == '0 && carry_q == '0 && tweak == '0 && !ready_q);
    end
  end

  always_comb begin
    cover (rst_ni && give && sector_last_o && sectors_q == 32'd3);
    cover (rst_ni && run_q && !fresh_q && sectors_q >= 32'd16 && low_q == 4'd15 && taken_q != '0);
    cover (rst_ni && give && run_q && sector_tweak_o[63:0] == '0 && taken_q != '0);
  end

endmodule

bind run_expand run_expand_props #(
  .TweakStep(TweakStep)
) u_props (
  .*
);
