// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a solver may choose freely: once for all time (any_constant), or anew in every
// cycle (any_sequence). run.sh turns these empty modules into Yosys's $anyconst and
// $anyseq, which its SystemVerilog front end has no other way to say.

module any_constant #(
  parameter int WIDTH = 1
) (
  output logic [WIDTH-1:0] Y
);
endmodule

module any_sequence #(
  parameter int WIDTH = 1
) (
  output logic [WIDTH-1:0] Y
);
endmodule
