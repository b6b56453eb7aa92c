#!/usr/bin/env python3
"""An image in a Ceph cluster: what encryption costs the client there.

A cluster of this machine's own (scripts/ceph-bed.sh, in memory) stands for the storage. One client, the
example `load` of the crate xtent-rbd, has sixteen requests under way: to the image itself, through
librbd's own LUKS2 encryption, and through Xtent's volumes, one after the other, round by round. What it
reads it copies once, as to a socket. Then NBD servers of images: qemu-nbd without encryption and with its own
LUKS, and xtent, with fio's nbd engine as client. What is compared is the CPU time of the client of the cluster,
its library's threads included; differences are taken within a round.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from compare import KEY, Server, format_for_peers, machine, measure, median, tool

PLAIN, LIBRBD, XTENT = "plain", "librbd", "aes-xts-plain64"
MODES = {
    PLAIN: "no encryption",
    LIBRBD: "librbd, LUKS2 (AES-XTS)",
    XTENT: "xtent, AES-XTS",
    "capi:fast(aes)-plain64": "xtent, FAST",
    "aes-hctr2-plain64": "xtent, HCTR2",
}
KIB = 1024
CASES = [(4096 * KIB, "write"), (4096 * KIB, "read"), (64 * KIB, "write"), (64 * KIB, "read")]
SIZE = 256 << 20
RAW, QEMU, SERVE = "qemu-nbd, no encryption", "qemu-nbd, LUKS1", "xtent serve, LUKS1"
# Of what librbd's own encryption costs.
MUST = 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=pathlib.Path, required=True, help="the example `load`")
    parser.add_argument("--xtent", type=pathlib.Path, required=True, help="the xtent command")
    parser.add_argument("--output", type=pathlib.Path, help="folder for rbd.json and rbd.md")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--total", type=int, default=1024, help="MiB of each run; a quarter of it in requests of 64 KiB")
    parser.add_argument("--require", action="store_true",
                        help=f"fail if Xtent's AES-XTS costs more than {MUST} of what librbd's or QEMU's does")
    args = parser.parse_args()
    args.xtent = args.xtent.resolve()
    bed = pathlib.Path(__file__).resolve().parents[2] / "scripts/ceph-bed.sh"
    for name, package in (("ceph-mon", "ceph-mon"), ("ceph-osd", "ceph-osd"), ("rbd", "ceph-common")):
        tool(name, package)
    results, served = {}, {}
    with tempfile.TemporaryDirectory(prefix="xtent-bench-") as folder:
        cluster = pathlib.Path(folder) / "cluster"
        environment = os.environ | {"BED_STORE": "memstore", "BED_BYTES": str(4 << 30)}
        subprocess.run([bed, "start", cluster, str(os.getpid())], check=True, env=environment,
                       stdout=subprocess.DEVNULL)
        try:
            measure_all(args, pathlib.Path(folder), cluster / "ceph.conf", results)
            measure_servers(args, pathlib.Path(folder), cluster / "ceph.conf", served)
        finally:
            subprocess.run([bed, "stop", cluster], check=True)
    report, missed = summary(args, results)
    of_servers, missed_by_servers = summary_of_servers(served)
    report += of_servers
    missed += missed_by_servers
    print(report)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "rbd.md").write_text(report)
        (args.output / "rbd.json").write_text(json.dumps(
            {f"{size // KIB} KiB {direction}": by_mode | served[size, direction]
             for (size, direction), by_mode in results.items()}, indent=1))
    if args.require and missed:
        sys.exit(f"more than {MUST} of the peer's cost:\n" + "\n".join(missed))


def measure_all(args, folder, conf, results):
    def rbd(*arguments):
        subprocess.run(["rbd", "-c", conf, *arguments], check=True)

    def load(image, mode, direction, size, total):
        command = [args.load, f"rbd:rbd/{image}:conf={conf}", mode, direction, str(size), str(total)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    key = folder / "key"
    key.write_text("bench")
    for image in ("ours", "theirs"):
        rbd("create", image, "--size", f"{(SIZE >> 20) + 16}M")
    rbd("encryption", "format", "theirs", "luks2", key)
    image_of = {mode: "theirs" if mode == LIBRBD else "ours" for mode in MODES}
    # Every object is there, so that reads read and no write makes one.
    load("ours", PLAIN, "write", CASES[0][0], SIZE)
    load("theirs", LIBRBD, "write", CASES[0][0], SIZE)
    for number in range(args.rounds):
        if sys.stderr.isatty():
            print(f"\r\x1b[Kround {number + 1} of {args.rounds}", end="", file=sys.stderr, flush=True)
        for size, direction in CASES:
            total = (args.total << 20) // (1 if size > 1 << 20 else 4)
            for mode in MODES:
                run = load(image_of[mode], mode, direction, size, total)
                results.setdefault((size, direction), {}).setdefault(mode, []).append(run)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def measure_servers(args, folder, conf, served):
    """NBD servers of images with the same bytes: a LUKS1 container that cryptsetup made."""
    key, container = folder / "key", folder / "container"
    key.write_bytes(KEY)
    format_for_peers(container, key, SIZE)
    with contextlib.ExitStack() as stack:
        def start(name, number, command):
            image = f"served{number}"
            subprocess.run(["rbd", "-c", conf, "--no-progress", "import", container, image], check=True)
            command = [str(part).replace("@IMAGE@", image) for part in command]
            server = Server(name, command, folder, number)
            stack.callback(server.stop)
            return server

        qemu = [tool("qemu-nbd", "qemu-utils"), "-t", "-e", "8", "-k", "@SOCKET@", "--object", f"secret,id=s,file={key}",
                "--image-opts"]

        def rbd(under=""):
            return ",".join(under + part for part in ("driver=rbd", "pool=rbd", "image=@IMAGE@", f"conf={conf}"))

        running = [
            start(RAW, 0, [*qemu, rbd()]),
            start(QEMU, 1, [*qemu, "driver=luks,key-secret=s," + rbd("file.")]),
            start(SERVE, 2, [args.xtent, "serve", "--nbd", "unix:@SOCKET@", "--key-file", key,
                             f"rbd:rbd/@IMAGE@:conf={conf}"])]
        for number in range(args.rounds + 1):
            if sys.stderr.isatty():
                print(f"\r\x1b[Kservers, round {number} of {args.rounds}", end="", file=sys.stderr, flush=True)
            for size, direction in CASES:
                total = (args.total << 20) // (1 if size > 1 << 20 else 4)
                options = [f"--rw={direction}", f"--bs={size}", "--iodepth=16"]
                for server in running:
                    found = measure(server, options, SIZE, [f"--io_size={total}"])
                    # The first round makes the objects.
                    if number > 0:
                        served.setdefault((size, direction), {}).setdefault(server.name, []).append(found)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def summary_of_servers(served):
    lines = ["", "NBD servers of the same LUKS1 container, fio at depth 16; the server's CPU seconds per GB:", "",
             "| requests | " + " | ".join((RAW, QEMU, SERVE)) + " | LUKS above none, qemu-nbd | xtent above qemu-nbd without | "
             "the ratio | xtent to qemu-nbd LUKS, all |", "|---" * 8 + "|"]
    missed = []
    for (size, direction), by_server in served.items():
        cost = {name: [run["cpu_seconds"] * 1e9 / run["bytes"] for run in runs] for name, runs in by_server.items()}
        above = {name: median([a - b for a, b in zip(cost[name], cost[RAW])]) for name in (QEMU, SERVE)}
        whole = median([a / b for a, b in zip(cost[SERVE], cost[QEMU])])
        name = f"{size // KIB} KiB {direction}"
        # Where QEMU's own encryption seems to cost nothing, there is nothing to compare with.
        ratio = above[SERVE] / above[QEMU] if above[QEMU] > 0 else float("nan")
        lines.append(f"| {name} | " + " | ".join(f"{median(costs):.3f}" for costs in cost.values())
                     + f" | {above[QEMU]:.3f} | {above[SERVE]:.3f} | {ratio:.2f} | {whole:.2f} |")
        if ratio > MUST:
            missed.append(f"{name}, servers: {ratio:.2f}")
    lines.append("")
    return "\n".join(lines), missed


def summary(args, results):
    lines = ["# Images in a Ceph cluster", ""]
    lines += [f"* {k}: {v}" for k, v in machine(args).items() if k in ("CPU", "CPU features", "kernel")]
    lines += ["* " + subprocess.run(["ceph", "--version"], check=True, capture_output=True, text=True).stdout.strip(),
              f"* {args.rounds} rounds, interleaved; medians of CPU seconds of the client per GB, and of what is "
              "above no encryption within a round", "",
              "| requests | " + " | ".join(MODES.values()) + " | librbd above none | xtent, AES-XTS | FAST | HCTR2 "
              "| AES-XTS to librbd |", "|---" * (len(MODES) + 6) + "|"]
    missed = []
    for (size, direction), by_mode in results.items():
        cost = {mode: [run["cpu"] * 1e9 / run["bytes"] for run in runs] for mode, runs in by_mode.items()}
        above = {mode: median([a - b for a, b in zip(costs, cost[PLAIN])])
                 for mode, costs in cost.items() if mode != PLAIN}
        ratio = above[XTENT] / above[LIBRBD]
        name = f"{size // KIB} KiB {direction}"
        lines.append(f"| {name} | " + " | ".join(f"{median(costs):.3f}" for costs in cost.values()) + " | "
                     + " | ".join(f"{value:.3f}" for value in above.values()) + f" | {ratio:.2f} |")
        if ratio > MUST:
            missed.append(f"{name}: {ratio:.2f}")
    lines.append("")
    return "\n".join(lines), missed


if __name__ == "__main__":
    main()
