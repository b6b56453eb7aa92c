// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of run_expand: a run of n sectors gives n, with tweaks that count up from
// the run's, its direction, and `last` at the last; then the next run may follow without
// a gap; nothing is left after reset.

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
  input logic [127:0] tweak_q,
  input logic [ 31:0] left_q
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
  logic [31:0] sectors_q, taken_q;
  logic decrypt_q, run_q;
  logic take, give;
  assign take = req_valid_i && req_ready_o;
  assign give = sector_valid_o && sector_ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) run_q <= 1'b0;
    else if (take) run_q <= req_sectors_i != '0;
    else if (give && sector_last_o) run_q <= 1'b0;
  end
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

  always_comb begin
    if (rst_ni && started_q) begin
      assert (sector_valid_o == run_q);
      if (run_q) begin
        assert (taken_q < sectors_q && left_q == sectors_q - taken_q);
        assert (sector_last_o == (taken_q == sectors_q - 1'b1));
        assert (sector_decrypt_o == decrypt_q);
        assert (sector_tweak_o == first_q + 128'(taken_q) * 128'(TweakStep));
      end
      assert (req_ready_o == (!run_q || (sector_last_o && sector_ready_i)));
    end
  end

  logic reset_q;
  initial reset_q = 1'b0;
  always_ff @(posedge clk_i) reset_q <= !rst_ni;
  always_comb begin
    if (reset_q) assert (!sector_valid_o && left_q == '0 && tweak_q == '0);
  end

  always_comb begin
    cover (rst_ni && give && sector_last_o && sectors_q == 32'd3 && take);
    cover (rst_ni && give && run_q && sector_tweak_o[63:0] == '0 && taken_q != '0);
  end

endmodule

bind run_expand run_expand_props #(
  .TweakStep(TweakStep)
) u_props (
  .*
);
