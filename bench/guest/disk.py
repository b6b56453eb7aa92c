#!/usr/bin/env python3
"""Where to encrypt a virtual machine's disk: CPU time of its server and of the guest, and throughput.

A guest, User Mode Linux in an ordinary process, has several disks at once, each served by a process of its own
over vhost-user, and works with one after the other, round by round: plain by qemu-storage-daemon; encrypted
outside the guest, by qemu-storage-daemon and by xtent; and encrypted inside it, by dm-crypt and
dm-xtent, on plain disks of qemu-storage-daemon. That ("qsd") has io_uring and does not poll, which takes least of
the CPU, or has its defaults. All images are in memory. Figures are medians over the rounds, ratios are taken
within a round.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent / "volume"), str(HERE.parent / "kernel")]
import compare  # noqa: E402
import plot  # noqa: E402
from compare import KEY, cpu_facts, format_for_peers, run, tool  # noqa: E402

PLAIN, QEMU, XTENT, XTENT_4096 = "plain", "qemu-luks1", "xtent-luks1", "xtent-luks2-4096"
# The same with the defaults of qemu-storage-daemon, threads and polling; io_uring without polling takes less of the CPU.
PLAIN_DEFAULTS, QEMU_DEFAULTS = "plain-defaults", "qemu-luks1-defaults"
NAMES = {
    PLAIN: "no encryption, qsd",
    PLAIN_DEFAULTS: "no encryption, qsd's defaults",
    QEMU: "outside, qsd, LUKS1",
    QEMU_DEFAULTS: "outside, qsd's defaults, LUKS1",
    XTENT: "outside, xtent, LUKS1",
    XTENT_4096: "outside, xtent, LUKS2, 4096",
    "dm-crypt-512": "inside, dm-crypt, 512",
    "dm-crypt-4096": "inside, dm-crypt, 4096",
    "dm-xtent-512": "inside, dm-xtent, 512",
    "dm-xtent-4096": "inside, dm-xtent, 4096",
}
COLOURS = {
    PLAIN: "#777777", PLAIN_DEFAULTS: "#bbbbbb", QEMU: "#2ca02c", QEMU_DEFAULTS: "#98df8a",
    XTENT: "#1f77b4", XTENT_4096: "#17becf",
    "dm-crypt-512": "#d62728", "dm-crypt-4096": "#e08214", "dm-xtent-512": "#9467bd", "dm-xtent-4096": "#c5b0d5",
}
KIB = 1024
REQUESTS = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB]
RANDOM = 4 * KIB
DEPTH, RANDOM_DEPTH = 8, 32
# The server's CPU time: at most this of qemu-storage-daemon's without encryption, of that with its LUKS.
TO_PLAIN, TO_QEMU = 1.1, 0.2
# Random requests: this many times the speed of its LUKS, or the same part of its CPU time.
FASTER = 2.0
PATTERN = 256 * KIB


def note(text):
    print(f"bench/guest: {text}", file=sys.stderr, flush=True)


def size_name(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


class Disk(compare.Server):
    """A process that serves an image as a virtual machine's disk."""

    def __init__(self, name, image, command, folder):
        self.image, self.ready = image, folder / f"{name}.ready"
        super().__init__(name, [str(part).replace("@READY@", str(self.ready)) for part in command], folder, name)

    def answers(self):
        # Who connects is the guest.
        return self.ready.exists() or b"vhost-user:" in pathlib.Path(self.log.name).read_bytes()


def start_servers(args, folder, stack, size):
    """All servers, each with its image."""
    key = folder / "key"
    key.write_bytes(KEY)

    def qemu(image, has_defaults, *drivers):
        aio, polling = ("threads", "") if has_defaults else ("io_uring", ",poll-max-ns=0")
        nodes = [f"driver=file,node-name=file,filename={image},aio={aio}", *drivers]
        last = "encrypted" if drivers else "file"
        return [tool("qemu-storage-daemon", "qemu-system-common"), "--object", f"secret,id=key,file={key}",
                "--object", f"iothread,id=thread{polling}", "--pidfile", "@READY@",
                *(part for node in nodes for part in ("--blockdev", node)),
                "--export", f"vhost-user-blk,id=disk,node-name={last},writable=on,iothread=thread,"
                            "addr.type=unix,addr.path=@SOCKET@"]

    def xtent(image):
        return [args.xtent, "serve", "--vhost-user", "@SOCKET@", "--key-file", key, image]

    running = {}
    for name in NAMES:
        image = folder / f"{name}.img"
        if name in (QEMU, QEMU_DEFAULTS, XTENT):
            format_for_peers(image, key, size)
        elif name == XTENT_4096:
            with open(image, "wb") as file:
                file.truncate(size + (16 << 20))
            run(tool("cryptsetup", "cryptsetup-bin"), "luksFormat", "--batch-mode", "--type", "luks2",
                "--cipher", "aes-xts-plain64", "--key-size", "512", "--sector-size", "4096", "--pbkdf", "pbkdf2",
                "--pbkdf-force-iterations", "1000", "--key-file", key, image)
        else:
            with open(image, "wb") as file:
                file.truncate(size)
        has_defaults = name in (PLAIN_DEFAULTS, QEMU_DEFAULTS)
        if name in (QEMU, QEMU_DEFAULTS):
            command = qemu(image, has_defaults, "driver=luks,node-name=encrypted,file=file,key-secret=key")
        elif name in (XTENT, XTENT_4096):
            command = xtent(image)
        else:
            command = qemu(image, has_defaults)
        running[name] = Disk(name, image, command, folder)
        stack.callback(running[name].stop)
    return running


def numbers(args, running):
    """What the guest's script has to know."""
    lines = []
    for name, server in running.items():
        kind, _, sector = name.removeprefix("dm-").rpartition("-")
        front = f"{kind} {sector}" if name.startswith("dm-") else "- -"
        lines.append(f"{name} {server.process.pid} {front}")
    return {
        "rounds": args.rounds, "requests": " ".join(map(str, REQUESTS)), "random": RANDOM,
        "depth": DEPTH, "random_depth": RANDOM_DEPTH, "span": args.span, "megabytes": args.megabytes,
        "most": args.most, "contenders": "\n".join(lines),
    }


def boot(args, running, folder):
    """Boots the guest, and has it work. Returns its lines, and what it has written to each disk in the end."""
    built = subprocess.run([HERE.parent / "kernel/build.sh", "uml"], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    built = pathlib.Path(built.stdout.strip())
    job = folder / "job"
    job.write_text("".join(f"{name}='{value}'\n" for name, value in numbers(args, running).items())
                   + (HERE.parent / "kernel/modules.sh").read_text() + (HERE / "job.sh").read_text())
    out = folder / "out"
    command = [ROOT / "scripts/guest.sh", "--follow", "--out", out, "--memory", "512", "--timeout", args.timeout]
    for name in ("dm-xtent.ko", "aesni-intel.ko", "host_clock.ko", "io"):
        command += ["--file", f"{name}={built / name}"]
    for name, server in running.items():
        command += ["--vhost-user", f"{name}={server.socket}"]
    lines = []
    with subprocess.Popen([*map(str, command), str(job)], stdout=subprocess.PIPE, text=True) as guest:
        for line in guest.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("ROUND "):
                note(f"round {line.split()[1]} of {args.rounds}")
    if guest.returncode != 0:
        sys.exit(f"the guest failed with {guest.returncode}:\n" + "\n".join(lines))
    return lines, (out / "plain").read_bytes()


def check(args, running, written, folder):
    """Whether each image has what the guest has written, by another program than the one that was measured."""
    def start_of(image):
        with open(image, "rb") as file:
            return file.read(PATTERN)

    def decrypted(name):
        plain = folder / "decrypted"
        run(args.xtent, "decrypt", "--force", "--key-file", folder / "key", running[name].image, plain)
        return start_of(plain)

    by_qemu = folder / "by-qemu"
    source = f"driver=luks,key-secret=key,file.driver=file,file.filename={running[XTENT].image}"
    run(tool("qemu-img", "qemu-utils"), "dd", "--object", f"secret,id=key,file={folder / 'key'}", "--image-opts",
        "-O", "raw", f"bs={PATTERN}", "count=1", f"if={source}", f"of={by_qemu}")
    found = {XTENT: start_of(by_qemu)}
    found |= {name: decrypted(name) for name in (QEMU, QEMU_DEFAULTS, XTENT_4096)}
    found |= {name: start_of(running[name].image) for name in (PLAIN, PLAIN_DEFAULTS)}
    wrong = [name for name, start in found.items() if start != written]
    for sector in ("512", "4096"):
        ours, theirs = (start_of(running[f"dm-{kind}-{sector}"].image) for kind in ("xtent", "crypt"))
        if ours != theirs or ours == written:
            wrong.append(f"dm-xtent-{sector} and dm-crypt-{sector}")
    if wrong:
        sys.exit("the images have not what the guest has written: " + ", ".join(wrong))


class Results:
    """What was measured: (what, request) to name to a list of rounds, each with seconds per GB."""

    def __init__(self, lines):
        self.facts = {}
        self.cases = collections.defaultdict(lambda: collections.defaultdict(list))
        for line in lines:
            fields = line.split()
            if fields[:1] == ["FACT"]:
                self.facts[fields[1]] = " ".join(fields[2:])
            elif fields[:1] == ["POINT"]:
                _, _, name, what, request, *values = fields
                kernel, wall, moved, program, server = map(int, values)
                self.cases[what, int(request)][name].append({
                    "server": server / moved, "all": (server + kernel + program) / moved, "wall": wall / moved})
        if not self.cases:
            sys.exit("the guest has measured nothing:\n" + "\n".join(lines))

    def of(self, case, name, which):
        return [values[which] for values in self.cases[case][name]]

    def median(self, case, name, which):
        return statistics.median(self.of(case, name, which))

    def ratio(self, case, name, other, which):
        return statistics.median(
            a / b for a, b in zip(self.of(case, name, which), self.of(case, other, which)))


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def head(*cells):
    return [row(*cells), "|" + "---|" * len(cells)]


LARGEST = REQUESTS[-1]
MAIN = [("read", LARGEST), ("write", LARGEST), ("randread", RANDOM), ("randwrite", RANDOM)]
WORDS = {"read": "read", "write": "write", "randread": "random read", "randwrite": "random write"}


def case_name(case):
    return f"{size_name(case[1])} {WORDS[case[0]]}"


def verdict(results):
    """The goals: lines, and what was missed against each of the two ways to run the peer."""
    lines = ["## Goals", "",
             f"Of the server's CPU time at most {TO_PLAIN} of what qemu-storage-daemon takes without encryption and "
             f"{TO_QEMU} of what its LUKS takes; random requests at {FASTER:g} times the speed of its LUKS, or for "
             f"{1 / FASTER} of its CPU time.", ""]
    lines += head("", "requests", "peer", "CPU to no encryption", "CPU to its LUKS", "speed to its LUKS", "")
    missed = {"defaults": [], "least": []}
    for name in (XTENT, XTENT_4096):
        for case in MAIN:
            for peer, plain, luks in (("defaults", PLAIN_DEFAULTS, QEMU_DEFAULTS), ("least", PLAIN, QEMU)):
                to_plain, to_luks = (results.ratio(case, name, other, "server") for other in (plain, luks))
                speed = results.ratio(case, luks, name, "wall")
                if case in MAIN[2:]:
                    met = speed >= FASTER or to_luks <= 1 / FASTER
                else:
                    met = to_plain <= TO_PLAIN and to_luks <= TO_QEMU
                if not met:
                    missed[peer].append(f"{NAMES[name]}, {case_name(case)}: CPU {to_plain:.2f} of no encryption, "
                                        f"{to_luks:.2f} of its LUKS, at {speed:.2f} of its speed")
                lines.append(row(NAMES[name], case_name(case), peer, f"{to_plain:.2f}", f"{to_luks:.2f}",
                                 f"{speed:.2f}", "met" if met else "MISSED"))
    return lines + [""], missed


def tables(results):
    def cell(case, name, which):
        value = results.median(case, name, which)
        return f"{1000 / value:.0f}" if which == "wall" else f"{value:.3f}"

    lines = ["## In short", "", "CPU seconds of the server per GB, of server and guest together, and MB per second:", ""]
    lines += head("", *(words for case in MAIN for words in (f"{case_name(case)}: server", "both", "MB/s")))
    for name, words in NAMES.items():
        lines.append(row(words, *(cell(case, name, which) for case in MAIN for which in ("server", "all", "wall"))))
    lines.append("")
    cases = [(what, request) for what in ("read", "write") for request in REQUESTS]
    for which, title in (("server", "CPU seconds of the server per GB"),
                         ("all", "CPU seconds of server and guest per GB"), ("wall", "MB per second")):
        lines += [f"## {title}", ""]
        lines += head("", *map(case_name, cases))
        lines += [row(words, *(cell(case, name, which) for case in cases)) for name, words in NAMES.items()]
        lines.append("")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xtent", type=pathlib.Path, required=True, help="the xtent command")
    parser.add_argument("--output", type=pathlib.Path, help="folder for guest.json, guest.md and guest.svg")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--span", type=int, default=128, help="of each disk, MiB")
    parser.add_argument("--megabytes", type=int, default=128, help="MiB to move for each figure")
    parser.add_argument("--most", type=int, default=8192, help="most requests for a figure")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for the guest")
    parser.add_argument("--quick", action="store_true",
                        help="one short round, to see that it works: the figures mean nothing")
    parser.add_argument("--require", choices=("defaults", "least"),
                        help="fail unless the goals are met: against the peer's defaults, or against it as it takes least of the CPU")
    args = parser.parse_args()
    args.xtent = args.xtent.resolve()
    if args.quick:
        args.rounds, args.span, args.megabytes, args.most = 1, 16, 16, 64
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xtent-bench-", dir=memory)))
        with contextlib.ExitStack() as servers:
            running = start_servers(args, folder, servers, args.span << 20)
            lines, written = boot(args, running, folder)
        check(args, running, written, folder)
    results = Results(lines)
    facts = cpu_facts() | {
        "kernel": platform.release(),
        "guest's kernel": f"User Mode Linux {results.facts['kernel']}, one CPU",
        "dm-crypt's driver": results.facts["stock"],
        "dm-xtent's instruction set": results.facts["xtent"],
        "qsd": run(tool("qemu-storage-daemon", "qemu-system-common"), "--version").splitlines()[0],
        "xtent": run(args.xtent, "--version").strip(),
    }
    lines = ["# A virtual machine's disk", "", *(f"* {name}: {value}" for name, value in facts.items()),
             f"* images: {args.span} MiB each, in {memory or 'a temporary folder'}; AES-256-XTS; requests past the guest's "
             f"page cache, {DEPTH} at a time, random ones {RANDOM_DEPTH}",
             "* one short round, figures without meaning" if args.quick else
             f"* medians of {args.rounds} interleaved rounds", ""]
    goals, missed = verdict(results)
    if not args.quick:
        lines += goals
    report = "\n".join(lines + tables(results))
    print(report)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "guest.md").write_text(report)
        (args.output / "guest.svg").write_text(plot.draw(
            NAMES, COLOURS, REQUESTS, lambda what, request, name: results.median((what, request), name, "all"),
            columns=3))
        (args.output / "guest.json").write_text(json.dumps({
            "machine": facts, "quick": args.quick,
            "unit": "seconds per GB of each round: CPU of the server, of server and guest, wall",
            "cases": [{"what": what, "request": request, "results": case}
                      for (what, request), case in results.cases.items()]}, indent=1))
        note(f"written to {args.output}: guest.md, guest.json, guest.svg")
    if args.require and missed[args.require] and not args.quick:
        sys.exit("missed:\n" + "\n".join(missed[args.require]))


if __name__ == "__main__":
    main()
