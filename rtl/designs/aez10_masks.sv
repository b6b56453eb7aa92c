// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The masks i J of a sector's pairs, i = 1, 2, .. `Pairs` and again, as streams that
// each go at their own pace. Either formed when they are needed, from the doublings of
// J that the bits of i select, or `Precomputed`: formed once, one a cycle from
// `load_i` on, into one block RAM for each stream. Either way a step brings a mask into the
// register at the output. The first mask may be used three cycles after `load_i`, and the
// others one a cycle after it.

module aez10_masks
  import gf128_pkg::*;
#(
  parameter int unsigned Pairs       = 127,
  parameter int unsigned Streams     = 3,
  parameter bit          Precomputed = 1'b1
) (
  input  logic clk_i,
  input  logic rst_ni,
  // A new key: streams begin again.
  input  logic restart_i,
  output logic busy_o,

  // J is there in the next cycle.
  input  logic  load_i,
  input  elem_t j_i,

  input  logic [Streams-1:0]         step_i,
  output logic [Streams-1:0][127:0]  mask_o
);

  localparam int unsigned IndexWidth = $clog2(Pairs + 1);

  // One and two cycles after `load_i`; then the first mask goes to the outputs.
  logic [1:0] loaded_q;
  logic [Streams-1:0] step;
  // i of the mask after the one at each output.
  logic [Streams-1:0][IndexWidth-1:0] index_q;

  assign step = step_i | {Streams{loaded_q[1]}};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) loaded_q <= '0;
    else if (restart_i) loaded_q <= '0;
    else loaded_q <= {loaded_q[0], load_i};
  end

  for (genvar i = 0; i < int'(Streams); i++) begin : gen_index
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) index_q[i] <= IndexWidth'(1);
      else if (restart_i) index_q[i] <= IndexWidth'(1);
      else if (step[i]) begin
        index_q[i] <= index_q[i] == IndexWidth'(Pairs) ? IndexWidth'(1) : index_q[i] + 1'b1;
      end
    end
  end

  if (Precomputed) begin : gen_precomputed

    // The mask that is written; 0 without.
    logic [IndexWidth-1:0] load_q;
    logic [Streams-1:0] busy;
    elem_t column;

    assign column = aez10_pkg::column(j_i, 7'(load_q));
    assign busy_o = |busy;

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) load_q <= '0;
      else if (restart_i) load_q <= '0;
      else if (load_i) load_q <= IndexWidth'(1);
      else if (load_q != '0) begin
        load_q <= load_q == IndexWidth'(Pairs) ? '0 : load_q + 1'b1;
      end
    end

    for (genvar i = 0; i < int'(Streams); i++) begin : gen_stream
      wiped_ram #(
        .Width(128),
        .Depth(2 ** IndexWidth)
      ) u_ram (
        .clk_i,
        .rst_ni,
        .busy_o      (busy[i]),
        .write_i     (load_q != '0),
        .write_addr_i(load_q),
        .write_data_i(column),
        .read_i      (step[i]),
        .read_addr_i (index_q[i]),
        .read_data_o (mask_o[i])
      );
    end

  end else begin : gen_on_the_fly

    assign busy_o = 1'b0;
    for (genvar i = 0; i < int'(Streams); i++) begin : gen_stream
      elem_t mask_q;
      assign mask_o[i] = mask_q;
      always_ff @(posedge clk_i or negedge rst_ni) begin
        if (!rst_ni) mask_q <= '0;
        else if (restart_i) mask_q <= '0;
        else if (step[i]) mask_q <= aez10_pkg::column(j_i, 7'(index_q[i]));
      end
    end

  end

endmodule
