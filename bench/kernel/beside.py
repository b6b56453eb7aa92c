#!/usr/bin/env python3
"""Puts runs of compare.py beside each other: kernels, numbers of CPUs, instructions.

usage: beside.py [--output FOLDER] RESULTS.JSON...

One table and one plot (beside.md, beside.svg) of what everybody costs above the RAM disk, CPU seconds per
GB with the largest requests of the first run. Differences and ratios are taken within a round of one boot, so
rows of one run are compared exactly; from run to run compare ratios, and the first row that they share, AES alone.
"""

import argparse
import json
import pathlib
import statistics
from html import escape

TITLES = {"stock": "dm-crypt", "stock-noqueue": "dm-crypt, no queues", "inline": "dm-inlinecrypt", "xtent": "dm-xtent"}
COLOURS = {"stock": "#d62728", "stock-noqueue": "#ff9896", "inline": "#2ca02c", "xtent": "#1f77b4"}
COLUMNS = [("read", "512"), ("write", "512"), ("read", "4096"), ("write", "4096")]
# Names of facts.
STOCK, OURS = "dm-crypt's driver", "dm-xtent's instruction set"
BAR, GAP, HEIGHT, LEFT, TOP = 16, 14, 220, 50, 46


class Run:
    """One results.json."""

    def __init__(self, path):
        self.all = json.loads(pathlib.Path(path).read_text())
        self.points = {(case["what"], case["request"]): case["results"]
                       for case in self.all["cases"] if (case["part"], case["kind"]) == ("ram", "POINT")}
        if not self.points:
            raise SystemExit(f"{path}: has no sweep on the RAM disk: run compare.py with --only ram")
        self.aes = statistics.median(self.all["aes_alone"]["ram"])

    def title(self):
        facts = self.all["machine"]
        # "..., 2 cores; 1 for the guest"
        cpus = int(facts["CPU"].rsplit("; ", 1)[1].split()[0])
        kernel = facts["the guest's kernel"].removeprefix("User Mode Linux ")
        return f"Linux {kernel}, {cpus} CPU{'s' if cpus > 1 else ''}, {facts[STOCK]} / {facts[OURS]}"

    def above(self, request, who, direction, sector):
        """Of each round, above the device; nothing where that one took no part."""
        name, _, how = who.partition("-")
        name = "-".join(filter(None, (name, sector, how)))
        results = self.points.get((direction, request), {})
        return [a[0] - b[0] for a, b in zip(results.get(name, []), results.get("raw", []))]


def table(runs, request):
    lines = ["| kernel | who | " + " | ".join(f"{d}, {s}" for d, s in COLUMNS) + " |", "|" + "---|" * (2 + len(COLUMNS))]
    for run in runs:
        lines.append(f"| {run.title()} | AES alone | " + " | ".join([f"{run.aes:.3f}"] * len(COLUMNS)) + " |")
        for who, title in TITLES.items():
            cells = []
            for direction, sector in COLUMNS:
                mine, stock = (run.above(request, one, direction, sector) for one in (who, "stock"))
                if not mine:
                    break
                ratio = statistics.median(a / b for a, b in zip(mine, stock))
                cells.append(f"{statistics.median(mine):.3f}" + ("" if who == "stock" else f" ({ratio:.2f})"))
            if cells:
                lines.append(f"| | {title} | " + " | ".join(cells) + " |")
    return lines


def text(x, y, words, size=11, anchor="middle"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def plot(runs, request):
    """A group of bars for each run and column."""
    bars = [[(who, statistics.median(values)) for who in TITLES if (values := run.above(request, who, *column))]
            for column in COLUMNS for run in runs]
    top = max(value for group in bars for _, value in group)
    step = 0.05 if top < 0.4 else 0.1
    parts, x = [], LEFT
    for mark in range(int(top / step) + 1):
        y = TOP + HEIGHT * (1 - mark * step / top)
        parts.append(text(LEFT - 8, y + 4, f"{mark * step:.2f}", anchor="end"))
        parts.append(f'<line x1="{LEFT}" x2="LAST" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
    for number, (column, group) in enumerate((column, index) for column in COLUMNS for index in range(len(runs))):
        start = x
        for who, value in bars[number]:
            height = HEIGHT * max(value, 0) / top
            parts.append(f'<rect x="{x}" y="{TOP + HEIGHT - height:.1f}" width="{BAR - 2}" height="{height:.1f}" fill="{COLOURS[who]}"/>')
            x += BAR
        parts.append(text((start + x) / 2, TOP + HEIGHT + 16, "ABCDEFGH"[group]))
        if group == len(runs) - 1:
            width = sum(len(bars[number - i]) * BAR for i in range(len(runs))) + GAP * (len(runs) - 1)
            parts.append(text(x - width / 2, TOP + HEIGHT + 34, f"{column[0]}, {column[1]}", 12))
            x += GAP
        x += GAP
    y = TOP + HEIGHT + 56
    for index, run in enumerate(runs):
        parts.append(text(LEFT, y, f"{'ABCDEFGH'[index]}: {run.title()}", anchor="start"))
        y += 16
    place = LEFT
    for who, title in TITLES.items():
        parts.append(f'<rect x="{place}" y="18" width="14" height="10" fill="{COLOURS[who]}"/>')
        parts.append(text(place + 20, 27, title, 12, "start"))
        place += 40 + 7 * len(title)
    width = max(x, place)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" font-family="sans-serif">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts).replace("LAST", str(x)) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("target/bench-kernel"))
    parser.add_argument("results", nargs="+", help="of compare.py; at most eight")
    args = parser.parse_args()
    runs = [Run(path) for path in args.results[:8]]
    request = str(max(int(request) for _, request in runs[0].points))
    lines = table(runs, request)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "beside.md").write_text("\n".join(lines) + "\n")
    (args.output / "beside.svg").write_text(plot(runs, request))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
