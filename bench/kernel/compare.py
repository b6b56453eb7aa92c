#!/usr/bin/env python3
"""Compares dm-xtent with the kernel's dm-crypt: the kernel's CPU time and wall time.

Boots User Mode Linux, into which the kernel's own AES driver for x86 has been loaded, as
an ordinary process. There all are open at once on one device, and take turns: the device as it is,
dm-crypt with its queues and without, dm-xtent, with sectors of 512 and of 4096 bytes. Figures are
medians over the rounds; differences and ratios are taken within a round.
"""

import argparse
import collections
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import field  # noqa: E402
import plot  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# dm-xtent may cost this much more than the device, CPU seconds per GB; what stock costs is measured.
GOAL_512 = 0.10
NAMES = {
    "raw": "the device as it is",
    "stock-512": "dm-crypt, 512",
    "stock-512-noqueue": "dm-crypt, 512, no queues",
    "inline-512": "dm-inlinecrypt, 512",
    "xtent-512": "dm-xtent, 512",
    "stock-4096": "dm-crypt, 4096",
    "stock-4096-noqueue": "dm-crypt, 4096, no queues",
    "inline-4096": "dm-inlinecrypt, 4096",
    "xtent-4096": "dm-xtent, 4096",
}
COLOURS = {
    "raw": "#777777",
    "stock-512": "#d62728",
    "stock-512-noqueue": "#ff9896",
    "inline-512": "#2ca02c",
    "xtent-512": "#1f77b4",
    "stock-4096": "#e08214",
    "stock-4096-noqueue": "#fdb863",
    "inline-4096": "#98df8a",
    "xtent-4096": "#17becf",
}
MEDIA = {"ram": "RAM disk", "disk": "disk: a file of the machine's"}
REQUESTS = [4096, 16384, 65536, 262144, 1048576]
QUICK = {"ram": [4096, 1048576], "disk": [1048576]}


def note(text):
    print(f"bench/kernel: {text}", file=sys.stderr, flush=True)


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def contestants(args):
    """Who takes part in the sweep and with files."""
    return [name for name in NAMES if seven(args) or not name.startswith("inline-")]


def seven(args):
    return args.on.startswith("uml-7")


def smp(args):
    return "-smp" in args.on


def numbers(args, part):
    """What the guest's script has to know."""
    quick = args.quick
    if part in field.ORDER:
        return {
            "level": args.level,
            "names": " ".join(field.names(part)),
            "work": part,
            "rounds": 1 if quick else args.rounds,
            "span": 32 if quick else 64 if part == "latency" else args.span,
            "count": 500 if quick else args.count,
            "megabytes": 32 if quick else args.megabytes,
            "requests": "1048576" if quick else "65536 1048576",
        }
    return {
        "level": args.level,
        "names": " ".join(contestants(args)),
        "rounds": 1 if quick else args.rounds,
        "megabytes": 32 if quick else args.megabytes,
        "requests": " ".join(map(str, QUICK[part] if quick and part in QUICK else args.request or REQUESTS)),
        "medium": "disk" if part == "disk" else "ram",
        "span": 32 if quick else args.span,
        "sweep": "no" if part == "files" else "yes",
        "files": "yes" if part == "files" else "no",
        "file_sizes": "4" if quick else "4 64",
        "records": "1024" if quick else "4 64 1024",
        "digest": 8 if quick else args.span // 2,
    }


def boot(args, built, part, folder):
    """One boot of a guest. Returns its lines."""
    values = numbers(args, part)
    job = folder / "job"
    job.write_text("".join(f"{name}='{value}'\n" for name, value in values.items())
                   + "".join((HERE / script).read_text() for script in
                             ("modules.sh", "mappings.sh", "field.sh" if part in field.ORDER else "job.sh")))
    command = [*shlex.split(args.prefix), ROOT / "scripts/guest.sh", "--on", args.on,
               "--memory", str({"writeback": 2, "latency": 3}.get(part, 1) * values["span"] + 384), "--timeout", str(args.timeout)]
    if seven(args):
        # The tests of the kernel's self-tests that take seconds are for kernel/test.
        command += ["--append", "cryptomgr.noslowtests=1"]
    if smp(args):
        command += ["--append", f"ncpus={args.cpus}"]
    for name in ("dm-xtent.ko", "aesni-intel.ko", "host_clock.ko", "io"):
        command += ["--file", f"{name}={built / name}"]
    # busybox' own reads little at a time, and every system call is dear here.
    digester = shutil.which("sha256sum", path="/usr/bin:/bin")
    if not digester:
        sys.exit("sha256sum is missing (Debian package coreutils)")
    command += ["--file", f"sha256sum={digester}"]
    if part == "disk":
        image = folder / "disk"
        with open(image, "wb") as file:
            for _ in range(values["span"]):
                file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        command += ["--disk", f"disk={image}"]
    done = subprocess.run([*map(str, command), str(job)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the guest failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


class Results:
    """What was measured: (part, kind, what, request) to name to a list of (CPU, wall) per GB and, of latency,
    nanoseconds of half and of 99 of 100."""

    def __init__(self):
        self.cases = collections.defaultdict(lambda: collections.defaultdict(list))
        self.facts = {}
        self.notes = set()  # what was not run
        self.counts = {}  # (what, name) to dm-xtent's counters
        self.aes = collections.defaultdict(list)  # part to CPU seconds per GB of AES alone

    def read(self, part, lines):
        found = 0
        for line in lines:
            fields = line.split()
            if fields[:1] == ["FACT"]:
                self.facts[fields[1]] = " ".join(fields[2:])
            elif fields[:1] == ["AES"]:
                self.aes[part].append(int(fields[1]) / int(fields[2]))
            elif fields[:1] == ["NOTE"]:
                self.notes.add(" ".join(fields[1:]))
            elif fields[:1] == ["COUNTS"]:
                self.counts[fields[1], fields[2]] = " ".join(fields[3:])
            elif fields[:1] in (["POINT"], ["DIGEST"], ["FILE"], ["LATENCY"], ["BUFFERED"], ["DEPTH"]):
                kind, _, name, what, request, cpu, wall, moved = fields[:8]
                # A program that was run does not count its bytes; its file has as many.
                gb = int(moved or 0) / 1e9 or int(request) / 1e9
                # The program's and a server's time are not wanted; latencies follow.
                self.cases[part, kind, what, request][name].append(
                    (int(cpu) / 1e9 / gb, int(wall) / 1e9 / gb, *map(int, fields[10:])))
                found += 1
        if not found:
            sys.exit("the guest has measured nothing:\n" + "\n".join(lines))

    def names(self):
        """Who took part in the sweep or with files, with what to call them."""
        found = {name for case in self.cases.values() for name in case}
        return {name: title for name, title in NAMES.items() if name in found}

    def rounds(self):
        return max(len(values) for case in self.cases.values() for values in case.values())

    def of(self, case, name, which=0):
        return [value[which] for value in self.cases[case][name]]

    def cost(self, case, name):
        return statistics.median(self.of(case, name))

    def wall(self, case, name):
        return statistics.median(self.of(case, name, 1))

    def above(self, case, name):
        """CPU seconds per GB more than the device alone costs."""
        return statistics.median(a - b for a, b in zip(self.of(case, name), self.of(case, "raw")))

    def least_above(self, case, name):
        """The same between the least of each: what it is where no neighbour takes part of the core."""
        return min(self.of(case, name)) - min(self.of(case, "raw"))


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def head(*cells):
    return [row(*cells), "|" + "---|" * len(cells)]


def sweep_tables(results, part):
    """The block device's tables."""
    requests = sorted({int(case[3]) for case in results.cases if case[:2] == (part, "POINT")})
    lines = [f"## The {MEDIA[part]}", ""]
    largest = str(requests[-1])
    lines += [f"Requests of {size_name(requests[-1])}:", ""]
    lines += head("", "read: CPU s/GB", "above raw", "GB/s", "write: CPU s/GB", "above raw", "GB/s")
    for name, title in results.names().items():
        cells = []
        for direction in ("read", "write"):
            case = (part, "POINT", direction, largest)
            above = "" if name == "raw" else f"{results.above(case, name):.3f}"
            cells += [f"{results.cost(case, name):.3f}", above, f"{1 / results.wall(case, name):.2f}"]
        lines.append(row(title, *cells))
    for direction in ("read", "write"):
        lines += ["", f"CPU seconds per GB {direction}, by the size of the requests (and GB/s of wall time):", ""]
        lines += head("", *map(size_name, requests))
        for name, title in results.names().items():
            cases = [(part, "POINT", direction, str(request)) for request in requests]
            lines.append(row(title, *(f"{results.cost(case, name):.3f} ({1 / results.wall(case, name):.2f})"
                                      for case in cases)))
    return lines + [""]


def file_tables(results):
    """The tables of files on ext4, on the RAM disk."""
    lines = []
    for case in [case for case in results.cases if case[1] == "DIGEST"]:
        lines += [f"## The digest of a file of {size_name(int(case[3]))}", "",
                  "`sha256sum` of a file on ext4, nothing of it cached:", ""]
        lines += head("", "kernel's CPU s/GB", "above raw", "wall s/GB", "to raw")
        for name, title in results.names().items():
            above = "" if name == "raw" else f"{results.above(case, name):.3f}"
            wall = statistics.median(
                a / b for a, b in zip(results.of(case, name, 1), results.of(case, "raw", 1)))
            lines.append(row(title, f"{results.cost(case, name):.3f}", above,
                             f"{results.wall(case, name):.2f}", f"{wall:.2f}"))
        lines.append("")
    cases = [case for case in results.cases if case[1] == "FILE"]
    for which, title in ((0, "the kernel's CPU seconds per GB"), (1, "MB/s of wall time")):
        lines += [f"## Files on ext4 as IOzone has them: {title}", ""]
        lines += head("file, record", "", *results.names().values())
        for case in cases:
            size, record = map(int, case[3].split(":"))
            cells = [f"{results.cost(case, name):.3f}" if which == 0 else f"{1000 / results.wall(case, name):.0f}"
                     for name in results.names()]
            lines.append(row(f"{size_name(size)}, {size_name(record)}", case[2], *cells))
        lines.append("")
    return lines


def verdict(results, part_of_stock):
    """The goals, judged on the RAM disk with the largest requests: lines, and what was missed."""
    requests = [int(case[3]) for case in results.cases if case[:2] == ("ram", "POINT")]
    if not requests:
        return [], []
    aes = statistics.median(results.aes["ram"])
    most = f"{part_of_stock} of dm-crypt's" if part_of_stock else f"{GOAL_512:.2f}"
    lines = ["## Goals", "", f"With 512-byte sectors at most {most}, with 4096-byte sectors no more than dm-crypt's.", "",
             f"CPU seconds per GB above the RAM disk, requests of {size_name(max(requests))}; in brackets",
             "the same from the least figure of each, where neighbours disturbed least. The rounds of AES-256 alone",
             f"took {aes:.3f} in the same rounds ({min(results.aes['ram']):.3f}): nobody encrypts for less.", ""]
    lines += head("", "dm-crypt", "no queues", "dm-xtent", "goal", "", "dm-xtent / dm-crypt", "dm-xtent / AES alone")
    missed = []
    for direction in ("read", "write"):
        case = ("ram", "POINT", direction, str(max(requests)))
        for sector in ("512", "4096"):
            names = [f"stock-{sector}", f"stock-{sector}-noqueue", f"xtent-{sector}"]
            limit = results.above(case, names[0])
            if sector == "512":
                limit = limit * part_of_stock if part_of_stock else GOAL_512
            mine = results.above(case, names[2])
            if mine > limit:
                missed.append(f"{direction}, {sector}-byte sectors: {mine:.3f} above the RAM disk, not {limit:.3f}")
            lines.append(row(
                f"{direction}, {sector}",
                *(f"{results.above(case, name):.3f} ({results.least_above(case, name):.3f})" for name in names),
                f"{limit:.3f}", "MISSED" if mine > limit else "met",
                f"{mine / results.above(case, names[0]):.2f}", f"{mine / aes:.2f}"))
    return lines + [""], missed


def machine(results):
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    return {
        "CPU": f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores; {results.facts['cpus']} for the guest",
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()) + ", this run's in it",
        "the machine's kernel": platform.release(),
        "the guest's kernel": f"User Mode Linux {results.facts['kernel']}",
        "dm-crypt's driver": results.facts["stock"],
        **({"dm-inlinecrypt's driver": results.facts["inline"]} if "inline" in results.facts else {}),
        "dm-xtent's instruction set": results.facts["xtent"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "target/bench-kernel",
                        help="folder for results.json, results.md and kernel.svg; the disk's file is made there")
    parser.add_argument("--on", choices=("uml", "uml-6.12-fast", "uml-7-fast", "uml-7-smp-fast"), default="uml",
                        help="the kernel, of scripts/kernel.sh: Debian's 6.1, or 6.12 or 7, which are built the first time")
    parser.add_argument("--cpus", type=int, choices=(1, 2), default=1, help="of the guest; two with uml-7-smp-fast only")
    parser.add_argument("--level", choices=("wide", "aesni"), default="wide",
                        help="instructions: the widest that this CPU has, or those of CPUs without VAES")
    parser.add_argument("--rounds", type=int, default=5, help="in each boot")
    parser.add_argument("--boots", type=int, default=1, help="of each part")
    parser.add_argument("--only", choices=("ram", "disk", "files", "latency", "writeback"), action="append",
                        help="a part: the sweep on the RAM disk, on a file, or files on ext4; with Linux 7 also the"
                        " latency of single reads, and writes of one program; may be repeated")
    parser.add_argument("--megabytes", type=int, default=128, help="to move for each figure")
    parser.add_argument("--request", type=int, action="append", help="bytes, in place of all sizes of the sweep; may be repeated")
    parser.add_argument("--count", type=int, default=5000, help="reads for each figure of latency")
    parser.add_argument("--span", type=int, default=256, help="of the device, MiB")
    parser.add_argument("--prefix", default="", help="a command that runs the guest, such as 'taskset -c 1'")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for a boot")
    parser.add_argument("--quick", action="store_true",
                        help="one short round, to see that it works: the figures mean nothing")
    parser.add_argument("--require", choices=("goal",), help="fail unless the goals are met")
    args = parser.parse_args()
    parts = args.only or ["ram", "disk", "files"] + (["latency", "writeback"] if seven(args) else [])
    if args.cpus > 1 and not smp(args) or not seven(args) and set(parts) & set(field.ORDER):
        parser.error(f"{args.on} has one CPU or none of these parts; take --on uml-7-smp-fast")
    args.output.mkdir(parents=True, exist_ok=True)

    built = subprocess.run([HERE / "build.sh", args.on], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    results = Results()
    with tempfile.TemporaryDirectory(prefix="boot-", dir=args.output) as folder:
        for number in range(args.boots):
            for part in parts:
                started = time.monotonic()
                results.read(part, boot(args, pathlib.Path(built.stdout.strip()), part, pathlib.Path(folder)))
                note(f"{part}, boot {number + 1} of {args.boots}: {time.monotonic() - started:.0f} s")

    facts = machine(results)
    lines = ["# dm-xtent and dm-crypt", "", *(f"* {name}: {value}" for name, value in facts.items()),
             "* one short round, figures without meaning" if args.quick else
             f"* AES-256-XTS; medians of {results.rounds()} rounds in {args.boots} boots", ""]
    goals, missed = verdict(results, field.GOAL_512 if seven(args) else None)
    if not args.quick:
        lines += goals
    for part in parts:
        if part in field.ORDER:
            more, not_met = field.tables(results, part)
            missed += not_met
        else:
            more = file_tables(results) if part == "files" else sweep_tables(results, part)
        lines += more
    report = "\n".join(lines)
    (args.output / "results.md").write_text(report)
    (args.output / "results.json").write_text(json.dumps({
        "machine": facts, "quick": args.quick, "rounds": results.rounds(), "boots": args.boots,
        "unit": "[CPU seconds per GB, wall seconds per GB] of each round; latency: also ns of half and of 99 of 100",
        "aes_alone": results.aes, "notes": sorted(results.notes),
        "counts": {" ".join(key): value for key, value in results.counts.items()},
        "cases": [{"part": part, "kind": kind, "what": what, "request": request, "results": case}
                  for (part, kind, what, request), case in results.cases.items()]}, indent=1))
    written = "results.md and results.json"
    if "ram" in parts:
        (args.output / "kernel.svg").write_text(plot.draw(
            results.names(), {name: COLOURS[name] for name in results.names()},
            sorted({int(case[3]) for case in results.cases if case[:2] == ("ram", "POINT")}),
            lambda what, request, name: results.cost(("ram", "POINT", what, str(request)), name)))
        written = "results.md, results.json and kernel.svg"
    print(report)
    note(f"written to {args.output}: {written}")
    if args.require and missed and not args.quick:
        sys.exit("missed:\n" + "\n".join(missed))


if __name__ == "__main__":
    main()
