#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The papers' experiments with dm-xtent, the driver of the co-processor and the simulated co-processor, in a guest
whose time is simulated: what the engine does takes its cycles, what the CPU does takes what its instructions, counted
by count.py, take on the papers' CPU.

Experiments: model (that the guest's times are what the model says), tables (1 and 2), speed (figure 5), ecb (figure 6, GreHack's 6
and 7), files (GreHack's
figure 8), digest (figure 4 and GreHack's procedure), clock (what the engine's clock makes of table 1). All of them without a name. Results are printed and go, with
plots, to the output folder. (From where on an engine pays, by this machine's time: pays.py, or BENCH=pays.)
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import guest
import papers
import plot

HERE = Path(__file__).resolve().parent
ROWS = ["other", "tweak", "iv_engine", "xor1", "xor2", "engine"]
PER = ["bio", "request", "piece", "sector", "block"]
DIRECTIONS = ["encryption", "decryption"]
# dm-xtent's clock has steps of 256 ns, as User Mode Linux's.
STEP = 256


@dataclass
class Point:
    """A measurement: transfers of so many bytes through a mapping."""

    name: str
    cipher: str
    request: int = 0
    sector: int = 512
    direction: str = "encryption"
    bytes: int = 262144
    count: int = 1
    bits: int = 256
    software: bool = False
    cpu_tweak: bool = False
    ns: dict = field(default_factory=dict)
    sectors: int = 0
    requests: int = 0

    def per_sector(self, *rows):
        """Microseconds for 512 bytes."""
        return sum(self.ns[row] for row in rows or ROWS) / (self.bytes * self.count / 512) / 1000

    def rate(self):
        """Megabytes a second."""
        return self.bytes * self.count / sum(self.ns[row] for row in ROWS) * 1000


class Cpu:
    """What the rows take on a CPU, in picoseconds."""

    def __init__(self, costs, mhz, cpi):
        self.costs = costs
        self.mhz = mhz
        self.cpi = cpi

    def picoseconds(self, instructions):
        return round(instructions * self.cpi / self.mhz * 1e6)

    def cost(self, point):
        """The parameter `cost` of dm-xtent."""
        counted = self.costs["engine"][point.direction]["instructions"]
        rows = {row: dict(counted[row]) for row in ROWS}
        if point.software:
            # Its work is in the row of the engine, and nothing is waited for.
            one = self.costs["software"][point.direction][f"aes-{point.bits}"]
            rows["engine"] = {per: 0 for per in PER} | {"sector": one["xts_sector"], "block": one["xts_block"]}
        else:
            for row, more in self.costs["kernel"]["instructions_by_request"].items():
                rows[row]["request"] += more
            if point.cpu_tweak:
                # The driver has the CPU encrypt the IV.
                rows["engine"]["request"] += self.costs["software"]["encryption"][f"aes-{point.bits}"]["block"]
        return [self.picoseconds(rows[row][per]) for row in ROWS for per in PER]


class Bench:
    def __init__(self, args):
        self.args = args
        self.modules = None

    def build(self):
        if not self.modules:
            self.modules = guest.build_modules(self.args.on, CONFIG_XTENT_COST_MODEL="y", CONFIG_XTENT_RUN_TEST="m")
        return self.modules

    def measure(self, points, cpu, design=None, mhz=None):
        """Carries the points out in one guest, with that engine, or none and the time of all but the model 0."""
        lines = [
            " ".join(map(str, [p.name, p.cipher, p.request, p.sector, p.direction, p.bytes, p.count, p.bits]))
            + " " + ",".join(map(str, cpu.cost(p)))
            for p in points
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "list").write_text("\n".join(lines) + "\n")
            text = self.guest(work, HERE / "job.sh", ["--file", f"list={work}/list"], design, mhz)
        for point in points:
            self.take(point, text)
        return points

    def guest(self, work, job, more, design, mhz):
        """What a guest with that engine prints."""
        modules = self.build()
        command = [guest.ROOT / "scripts/guest.sh", "--on", self.args.on, "--timeout", self.args.timeout,
                   "--file", f"dm-xtent.ko={modules}/dm-xtent.ko", *more]  # fmt: skip
        if not design:
            return guest.run(*command, "--append", "time-travel=inf-cpu", job)
        engine = self.start(work, design, mhz)
        try:
            return guest.run(
                *command, "--file", f"xtent_pci.ko={modules}/xtent_pci.ko", "--engine", work / "engine",
                "--time", work / "time", job,
            )  # fmt: skip
        finally:
            engine.terminate()
            engine.wait()

    def start(self, work, design, mhz):
        args = self.args
        return guest.start_device(
            args, design, work, "--time", work / "time", "--mhz", mhz, "--read-latency", args.read_latency,
            "--write-latency", args.write_latency, "--register-latency", args.register_latency,
        )  # fmt: skip

    def take(self, point, text):
        """A point's counters, which have to make sense."""
        found = {}
        for when in ("BEFORE", "AFTER"):
            line = next((x.split() for x in text.splitlines() if x.startswith(f"{when} {point.name} {point.direction} ")), None)
            if not line or "ns" not in line:
                raise SystemExit(f"papers: the guest has not measured {point.name}\n{text}")
            names = [*ROWS, "total", "requests", "read_sectors", "write_sectors"]
            found[when] = {name: int(line[line.index(name) + 1]) for name in names}
        gone = {name: found["AFTER"][name] - found["BEFORE"][name] for name in found["AFTER"]}
        point.ns = {row: gone[row] for row in ROWS}
        point.requests = gone["requests"]
        point.sectors = gone["write_sectors" if point.direction == "encryption" else "read_sectors"]
        if point.sectors != point.bytes * point.count // 512:
            raise SystemExit(f"papers: {point.name}: {point.sectors} sectors were counted")
        # Each row is rounded down for itself.
        if not 0 <= gone["total"] - sum(point.ns.values()) <= 2 * len(ROWS):
            raise SystemExit(f"papers: {point.name}: the rows are {sum(point.ns.values())} ns, and the total {gone['total']}")


def mixed(name, request, direction, args, **more):
    return Point(name, args.ecb, request, direction=direction, bytes=args.bytes, **more)


def whole(args):
    return f"{args.bytes >> 10} KiB" if args.bytes < 1 << 20 else f"{args.bytes >> 20} MiB"


def model(bench, cpu, args):
    """Without an engine that takes time: each row has to be the model's."""
    points = [
        Point(f"model-{request}-{direction[0]}", "engine:ecb(aes-lib)-plain64", request, direction=direction, bytes=65536, count=4)
        for request in (512, 4096, 0)
        for direction in DIRECTIONS
    ]
    lines = ["| request | direction | row | by the model, ns | in the guest |", "|---|---|---|---|---|"]
    for p in bench.measure(points, cpu):
        cost = cpu.cost(p)
        request = p.request or p.bytes
        n = p.bytes * p.count
        amounts = [p.count, n // request, n // request * -(-request // 4096), n // p.sector, n // 16]
        for i, row in enumerate(ROWS):
            told = sum(c * a for c, a in zip(cost[i * len(PER) :], amounts)) / 1000
            lines.append(f"| {request} | {p.direction} | {row} | {told:.0f} | {p.ns[row]} |")
            # What is owed at either end is less than a step.
            if abs(told - p.ns[row]) > 2 * STEP + 0.0001 * told:
                raise SystemExit("papers: the guest's time is not the model's\n" + "\n".join(lines))
    return "The cost model, in the guest", lines


def tables(bench, cpu, args):
    """Tables 1 and 2."""
    cuts = [("512", 512), ("4096", 4096), (whole(args), 0)]
    points = {(d, n): mixed(f"mixed-{n.replace(' ', '')}", cut, d, args) for d in DIRECTIONS for n, cut in cuts}
    bench.measure(list(points.values()), cpu, args.ecb_design, args.mhz)
    out = []
    shown = [("total", ROWS), ("tweak", ["tweak", "iv_engine"]), ("of it, IVs in the engine", ["iv_engine"]),
             ("XOR 1", ["xor1"]), ("XOR 2", ["xor2"]), ("DMA and engine", ["engine"]), ("other", ["other"])]  # fmt: skip
    for number, direction in enumerate(DIRECTIONS, 1):
        theirs = papers.TABLES[direction]
        out += [f"Table {number}, {direction}: seconds for 50 MB", "",
                f"| | 512 | 4096 | gain | {whole(args)} | gain | paper, 512 | 4096 | gain |", "|---" * 9 + "|"]  # fmt: skip
        for name, rows in shown:
            a, b, c = (points[direction, n].per_sector(*rows) * papers.SECTORS / 1e6 for n, _ in cuts)
            p = theirs.get(name)
            cells = [f"{p[0]:.2f}", f"{p[1]:.2f}", f"{p[0] / p[1]:.2f}"] if p else ["", "", ""]
            out.append(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.2f} | {c:.2f} | {a / c:.2f} | " + " | ".join(cells) + " |")
        # What differs is in the CPU's rows: with the paper's in place of ours.
        mine = [points[direction, n].per_sector("engine", "other") * papers.SECTORS / 1e6 for n, _ in cuts[:2]]
        both = [m + sum(theirs[row][i] for row in ("tweak", "XOR 1", "XOR 2")) for i, m in enumerate(mine)]
        out += ["", f"With the paper's rows tweak, XOR 1 and XOR 2 in place of ours: {both[0]:.2f} and {both[1]:.2f}, "
                    f"a gain of {both[0] / both[1]:.2f}."]  # fmt: skip
        out.append("")
    groups, series = [], {name: [] for name, _ in shown if name not in ("total", "of it, IVs in the engine")}
    for d in DIRECTIONS:
        short = f"{d[:2]}crypt"
        groups += [f"{short}, {n}" for n, _ in cuts] + [f"paper, {n}" for n, _ in cuts[:2]]
        for name, rows in shown:
            if name in series:
                series[name] += [points[d, n].per_sector(*rows) for n, _ in cuts]
                series[name] += [seconds * 1e6 / papers.SECTORS for seconds in papers.TABLES[d][name]]
    plot.bars(args.output / "papers-tables.svg", "microseconds for 512 bytes", groups, series, stacked=True)
    return "Tables 1 and 2: where the time goes", out


def speed(bench, cpu, args):
    """Figure 5: the five configurations, and whole runs. D2 has a clock of its own."""
    other = Cpu(cpu.costs, papers.D2_MHZ, cpu.cpi)
    xts = f"capi:{args.xts_driver}-plain64"
    software = "capi:xts(ecb(aes-lib))-plain64"
    configurations = [
        ("A: software, D3", cpu, None, dict(cipher=software, bits=128, software=True)),
        ("B: mixed, 512", cpu, args.ecb_design, dict(cipher=args.ecb, request=512)),
        ("C: mixed, 4096", cpu, args.ecb_design, dict(cipher=args.ecb, request=4096)),
        ("D: software, D2", other, None, dict(cipher=software, bits=128, software=True)),
        ("E: XTS engine, 512", other, args.xts_design, dict(cipher=xts, cpu_tweak=True)),
        ("mixed, whole bios", cpu, args.ecb_design, dict(cipher=args.ecb)),
        ("engine of runs", other, args.run_design, dict(cipher=xts)),
    ]
    lines = ["| configuration | write, MB/s | read, MB/s | over A, write | read |", "|---|---|---|---|---|"]
    rates = {}
    for i, (name, which, design, more) in enumerate(configurations):
        points = [Point(f"speed-{i}", direction=d, bytes=args.bytes, **more) for d in DIRECTIONS]
        bench.measure(points, which, design, args.mhz)
        rates[name] = [p.rate() for p in points]
        first = rates[configurations[0][0]]
        lines.append(f"| {name} | {rates[name][0]:.2f} | {rates[name][1]:.2f} | "
                     f"{rates[name][0] / first[0]:.2f} | {rates[name][1] / first[1]:.2f} |")  # fmt: skip
    plot.bars(args.output / "papers-speed.svg", "MB/s in the target", list(rates), {
        "write": [r[0] for r in rates.values()], "read": [r[1] for r in rates.values()]})  # fmt: skip
    c, e = rates["C: mixed, 4096"], rates["E: XTS engine, 512"]
    lines += ["", f"C over E: write {c[0] / e[0]:.2f}, read {c[1] / e[1]:.2f}. The paper has bars only: C about equal to E, "
              "slightly slower to encrypt, slightly faster to decrypt."]  # fmt: skip
    return "Figure 5: five configurations", lines


def files(bench, cpu, args):
    """GreHack, figure 8: decryption by the size of the file, three versions."""
    sizes = [65536 << i for i in range(args.sizes)]
    versions = {
        "software": (None, dict(cipher="capi:xts(ecb(aes-lib))-plain64", bits=128, software=True)),
        "mixed, 512": (args.ecb_design, dict(cipher=args.ecb, request=512)),
        "mixed, 4096": (args.ecb_design, dict(cipher=args.ecb, request=4096)),
    }
    times = {}
    for i, (name, (design, more)) in enumerate(versions.items()):
        points = [
            Point(f"files-{i}-{size}", direction="decryption", bytes=min(size, 1 << 20), count=max(size >> 20, 1), **more)
            for size in sizes
        ]
        bench.measure(points, cpu, design, args.mhz)
        times[name] = [sum(p.ns.values()) / 1e6 for p in points]
    lines = ["| file, KiB | " + " | ".join(f"{n}, ms" for n in times) + " | 4096 over 512 |", "|---" * (len(times) + 2) + "|"]
    for i, size in enumerate(sizes):
        lines.append(f"| {size >> 10} | " + " | ".join(f"{t[i]:.2f}" for t in times.values())
                     + f" | {times['mixed, 512'][i] / times['mixed, 4096'][i]:.2f} |")  # fmt: skip
    lines += ["", "The paper has a curve only, and says: close to 2x."]
    plot.lines(args.output / "papers-files.svg", "file, KiB", "ms", [s >> 10 for s in sizes], times)
    return "GreHack, figure 8: decryption by the size of a file", lines


def ecb(bench, cpu, args):
    """Figure 6 and GreHack's 6 and 7: rate and time of a request for blocks alone, by its size: the row of the engine, from
    the request's making to its completion."""
    sizes = [512 << i for i in range(9)]
    points = [
        Point(f"ecb-{size}", args.ecb, size, direction="encryption", bytes=max(size, 65536), count=1) for size in sizes
    ]
    bench.measure(points, cpu, args.ecb_design, args.mhz)
    times = [p.ns["engine"] / 1000 / (p.requests / 2) for p in points]
    rates = [size / t for size, t in zip(sizes, times)]
    lines = ["| bytes a request | us a request | MB/s | over 512 |", "|---|---|---|---|"]
    for size, t, rate in zip(sizes, times, rates):
        lines.append(f"| {size} | {t:.1f} | {rate:.2f} | {rate / rates[0]:.2f} |")
    lines += ["", f"Of 4096 over 512: {rates[3] / rates[0]:.2f}; the paper, on SAMA5D2: {papers.FIGURE_6}. GreHack has curves only, the rate best at "
              "4096, beyond which its requests did not go."]  # fmt: skip
    plot.lines(args.output / "papers-ecb.svg", "bytes a request", "MB/s", sizes, {"blocks alone": rates})
    return "Figure 6, GreHack's figures 6 and 7: blocks alone, by the size of a request", lines


def digest(bench, cpu, args):
    """GreHack's procedure, and figure 4: a container with ext4 is closed and opened, and a file's digest made, some times."""
    versions = {
        "software": (None, Point("software", "capi:xts(ecb(aes-lib))-plain", direction="decryption", bits=128, software=True)),
        "mixed, 512": (args.ecb_design, Point("512", args.ecb.replace("plain64", "plain"), 512, direction="decryption")),
        "mixed, 4096": (args.ecb_design, Point("4096", args.ecb.replace("plain64", "plain"), 4096, direction="decryption")),
    }
    kib = 256
    # One thing that is not the target's, but of the CPU all the same.
    md5 = cpu.picoseconds(cpu.costs["md5_block"]) * kib * 16 / 1e9
    lines = [f"| a file of {kib} KiB | MD5, ms | driver, ms | together | over software |", "|---|---|---|---|---|"]
    bars = {"MD5": [], "driver": []}
    for name, (design, point) in versions.items():
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "list").write_text(f"{point.cipher} {point.request} {point.bits} {args.times} {kib} {','.join(map(str, cpu.cost(point)))}\n")
            text = bench.guest(work, HERE / "procedure.sh", ["--file", f"list={work}/list"], design, args.mhz)
        found = [int(x.split()[1]) for x in text.splitlines() if x.startswith("DIGEST ")]
        if len(found) != args.times:
            raise SystemExit(f"papers: the procedure did not end\n{text}")
        # Everything is simulated, so that times differ by where the file's blocks are alone.
        driver = sum(found) / len(found) / 1e6
        bars["MD5"].append(md5)
        bars["driver"].append(driver)
        first = bars["MD5"][0] + bars["driver"][0]
        lines.append(f"| {name} | {md5:.2f} | {driver:.2f} | {md5 + driver:.2f} | {first / (md5 + driver):.2f} |")
    plot.bars(args.output / "papers-digest.svg", "ms for a file", list(versions), bars, stacked=True)
    d = bars["driver"]
    lines += ["", f"The driver's share of 512 bytes a request over that of 4096: {d[1] / d[2]:.2f}; in the paper \"almost 2\", with the kernel's "
              "share and the disk's, which take no time here."]  # fmt: skip
    return "Figure 4, and GreHack's procedure: the digest of a file", lines


def clock(bench, cpu, args):
    """Table 1's total with engines of other clocks."""
    lines = ["| engine, MHz | 512, us for 512 bytes | 4096 | whole | gain of 4096 | of whole bios |", "|---|---|---|---|---|---|"]
    gains = {"4096 bytes": [], "whole bios": []}
    for mhz in args.clocks:
        points = [mixed(f"clock-{cut}", cut, "encryption", args) for cut in (512, 4096, 0)]
        a, b, c = (p.per_sector() for p in bench.measure(points, cpu, args.ecb_design, mhz))
        gains["4096 bytes"].append(a / b)
        gains["whole bios"].append(a / c)
        lines.append(f"| {mhz} | {a:.2f} | {b:.2f} | {c:.2f} | {a / b:.2f} | {a / c:.2f} |")
    lines += ["", "The paper (table 1): 1.74 for 4096."]
    plot.lines(args.output / "papers-clock.svg", "engine, MHz", "gain over 512 bytes a request", args.clocks, gains)
    return "Table 1 by the clock of the engine", lines


EXPERIMENTS = {"model": model, "tables": tables, "speed": speed, "ecb": ecb, "files": files, "digest": digest, "clock": clock}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", guest.ROOT / "target"))
    costs = json.loads((HERE / "costs.json").read_text())
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--on", default="uml-7-fast", help="the guest's kernel (%(default)s)")
    parser.add_argument("--output", type=Path, default=target / "bench-papers")
    parser.add_argument("--sim", type=Path, default=target / "cosim/release/xtent-engine-sim")
    parser.add_argument("--models", type=Path, default=target / "rtl/cosim")
    parser.add_argument("--cpi", type=float, default=costs["cpi"][1],
                        help=f"cycles for an instruction; a Cortex-A5 has {costs['cpi'][0]} to {costs['cpi'][1]} and caches that miss (%(default)s)")  # fmt: skip
    parser.add_argument("--cpu-mhz", type=float, default=papers.D3_MHZ, help="(%(default)s)")
    parser.add_argument("--mhz", type=int, default=papers.ENGINE_MHZ, help="of the engine (%(default)s)")
    parser.add_argument("--register-latency", type=int, default=0, metavar="NS", help="of a register's read (%(default)s)")
    parser.add_argument("--read-latency", type=int, default=1, metavar="CYCLES", help="of memory, in the engine's cycles (%(default)s)")
    parser.add_argument("--write-latency", type=int, default=1, metavar="CYCLES", help="(%(default)s)")
    parser.add_argument("--bytes", type=int, default=1 << 18, help="of a bio (%(default)s)")
    parser.add_argument("--sizes", type=int, default=5, help="of files, from 64 KiB on (%(default)s)")
    parser.add_argument("--times", type=int, default=10, help="that the procedure opens the container (%(default)s)")
    parser.add_argument("--clocks", type=int, nargs="+", default=[3, 6, 12, 25, 50, 100, 200])
    parser.add_argument("--ecb", default="engine:ecb-aes-xtent-pci-plain64", help="(%(default)s)")
    parser.add_argument("--xts-driver", default="xts-aes-xtent-pci", help="(%(default)s)")
    parser.add_argument("--ecb-design", default="ecb-bus4", help="(%(default)s)")
    parser.add_argument("--xts-design", default="xts-512-bus4", help="(%(default)s)")
    parser.add_argument("--run-design", default="xts-bus4", help="(%(default)s)")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for a guest (%(default)s)")
    args = parser.parse_args()
    unknown = [e for e in args.experiments if e not in EXPERIMENTS]
    if unknown:
        parser.error(f"no such experiment: {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    args.output.mkdir(parents=True, exist_ok=True)
    cpu = Cpu(costs, args.cpu_mhz, args.cpi)
    bench = Bench(args)
    text = [f"CPU {args.cpu_mhz:g} MHz, {args.cpi} cycles for an instruction; engine {args.mhz} MHz, {args.ecb_design}, "
            f"{args.xts_design}, {args.run_design}; a register's read {args.register_latency} ns; "
            f"memory answers a read after {args.read_latency} cycles, a write after {args.write_latency}. Times are simulated.", ""]  # fmt: skip
    for name in args.experiments or EXPERIMENTS:
        title, lines = EXPERIMENTS[name](bench, cpu, args)
        text += [f"## {title}", "", *lines, ""]
        print("\n".join([f"## {title}", "", *lines, ""]), flush=True)
    (args.output / "papers.md").write_text("\n".join(text))


if __name__ == "__main__":
    sys.exit(main())
