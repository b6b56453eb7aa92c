// SPDX-License-Identifier: MIT OR Apache-2.0
//
// From runs to sectors, for a mode with two passes: each sector's tweak makes one AES
// call ahead of the sector, whose result is kept in order for the middle of it, and
// from that call on the sector waits for its first pass.

module sector_tweaks #(
  parameter int unsigned TweakStep = 1,
  // Sectors between their call and the use of its result.
  parameter int unsigned Depth     = 2,
  // Without, there are no calls, and every result is zero.
  parameter bit          WithTweak = 1'b1
) (
  input  logic clk_i,
  input  logic rst_ni,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  // The call: made in a cycle with both.
  output logic         call_valid_o,
  input  logic         call_ready_i,
  output logic [127:0] call_tweak_o,
  input  logic         call_result_valid_i,
  input  logic [127:0] call_result_i,

  // Sectors for the first pass.
  output logic waiting_valid_o,
  input  logic waiting_ready_i,
  output logic waiting_decrypt_o,
  // The last sector of its run.
  output logic waiting_last_o,

  output logic         result_valid_o,
  input  logic         result_ready_i,
  output logic [127:0] result_o,

  // The last beat of a sector is out, or waits for nothing but the output's reader.
  input  logic done_i,
  // A run is under way, or sectors of it are.
  output logic busy_o
);

  localparam int unsigned CountWidth = $clog2(Depth + 1);

  logic sector_valid, sector_ready, sector_decrypt, sector_last, unused_waiting_ready;
  logic [CountWidth-1:0] waiting_count;
  // Up to `Depth` at each of three places: before the result's use, between the passes,
  // on the way out.
  logic [CountWidth+1:0] open_q;

  run_expand #(
    .TweakStep(TweakStep)
  ) u_expand (
    .clk_i,
    .rst_ni,
    .req_valid_i,
    .req_ready_o,
    .req_tweak_i,
    .req_sectors_i,
    .req_decrypt_i,
    .sector_valid_o  (sector_valid),
    .sector_ready_i  (sector_ready),
    .sector_tweak_o  (call_tweak_o),
    .sector_decrypt_o(sector_decrypt),
    .sector_last_o   (sector_last)
  );

  stream_fifo #(
    .Width(2),
    .Depth(Depth)
  ) u_waiting (
    .clk_i,
    .rst_ni,
    .valid_i(sector_valid && sector_ready),
    .ready_o(unused_waiting_ready),
    .data_i ({sector_decrypt, sector_last}),
    .valid_o(waiting_valid_o),
    .ready_i(waiting_ready_i),
    .data_o ({waiting_decrypt_o, waiting_last_o}),
    .count_o(waiting_count)
  );

  if (WithTweak) begin : gen_tweak

    logic [CountWidth-1:0] calls_q, unused_count;
    logic unused, unused_ready;
    // A sector waits no longer than its result does, so that there is room in both.
    assign call_valid_o = sector_valid && calls_q != CountWidth'(Depth);
    assign sector_ready = call_valid_o && call_ready_i;

    assign unused = ^waiting_count;

    stream_fifo #(
      .Width(128),
      .Depth(Depth)
    ) u_results (
      .clk_i,
      .rst_ni,
      .valid_i(call_result_valid_i),
      .ready_o(unused_ready),
      .data_i (call_result_i),
      .valid_o(result_valid_o),
      .ready_i(result_ready_i),
      .data_o (result_o),
      .count_o(unused_count)
    );

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) calls_q <= '0;
      else begin
        calls_q <= calls_q + CountWidth'(sector_ready)
            - CountWidth'(result_valid_o && result_ready_i);
      end
    end

  end else begin : gen_no_tweak

    logic unused;
    assign unused = ^{call_ready_i, call_result_valid_i, call_result_i, result_ready_i};
    assign call_valid_o = 1'b0;
    assign sector_ready = waiting_count != CountWidth'(Depth);
    assign result_valid_o = 1'b1;
    assign result_o = '0;

  end

  assign busy_o = !req_ready_o || open_q != '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) open_q <= '0;
    else begin
      open_q <= open_q + (CountWidth + 2)'(sector_valid && sector_ready)
          - (CountWidth + 2)'(done_i);
    end
  end

endmodule
