// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The first masks of a run's data units, T_0 = AES(K2, tweak): from runs to the
// units' tweaks, those through the AES cores that also do the data, ahead of it,
// and the results in order to whoever masks the data. With two cores the tweaks of
// two units go through both in the same cycle; a unit goes alone when no other is
// under way (so that a run starts at once) or when it is the last of its run.
// Units of runs whose tweaks are encrypted already, or that have no masks, make no
// call; they wait until no call is under way, so that the order stays.

module xts_tweaks #(
  parameter int unsigned TweakStep = 1,
  // AES cores: 1 or 2.
  parameter int unsigned Lanes     = 1,
  // Bits of a number of beats in a unit, less one.
  parameter int unsigned BeatWidth = 8,
  // Without, all masks are zero.
  parameter bit          Masked    = 1'b1,
  // Without, no tweak is encrypted here.
  parameter bit          Calls     = 1'b1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic                 req_valid_i,
  output logic                 req_ready_o,
  input  logic [        127:0] req_tweak_i,
  input  logic [         31:0] req_sectors_i,
  input  logic                 req_decrypt_i,
  // Of the run's units: the beats in each, less one; the tweak is encrypted here; it is the first
  // mask itself. With neither of the two the first mask is zero.
  input  logic [BeatWidth-1:0] req_more_i,
  input  logic                 req_call_i,
  input  logic                 req_masked_i,

  // Data may follow at once: all round keys are there.
  input  logic                        keys_ready_i,
  // Whether the cores take calls in this cycle, and the calls.
  input  logic                        call_ready_i,
  output logic [Lanes-1:0]            call_valid_o,
  output logic [Lanes-1:0][127:0]     call_block_o,
  input  logic [Lanes-1:0]            result_valid_i,
  input  logic [Lanes-1:0][127:0]     result_i,

  // The units in order; `ready` takes one.
  output logic                 unit_valid_o,
  input  logic                 unit_ready_i,
  output logic [        127:0] unit_mask_o,
  output logic                 unit_decrypt_o,
  // Its beats, less one, and whether that is none.
  output logic [BeatWidth-1:0] unit_more_o,
  output logic                 unit_single_o,
  // The last unit of its run.
  output logic                 unit_last_o,

  // Units are here or to come.
  output logic busy_o
);

  // Those of the calls under way, and as many to work on.
  localparam int unsigned Depth = 2 * Lanes;
  localparam int unsigned IndexWidth = $clog2(Depth);
  localparam int unsigned CountWidth = $clog2(Depth + 1);

  logic sector_valid, sector_ready, sector_decrypt, sector_last;
  logic [127:0] sector_tweak;
  // Of the run that is under way.
  logic [BeatWidth-1:0] more_q;
  logic single_q, call_q, masked_q;

  run_expand #(
    .TweakStep(Masked ? TweakStep : 0)
  ) u_expand (
    .clk_i,
    .rst_ni,
    .req_valid_i,
    .req_ready_o,
    .req_tweak_i     (Masked ? req_tweak_i : '0),
    .req_sectors_i,
    .req_decrypt_i,
    .sector_valid_o  (sector_valid),
    .sector_ready_i  (sector_ready),
    .sector_tweak_o  (sector_tweak),
    .sector_decrypt_o(sector_decrypt),
    .sector_last_o   (sector_last)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      more_q   <= '0;
      single_q <= 1'b0;
      call_q   <= 1'b0;
      masked_q <= 1'b0;
    end else if (req_valid_i && req_ready_o) begin
      more_q   <= req_more_i;
      single_q <= req_more_i == '0;
      call_q   <= Calls && req_call_i;
      masked_q <= Masked && req_masked_i;
    end
  end

  typedef struct packed {
    logic                 decrypt;
    logic                 last;
    logic                 single;
    logic [BeatWidth-1:0] more;
    logic [127:0]         mask;
  } unit_t;

  unit_t units_q[Depth];
  // Where the next call's result goes, where the next result goes, and the first.
  logic [IndexWidth-1:0] next_q, fill_q, head_q;
  // Units with a call made, and with a result; not taken yet.
  logic [CountWidth-1:0] called_q, filled_q;

  // The first tweak of a pair, waiting for the second: the next one of its run.
  logic held_q;
  logic [127:0] held_tweak_q;

  logic at_once, alone, pair, hold, direct;
  assign at_once = Lanes == 1 || sector_last || called_q == '0;
  assign alone = sector_valid && call_q && !held_q && at_once && called_q != CountWidth'(Depth)
      && call_ready_i;
  assign hold = sector_valid && call_q && !held_q && !at_once;
  assign pair = sector_valid && held_q && called_q <= CountWidth'(Depth - 2) && call_ready_i;
  assign direct = sector_valid && !call_q && keys_ready_i && called_q == filled_q
      && called_q != CountWidth'(Depth);
  assign sector_ready = alone || hold || pair || direct;

  assign call_block_o[0] = held_q ? held_tweak_q : sector_tweak;
  assign call_valid_o[0] = alone || pair;
  if (Lanes == 2) begin : gen_pair
    assign call_block_o[1] = sector_tweak;
    assign call_valid_o[1] = pair;
  end

  logic take;
  assign unit_valid_o = filled_q != '0;
  assign take = unit_valid_o && unit_ready_i;
  assign unit_mask_o = units_q[head_q].mask;
  assign unit_decrypt_o = units_q[head_q].decrypt;
  assign unit_more_o = units_q[head_q].more;
  assign unit_single_o = units_q[head_q].single;
  assign unit_last_o = units_q[head_q].last;
  assign busy_o = sector_valid || held_q || called_q != '0;

  // Units that get their place, and those that get their mask.
  logic [Lanes-1:0] placed;
  logic [1:0] calls, results;
  always_comb begin
    placed    = call_valid_o;
    placed[0] = call_valid_o[0] || direct;
    calls     = '0;
    results   = 2'(direct);
    for (int i = 0; i < int'(Lanes); i++) begin
      calls   = calls + 2'(placed[i]);
      results = results + 2'(Calls && result_valid_i[i]);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q       <= '0;
      fill_q       <= '0;
      head_q       <= '0;
      called_q     <= '0;
      filled_q     <= '0;
      held_q       <= 1'b0;
      held_tweak_q <= '0;
      for (int i = 0; i < int'(Depth); i++) units_q[i] <= '0;
    end else begin
      if (hold) held_tweak_q <= sector_tweak;
      if (hold || pair) held_q <= hold;
      for (int i = 0; i < int'(Lanes); i++) begin
        if (placed[i]) begin
          units_q[next_q+IndexWidth'(i)].decrypt <= sector_decrypt;
          units_q[next_q+IndexWidth'(i)].last    <= sector_last && (i == 1 || !pair);
          units_q[next_q+IndexWidth'(i)].single  <= single_q;
          units_q[next_q+IndexWidth'(i)].more    <= more_q;
        end
        if (Calls && result_valid_i[i]) units_q[fill_q+IndexWidth'(i)].mask <= result_i[i];
      end
      // No result comes in that cycle.
      if (direct) units_q[next_q].mask <= masked_q ? sector_tweak : '0;
      next_q   <= next_q + IndexWidth'(calls);
      fill_q   <= fill_q + IndexWidth'(results);
      head_q   <= head_q + IndexWidth'(take);
      called_q <= called_q + CountWidth'(calls) - CountWidth'(take);
      filled_q <= filled_q + CountWidth'(results) - CountWidth'(take);
    end
  end

endmodule
