#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the cycles that the co-processors of rtl/engine take for requests, by their own counters,
and writes them beside the figures of the papers: docs/coprocessor-figures.md and the curve beside it.

usage: figures.py [--models FOLDER] [--measure PROGRAM] [--output FOLDER] [--quick]

Everything is counted in a simulation, so the same on every machine. --quick: one figure of each kind, and
nothing is written.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = ["fetch", "source", "cipher", "destination", "completion", "interrupt", "idle"]
# Cycles from an interrupt to the next doorbell: none; a kernel that answers at once; one that is slow.
SOFTWARE = [0, 200, 1000, 5000]
LATENCIES = [10, 40, 100, 200]
BUSES = {4: "-bus4", 8: "-bus8", 16: ""}
# Name, engine, options: the papers' configurations and what they do not have. For a whole run 64 KiB.
MODELS = [
    ("mixed, 512 bytes a request", "ecb", ["--work=mixed", "--request=512"]),
    ("mixed, 4096", "ecb", ["--work=mixed", "--request=4096"]),
    ("mixed, whole runs", "ecb", ["--work=mixed", "--request=65536"]),
    ("XTS, 512 bytes a request", "xts-512", ["--work=units", "--request=512"]),
    ("runs, 4096 bytes a request", "xts", ["--work=runs", "--request=4096"]),
    ("runs, whole", "xts", ["--work=runs", "--request=65536"]),
    ("runs, whole, submitted together", "xts", ["--work=runs", "--request=65536", "--together"]),
]
# Journal version, table 1, DMA and encryption of 50 MB in seconds; figure 6; fitted on that table.
PAPER_512, PAPER_4096 = 5.31, 2.75
PAPER_FIGURE_6 = 2.07
BOARD_FIXED, BOARD_EACH = 28.6, 23.3
SIZES = [512 << i for i in range(12)]
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]


class Bench:
    def __init__(self, measure, models):
        self.measure = measure
        self.models = models
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.known = {}

    def ask(self, design, options):
        """Starts a measurement; its result is a future."""
        key = (design, *options)
        if key not in self.known:
            self.known[key] = self.pool.submit(self.run, key)
        return self.known[key]

    def run(self, key):
        design, *options = key
        command = [self.measure, "--models", self.models, "--design", design, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
        result = json.loads(done.stdout)
        if sum(result["rows"].values()) != result["cycles"]:
            raise SystemExit(f"the rows do not sum to the total: {result}")
        return result


def per_512(result, cycles=None):
    return (result["cycles"] if cycles is None else cycles) * 512 / result["bytes"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def breakdown(bench):
    asked = [(name, bench.ask(design, [*options, "--bytes=262144"])) for name, design, options in MODELS]
    first = None
    rows = []
    for name, future in asked:
        result = future.result()
        total = per_512(result)
        first = first or total
        cells = [f"{per_512(result, result['rows'][row]):.1f}" for row in ROWS]
        rows.append([name, *cells, f"{total:.1f}", f"{first / total:.2f}"])
    return table(["model", *ROWS, "total", "gain"], rows)


def sizes(bench):
    def options(size, software):
        return ["--work=ecb", f"--request={size}", f"--bytes={max(size, 65536)}", f"--software={software}"]

    asked = {(size, s): bench.ask("ecb", options(size, s)) for size in SIZES for s in SOFTWARE}
    rate, time = [], []
    for size in SIZES:
        cells, spans = [], []
        for software in SOFTWARE:
            result = asked[size, software].result()
            base = per_512(asked[512, software].result())
            cells.append(f"{base / per_512(result):.2f}")
            spans.append(f"{result['cycles'] / result['requests']:.0f}")
        rate.append([shown(size), *cells])
        time.append([shown(size), *spans])
    head = ["bytes a request", *(f"{s} cycles of software" for s in SOFTWARE)]
    return table(head, rate), table(head, time), asked


def shown(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1024 else f"{size}"


def sweep(bench):
    asked = {}
    for name, design, options in MODELS[:6]:
        for bus, suffix in BUSES.items():
            for latency in LATENCIES:
                more = [*options, "--bytes=65536", f"--read-latency={latency}", f"--write-latency={latency // 2}"]
                asked[name, bus, latency] = bench.ask(design + suffix, more)
    rows = []
    for name, _, _ in MODELS[:6]:
        for bus in BUSES:
            cells = [f"{per_512(asked[name, bus, latency].result()):.1f}" for latency in LATENCIES]
            rows.append([name, bus, *cells])
    return table(["model", "bytes of the bus", *(f"latency {x}" for x in LATENCIES)], rows)


def gain(ratio):
    """Of 4096 over 512 bytes a request, by fixed cost over the cost of 512 bytes."""
    return 8 * (ratio + 1) / (ratio + 8)


def points(bench, asked):
    """(label, fixed / cost of 512 bytes, gain) as counted, by the software's share."""
    found = []
    for software in SOFTWARE:
        # What a byte costs shows in the longest requests, what a request costs is the rest of a short one.
        long, longer = asked[SIZES[-2], software].result(), asked[SIZES[-1], software].result()
        each = (longer["cycles"] / longer["requests"] - long["cycles"] / long["requests"]) / (SIZES[-2] / 512)
        short, page = asked[512, software].result(), asked[4096, software].result()
        fixed = short["cycles"] / short["requests"] - each
        found.append((f"{software}", fixed / each, per_512(short) / per_512(page)))
    return found


def curve(counted):
    """The gain as a picture, logarithmic from 0.1 to 1000."""
    import math

    width, height, left, top = 640, 360, 50, 20
    x = lambda ratio: left + (math.log10(ratio) + 1) / 4 * (width - left - 20)
    y = lambda value: height - 40 - (value - 1) / 7 * (height - 40 - top)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for decade in (0.1, 1, 10, 100, 1000):
        out.append(f'<line x1="{x(decade):.1f}" x2="{x(decade):.1f}" y1="{y(1):.1f}" y2="{y(8):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x(decade):.1f}" y="{y(1) + 15:.1f}" text-anchor="middle">{decade:g}</text>')
    for value in range(1, 9):
        out.append(f'<line x1="{x(.1):.1f}" x2="{x(1000):.1f}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
    path = " ".join(
        f"{'L' if i else 'M'}{x(10 ** (i / 25 - 1)):.1f} {y(gain(10 ** (i / 25 - 1))):.1f}" for i in range(101)
    )
    out.append(f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.5"/>')
    for (label, ratio, value), colour in zip(counted, COLOURS):
        out.append(f'<circle cx="{x(ratio):.1f}" cy="{y(value):.1f}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{x(ratio) + 8:.1f}" y="{y(value) + 12:.1f}">{label} cycles of software</text>')
    board, seen = BOARD_FIXED / BOARD_EACH, PAPER_512 / PAPER_4096
    for value, label in ((seen, "SAMA5D3, table 1"), (PAPER_FIGURE_6, "SAMA5D2, figure 6")):
        out.append(f'<rect x="{x(board) - 4:.1f}" y="{y(value) - 4:.1f}" width="8" height="8" fill="#ff7f0e"/>')
        right = value == seen
        out.append(
            f'<text x="{x(board) + (8 if right else -8):.1f}" y="{y(value) + (10 if right else -4):.1f}" '
            f'text-anchor="{"start" if right else "end"}">{label}</text>'
        )
    out.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">fixed cost of a request / cost of 512 bytes</text>')
    out.append(f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">gain of 4096 bytes a request over 512</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


TEXT = """# The co-processor's cycles

Written by `make bench-engine`, from the counters of the simulated engines: the same on every machine, and no claim about any
silicon. Cycles for 512 bytes. The bus has 16 bytes, a read's first data comes 40 cycles after its address, a write's response 20
after its last data, unless it is said otherwise; data units have 512 bytes, keys 256 bits. Requests go one after the other, each when
the one before has interrupted, as in the papers' drivers; what software takes from an interrupt to the next doorbell is
a parameter, and nothing here. The rows are those of [rtl/engine](../rtl/engine/README.md#counters), and sum to the total.

## The models

*Mixed*: blocks on the engine, and before each request of data one that encrypts its units' tweaks; the CPU's share (powers of alpha,
both exclusive-ors) is not in the table. *XTS*: one unit a request, whose tweak a request before it encrypts. *Runs*: the engine does all of
it. The gain is over the first row.

{breakdown}

In the papers (journal version, table 1, SAMA5D3) DMA and encryption took {paper_512} s with 512 bytes a request and {paper_4096} s with
4096, a gain of {paper_gain:.2f}.

## ECB by the size of a request

As in the journal version's figure 6: the rate, over that of requests of 512 bytes; there 4096 bytes bring {figure_6} (SAMA5D2).

{rate}

As in GreHack's figure 7: cycles of one request.

{time}

## The gain as a curve

What 4096 bytes a request bring over 512 follows from one number, the fixed cost of a request over what 512 bytes cost: with *f* it is
8 (f + 1) / (f + 8). The boards of the papers have 1.23 (28.6 µs over 23.3 µs, fitted on table 1); the engine here is fast, so that
each cycle of software weighs more.

![gain](coprocessor-gain.svg)

| software, cycles | fixed / cost of 512 bytes | gain, counted | by the formula |
|---|---|---|---|
{points}

## Memory and bus

A read's latency in cycles; a write's is half of it.

{sweep}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--models", type=Path, default=target / "rtl/cosim")
    parser.add_argument("--measure", type=Path, default=target / "cosim/release/xtent-engine-measure")
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    bench = Bench(args.measure, args.models)
    if args.quick:
        print("\n".join(breakdown(bench)))
        return
    rate, time, asked = sizes(bench)
    counted = points(bench, asked)
    text = TEXT.format(
        breakdown="\n".join(breakdown(bench)),
        paper_512=PAPER_512,
        paper_4096=PAPER_4096,
        paper_gain=PAPER_512 / PAPER_4096,
        figure_6=PAPER_FIGURE_6,
        rate="\n".join(rate),
        time="\n".join(time),
        points="\n".join(f"| {name} | {ratio:.2f} | {value:.2f} | {gain(ratio):.2f} |" for name, ratio, value in counted),
        sweep="\n".join(sweep(bench)),
    )
    (args.output / "coprocessor-figures.md").write_text(text)
    (args.output / "coprocessor-gain.svg").write_text(curve(counted))
    print(text)


if __name__ == "__main__":
    sys.exit(main())
