// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Not a cipher: a small design with the common interface that gives each block
// exclusive-or key, tweak and direction. It is there to test the test bench, which
// has to pass it without a fault and to fail it with each of the faults that
// `+fault=` chooses.

module bench_check #(
  parameter int unsigned SectorBytes = 512,
  parameter int unsigned KeyBits     = 128,
  parameter int unsigned TweakStep   = 1,
  parameter int unsigned Cores       = 1,
  localparam int unsigned Lanes = Cores,
  localparam int unsigned Width = 128 * Lanes
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,

  input  logic               key_valid_i,
  output logic               key_ready_o,
  input  logic [KeyBits-1:0] key_i,
  output logic               expanded_o,

  input  logic         req_valid_i,
  output logic         req_ready_o,
  input  logic [127:0] req_tweak_i,
  input  logic [ 31:0] req_sectors_i,
  input  logic         req_decrypt_i,

  input  logic             in_valid_i,
  output logic             in_ready_o,
  input  logic [Width-1:0] in_data_i,

  output logic             out_valid_o,
  input  logic             out_ready_i,
  output logic [Width-1:0] out_data_o,
  output logic             out_last_o
);

  // What is wrong with it.
  typedef enum int {
    NoFault = 0,
    ValidFalls = 1,  // under backpressure
    DataChanges = 2,  // under backpressure
    LastPerSector = 3,
    ClearKeepsKey = 4,
    ClearKeepsData = 5,  // in a register that nothing shows
    ResetKeepsData = 6,
    KeyAnyTime = 7,
    WaitsForInput = 8,  // to give what it has
    ValidWaits = 9,  // for ready
    ShortTweak = 10,  // 64 bits of it count
    NoDirection = 11,
    LosesBeat = 12,
    Slow = 13,
    TakesNoise = 14,  // for a key
    Hangs = 15,  // after a run of no sectors
    EarlyRequest = 16  // before a key
  } fault_e;
  fault_e fault;
  initial begin
    int number;
    fault = $value$plusargs("fault=%d", number) != 0 ? fault_e'(number) : NoFault;
  end

  localparam int unsigned Beats = SectorBytes / 16 / Lanes;
  localparam int unsigned BeatWidth = $clog2(Beats);

  logic rst_n, cleared_q;
  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no(rst_n)
  );
  // What the reset is for.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) cleared_q <= 1'b0;
    else cleared_q <= clear_i;
  end

  logic [KeyBits-1:0] key_q;
  logic has_key_q;
  logic sector_valid, sector_take, sector_decrypt, sector_last;
  logic [127:0] sector_tweak;
  logic run_ready, run_take;
  logic hung_q;

  assign key_ready_o = rst_n && (fault == KeyAnyTime || (run_ready && !out_valid_o));
  assign expanded_o  = has_key_q;
  assign req_ready_o = (has_key_q || fault == EarlyRequest) && run_ready
      && !(key_valid_i && key_ready_o) && !hung_q;
  assign run_take = req_valid_i && req_ready_o;

  run_expand #(
    .TweakStep(TweakStep)
  ) u_run (
    .clk_i,
    .rst_ni          (rst_n),
    .req_valid_i     (run_take),
    .req_ready_o     (run_ready),
    .req_tweak_i     (fault == ShortTweak ? 128'(req_tweak_i[63:0]) : req_tweak_i),
    .req_sectors_i,
    .req_decrypt_i   (fault == NoDirection ? 1'b0 : req_decrypt_i),
    .sector_valid_o  (sector_valid),
    .sector_ready_i  (sector_take),
    .sector_tweak_o  (sector_tweak),
    .sector_decrypt_o(sector_decrypt),
    .sector_last_o   (sector_last)
  );

  logic in_room, in_valid, in_take;
  logic [Width-1:0] in_data;
  logic [1:0] queued;
  assign in_ready_o = rst_n && in_room;
  stream_fifo #(
    .Width(Width),
    .Depth(2)
  ) u_in (
    .clk_i,
    .rst_ni (rst_n),
    .valid_i(in_valid_i && rst_n),
    .ready_o(in_room),
    .data_i (in_data_i),
    .valid_o(in_valid),
    .ready_i(in_take),
    .data_o (in_data),
    .count_o(queued)
  );

  logic [BeatWidth-1:0] beat_q;
  logic last_beat, move, full_q, last_q, pause_q;
  logic [Width-1:0] data_d, data_q;
  // Written for the faults alone, and not to be optimised away.
  logic [Width-1:0] hidden_q  /* verilator public_flat_rd */;
  logic [7:0] count_q;

  assign last_beat = beat_q == BeatWidth'(Beats - 1);
  assign move = in_valid && sector_valid && (!full_q || out_ready_i)
      && !(fault == Slow && pause_q)
      && !(fault == WaitsForInput && queued == 2'd1 && !in_valid_i);
  assign in_take = move;
  assign sector_take = move && last_beat;
  always_comb begin
    for (int i = 0; i < int'(Lanes); i++) begin
      data_d[128*i+:128] = in_data[128*i+:128] ^ key_q[127:0] ^ key_q[KeyBits-1-:128]
          ^ key_q[KeyBits-1-:128] << 1 ^ sector_tweak ^ 128'(sector_decrypt);
    end
  end

  assign out_valid_o = full_q && !(fault == ValidFalls && count_q[5:0] == '0)
      && !(fault == ValidWaits && !out_ready_i);
  assign out_data_o = fault == DataChanges && count_q[5:0] == '0 ? ~data_q : data_q;
  assign out_last_o = last_q;

  always_ff @(posedge clk_i or negedge rst_n) begin
    if (!rst_n) begin
      if (fault != ClearKeepsKey || !cleared_q) begin
        key_q     <= '0;
        has_key_q <= 1'b0;
      end
      beat_q  <= '0;
      full_q  <= 1'b0;
      last_q  <= 1'b0;
      pause_q <= 1'b0;
      data_q  <= '0;
      hung_q  <= 1'b0;
      count_q <= '0;
      if (fault != (cleared_q ? ClearKeepsData : ResetKeepsData)) hidden_q <= '0;
    end else begin
      if (has_key_q && !sector_valid && fault == TakesNoise) key_q <= key_i;
      if (key_valid_i && key_ready_o) begin
        key_q     <= key_i;
        has_key_q <= 1'b1;
      end
      if (run_take && req_sectors_i == '0 && fault == Hangs) hung_q <= 1'b1;
      if (out_ready_i) full_q <= 1'b0;
      // Only the faults count.
      if (full_q) count_q <= count_q + 1'b1;
      pause_q <= move;
      if (move) begin
        full_q   <= !(fault == LosesBeat && count_q == '1);
        data_q   <= data_d;
        hidden_q <= data_d;
        last_q   <= last_beat && (sector_last || fault == LastPerSector);
        beat_q   <= beat_q + 1'b1;
      end
    end
  end

endmodule
