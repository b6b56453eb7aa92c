// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Queues whose owner does not ask them whether there is a place for an entry, or an entry to be taken: it
// knows by itself, and there always is. An entry would be lost, or an old one taken, otherwise.

module unasked (
  input logic clk_i,
  input logic rst_ni,
  input logic moves_i,
  input logic may_i
);

  // With the reset so that it is asynchronous here as well.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (rst_ni) assert (!moves_i || may_i) else $error("there is no place, or no entry");
  end

endmodule

`define WRITES_UNASKED(Owner, Queue) \
  bind Owner unasked Queue``_write ( \
    .clk_i, .rst_ni(Queue.rst_ni), .moves_i(Queue.valid_i), .may_i(Queue.ready_o));
`define READS_UNASKED(Owner, Queue) \
  bind Owner unasked Queue``_read ( \
    .clk_i, .rst_ni(Queue.rst_ni), .moves_i(Queue.ready_i), .may_i(Queue.valid_o));

// Each of which nobody uses `ready_o`, or `valid_o`. An aes_sdc is a queue of one block.
`WRITES_UNASKED(sector_tweaks, u_waiting)
`WRITES_UNASKED(fast_input, u_x)
`READS_UNASKED(fast_input, u_x)
`READS_UNASKED(fast_input, u_heads)
`READS_UNASKED(fast_input, u_tweaks)
`READS_UNASKED(fast_output, u_results)
`WRITES_UNASKED(hash_counter, u_second)
`READS_UNASKED(hash_counter, u_second)
`WRITES_UNASKED(hash_output, u_late)
`WRITES_UNASKED(hctr2, u_sdc)
`WRITES_UNASKED(hctr2, u_called)
`READS_UNASKED(hctr2, u_called)
`WRITES_UNASKED(hctr2, u_middle)
`WRITES_UNASKED(xcb, u_sdc)
`WRITES_UNASKED(eme2_back, u_passed)
`WRITES_UNASKED(eme2_back, u_buffer)
`READS_UNASKED(eme2_back, u_buffer)
`WRITES_UNASKED(aez10_back, u_sums)
`WRITES_UNASKED(aez10_back, u_last_pairs)
`WRITES_UNASKED(aez10_back, u_buffer)
`WRITES_UNASKED(axi_reader, u_whose)
`READS_UNASKED(axi_reader, u_whose)
`WRITES_UNASKED(axi_writer, u_feeders)
`WRITES_UNASKED(axi_writer, u_whose)
`READS_UNASKED(axi_writer, u_whose)
`WRITES_UNASKED(engine_cipher, u_verdicts)
`WRITES_UNASKED(engine_cipher, u_out)
`WRITES_UNASKED(engine_destination, u_under_way)
`READS_UNASKED(engine_destination, u_under_way)
`READS_UNASKED(engine_fetch, u_rings)
`WRITES_UNASKED(engine_fetch, u_blocks)
`WRITES_UNASKED(engine_source, u_plan)
`WRITES_UNASKED(list_walker, u_entries)
