// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sectors between two passes over them, in block RAM that wipes itself: entries
// are written in order, `Beats` a sector, and come out in order as a stream, one
// a cycle, each fetched a cycle ahead. The reader says when it wants a sector
// (`fetch_i`, looked at before each sector's first entry), after the last entry of
// it was written; the writer starts a sector only when fewer than `Slots` are
// between its first write and the last entry taken.

module sector_buffer #(
  parameter int unsigned Width = 128,
  // Entries a sector; 2 or more.
  parameter int unsigned Beats = 256,
  // A power of two, 2 or more.
  parameter int unsigned Slots = 2
) (
  input  logic clk_i,
  input  logic rst_ni,
  // Wiping after reset: nothing may be written.
  output logic busy_o,

  input logic             write_i,
  input logic [Width-1:0] write_data_i,

  input  logic             fetch_i,
  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);

  localparam int unsigned BeatWidth = $clog2(Beats);
  localparam int unsigned SlotWidth = $clog2(Slots);

  logic [SlotWidth-1:0] write_slot_q, read_slot_q;
  logic [BeatWidth-1:0] write_beat_q, read_beat_q;
  // The next entry to read is a sector's first.
  logic begins_q, valid_q, read;

  // The entry at the output goes, or there is none.
  assign read = (!valid_q || ready_i) && (!begins_q || fetch_i);
  assign valid_o = valid_q;

  wiped_ram #(
    .Width(Width),
    .Depth(Slots * 2 ** BeatWidth)
  ) u_ram (
    .clk_i,
    .rst_ni,
    .busy_o,
    .write_i,
    .write_addr_i({write_slot_q, write_beat_q}),
    .write_data_i,
    .read_i      (read),
    .read_addr_i ({read_slot_q, read_beat_q}),
    .read_data_o (data_o)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_slot_q <= '0;
      write_beat_q <= '0;
      read_slot_q  <= '0;
      read_beat_q  <= '0;
      begins_q     <= 1'b1;
      valid_q      <= 1'b0;
    end else begin
      if (write_i) begin
        if (write_beat_q == BeatWidth'(Beats - 1)) begin
          write_beat_q <= '0;
          write_slot_q <= write_slot_q + 1'b1;
        end else begin
          write_beat_q <= write_beat_q + 1'b1;
        end
      end
      if (read) begin
        begins_q <= read_beat_q == BeatWidth'(Beats - 1);
        if (read_beat_q == BeatWidth'(Beats - 1)) begin
          read_beat_q <= '0;
          read_slot_q <= read_slot_q + 1'b1;
        end else begin
          read_beat_q <= read_beat_q + 1'b1;
        end
      end
      valid_q <= read || (valid_q && !ready_i);
    end
  end

endmodule
