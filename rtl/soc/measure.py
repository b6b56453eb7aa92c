#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the cycles of the papers' ways to encrypt on the computer of this folder, step by step, and prints
them as Markdown beside the papers' figures.

usage: measure.py [--build FOLDER] [--jobs N] [--readme FILE]

  --build   where build.sh builds, target/rtl/soc if it is not said
  --jobs    simulations at a time, one for each CPU if it is not said
  --readme  writes the tables into this file, between its marks, instead of printing them

Everything is counted in a simulation, so the same on every machine.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
from pathlib import Path

SOC = Path(__file__).resolve().parent
UNIT = 512
ROWS = ["tweak", "iv_engine", "xor1", "xor2", "engine", "driver", "other"]
HEAD = ["tweak", "tweak in the cipher", "XOR 1", "XOR 2", "cipher", "driver", "other"]
# Name, level of the co-processor, mode, bytes a request, bytes.
KIB = 1024
POINTS = {
    "A": ("software, 4096 bytes a request", 1, "software", 4096, 4 * KIB),
    "B": ("mixed, 512", 1, "mixed", 512, 32 * KIB),
    "C": ("mixed, 4096", 1, "mixed", 4096, 32 * KIB),
    "C'": ("mixed, 64 KiB", 1, "mixed", 64 * KIB, 64 * KIB),
    "E": ("units, 512, tweaks by the engine", 2, "units", 512, 32 * KIB),
    "E1": ("units, 512, tweaks of 4096 bytes in one request", 2, "units", 4096, 32 * KIB),
    "E2": ("units, 512, tweaks by the CPU", 2, "units-cpu", 4096, 8 * KIB),
    "F1": ("runs, 512", 3, "runs", 512, 32 * KIB),
    "F2": ("runs, 4096", 3, "runs", 4096, 32 * KIB),
    "F": ("runs, 64 KiB", 3, "runs", 64 * KIB, 64 * KIB),
}
LONGEST = "C'"
# Journal version, table 1 (SAMA5D3, 50 MB): seconds with 512 bytes and with 4096 bytes a request.
PAPER = {
    "total": (9.09, 5.23),
    "tweak": (2.62, 1.70),
    "XOR 1": (0.31, 0.31),
    "XOR 2": (0.63, 0.41),
    "cipher, its driver": (5.31, 2.75),
    "other": (0.20, 0.03),
}
# Its rows in ours.
GROUPS = {
    "total": ROWS,
    "tweak": ["tweak"],
    "XOR 1": ["xor1"],
    "XOR 2": ["xor2"],
    "cipher, its driver": ["iv_engine", "engine", "driver"],
    "other": ["other"],
}
# Fitted on the same table: 23.3 us for each 512 bytes. The CPU has 536 MHz.
BOARD_MHZ = 536
BOARD_PACE = round(23.3 * BOARD_MHZ / (UNIT / 16))
# And 28.6 us for each request, here of two to the engine.
BOARD_SPIN = round(28.6 * BOARD_MHZ / 2)
# 50 MiB.
BOARD_BLOCKS = (50 << 20) / 16
# Latencies for the costs of the CPU's steps: of reads, of writes.
LATENCIES = [(2, 1), (40, 20), (100, 50)]


class Bench:
    def __init__(self, build, jobs):
        self.build = build
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.folders = {}
        self.known = {}

    def folder(self, level):
        if level not in self.folders:
            command = [SOC / "build.sh", "--level", str(level), "--build", self.build]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"measure.py: build.sh failed for level {level}")
            self.folders[level] = Path(done.stdout.strip())
        return self.folders[level]

    def ask(self, point, *options):
        """Starts a measurement; its result is a future."""
        _, level, mode, request, size = POINTS[point]
        key = (level, f"--mode={mode}", f"--request={request}", f"--bytes={size}", *options)
        if key not in self.known:
            self.folder(level)
            self.known[key] = self.pool.submit(self.run, key)
        return self.known[key]

    def run(self, key):
        level, *options = key
        folder = self.folder(level)
        command = ["nice", folder / "simulate", f"--program={folder / 'program.bin'}", *options]
        command = [part for word in command for part in str(word).split("=", 1) if part]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        result = json.loads(done.stdout)
        if sum(result["rows"].values()) != result["cycles"]:
            raise SystemExit(f"the rows do not sum to the total: {result}")
        return result


def per_unit(result, rows):
    return sum(result["rows"][row] for row in rows) * UNIT / result["bytes"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def breakdown(asked):
    rows = []
    first = per_unit(asked["B"].result(), ROWS)
    for point, future in asked.items():
        result = future.result()
        total = per_unit(result, ROWS)
        cells = [f"{per_unit(result, [row]):.0f}" for row in ROWS]
        rows.append([f"{point}: {POINTS[point][0]}", *cells, f"{total:.0f}", f"{first / total:.2f}"])
    return table(["cycles for 512 bytes", *HEAD, "total", "gain"], rows)


def beside(asked):
    """Factors and shares of the mixed ways, and the paper's."""
    results = {point: asked[point].result() for point in ("B", "C", LONGEST)}
    rows = []
    for name, group in GROUPS.items():
        cycles = {point: per_unit(result, group) for point, result in results.items()}
        shares = {point: 100 * cycles[point] / per_unit(results[point], ROWS) for point in results}
        short, long = PAPER[name]
        cells = [f"{cycles['B'] / cycles['C']:.2f}", f"{cycles['B'] / cycles[LONGEST]:.2f}", f"{short / long:.2f}"]
        cells += [f"{shares['B']:.0f} %", f"{100 * short / PAPER['total'][0]:.0f} %"]
        cells += [f"{shares['C']:.0f} %", f"{100 * long / PAPER['total'][1]:.0f} %"]
        rows.append([name, *cells])
    head = ["", "512 to 4096", "512 to 64 KiB", "paper, 512 to 4096"]
    return table([*head, "share with 512", "paper", "share with 4096", "paper"], rows)


def line(bench, latency, points, rows):
    """Cycles of a request: for each unit, by its longest requests; and beside that, by one of 512 bytes."""
    options = [f"--read-latency={latency[0]}", f"--write-latency={latency[1]}"]
    short, page, long = (bench.ask(point, *options).result() for point in points)
    units = {point: POINTS[point][3] / UNIT for point in points}
    each = lambda result, point: per_unit(result, rows) * units[point]
    slope = (each(long, points[2]) - each(page, points[1])) / (units[points[2]] - units[points[1]])
    return slope, each(short, points[0]) - slope


def costs(bench):
    mixed, runs = ("B", "C", "C'"), ("F1", "F2", "F")
    blocks = UNIT / 16
    for latency in LATENCIES:
        for point in (*mixed, *runs, "A", "E"):
            bench.ask(point, f"--read-latency={latency[0]}", f"--write-latency={latency[1]}")
    rows = {
        "masks, a block (made twice)": lambda at: line(bench, at, mixed, ["tweak"])[0] / blocks / 2,
        "XOR 1, a block": lambda at: line(bench, at, mixed, ["xor1"])[0] / blocks,
        "XOR 2, a block": lambda at: line(bench, at, mixed, ["xor2"])[0] / blocks,
        "masks and XORs, a request more": lambda at: line(bench, at, mixed, ["tweak", "xor1", "xor2"])[1],
        "AES-256 by the CPU, a block": lambda at: per_block(bench, at),
        "mixed: driver and the rest, a request (two of the engine)": lambda at: line(
            bench, at, mixed, ["driver", "other"]
        )[1],
        "units: driver and the rest, a request to the engine": lambda at: per_request(bench, at),
        "runs: driver and the rest, a request": lambda at: line(bench, at, runs, ["driver", "other"])[1],
        "runs: engine, a unit": lambda at: line(bench, at, runs, ["engine"])[0],
        "runs: engine, a request more": lambda at: line(bench, at, runs, ["engine"])[1],
        "cycles an instruction, mixed 4096 without the engine": lambda at: cpi(bench, at),
    }
    cells = [[name, *(f"{cost(at):.1f}" for at in LATENCIES)] for name, cost in rows.items()]
    return table(["cycles", *(f"latency {read}, {write}" for read, write in LATENCIES)], cells)


def per_block(bench, latency):
    options = [f"--read-latency={latency[0]}", f"--write-latency={latency[1]}"]
    return per_unit(bench.ask("A", *options).result(), ["engine"]) / (UNIT / 16)


def per_request(bench, latency):
    options = [f"--read-latency={latency[0]}", f"--write-latency={latency[1]}"]
    result = bench.ask("E", *options).result()
    return (result["rows"]["driver"] + result["rows"]["other"]) / result["requests"]


def cpi(bench, latency):
    options = [f"--read-latency={latency[0]}", f"--write-latency={latency[1]}"]
    result = bench.ask("C", *options).result()
    return (result["cycles"] - result["rows"]["engine"] - result["rows"]["iv_engine"]) / result["instructions"]


TEXT = """### Encryption

{encryption}

### Decryption, in place

{decryption}

### Beside the paper

Encryption, and the journal version's table 1.

{beside}

### With the paper's engine

The same with every 16 bytes that the engine writes held back for {pace} cycles, so that 512 bytes take {each} cycles: 23.3 µs of a CPU
of 536 MHz, as fitted on that table.

{paced}

{paced_beside}

### And with its software

And with a driver that takes {spin} cycles at least for each request to the engine, two of which make a request of ours: 28.6 µs, fitted on the
same table, on its row of the cipher. So the factors of that row, and of a total that is mostly that row, show that a fixed cost a
request explains the paper's; they are no measurement of it. The other rows are none of the fit.

{spun}

{spun_beside}

### What a step costs

By the lines through requests of 512 bytes, 4096 bytes and 64 KiB: an engine's request costs so much for each unit or block, and so much
more. With a memory that answers at once, in the first column, it is nearly as if caches held everything. The paper's board took {board} cycles
of its CPU for a block, with 4096 bytes a request, in tweak (all of it, made once or twice), XOR 1 and XOR 2.

{costs}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", SOC.parents[1] / "target"))
    parser.add_argument("--build", type=Path, default=target / "rtl" / "soc")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--readme", type=Path)
    arguments = parser.parse_args()
    bench = Bench(arguments.build, arguments.jobs)

    base = [f"--read-latency={LATENCIES[1][0]}", f"--write-latency={LATENCIES[1][1]}"]
    asked = {point: bench.ask(point, *base) for point in POINTS}
    back = {point: bench.ask(point, *base, "--decrypt=") for point in POINTS}
    slow = [point for point in POINTS if point not in ("A", "E1", "E2")]
    paced = {point: bench.ask(point, *base, f"--pace={BOARD_PACE}") for point in slow}
    software = [*base, f"--pace={BOARD_PACE}", f"--spin={BOARD_SPIN}"]
    spun = {point: bench.ask(point, *software) for point in ("B", "C", LONGEST)}
    board = [PAPER[row][1] * BOARD_MHZ * 1e6 / BOARD_BLOCKS for row in ("tweak", "XOR 1", "XOR 2")]
    text = TEXT.format(
        encryption=breakdown(asked),
        decryption=breakdown(back),
        beside=beside(asked),
        pace=BOARD_PACE,
        each=BOARD_PACE * UNIT // 16,
        paced=breakdown(paced),
        paced_beside=beside(paced),
        spin=BOARD_SPIN,
        spun=breakdown(spun),
        spun_beside=beside(spun),
        board=", ".join(f"{cycles:.0f}" for cycles in board),
        costs=costs(bench),
    )
    if arguments.readme is None:
        print(text)
        return
    readme = arguments.readme.read_text(encoding="utf-8")
    begin, end = "<!-- measured -->\n", "<!-- end -->"
    if readme.count(begin) != 1 or readme.count(end) != 1:
        raise SystemExit(f"measure.py: {arguments.readme} has not both marks")
    before, rest = readme.split(begin)
    arguments.readme.write_text(f"{before}{begin}\n{text}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
