// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The first masks of data units, T_0 = AES(K2, tweak): the units' tweaks go through the
// AES cores that also do the data, ahead of it, and the results in order to whoever
// masks the data. With two cores the tweaks of two units go through both in the same
// cycle; a unit goes alone when no other is here (so that a run starts at once) or when
// it is the last of its run. Units whose tweaks are encrypted already make no call; they
// wait until no call is under way, so that the order stays.

module xts_tweaks #(
  // AES cores: 1 or 2.
  parameter int unsigned Lanes     = 1,
  // Bits of a number of beats in a unit, less one.
  parameter int unsigned BeatWidth = 8,
  // Without, no tweak is encrypted here.
  parameter bit          Calls     = 1'b1
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Units are here.
  output logic busy_o,

  input  logic                 unit_valid_i,
  output logic                 unit_ready_o,
  input  logic [        127:0] unit_tweak_i,
  input  logic [BeatWidth-1:0] unit_more_i,
  input  logic                 unit_decrypt_i,
  input  logic                 unit_last_i,
  // The tweak is encrypted here; otherwise it is the first mask itself.
  input  logic                 unit_call_i,

  // All round keys are there. A call needs not wait for them: they come one a cycle, as fast as
  // a block goes through the rounds, and its data comes after it.
  input  logic                    keys_ready_i,
  // Calls, which nothing keeps waiting; one in the second core comes with one in the first.
  output logic [Lanes-1:0]        call_valid_o,
  output logic [Lanes-1:0][127:0] call_block_o,
  input  logic [Lanes-1:0]        result_valid_i,
  input  logic [Lanes-1:0][127:0] result_i,

  // The units in order, with their masks; `ready` takes one.
  output logic                 unit_valid_o,
  input  logic                 unit_ready_i,
  output logic [        127:0] unit_mask_o,
  // Its beats, less one, and whether that is none.
  output logic [BeatWidth-1:0] unit_more_o,
  output logic                 unit_single_o,
  output logic                 unit_decrypt_o,
  output logic                 unit_last_o
);

  // With two cores two that are worked on, and two of which the calls are under way.
  localparam int unsigned Depth = 4;
  localparam int unsigned IndexWidth = $clog2(Depth);
  localparam int unsigned CountWidth = $clog2(Depth + 1);

  typedef struct packed {
    logic                 decrypt;
    logic                 last;
    logic                 single;
    logic [BeatWidth-1:0] more;
    logic [127:0]         mask;
  } unit_t;

  unit_t units_q[Depth], head;
  // Where the next unit goes, where the next result goes, and the first unit.
  logic [IndexWidth-1:0] next_q, fill_q, head_q;
  // All units; those with a mask; those without.
  logic [CountWidth-1:0] count_q, count_d, filled_q, open_q, open_d;
  // There is a place; no unit is without its mask, and all round keys are there.
  logic room_q, settled_q;

  // The calls; they are made in this cycle; both of them; the first waits for the second.
  logic [Lanes-1:0][127:0] tweaks_q;
  logic go_q, pair_q, held_q;

  logic take, call, alone, done;
  logic [1:0] results;
  assign unit_ready_o = room_q && ((Calls && unit_call_i) || settled_q);
  assign take = unit_valid_i && unit_ready_o;
  assign call = Calls && take && unit_call_i;
  assign alone = Lanes == 1 || unit_last_i || count_q == '0;
  assign done = unit_valid_o && unit_ready_i;

  assign call_valid_o = Lanes'({pair_q, go_q});
  assign call_block_o = tweaks_q;

  assign busy_o = count_q != '0;
  assign head = units_q[head_q];
  assign unit_valid_o = filled_q != '0;
  assign unit_mask_o = head.mask;
  assign unit_more_o = head.more;
  assign unit_single_o = head.single;
  assign unit_decrypt_o = head.decrypt;
  assign unit_last_o = head.last;

  always_comb begin
    results = '0;
    for (int i = 0; i < int'(Lanes); i++) results = results + 2'(Calls && result_valid_i[i]);
    count_d = count_q + CountWidth'(take) - CountWidth'(done);
    open_d  = open_q + CountWidth'(call) - CountWidth'(results);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q    <= '0;
      fill_q    <= '0;
      head_q    <= '0;
      count_q   <= '0;
      filled_q  <= '0;
      open_q    <= '0;
      room_q    <= 1'b0;
      settled_q <= 1'b0;
      tweaks_q  <= '0;
      go_q      <= 1'b0;
      pair_q    <= 1'b0;
      held_q    <= 1'b0;
      for (int i = 0; i < int'(Depth); i++) units_q[i] <= '0;
    end else begin
      if (take) begin
        // A result takes the tweak's place.
        units_q[next_q] <= '{
            decrypt: unit_decrypt_i,
            last: unit_last_i,
            single: unit_more_i == '0,
            more: unit_more_i,
            mask: unit_tweak_i
        };
      end
      for (int i = 0; i < int'(Lanes); i++) begin
        if (Calls && result_valid_i[i]) units_q[fill_q+IndexWidth'(i)].mask <= result_i[i];
      end
      next_q    <= next_q + IndexWidth'(take);
      // A unit without a call and results do not come together.
      fill_q    <= fill_q + IndexWidth'(results) + IndexWidth'(take && !call);
      head_q    <= head_q + IndexWidth'(done);
      count_q   <= count_d;
      filled_q  <= filled_q + CountWidth'(results) + CountWidth'(take && !call) - CountWidth'(done);
      open_q    <= open_d;
      room_q    <= count_d != CountWidth'(Depth);
      settled_q <= keys_ready_i && open_d == '0;

      if (call && !held_q) tweaks_q[0] <= unit_tweak_i;
      if (call && held_q) tweaks_q[Lanes-1] <= unit_tweak_i;
      if (call) held_q <= !held_q && !alone;
      go_q   <= call && (held_q || alone);
      pair_q <= call && held_q;
    end
  end

endmodule
