#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Intel's figures 13 to 16 (dm-crypt with multiple buffers, February 2013): the throughput of random writes and
reads on an encrypted disk, new over old, by file and record. New is dm-xtent, old is the kernel's own dm-crypt, by
wall time of the machine it runs on, in one guest, in turns.

Measures with bench/kernel/compare.py, or takes the results of such a run. 13 and 14 are files on a RAM disk; for 15 and 16, an SSD, there
is a file of the machine's behind the guest's block device, by the size of requests.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import plot

ROOT = Path(__file__).resolve().parents[2]
NEW, OLD = "xtent", "stock"


def size(text):
    number = int(text)
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"


def ratios(case, sector):
    """Of throughput, within each round."""
    new, old = (case["results"][f"{name}-{sector}"] for name in (NEW, OLD))
    return [o[1] / n[1] for n, o in zip(new, old)]


def figures(cases, part, kind, patterns, figure, output, paper):
    lines = [f"## Figures {figure}", "", f"The paper: {paper}.", ""]
    groups, series = [], {}
    chosen = [c for c in cases if c["part"] == part and c["kind"] == kind and c["what"] in patterns]
    lines += ["| | " + " | ".join(f"{what}, sectors of {s}" for what in patterns for s in (512, 4096)) + " |",
              "|---" * (1 + 2 * len(patterns)) + "|"]  # fmt: skip
    for request in dict.fromkeys(c["request"] for c in chosen):
        groups.append(", ".join(map(size, request.split(":"))))
        cells = []
        for what in patterns:
            case = next(c for c in chosen if c["request"] == request and c["what"] == what)
            for sector in (512, 4096):
                rounds = ratios(case, sector)
                value = statistics.median(rounds)
                series.setdefault(f"{what}, {sector}", []).append(value)
                cells.append(f"{value:.2f} ({min(rounds):.2f} to {max(rounds):.2f})")
        lines.append(f"| {groups[-1]} | " + " | ".join(cells) + " |")
    if not groups:
        raise SystemExit(f"intel: the results have no {kind} of {part}")
    plot.bars(output / f"papers-intel-{figure.replace(' ', '-')}.svg", "throughput, dm-xtent over dm-crypt", groups, series)
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="results.json of a run of compare.py, instead of a new one")
    parser.add_argument("--on", default="uml", help="the guest's kernel (%(default)s)")
    parser.add_argument("--rounds", default="4", help="(%(default)s)")
    parser.add_argument("--output", type=Path, default=ROOT / "target/bench-papers")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if not args.results:
        command = [ROOT / "bench/kernel/compare.py", "--on", args.on, "--rounds", args.rounds,
                   "--only", "files", "--only", "disk", "--output", args.output / "kernel"]  # fmt: skip
        subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)
    path = args.results or args.output / "kernel/results.json"
    try:
        results = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise SystemExit(f"intel: {path} is not what bench/kernel/compare.py writes as results.json: {error}") from None
    cases = results["cases"]
    lines = [f"{name}: {value}" for name, value in results["machine"].items()]
    lines += ["One short round: figures without meaning" if results["quick"] else f"{results['rounds']} rounds", ""]
    # What was left out of a run is left out here.
    parts = {c["part"] for c in cases}
    if "files" in parts:
        lines += figures(cases, "files", "FILE", ["randwrite", "randread"], "13 and 14", args.output,
                         "random writes above 6 times at the peak, almost all above 2; reads about 1")  # fmt: skip
    if "disk" in parts:
        lines += figures(cases, "disk", "POINT", ["write", "read"], "15 and 16", args.output,
                         "writes above 2 at the peak, most above 1.5; reads about 1")  # fmt: skip
    text = "\n".join(lines)
    (args.output / "intel.md").write_text(text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
