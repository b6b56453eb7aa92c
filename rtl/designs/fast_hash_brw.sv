// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The two hashes of FAST[AES,BRW], h = tau BRW(X3, T) and h' = tau^2 BRW(X3, T), as
// two streams at a time (0 and 1: a sector's first and second hash), and products
// by tau. With one multiplier, those products go before stream 1, and that before
// stream 0; with two, each stream has its own. T goes in after the last beat of
// X3, while the next sector may be started: a sector takes Blocks / 2 cycles.

module fast_hash_brw
  import gf128_pkg::*;
#(
  // Of a sector, a power of two, 32 or more: X3 is two fewer.
  parameter int unsigned Blocks      = 256,
  // 1 or 2.
  parameter int unsigned Multipliers = 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  // What is in memory is being wiped after reset; no tau may come.
  output logic busy_o,

  // A new key is on its way: no stream goes on without its tau.
  input  logic  forget_i,
  input  logic  tau_valid_i,
  input  elem_t tau_i,

  // A sector: its tweak, and whether h' is wanted; then its beats of X3.
  input  logic         start_valid_i[2],
  output logic         start_ready_o[2],
  input  elem_t        tweak_i      [2],
  input  logic         prime_i      [2],
  input  logic         in_valid_i   [2],
  output logic         in_ready_o   [2],
  input  logic [255:0] in_data_i    [2],

  // There is a place for a hash; the hash, in one cycle.
  input  logic  hash_ready_i[2],
  output logic  hash_valid_o[2],
  output elem_t hash_o      [2],

  // A product by tau, always taken; it comes out later. `scale_second_i`: by the
  // multiplier of stream 1.
  input  logic  scale_valid_i,
  input  logic  scale_second_i,
  input  elem_t scale_i,
  output logic  scale_valid_o,
  output elem_t scaled_o
);

  localparam int unsigned Levels = $clog2(Blocks);
  localparam int unsigned CountWidth = $clog2(Levels + 2);
  localparam int unsigned PowerWidth = $clog2(Levels);
  localparam int unsigned TagWidth = 4 + $clog2(Levels + 1);

  // Powers of tau, tau^(2^i): the first three in registers, all of them in a table, one a
  // cycle from tau's on, which is before a polynomial asks for it.
  elem_t powers_q[3];
  elem_t last_q, last, squared;
  logic [CountWidth-1:0] count_q;
  logic ready, more;
  assign last = tau_valid_i ? tau_i : last_q;
  assign squared = square(last);
  assign ready = count_q != '0;
  assign more = ready && count_q != CountWidth'(Levels + 1);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      powers_q <= '{default: '0};
      last_q   <= '0;
      count_q  <= '0;
    end else if (tau_valid_i) begin
      powers_q[0] <= tau_i;
      powers_q[1] <= squared;
      last_q      <= squared;
      count_q     <= CountWidth'(2);
    end else if (forget_i) begin
      count_q <= '0;
    end else if (more) begin
      if (count_q == CountWidth'(2)) powers_q[2] <= squared;
      last_q  <= squared;
      count_q <= count_q + 1'b1;
    end
  end

  logic busy_powers, busy_brw[2];
  logic [PowerWidth-1:0] power_which[2];
  elem_t power[2];
  assign busy_o = busy_powers || busy_brw[0] || busy_brw[1];

  wiped_table #(
    .Width(128),
    .Depth(Levels),
    .Reads(2)
  ) u_powers (
    .clk_i,
    .rst_ni,
    .busy_o      (busy_powers),
    .write_i     (tau_valid_i || more),
    .write_addr_i(tau_valid_i ? '0 : PowerWidth'(count_q - 1'b1)),
    .write_data_i(last),
    .read_addr_i (power_which),
    .read_data_o (power)
  );

  // What the streams ask for. Factors are zero until they are taken, and added up.
  logic asked[2], mult_ready[2], product_valid[2];
  logic [TagWidth-1:0] asked_tag[2], product_tag[2];
  elem_t asked_a[2], asked_b[2], product[2], scale_a, scale_b;
  assign scale_a = scale_valid_i ? scale_i : '0;
  assign scale_b = scale_valid_i ? powers_q[0] : '0;

  for (genvar i = 0; i < 2; i++) begin : gen_stream
    logic started_q, prime_q;
    elem_t tweak_q;
    logic brw_valid, brw_ready, last_beat;
    logic start;

    assign start_ready_o[i] = !started_q || last_beat;
    assign start = start_valid_i[i] && start_ready_o[i];
    assign in_ready_o[i] = started_q && ready && !last_beat && brw_ready;
    assign brw_valid = started_q && ready && (in_valid_i[i] || last_beat);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        started_q <= 1'b0;
        prime_q   <= 1'b0;
        tweak_q   <= '0;
      end else if (start) begin
        started_q <= 1'b1;
        prime_q   <= prime_i[i];
        tweak_q   <= tweak_i[i];
      end else if (last_beat) begin
        started_q <= 1'b0;
      end
    end

    brw #(
      .Levels(Levels)
    ) u_brw (
      .clk_i,
      .rst_ni,
      .busy_o         (busy_brw[i]),
      .powers_i       (powers_q),
      .power_o        (power_which[i]),
      .power_i        (power[i]),
      .in_valid_i     (brw_valid),
      .in_ready_o     (brw_ready),
      .in_data_i      ({in_data_i[i][255:128], last_beat ? tweak_q : in_data_i[i][127:0]}),
      .squared_i      (prime_q),
      .last_beat_o    (last_beat),
      .mult_valid_o   (asked[i]),
      .mult_ready_i   (mult_ready[i]),
      .mult_a_o       (asked_a[i]),
      .mult_b_o       (asked_b[i]),
      .mult_tag_o     (asked_tag[i]),
      .product_valid_i(product_valid[i]),
      .product_i      (product[i]),
      .product_tag_i  (product_tag[i]),
      .result_ready_i (hash_ready_i[i]),
      .result_valid_o (hash_valid_o[i]),
      .result_o       (hash_o[i])
    );
  end

  logic mult_valid[Multipliers], mult_scale[Multipliers], mult_stream[Multipliers];
  logic [TagWidth-1:0] mult_tag[Multipliers];
  elem_t mult_a[Multipliers], mult_b[Multipliers];
  logic out_valid[Multipliers], out_scale[Multipliers], out_stream[Multipliers];
  logic [TagWidth-1:0] out_tag[Multipliers];
  elem_t out_product[Multipliers];

  for (genvar i = 0; i < Multipliers; i++) begin : gen_mult
    gf128_mult #(
      .Stages  (4),
      .TagWidth(TagWidth + 2)
    ) u_mult (
      .clk_i,
      .rst_ni,
      .enable_i (1'b1),
      .valid_i  (mult_valid[i]),
      .a_i      (mult_a[i]),
      .b_i      (mult_b[i]),
      .tag_i    ({mult_scale[i], mult_stream[i], mult_tag[i]}),
      .valid_o  (out_valid[i]),
      .product_o(out_product[i]),
      .tag_o    ({out_scale[i], out_stream[i], out_tag[i]})
    );
  end

  if (Multipliers == 1) begin : gen_shared
    assign mult_ready[1] = !scale_valid_i;
    assign mult_ready[0] = !scale_valid_i && !asked[1];
    assign mult_valid[0] = scale_valid_i || asked[1] || asked[0];
    assign mult_scale[0] = scale_valid_i;
    assign mult_stream[0] = asked[1];
    assign mult_tag[0] = asked[1] ? asked_tag[1] : asked_tag[0];
    assign mult_a[0] = asked_a[0] ^ asked_a[1] ^ scale_a;
    assign mult_b[0] = asked_b[0] ^ asked_b[1] ^ scale_b;
    for (genvar i = 0; i < 2; i++) begin : gen_out
      assign product_valid[i] = out_valid[0] && !out_scale[0] && out_stream[0] == (i == 1);
      assign product[i] = out_product[0];
      assign product_tag[i] = out_tag[0];
    end
    assign scale_valid_o = out_valid[0] && out_scale[0];
    assign scaled_o = out_product[0];
    logic unused;
    assign unused = scale_second_i;
  end else begin : gen_own
    for (genvar i = 0; i < 2; i++) begin : gen_out
      assign mult_scale[i] = scale_valid_i && scale_second_i == (i == 1);
      assign mult_ready[i] = !mult_scale[i];
      assign mult_valid[i] = mult_scale[i] || asked[i];
      assign mult_stream[i] = i == 1;
      assign mult_tag[i] = asked_tag[i];
      assign mult_a[i] = asked_a[i] ^ (mult_scale[i] ? scale_a : '0);
      assign mult_b[i] = asked_b[i] ^ (mult_scale[i] ? scale_b : '0);
      assign product_valid[i] = out_valid[i] && !out_scale[i];
      assign product[i] = out_product[i];
      assign product_tag[i] = out_tag[i];
    end
    // Only one is under way.
    assign scale_valid_o = (out_valid[0] && out_scale[0]) || (out_valid[1] && out_scale[1]);
    assign scaled_o = out_valid[1] && out_scale[1] ? out_product[1] : out_product[0];
    logic unused;
    assign unused = ^{out_stream[0], out_stream[1]};
  end

endmodule
