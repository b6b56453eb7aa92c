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

  // Powers of tau, tau^(2^i): the first three in registers, all of them in a table, one a
  // cycle from tau's on, which is before a polynomial asks for it. `last_q` is the latest.
  elem_t powers_q[3];
  elem_t last_q, squared;
  // How many are there.
  logic [CountWidth-1:0] count_q;
  logic ready_q, more_q;
  assign squared = square(last_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      powers_q <= '{default: '0};
      last_q   <= '0;
      count_q  <= '0;
      ready_q  <= 1'b0;
      more_q   <= 1'b0;
    end else if (tau_valid_i) begin
      powers_q[0] <= tau_i;
      last_q      <= tau_i;
      count_q     <= CountWidth'(1);
      ready_q     <= 1'b1;
      more_q      <= 1'b1;
    end else if (forget_i) begin
      ready_q <= 1'b0;
      more_q  <= 1'b0;
    end else if (more_q) begin
      if (count_q == CountWidth'(1)) powers_q[1] <= squared;
      if (count_q == CountWidth'(2)) powers_q[2] <= squared;
      last_q  <= squared;
      count_q <= count_q + 1'b1;
      more_q  <= count_q != CountWidth'(Levels);
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
    .write_i     (more_q),
    .write_addr_i(PowerWidth'(count_q - 1'b1)),
    .write_data_i(last_q),
    .read_addr_i (power_which),
    .read_data_o (power)
  );

  // What the streams ask for; a cycle after the grant their factors, zero without one.
  logic asked[2], grant[2], late[2];
  elem_t asked_a[2], asked_b[2], product[2];

  for (genvar i = 0; i < 2; i++) begin : gen_stream
    logic started_q, prime_q;
    elem_t tweak_q;
    logic brw_valid, brw_ready, last_beat;
    logic start;

    assign start_ready_o[i] = !started_q || last_beat;
    assign start = start_valid_i[i] && start_ready_o[i];
    assign in_ready_o[i] = started_q && !last_beat && brw_ready;
    assign brw_valid = started_q && (in_valid_i[i] || last_beat);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        started_q <= 1'b0;
        prime_q   <= 1'b0;
        tweak_q   <= '0;
      end else begin
        started_q <= start || (started_q && !last_beat);
        // Follow their inputs until a sector starts.
        if (start_ready_o[i]) begin
          prime_q <= prime_i[i];
          tweak_q <= tweak_i[i];
        end
      end
    end

    brw #(
      .Levels(Levels)
    ) u_brw (
      .clk_i,
      .rst_ni,
      .busy_o        (busy_brw[i]),
      .powers_i      (powers_q),
      .power_o       (power_which[i]),
      .power_i       (power[i]),
      .in_valid_i    (brw_valid),
      .in_ready_o    (brw_ready),
      .in_data_i     ({in_data_i[i][255:128], last_beat ? tweak_q : in_data_i[i][127:0]}),
      .squared_i     (prime_q),
      .last_beat_o   (last_beat),
      .mult_valid_o  (asked[i]),
      .mult_ready_i  (grant[i]),
      .mult_a_o      (asked_a[i]),
      .mult_b_o      (asked_b[i]),
      .mult_late_o   (late[i]),
      .product_i     (product[i]),
      .result_ready_i(hash_ready_i[i]),
      .result_valid_o(hash_valid_o[i]),
      .result_o      (hash_o[i])
    );
  end

  // A product by tau takes the turn of all others, and is chosen a cycle later, as theirs are.
  logic [Multipliers-1:0] scale_due, scale_q, scaled;
  elem_t scale_data_q;
  elem_t out[Multipliers];

  for (genvar i = 0; i < Multipliers; i++) begin : gen_mult
    elem_t a, b, a_q, b_q;
    logic scale_given_q, late_q, unused_soon_valid, unused_soon_tag, unused_tag;
    if (Multipliers == 1) begin : gen_shared
      assign scale_due[i] = scale_valid_i;
      assign a = asked_a[0] ^ asked_a[1];
      assign b = asked_b[0] ^ asked_b[1];
      assign grant[1] = ready_q && !scale_valid_i;
      assign grant[0] = ready_q && !scale_valid_i && !asked[1];
      assign product = '{out[0], out[0]};
      logic unused;
      assign unused = scale_second_i;
    end else begin : gen_own
      assign scale_due[i] = scale_valid_i && scale_second_i == 1'(i);
      assign a = asked_a[i];
      assign b = asked_b[i];
      assign grant[i] = ready_q && !scale_due[i];
      assign product[i] = out[i];
      logic unused;
      assign unused = asked[i];
    end

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        scale_q[i]    <= 1'b0;
        scale_given_q <= 1'b0;
        late_q        <= 1'b0;
        a_q           <= '0;
        b_q           <= '0;
      end else begin
        scale_q[i]    <= scale_due[i];
        scale_given_q <= scale_q[i];
        late_q        <= Multipliers == 1 ? late[0] || late[1] : late[i];
        a_q           <= a ^ (scale_q[i] ? scale_data_q : '0);
        b_q           <= b ^ (scale_q[i] ? powers_q[0] : '0);
      end
    end

    // The streams know when their products come; it announces those by tau.
    gf128_mult #(
      .Stages(4)
    ) u_mult (
      .clk_i,
      .rst_ni,
      .valid_i     (scale_given_q),
      .a_i         (a_q ^ (late_q ? out[i] : '0)),
      .b_i         (b_q),
      .tag_i       (1'b0),
      .soon_valid_o(unused_soon_valid),
      .soon_tag_o  (unused_soon_tag),
      .valid_o     (scaled[i]),
      .product_o   (out[i]),
      .tag_o       (unused_tag)
    );
  end

  // They are asked for one a cycle, and all take the same time.
  assign scale_valid_o = scaled != '0;
  assign scaled_o = scaled[Multipliers-1] ? out[Multipliers-1] : out[0];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) scale_data_q <= '0;
    else scale_data_q <= scale_i;
  end

endmodule
