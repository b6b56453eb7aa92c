// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The key slots, and the registers that fill them: KEY_DATA gathers a key, KEY_CMD loads a
// slot from it or clears one. A command that is refused changes no slot, and is answered at
// once; one that is not waits until no request is under way, so that no request has its key
// changed, and `busy_o` asks the rings to fetch nothing meanwhile. Every command wipes
// KEY_DATA when it is answered. What is written to either register before that is lost.
//
// Keys go to the cipher alone. `changed_o` tells it to forget what it has loaded.

module engine_keys
  import engine_pkg::*;
  import engine_regs_pkg::*;
#(
  // 1 to 32.
  parameter int unsigned Slots   = 32,
  // Of AES: 128 or 256.
  parameter int unsigned KeyBits = 256,
  // A bit for each cipher that is there, by its number in registers.toml.
  parameter int unsigned Ciphers = 3
) (
  input  logic clk_i,
  input  logic rst_ni,
  // After reset the slots wipe themselves; commands wait.
  output logic wiping_o,

  // Writes to KEY_DATA and KEY_CMD, and what KEY_STATUS and KEY_SLOTS give.
  input  logic        data_write_i,
  input  logic [ 4:0] data_index_i,
  input  logic [31:0] data_i,
  input  logic        command_write_i,
  input  logic [31:0] command_i,
  output logic [31:0] status_o,
  output logic [31:0] slot_valid_o,

  // Ciphers of the slots, to check requests by.
  output logic [31:0][3:0] slot_cipher_o,

  // No request is under way.
  input  logic pipe_idle_i,
  output logic busy_o,

  // A slot's key for the cipher, in the cycle of its number.
  input  logic [         4:0] slot_i,
  output logic [SlotBits-1:0] key_o,
  output logic [         3:0] key_cipher_o,
  // A slot changes.
  output logic                changed_o
);

  localparam int unsigned Words = SlotBits / 32;
  localparam int unsigned Entries = Slots > 1 ? Slots : 2;
  localparam int unsigned IndexWidth = $clog2(Entries);

  typedef enum logic [2:0] {
    Idle,
    // The command is looked at.
    Check,
    // It waits for the requests under way.
    Wait,
    // It is answered, and KEY_DATA wiped.
    Done
  } state_e;

  // As KEY_CMD's fields.
  typedef enum logic [1:0] {
    Load  = 1,
    Clear = 2
  } command_e;

  state_e state_q;
  logic [Words-1:0][31:0] data_q;
  logic [SlotBits-1:0] data;
  logic [3:0] result_q, result, cipher_q;
  logic [7:0] slot_q;
  logic [1:0] command_q;
  logic bits_q, equal_q;
  logic [31:0] valid_q;
  logic [31:0][3:0] ciphers_q;
  logic [IndexWidth-1:0] index;
  logic write;

  // The rest of KEY_CMD is reserved.
  logic unused;
  assign unused = ^{command_i[31:18], command_i[15:13]};

  assign data = data_q;
  assign index = slot_q[IndexWidth-1:0];
  assign busy_o = state_q != Idle;
  assign write = state_q == Wait && pipe_idle_i && !wiping_o;
  assign changed_o = write;
  assign status_o = 32'(busy_o) << KeyStatusBusyLow | 32'(result_q) << KeyStatusResultLow;
  assign slot_valid_o = valid_q;
  assign slot_cipher_o = ciphers_q;
  assign key_cipher_o = ciphers_q[slot_i];

  always_comb begin
    result = 4'(KeyResultDone);
    if (!(command_q inside {Load, Clear})) result = 4'(KeyResultCommand);
    else if (slot_q >= 8'(Slots)) result = 4'(KeyResultSlot);
    else if (command_q == Load) begin
      if (!Ciphers[{1'b0, cipher_q}]) result = 4'(KeyResultCipher);
      else if (bits_q != (KeyBits == 256)) result = 4'(KeyResultLength);
      else if (cipher_q == 4'(CipherXts) && equal_q) result = 4'(KeyResultEqual);
    end
  end

  // One that is not used is there where memory has to have two.
  logic [IndexWidth-1:0] read_index[1];
  logic [SlotBits-1:0] read_key[1];
  assign read_index[0] = slot_i[IndexWidth-1:0];
  assign key_o = read_key[0];
  if (IndexWidth < 5) begin : gen_few
    logic unused_slot;
    assign unused_slot = ^slot_i[4:IndexWidth];
  end

  wiped_table #(
    .Width(SlotBits),
    .Depth(Entries)
  ) u_slots (
    .clk_i,
    .rst_ni,
    .busy_o      (wiping_o),
    .write_i     (write),
    .write_addr_i(index),
    .write_data_i(command_q == Load ? data : '0),
    .read_addr_i (read_index),
    .read_data_o (read_key)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Idle;
      data_q    <= '0;
      result_q  <= '0;
      cipher_q  <= '0;
      slot_q    <= '0;
      command_q <= '0;
      bits_q    <= 1'b0;
      equal_q   <= 1'b0;
      valid_q   <= '0;
      ciphers_q <= '0;
    end else begin
      unique case (state_q)
        Idle: begin
          // Longer keys than a slot's there are none.
          if (data_write_i && data_index_i < 5'(Words)) data_q[data_index_i[3:0]] <= data_i;
          if (command_write_i) begin
            state_q   <= Check;
            slot_q    <= command_i[KeyCmdSlotLow+:KeyCmdSlotBits];
            cipher_q  <= command_i[KeyCmdCipherLow+:KeyCmdCipherBits];
            bits_q    <= command_i[KeyCmdKeyBitsLow];
            command_q <= command_i[KeyCmdCommandLow+:KeyCmdCommandBits];
            equal_q   <= data[0+:KeyBits] == data[KeyBits+:KeyBits];
          end
        end
        Check: begin
          result_q <= result;
          state_q  <= result == 4'(KeyResultDone) ? Wait : Done;
        end
        Wait: begin
          if (write) begin
            valid_q[slot_q[4:0]]   <= command_q == Load;
            ciphers_q[slot_q[4:0]] <= command_q == Load ? cipher_q : '0;
            state_q                <= Done;
          end
        end
        default: begin
          data_q  <= '0;
          equal_q <= 1'b0;
          state_q <= Idle;
        end
      endcase
    end
  end

endmodule
