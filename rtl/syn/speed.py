# SPDX-License-Identifier: MIT OR Apache-2.0
"""How fast blocks and designs can be clocked, by two measures that have nothing in common."""

import collections
import json
import re
import shutil
import signal
import subprocess
import sys

from synthesis import KEPT, closure, read

# For each unit the same: router, goal in MHz, and seeds, of which the best counts.
ROUTER = ["--router", "router2", "--freq", "150", "--threads", "1"]
SEEDS = (1, 2, 3, 4, 5)
DEVICE_LUTS = 83640
# What place and route may take of a CPU, in seconds, before a seed counts as failed.
LIMIT = 4 * 3600

# A reset of more flip-flops than this goes over one of the device's global networks, where vendors' tools
# put it by themselves; nextpnr does that with clocks alone.
GLOBAL_RESET = 1000

SHELL = """// Makes every port a register behind two pins, so that only what is inside counts.
module shell (input logic clk, input logic rst_n, input logic shift, output logic q);
  localparam int unsigned Key = {key};
  localparam int unsigned Data = {data};
  localparam int unsigned In = {inputs};
  localparam int unsigned Out = {outputs};
  logic [In-1:0] in_q;
  logic [Out-1:0] out_d, out_q;
  always_ff @(posedge clk) begin
    in_q  <= {{in_q[In-2:0], shift}};
    out_q <= in_q[0] ? out_d : {{out_q[Out-2:0], 1'b0}};
    q     <= out_q[Out-1];
  end
  {before}
  {module} #({parameters}) u_inside (
    .clk_i(clk), .rst_ni(rst_n), {ports}
  );
endmodule
"""

# Of a design, whose bits the shell numbers in this order: its single bits, data, request, key.
DESIGN_PORTS = """.clear_i(in_q[1]),
    .key_valid_i(in_q[2]), .key_ready_o(out_d[0]), .key_i(in_q[In-1-:Key]), .expanded_o(out_d[1]),
    .req_valid_i(in_q[3]), .req_ready_o(out_d[2]), .req_tweak_i(in_q[Data+5+:128]),
    .req_sectors_i(in_q[Data+133+:32]), .req_decrypt_i(in_q[Data+165]),
    .in_valid_i(in_q[4]), .in_ready_o(out_d[3]), .in_data_i(in_q[5+:Data]),
    .out_valid_o(out_d[4]), .out_ready_i(in_q[0]), .out_data_o(out_d[Data+5:6]), .out_last_o(out_d[5])"""

ROUND_KEYS = """logic [127:0] keys[1][11];
  for (genvar i = 0; i < 11; i++) begin : gen_keys
    assign keys[0][i] = in_q[132+128*i+:128];
  end"""
AES_PORTS = """.round_keys_i(keys),
    .valid_i(in_q[2]), .block_i(in_q[4+:128]), .key_i(1'b0), .tag_i(in_q[3]),
    .valid_o(out_d[0]), .block_o(out_d[129:2]), .tag_o(out_d[1])"""
DUPLEX_KEYS = """logic [127:0] keys[1][11], inverse_keys[1][11];
  for (genvar i = 0; i < 11; i++) begin : gen_keys
    assign keys[0][i] = in_q[133+128*i+:128];
    assign inverse_keys[0][i] = in_q[133+1408+128*i+:128];
  end"""
DUPLEX_PORTS = """.round_keys_i(keys), .inverse_keys_i(inverse_keys), .decrypt_i(in_q[132]),
    .valid_i(in_q[2]), .block_i(in_q[4+:128]), .key_i(1'b0), .tag_i(in_q[3]),
    .valid_o(out_d[0]), .block_o(out_d[129:2]), .tag_o(out_d[1])"""
MULTIPLIER_PORTS = """.valid_i(in_q[2]), .a_i(in_q[4+:128]), .b_i(in_q[132+:128]), .tag_i(in_q[3]),
    .soon_valid_o(), .soon_tag_o(),
    .valid_o(out_d[0]), .product_o(out_d[129:2]), .tag_o(out_d[1])"""
SDC_PORTS = """.round_keys_i(keys),
    .valid_i(in_q[2]), .block_i(in_q[4+:128]), .key_i(1'b0), .tag_i(in_q[3]), .ready_o(out_d[2]),
    .valid_o(out_d[0]), .block_o(out_d[130:3]), .tag_o(out_d[1])"""
SCHEDULE_KEYS = """logic [127:0] keys[11];
  for (genvar i = 0; i < 11; i++) begin : gen_keys
    assign out_d[2+128*i+:128] = keys[i];
  end"""
SCHEDULE_PORTS = """.valid_i(in_q[1]), .key_i(in_q[2+:128]), .ready_o(out_d[0]),
    .valid_o(out_d[1]), .round_keys_o(keys)"""
# Bits in and out, what comes before the instance, and its ports.
BLOCK_SHELLS = {
    "aes-pec": (132 + 11 * 128, 130, ROUND_KEYS, AES_PORTS),
    "aes-pdc": (132 + 11 * 128, 130, ROUND_KEYS, AES_PORTS),
    "aes-duplex": (133 + 2 * 11 * 128, 130, DUPLEX_KEYS, DUPLEX_PORTS),
    "aes-sdc": (132 + 11 * 128, 131, ROUND_KEYS, SDC_PORTS),
    "aes-key-schedule": (130, 2 + 11 * 128, SCHEDULE_KEYS, SCHEDULE_PORTS),
    "multiplier": (260, 130, "", MULTIPLIER_PORTS),
}


# Registers and block RAM for the static timing analysis, with the delays in ps that Yosys's library has
# for them: there they hang on parameters, and reset counts as a path from its source through Q.
ARCS = """
module XREG (input C, CE, D, CLR, PRE, R, S, output Q);
  specify
    $setup(CE, posedge C, 109);
    $setup(R, posedge C, 404);
    $setup(S, posedge C, 404);
    (posedge C => (Q : D)) = 303;
  endspecify
endmodule
"""
for ram, address, data, parity in (("XRAM36", 16, 32, 4), ("XRAM18", 14, 16, 2)):
    ARCS += f"""
module {ram} (
  input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB, RSTRAMARSTRAM, RSTRAMB,
  input RSTREGARSTREG, RSTREGB, CASCADEINA, CASCADEINB,
  input [{address - 1}:0] ADDRARDADDR, ADDRBWRADDR, input [3:0] WEA, input [7:0] WEBWE,
  input [{data - 1}:0] DIADI, DIBDI, input [{parity - 1}:0] DIPADIP, DIPBDIP,
  output [{data - 1}:0] DOADO, DOBDO, output [{parity - 1}:0] DOPADOP, DOPBDOP
);
  specify
    $setup(ADDRARDADDR, posedge CLKARDCLK, 566);
    $setup(ADDRBWRADDR, posedge CLKBWRCLK, 566);
    $setup(WEA, posedge CLKARDCLK, 532);
    $setup(WEBWE, posedge CLKBWRCLK, 532);
    $setup(DIADI, posedge CLKARDCLK, 737);
    $setup(DIBDI, posedge CLKBWRCLK, 737);
    $setup(DIPADIP, posedge CLKARDCLK, 737);
    $setup(DIPBDIP, posedge CLKBWRCLK, 737);
    (posedge CLKARDCLK => (DOADO : {data}'bx)) = 2454;
    (posedge CLKARDCLK => (DOPADOP : {parity}'bx)) = 2454;
    (posedge CLKBWRCLK => (DOBDO : {data}'bx)) = 2454;
    (posedge CLKBWRCLK => (DOPBDOP : {parity}'bx)) = 2454;
  endspecify
endmodule
"""


def version(tools):
    """Of nextpnr, if it is there."""
    program = tools.build / "nextpnr/nextpnr-ecp5"
    if not program.exists():
        sys.exit("report.py: there is no nextpnr: run scripts/setup.sh rtl-report")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return "nextpnr-ecp5 " + re.search(r"Version ([^)]+)", said.stdout + said.stderr)[1]


def shell(name, module, parameters, model=None):
    """The source of the shell around a block or, with a model, around a design."""
    if model:
        key_bits, cores = int(parameters["KeyBits"]), int(parameters.get("Cores", 2))
        # FAST takes two blocks a beat, but for Horner's rule.
        two = module == "fast" and parameters.get("Horner") != "1'b1"
        data = 128 * (2 if two else cores)
        key = {"xts": 2 * key_bits, "eme2": 256 + key_bits}.get(model, key_bits)
        inputs, outputs, before, ports = key + data + 166, data + 6, "", DESIGN_PORTS
    else:
        key = data = 0
        inputs, outputs, before, ports = BLOCK_SHELLS[name]
    values = ", ".join(f".{k}({v})" for k, v in parameters.items())
    return SHELL.format(module=module, parameters=values, key=key, data=data,
                        inputs=inputs, outputs=outputs, before=before, ports=ports)


def global_resets(netlist):
    """Puts the large resets of a netlist of synth_ecp5 behind a global buffer each."""
    design = json.loads(netlist.read_text())
    top = design["modules"]["shell"]
    cells = top["cells"]
    loads = collections.Counter(bit for cell in cells.values() for bit in cell["connections"].get("LSR", []))
    nets = max(bit for net in top["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
    for reset, flops in loads.items():
        # Constants are strings.
        if flops <= GLOBAL_RESET or isinstance(reset, str):
            continue
        nets += 1
        for cell in cells.values():
            if cell["connections"].get("LSR") == [reset]:
                cell["connections"]["LSR"] = [nets]
        cells[f"global_reset_{nets}"] = {
            "type": "DCCA",
            "port_directions": {"CLKI": "input", "CE": "input", "CLKO": "output"},
            "connections": {"CLKI": [reset], "CE": ["1"], "CLKO": [nets]},
        }
        top["netnames"][f"global_reset_{nets}"] = {"bits": [nets]}
    netlist.write_text(json.dumps(design))


def run_router(command, folder):
    """What nextpnr returned, and said. It is stopped, and None returned, where it has twice and a hundred as many overused
    wires as it once had: with three seeds they grew on from there for as long as anybody waited,
    18, 7 and 8 rounds."""
    said, least = [], None
    with (
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running,
        open(folder / "log", "w", encoding="utf-8") as log,
    ):
        try:
            for line in running.stdout:
                log.write(line)
                log.flush()
                said.append(line)
                found = re.search(r"iter=\d+ .*overused=(\d+) overuse=", line)
                if found:
                    overused = int(found[1])
                    least = overused if least is None else min(least, overused)
                    if overused > 2 * least + 100:
                        return None, "".join(said)
            return running.wait(), "".join(said)
        finally:
            running.kill()


def route(tools, name, module, parameters, text):
    """MHz after place and route for ECP5 with each seed, the best of those that are there, and the LUTs."""
    netlist = tools.build / f"report/{name}.netlist"
    # Made for the first seed that is not there.
    made = False

    def synthesise():
        nonlocal made
        shutil.rmtree(netlist, ignore_errors=True)
        netlist.mkdir()
        (netlist / "shell.sv").write_text(text)
        synth = ["synth_ecp5 -top shell -json shell.json", "tee -o stat.json stat -json"]
        tools.yosys(netlist, module, read(module, parameters, "shell.sv"), synth)
        global_resets(netlist / "shell.json")
        made = True

    def seed(number):
        def work(folder):
            if not made:
                synthesise()
            cells = json.loads((netlist / "stat.json").read_text())["design"]["num_cells_by_type"]
            # Carries and memories are made of LUTs.
            luts = cells["LUT4"] + 2 * cells.get("CCU2C", 0) + 4 * cells.get("TRELLIS_DPR16X4", 0)
            if luts > DEVICE_LUTS:
                return {"lut4": luts, "mhz": None}
            command = ["prlimit", f"--cpu={LIMIT}:{LIMIT + 60}", tools.build / "nextpnr/nextpnr-ecp5", "--85k"]
            command += ["--package", "CABGA756", "--json", netlist / "shell.json", *ROUTER]
            command += ["--seed", str(number), "--timing-allow-fail", "--report", "report.json"]
            returned, said = run_router(command, folder)
            tired = returned == -signal.SIGXCPU
            if tired or returned is None or re.search(r"(?i)ERROR: .*(place|route|routing)", said):
                return {"lut4": luts, "mhz": None}
            if returned != 0:
                sys.exit(f"nextpnr-ecp5 failed: see {folder / 'log'}")
            report = json.loads((folder / "report.json").read_text())
            mhz = round(max(clock["achieved"] for clock in report["fmax"].values()), 1)
            return {"lut4": report["utilization"]["TRELLIS_COMB"]["used"], "mhz": mhz}

        return tools.cached("route", name, module, parameters, work, f"-{number}")

    found = [seed(number) for number in SEEDS]
    if made:
        shutil.rmtree(netlist)
    there = [one for one in found if one]
    if not there:
        return None
    # A seed that is not there yet, and one that was not routed.
    seeds = ["–" if one is None else f"{one['mhz']:g}" if one["mhz"] else "none" for one in found]
    best = max((one["mhz"] for one in there if one["mhz"]), default=None)
    # As placed, or as estimated if no seed was routed.
    placed = next((one for one in there if one["mhz"]), there[0])
    return {"lut4": placed["lut4"], "seeds": seeds, "mhz": best}


def delay(tools, name, module, parameters, text):
    """The longest path between registers in ns, of logic alone, in Yosys's model of the 7 series."""

    def work(folder):
        (folder / "shell.sv").write_text(text)
        kept = [f"setattr -mod -unset keep_hierarchy {k}" for k in KEPT if k in closure(module)]
        synth = "synth_xilinx -family xc7 -abc9 -flatten -noiopad -noclkbuf -top shell"
        cells = [*kept, "flatten", "opt_clean -purge", "select shell", "write_rtlil -selected mapped.il"]
        tools.yosys(folder, module, read(module, parameters, "shell.sv"), [synth, *cells])
        mapped = (folder / "mapped.il").read_text()
        # A cell with parameters loses its delays when `sta` makes a module of its own for it.
        mapped = re.sub(r"(?m)^    parameter .*\n", "", mapped)
        mapped = re.sub(r"(?m)^  cell \\FD(CE|PE|RE|SE) ", r"  cell \\XREG ", mapped)
        mapped = re.sub(r"(?m)^  cell \\RAMB(36|18)E1 ", r"  cell \\XRAM\1 ", mapped)
        (folder / "cells.il").write_text(mapped)
        (folder / "arcs.v").write_text(ARCS)
        library = ["read_verilog -lib -specify arcs.v", "read_verilog -lib -specify +/xilinx/cells_sim.v"]
        tools.pyosys(folder, [*library, "read_rtlil cells.il", "tee -o sta.txt sta shell"])
        said = (folder / "sta.txt").read_text()
        without = re.search(r"Module '(\w+)' has no timing arcs|type '(\S+)' not recognised", said)
        if without:
            sys.exit(f"{name}: {without[0]}: see {folder / 'sta.txt'}")
        return round(int(re.search(r"Latest arrival time in 'shell' is (\d+)", said)[1]) / 1000, 2)

    return tools.cached("delay", name, module, parameters, work)
