// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of fast_input, which counts for itself what its three queues have room for: as long as its
// user begins no sector while it is busy, takes only what is there, a sector's tweak not before its
// first two blocks, and has no more than `Sectors` of which it has the blocks and not the
// tweak, nothing is given to a queue that has no room, and what it counts is what is there.

module fast_input_props
  import fast_pkg::*;
#(
  parameter int unsigned Depth = 128,
  parameter int unsigned TweakPlaces = 32,
  parameter int unsigned Heads = 1,
  parameter int unsigned BeatWidth = 2,
  localparam int unsigned PlaceWidth = $clog2(Depth + 1)
) (
  input logic                          clk_i,
  input logic                          rst_ni,
  input logic                          busy_o,
  input logic                          sector_valid_i,
  input logic                          head_take_i,
  input logic                          tweak_take_i,
  input logic                          x_take_i,
  input logic                          have_q,
  input logic                          head_q,
  input logic                          head_last_q,
  input logic [         BeatWidth-1:0] beat_q,
  input logic                          x_q,
  input logic                          start_q,
  input logic                          x_room_q,
  input logic [        PlaceWidth-1:0] stored_q,
  // The queue of first blocks.
  input logic                          heads_room,
  input logic                          heads_valid,
  input logic [                   3:0] heads_taken,
  input logic [                   2:0] heads_write,
  input logic [                   2:0] heads_read,
  // Of tweaks.
  input logic                          tweaks_room,
  input logic                          tweaks_valid,
  input logic [ $clog2(TweakPlaces):0] tweaks_taken,
  input logic [$clog2(TweakPlaces)-1:0] tweaks_write,
  input logic [$clog2(TweakPlaces)-1:0] tweaks_read,
  // Of X: entries in memory, in its register, and in the skid buffer behind that.
  input logic                          x_ready,
  input logic                          x_valid,
  input logic [       $clog2(Depth):0] x_stored,
  input logic                          x_some,
  input logic                          x_have,
  input logic                          x_full
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;

  // Sectors of which the user has the first blocks and not the tweak.
  logic [7:0] inside_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) inside_q <= '0;
    else inside_q <= inside_q + 8'(head_take_i) - 8'(tweak_take_i);
  end

  // Nothing has been given yet, since it was busy; a sector was started a cycle before.
  logic fresh_q, started_before_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      fresh_q          <= 1'b1;
      started_before_q <= 1'b0;
    end else begin
      fresh_q          <= fresh_q && busy_o;
      started_before_q <= start_q;
    end
  end

  always_comb begin
    if (!started_q) assume (!rst_ni);
    // The memories, which are not here, are wiped once.
    if (!fresh_q) assume (!busy_o);
    // Its user's part: test/rules has the same for simulations.
    if (busy_o) assume (!sector_valid_i);
    if (!heads_valid) assume (!head_take_i);
    if (!tweaks_valid || (inside_q == '0 && !head_take_i)) assume (!tweak_take_i);
    if (32'(inside_q) == Sectors && !tweak_take_i) assume (!head_take_i);
    if (!x_valid) assume (!x_take_i);
  end

  logic [PlaceWidth:0] x_count;
  assign x_count = (PlaceWidth + 1)'(x_stored) + (PlaceWidth + 1)'(x_have) + (PlaceWidth + 1)'(x_valid)
      + (PlaceWidth + 1)'(x_full);

  always_comb begin
    if (rst_ni && started_q) begin
      // Nothing goes where there is no room.
      if (start_q) assert (heads_room && tweaks_room);
      if (x_q) assert (x_ready && !busy_o);
      // What is there.
      assert (32'(heads_taken) <= 8 && heads_valid == (heads_taken != '0));
      assert (heads_taken[2:0] == 3'(heads_write - heads_read));
      assert (tweaks_valid == (tweaks_taken != '0));
      assert ($bits(tweaks_write)'(tweaks_taken) == tweaks_write - tweaks_read);
      assert (32'(inside_q) <= Sectors);
      assert (32'(tweaks_taken) == 32'(heads_taken) + 32'(inside_q));
      assert ((PlaceWidth + 1)'(stored_q) == x_count);
      assert (x_some == (x_stored != '0) && 32'(x_stored) <= Depth);
      assert (32'(stored_q) + 32'(x_q) <= Depth);
      if (x_room_q && !fresh_q) assert (32'(stored_q) + 32'(x_q) <= Depth - 2);
      // Starts are apart, so that what they count as room is still there.
      assert (head_q == (32'(beat_q) < Heads) && head_last_q == (32'(beat_q) == Heads - 1));
      if (start_q) assert (!have_q && !started_before_q && 32'(beat_q) == Heads);
      if (started_before_q) assert (32'(beat_q) == Heads || 32'(beat_q) == Heads + 1);
      if (heads_room) assert (32'(heads_taken) <= 6 + 32'(started_before_q));
      if (fresh_q) assert (!have_q && head_q);
      if (fresh_q) assert (heads_taken == '0 && tweaks_taken == '0 && stored_q == '0 && !x_q && !start_q);
    end
  end

  // The interesting cases can happen.
  always_comb begin
    cover (rst_ni && start_q && heads_taken != '0);
    cover (rst_ni && x_q && x_take_i);
    cover (rst_ni && tweak_take_i && head_take_i);
  end

endmodule

bind fast_input fast_input_props #(
  .Depth(Depth),
  .TweakPlaces(TweakPlaces),
  .Heads(Heads),
  .BeatWidth(BeatWidth)
) u_props (
  .*,
  .heads_room  (u_heads.room_o),
  .heads_valid (u_heads.valid_o),
  .heads_taken (u_heads.taken_q),
  .heads_write (u_heads.write_q),
  .heads_read  (u_heads.read_q),
  .tweaks_room (u_tweaks.room_o),
  .tweaks_valid(u_tweaks.valid_o),
  .tweaks_taken(u_tweaks.taken_q),
  .tweaks_write(u_tweaks.write_q),
  .tweaks_read (u_tweaks.read_q),
  .x_ready     (u_x.ready_o),
  .x_valid     (u_x.valid_o),
  .x_stored    (u_x.stored_q),
  .x_some      (u_x.some_q),
  .x_have      (u_x.have_q),
  .x_full      (u_x.u_out.full_q)
);
