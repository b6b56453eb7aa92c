// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What holds of sector_port, with a small model of a design behind it: a key is taken only while
// no request is inside, neither in the port nor in the design, however late the design's `idle_i`
// is looked at, and given to the design in the cycle after, as it was offered and once, while the design
// is reset and has no request; none is taken before a key; a request that is inside stays what it was, through
// the reset that follows a key; and all of it is zero after reset or clear.

module sector_port_props #(
  parameter int unsigned KeyWidth     = 128,
  parameter int unsigned RequestWidth = 161,
  parameter int unsigned DataWidth    = 128
) (
  input logic                    clk_i,
  input logic                    rst_ni,
  input logic                    clear_i,
  input logic                    rst_no,
  input logic                    rst_sectors_no,
  input logic                    key_valid_i,
  input logic                    key_ready_o,
  input logic [    KeyWidth-1:0] key_i,
  input logic                    req_valid_i,
  input logic                    req_ready_o,
  input logic [RequestWidth-1:0] req_i,
  input logic                    in_valid_i,
  input logic                    in_ready_o,
  input logic [   DataWidth-1:0] in_data_i,
  input logic                    idle_i,
  input logic                    key_taken_o,
  input logic [    KeyWidth-1:0] key_o,
  input logic                    req_valid_o,
  input logic                    req_ready_i,
  input logic [RequestWidth-1:0] req_o,
  input logic                    in_valid_o,
  input logic                    in_ready_i,
  input logic [   DataWidth-1:0] in_data_o,
  input logic                    idle_q,
  input logic                    loaded_q,
  // Of the requests' register: there are two.
  input logic                    full_q
);

  logic started_q;
  initial started_q = 1'b0;
  always_ff @(posedge clk_i) started_q <= 1'b1;
  always_comb if (!started_q) assume (!rst_ni);

  // The design: it has one request at most, is reset after a key, says nothing of itself but
  // that it is idle when it is, and may not be even then.
  logic busy_q, choice, schedule_q;
  any_sequence u_choice (.Y(choice));
  always_ff @(posedge clk_i or negedge rst_sectors_no) begin
    if (!rst_sectors_no) busy_q <= 1'b0;
    else if (req_valid_o && req_ready_i) busy_q <= 1'b1;
    else if (choice) busy_q <= 1'b0;
  end
  // The schedule works in the cycle after a key.
  always_ff @(posedge clk_i or negedge rst_no) begin
    if (!rst_no) schedule_q <= 1'b0;
    else schedule_q <= key_taken_o;
  end
  always_comb begin
    if (busy_q || schedule_q) assume (!idle_i);
    // Nothing is taken in reset.
    if (busy_q || !rst_sectors_no) assume (!req_ready_i);
  end

  // A key is taken; one was in the last cycle, and which.
  logic take, take_q;
  logic [KeyWidth-1:0] offered_q;
  assign take = key_valid_i && key_ready_o;
  always_ff @(posedge clk_i or negedge rst_no) begin
    if (!rst_no) take_q <= 1'b0;
    else take_q <= take;
  end
  always_ff @(posedge clk_i) offered_q <= key_i;

  // Requests in the port: taken, and not given on.
  logic [1:0] inside_q;
  logic keyed_q, reset_q;
  always_ff @(posedge clk_i or negedge rst_no) begin
    if (!rst_no) begin
      inside_q <= '0;
      keyed_q  <= 1'b0;
    end else begin
      inside_q <= inside_q + 2'(req_valid_i && req_ready_o) - 2'(req_valid_o && req_ready_i);
      if (take) keyed_q <= 1'b1;
    end
  end
  initial reset_q = 1'b0;
  always_ff @(posedge clk_i) reset_q <= !rst_ni || clear_i;

  stream_rules #(
    .Width(RequestWidth)
  ) u_requests (
    .clk_i,
    .rst_ni (rst_no),
    .valid_i(req_valid_o),
    .ready_i(req_ready_i),
    .data_i (req_o)
  );
  stream_rules #(
    .Width(DataWidth)
  ) u_data (
    .clk_i,
    .rst_ni (rst_no),
    .valid_i(in_valid_o),
    .ready_i(in_ready_i),
    .data_i (in_data_o)
  );

  always_comb begin
    if (rst_no && started_q) begin
      assert (inside_q == 2'(full_q) + 2'(req_valid_o));
      assert (loaded_q == keyed_q);
      if (take) assert (inside_q == '0 && !busy_q && rst_sectors_no);
      assert (key_taken_o == take_q);
      if (key_taken_o) assert (key_o == offered_q && !busy_q && !rst_sectors_no && !take);
      if (req_ready_o) assert (keyed_q);
      // What idleness a cycle ago leaves possible.
      if (idle_q) assert (!busy_q && !schedule_q && rst_sectors_no);
    end
    if (reset_q && started_q) begin
      assert (!rst_no && !rst_sectors_no && !key_ready_o && !req_ready_o && !in_ready_o);
      assert (!req_valid_o && !in_valid_o && req_o == '0 && in_data_o == '0);
      assert (!key_taken_o && key_o == '0);
    end
  end

  // A key and a request in one cycle; a key after a run.
  always_comb begin
    cover (rst_no && take && req_valid_i && req_ready_o);
    cover (rst_no && keyed_q && !rst_sectors_no && req_valid_o);
    cover (rst_no && busy_q && inside_q == 2'd2);
  end

endmodule

bind sector_port sector_port_props #(
  .KeyWidth(KeyWidth),
  .RequestWidth(RequestWidth),
  .DataWidth(DataWidth)
) u_props (
  .*,
  .full_q(u_requests.full_q)
);
