#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""From which CPU, and from which length of a run on, an engine pays: what a request takes of the CPU in the co-processor's
driver, with a device that completes at once and enciphers nothing, against what the CPU takes to encipher the same
run by itself. By the time of the machine that it runs on, in User Mode Linux.

What a request costs on a bus and by its interrupt is not measured but a parameter. Points take turns within a boot of the
guest, which has an instruction set of dm-xtent's; of each boot the quickest of some slices of 2 ms of the CPU's time counts, over the boots
the median. The result goes to pays.md and papers-pays.svg in the output folder.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

import guest
import plot

HERE = Path(__file__).resolve().parent
LENGTHS = [512 << i for i in range(12)]
SECTORS = [512, 4096]
ENGINE = "xts-aes-xtent-pci"
GENERIC = "xts(ecb(aes-lib))"
MANY = 16
ISAS = {"aesni": "AES-NI", "vaes256": "VAES 256", "vaes512": "VAES 512"}
# Of a request: bus and interrupt, in nanoseconds.
FIXED = [0, 500, 1000, 2000, 4000]
# A request of a run, alone: by docs/coprocessor-figures.md ("runs, 4096 bytes a request": 448 cycles, "whole": 16 bytes a cycle).
ENGINE_CYCLES, ENGINE_BYTES = 192, 16
CLOCKS = [100, 250, 500, 1000]


def crossover(lengths, engine, software):
    """The least length from which on the engine takes no more than software, straight between points on axes that are
    both logarithmic; None if it takes more at the longest."""
    gains = [math.log(s / e) for e, s in zip(engine, software)]
    losses = [i for i, gain in enumerate(gains) if gain < 0]
    if not losses:
        return lengths[0]
    last = losses[-1]
    if last == len(lengths) - 1:
        return None
    return lengths[last] * (lengths[last + 1] / lengths[last]) ** (gains[last] / (gains[last] - gains[last + 1]))


def points():
    """Lines for dm-xtent's parameter `bench`."""
    out = [f"nothing 512 4096 {n} write" for n in (1, MANY)]
    for sector in SECTORS:
        for length in LENGTHS:
            if length < sector:
                continue
            for way in ("write", "read"):
                out += [f"{ENGINE} {sector} {length} {n} {way}" for n in (1, MANY)]
                out += [f"{who} {sector} {length} 1 {way}" for who in (GENERIC, "isa")]
    return out


class Results:
    def __init__(self):
        self.cpu, self.calls, self.accesses, self.target = {}, {}, {}, {}
        self.off = []

    def take(self, isa, text):
        """What a guest has printed. False if its CPU has no such instructions."""
        lines = [line.split() for line in text.splitlines()]
        if ["MISSING", isa] in lines:
            return False
        turns = {}
        for line in lines:
            if line[:1] == ["POINT"]:
                turns.setdefault(tuple(line[1:6]), []).append(list(map(int, line[6:])))
        if len(turns) != len(points()):
            raise SystemExit(f"pays: the guest has measured {len(turns)} of {len(points())} points\n{text}")
        for (who, sector, length, many, way), told in turns.items():
            point = (ISAS[isa] if who == "isa" else who, int(sector), int(length), int(many), way)
            for count, cpu, wall, _, requests, writes, reads in told:
                if (requests > 0) != (who == ENGINE) or not count:
                    raise SystemExit(f"pays: {who}: {count} requests were measured, {requests} went to the device")
                # The guest does nothing else: but for what others took of the CPU, both are one.
                self.off.append(abs(wall / cpu - 1))
                if requests:
                    self.accesses[point] = (writes / requests, reads / requests)
            self.cpu.setdefault(point, []).append(min(cpu / count for count, cpu, *_ in told))
            self.calls.setdefault(point, []).append(min(calls / count for count, _, _, calls, *_ in told))
        rows = {}
        for line in lines:
            if line[:1] == ["TARGET"]:
                rows.setdefault(int(line[1]), []).append({n: int(line[line.index(n) + 1]) for n in ("requests", "other", "engine")})
        for length, told in rows.items():
            parts = [{n: b[n] - a[n] for n in a} for a, b in zip(told, told[1:])]
            best = min(parts, key=lambda part: (part["other"] + part["engine"]) / part["requests"])
            self.target.setdefault(length, []).append((best["other"] / best["requests"], best["engine"] / best["requests"]))
        return True

    def of(self, who, sector, length, many=1, way="write"):
        return statistics.median(self.cpu[who, sector, length, many, way])

    def line(self, who, sector, many=1, way="write", more=0):
        return [self.of(who, sector, n, many, way) + more for n in LENGTHS if n >= sector]


def measure(args, modules):
    results = Results()
    missing = set()
    for boot in range(args.rounds):
        for isa in ISAS:
            if isa in missing:
                continue
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder)
                (work / "list").write_text("\n".join(points()) + "\n")
                (work / "isa").write_text(isa + "\n")
                files = {"list": work / "list", "isa": work / "isa",
                         **{name: modules / name for name in ("dm-xtent.ko", "xtent_pci.ko")}}  # fmt: skip
                engine = guest.start_device(args, args.design, work)
                try:
                    text = guest.run(
                        guest.ROOT / "scripts/guest.sh", "--on", args.on, "--timeout", args.timeout, "--engine", work / "engine",
                        *(word for name, path in files.items() for word in ("--file", f"{name}={path}")), HERE / "pays.sh",
                    )  # fmt: skip
                finally:
                    engine.terminate()
                    engine.wait()
            if not results.take(isa, text):
                missing.add(isa)
            print(f"pays: round {boot + 1} of {args.rounds}, {isa}{': this CPU has none' if isa in missing else ''}", file=sys.stderr)
    return results, [name for isa, name in ISAS.items() if isa not in missing]


def size(length):
    if length is None:
        return "never"
    if length == LENGTHS[0]:
        return "all"
    return f"{length / 1024:.1f} KiB" if length < 10240 else f"{length / 1024:.0f} KiB"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows), ""]


def report(results, classes):
    """Markdown; `classes` are of CPUs, by who enciphers."""
    out = []
    for sector in SECTORS:
        head = ["bytes", "engine, write", "of it, the call", "read", "16 at a time, write", "read", *classes]
        rows = []
        for n in LENGTHS:
            if n < sector:
                continue
            engine = [results.of(ENGINE, sector, n, many, way) for many in (1, MANY) for way in ("write", "read")]
            calls = statistics.median(results.calls[ENGINE, sector, n, 1, "write"])
            cells = [engine[0], calls, *engine[1:], *(results.of(who, sector, n) for who in classes.values())]
            rows.append([str(n), *(f"{cell:,.0f}" for cell in cells)])
        out += [f"Nanoseconds of the CPU for a run, sectors of {sector} bytes", "", *table(head, rows)]
    head = ["CPU", "sectors", *(f"{fixed / 1000:g} us" for fixed in FIXED)]
    for many, words in ((1, "one request at a time"), (MANY, f"{MANY} requests at a time")):
        rows = []
        for name, who in classes.items():
            for sector in SECTORS:
                lengths = [n for n in LENGTHS if n >= sector]
                cells = []
                for fixed in FIXED:
                    found = crossover(lengths, results.line(ENGINE, sector, many, more=fixed), results.line(who, sector))
                    cells.append("all" if found == lengths[0] else size(found))
                rows.append([name, str(sector), *cells])
        out += [f"An engine saves time of the CPU from so many bytes on, {words}, by what bus and interrupt take of the CPU for a request", "",
                *table(head, rows)]  # fmt: skip
    rows = []
    for name, who in classes.items():
        rate = 65536 / results.of(who, 512, 65536)
        cells = []
        for mhz in CLOCKS:
            engine = [results.of(ENGINE, 512, n) + 1000 + (ENGINE_CYCLES + n / ENGINE_BYTES) * 1000 / mhz for n in LENGTHS]
            cells.append(size(crossover(LENGTHS, engine, results.line(who, 512))))
        rows.append([name, f"{rate:.2f}", f"{rate * 1000 / ENGINE_BYTES:.0f}", *cells])
    head = ["CPU", "GB/s, 64 KiB", "as fast: engine, MHz", *(f"{mhz} MHz" for mhz in CLOCKS)]
    out += ["A single request ends earlier from so many bytes on, by the engine's clock, with 1 us for bus and interrupt (sectors of 512 bytes)", "",
            *table(head, rows)]  # fmt: skip
    rows = []
    for many in (1, MANY):
        writes, reads = results.accesses[ENGINE, 512, 4096, many, "write"]
        api = results.of("nothing", 512, 4096, many)
        rows.append([str(many), f"{writes:.2f}", f"{reads:.2f}", f"{api:.0f}"])
    out += ["Of a request to the engine", "", *table(["at a time", "registers written", "read", "the crypto API alone and the loop, ns"], rows)]
    rows = [[str(n), *(f"{statistics.median(part):,.0f}" for part in zip(*told))] for n, told in sorted(results.target.items())]
    out += ["Of a write through dm-xtent, ns", "", *table(["bytes", "dm-xtent itself", "its request"], rows)]
    out.append(f"The CPU's time and the time that passed were apart by {statistics.median(results.off) * 100:.2f} % in the median, "
               f"in {sum(off > 0.02 for off in results.off)} of {len(results.off)} slices by more than 2 %.")  # fmt: skip
    return out


def draw(path, results, classes):
    series = {f"engine{f', {us} us' if us else ''}": results.line(ENGINE, 512, more=us * 1000) for us in (0, 1, 4)}
    series |= {name: results.line(who, 512) for name, who in classes.items()}
    plot.lines(path, "run, KiB (sectors of 512 bytes)", "us of the CPU", [n / 1024 for n in LENGTHS],
               {name: [ns / 1000 for ns in line] for name, line in series.items()}, logarithmic=True)  # fmt: skip


def machine():
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
    info = {key.strip(): value.strip() for key, value in info.items()}
    return ", ".join(f"{name}{info[key]}" for name, key in (("", "model name"), ("family ", "cpu family"), ("model ", "model")) if key in info)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", guest.ROOT / "target"))
    parser.add_argument("--on", default="uml-7-fast", help="the guest's kernel (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="boots with each instruction set (%(default)s)")
    parser.add_argument("--output", type=Path, default=target / "bench-papers")
    parser.add_argument("--sim", type=Path, default=target / "cosim/release/xtent-engine-sim")
    parser.add_argument("--models", type=Path, default=target / "rtl/cosim")
    parser.add_argument("--design", default="xts-bus4", help="of the device that is there to be tested (%(default)s)")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for a guest (%(default)s)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    args.output.mkdir(parents=True, exist_ok=True)
    results, isas = measure(args, guest.build_modules(args.on, CONFIG_XTENT_PCI_INSTANT="y", CONFIG_XTENT_BENCH="y"))
    classes = {"no AES": GENERIC, **{name: name for name in isas}}
    lines = [f"{machine()}; {args.on}; boots with each instruction set: {args.rounds}. Times are this machine's.", "", *report(results, classes)]
    (args.output / "pays.md").write_text("\n".join(lines) + "\n")
    draw(args.output / "papers-pays.svg", results, classes)
    print("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
