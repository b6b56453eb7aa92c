// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The two hashes of FAST[AES,Horner] over m blocks, h = tau^m ^ the sum of
// x_i tau^(m-i) over X3 and T, and h' = tau h, as two streams at a time (0 and 1: a
// sector's first and second hash), and products by tau. All on the same `Lanes`
// multipliers: products by tau go before stream 1, and that before stream 0. T
// takes the place of the sector's first two blocks, so that a sector takes
// Blocks / Lanes cycles, one fewer with one lane.

module fast_hash_horner
  import gf128_pkg::*;
#(
  // Of a sector, a power of two, 32 or more: X3 is two fewer.
  parameter int unsigned Blocks = 256,
  // 1 or 2.
  parameter int unsigned Lanes  = 1
) (
  input  logic clk_i,
  input  logic rst_ni,

  // A new key is on its way: no stream goes on without its tau.
  input  logic  forget_i,
  input  logic  tau_valid_i,
  input  elem_t tau_i,

  // A sector: its tweak, and whether h' is wanted; then its beats of X3.
  input  logic                 start_valid_i[2],
  output logic                 start_ready_o[2],
  input  elem_t                tweak_i      [2],
  input  logic                 prime_i      [2],
  input  logic                 in_valid_i   [2],
  output logic                 in_ready_o   [2],
  input  logic [128*Lanes-1:0] in_data_i    [2],

  // There is a place for a hash; the hash, in one cycle.
  input  logic  hash_ready_i[2],
  output logic  hash_valid_o[2],
  output elem_t hash_o      [2],

  // A product by tau, always taken; it comes out six cycles later.
  input  logic  scale_valid_i,
  input  elem_t scale_i,
  output logic  scale_valid_o,
  output elem_t scaled_o
);

  localparam int unsigned Stages = 4;
  localparam int unsigned Chains = Lanes * Stages;
  localparam int unsigned Beats = Blocks / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);
  // Beats of the first two blocks.
  localparam int unsigned Heads = 2 / Lanes;

  // ---- Powers: tau to tau^(Chains+2), tau^Blocks, tau^(Blocks+1) ----

  elem_t powers[Chains+3];
  elem_t top, direct[1], unused_constant[1];
  logic step_there, all_there, all_q;
  logic power_valid, single_valid, single_done;
  elem_t power_a, power_b, single_product;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) all_q <= 1'b0;
    else all_q <= all_there && !forget_i;
  end

  horner_powers #(
    .Max   (Chains + 2),
    .Step  (Chains),
    .Blocks(Blocks)
  ) u_powers (
    .clk_i,
    .rst_ni,
    .forget_i,
    .valid_i         (tau_valid_i),
    .h_i             (tau_i),
    .single_valid_o  (power_valid),
    .single_a_o      (power_a),
    .single_b_o      (power_b),
    // All of these are over before the first product by tau.
    .single_valid_i  (single_done && !all_q),
    .single_product_i(single_product),
    .step_valid_o    (step_there),
    .all_valid_o     (all_there),
    .powers_o        (powers),
    .top_o           (top),
    .direct_o        (direct),
    .constants_o     (unused_constant)
  );

  assign single_valid = scale_valid_i || power_valid;
  assign scale_valid_o = single_done && all_q;
  assign scaled_o = single_product;

  // ---- Streams ----

  logic [1:0] started_q, prime_q, open, start, go, last_q;
  logic [BeatWidth-1:0] beat_q[2];
  // The powers for this beat are there: the last beats need all.
  logic [1:0] may_q;
  // Stream 1 has something; it goes first.
  logic second;

  for (genvar i = 0; i < 2; i++) begin : gen_stream
    logic free;
    assign open[i] = may_q[i] && !(last_q[i] && !hash_ready_i[i]);
    assign free = !single_valid && (i == 1 || !second);
    assign start_ready_o[i] = !started_q[i] && open[i] && free;
    assign in_ready_o[i] = started_q[i] && open[i] && free;
    assign start[i] = start_valid_i[i] && start_ready_o[i];
    assign go[i] = start[i] || (in_valid_i[i] && in_ready_o[i]);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        started_q[i] <= 1'b0;
        prime_q[i]   <= 1'b0;
        beat_q[i]    <= '0;
        last_q[i]    <= 1'b0;
        may_q[i]     <= 1'b0;
      end else begin
        // Of the beat before, if one goes in now.
        may_q[i] <= step_there && !forget_i
            && (all_there || beat_q[i] < BeatWidth'(Beats - Stages - 1));
        if (start[i]) begin
          started_q[i] <= 1'b1;
          prime_q[i]   <= prime_i[i];
          beat_q[i]    <= BeatWidth'(Heads);
        end else if (go[i]) begin
          started_q[i] <= !last_q[i];
          beat_q[i]    <= last_q[i] ? '0 : beat_q[i] + 1'b1;
          last_q[i]    <= beat_q[i] == BeatWidth'(Beats - 2);
        end
      end
    end
  end
  assign second = open[1] && (started_q[1] ? in_valid_i[1] : start_valid_i[1]);

  // ---- The beat of this cycle ----

  logic which, prime, tail_prime_q, sum_valid, sum_which;
  elem_t blocks[Lanes];
  elem_t tail[Chains];
  elem_t sum;
  assign which = second;
  assign prime = started_q[which] ? prime_q[which] : prime_i[which];

  always_comb begin
    for (int unsigned i = 0; i < Lanes; i++) blocks[i] = in_data_i[which][128*i+:128];
    if (!started_q[which]) begin
      blocks = '{default: '0};
      blocks[0] = tweak_i[which];
    end
    for (int unsigned i = 0; i < Chains; i++) tail[i] = tail_prime_q ? powers[i+3] : powers[i+2];
  end

  // The tail's powers are chosen from in the cycle after the beat.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) tail_prime_q <= 1'b0;
    else tail_prime_q <= prime;
  end

  horner #(
    .Lanes     (Lanes),
    .Stages    (Stages),
    .Contexts  (2),
    .Blocks    (Blocks),
    .FirstBlock(2)
  ) u_horner (
    .clk_i,
    .rst_ni,
    .step_i          (powers[Chains]),
    .tail_i          (tail),
    .valid_i         (|go),
    .context_i       (which),
    .beat_i          (beat_q[which]),
    .blocks_i        (blocks),
    .direct_i        (prime ? powers[2] : powers[1]),
    .valid_o         (sum_valid),
    .context_o       (sum_which),
    .sum_o           (sum),
    .single_valid_i  (single_valid),
    .single_a_i      (scale_valid_i ? scale_i : power_a),
    .single_b_i      (scale_valid_i ? powers[1] : power_b),
    .single_valid_o  (single_done),
    .single_product_o(single_product)
  );

  // With the sum, the leading one's power. The next sector may have started.
  logic [1:0] sum_prime_q;
  for (genvar i = 0; i < 2; i++) begin : gen_hash
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) sum_prime_q[i] <= 1'b0;
      else if (go[i] && last_q[i]) sum_prime_q[i] <= prime_q[i];
    end
    assign hash_valid_o[i] = sum_valid && sum_which == (i == 1);
    assign hash_o[i] = sum ^ (sum_prime_q[i] ? direct[0] : top);
  end

endmodule
