// SPDX-License-Identifier: MIT OR Apache-2.0
//
// engine_cipher and engine_keys together, with a port for each field, and the reset that the
// co-processor makes for them.

module engine_cipher_tb
  import engine_pkg::*;
#(
  parameter int unsigned Level     = 3,
  parameter int unsigned Ciphers   = 3,
  parameter int unsigned KeyBits   = 128,
  parameter int unsigned XtsBytes  = 4096,
  parameter int unsigned UnitBytes = 512,
  parameter int unsigned Slots     = 5
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic clear_i,
  output logic wiped_o,

  input  logic         data_write_i,
  input  logic [  4:0] data_index_i,
  input  logic [ 31:0] data_i,
  input  logic         command_write_i,
  input  logic [ 31:0] command_i,
  output logic [ 31:0] status_o,
  output logic [ 31:0] slot_valid_o,
  output logic [127:0] slot_cipher_o,
  input  logic         pipe_idle_i,
  output logic         keys_busy_o,

  input  logic                   request_valid_i,
  output logic                   request_ready_o,
  input  logic [            3:0] number_i,
  input  logic [            7:0] status_i,
  input  logic                   empty_i,
  input  logic                   decrypt_i,
  input  logic [            1:0] mode_i,
  input  logic [            4:0] slot_i,
  input  logic [            8:0] unit_blocks_i,
  input  logic [BlocksWidth-1:0] blocks_i,
  input  logic [          127:0] tweak_i,
  input  logic [           15:0] step_i,

  input  logic         item_valid_i,
  output logic         item_ready_o,
  input  logic         item_last_i,
  input  logic [  7:0] item_status_i,
  input  logic [127:0] item_block_i,

  output logic         out_valid_o,
  input  logic         out_ready_i,
  output logic [127:0] out_block_o,

  output logic                   verdict_valid_o,
  input  logic                   verdict_ready_i,
  output logic [            3:0] verdict_number_o,
  output logic [            7:0] verdict_status_o,
  output logic [BlocksWidth-1:0] good_o,
  output logic [BlocksWidth-1:0] issued_o,

  output logic starved_o,
  output logic blocked_o,
  output logic core_busy_o
);

  logic rst_n, cipher_wiped, keys_wiping, forget;
  logic [4:0] slot;
  logic [SlotBits-1:0] key;
  logic [3:0] key_cipher;
  request_t request;
  verdict_t verdict;

  clear_reset u_reset (
    .clk_i,
    .rst_ni,
    .clear_i,
    .rst_no(rst_n)
  );
  assign wiped_o = cipher_wiped && !keys_wiping;

  always_comb begin
    request             = '0;
    request.number      = number_i;
    request.status      = status_i;
    request.empty       = empty_i;
    request.decrypt     = decrypt_i;
    request.mode        = mode_e'(mode_i);
    request.slot        = slot_i;
    request.unit_blocks = unit_blocks_i;
    request.blocks      = blocks_i;
    request.tweak       = tweak_i;
    request.step        = step_i;
  end

  engine_keys #(
    .Slots  (Slots),
    .KeyBits(KeyBits),
    .Ciphers(Ciphers)
  ) u_keys (
    .clk_i,
    .rst_ni       (rst_n),
    .wiping_o     (keys_wiping),
    .data_write_i,
    .data_index_i,
    .data_i,
    .command_write_i,
    .command_i,
    .status_o,
    .slot_valid_o,
    .slot_cipher_o(slot_cipher_o),
    .pipe_idle_i,
    .busy_o       (keys_busy_o),
    .slot_i       (slot),
    .key_o        (key),
    .key_cipher_o (key_cipher),
    .changed_o    (forget)
  );

  engine_cipher #(
    .Level    (Level),
    .Ciphers  (Ciphers),
    .KeyBits  (KeyBits),
    .XtsBytes (XtsBytes),
    .UnitBytes(UnitBytes)
  ) u_cipher (
    .clk_i,
    .rst_ni         (rst_n),
    .wiped_o        (cipher_wiped),
    .request_valid_i,
    .request_ready_o,
    .request_i      (request),
    .item_valid_i,
    .item_ready_o,
    .item_i         ({item_last_i, item_status_i, item_block_i}),
    .slot_o         (slot),
    .key_i          (key),
    .key_cipher_i   (key_cipher),
    .forget_i       (forget),
    .out_valid_o,
    .out_ready_i,
    .out_block_o,
    .verdict_valid_o,
    .verdict_ready_i,
    .verdict_o      (verdict),
    .starved_o,
    .blocked_o,
    .core_busy_o
  );

  assign verdict_number_o = verdict.number;
  assign verdict_status_o = verdict.status;
  assign good_o = verdict.good;
  assign issued_o = verdict.issued;

endmodule
