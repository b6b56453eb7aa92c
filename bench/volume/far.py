#!/usr/bin/env python3
"""An encrypted volume whose store is far away: what encryption costs there.

One nbdkit, whose every request takes as long as said, stands for the storage. A client
(fio's nbd engine) asks it directly, through xtent, and through qemu-nbd with its own LUKS,
one after the other, round by round. Ratios are taken within a round: of wall time to the
client without encryption between, of CPU time of the servers to each other.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile

from compare import KEY, Server, format_for_peers, machine, measure, median, tool

DIRECT, XTENT, QEMU = "direct", "xtent", "qemu-nbd, LUKS1"
MUST = 0.9

# Name, fio's options.
CASES = {
    "4 KiB random read, depth 128": ["--rw=randread", "--bs=4k", "--iodepth=128"],
    "4 KiB random write, depth 128": ["--rw=randwrite", "--bs=4k", "--iodepth=128"],
    "sequential read, 256 KiB, depth 16": ["--rw=read", "--bs=256k", "--iodepth=16"],
    "sequential write, 256 KiB, depth 16": ["--rw=write", "--bs=256k", "--iodepth=16"],
}


def servers(args, folder, size, delay):
    """The storage, and the two that encrypt in front of it."""
    key = folder / "key"
    key.write_bytes(KEY)
    image = folder / "image"
    format_for_peers(image, key, size)
    # As many threads as requests, or the storage itself would queue them.
    command = [tool("nbdkit", "nbdkit"), "-f", "-t", "512", "-U", "@SOCKET@"]
    command += ["--filter=delay"] if delay else []
    command += ["file", image] + ([f"rdelay={delay}ms", f"wdelay={delay}ms"] if delay else [])
    storage = Server(DIRECT, command, folder, "storage")
    return [
        storage,
        Server(XTENT, [args.xtent, "serve", "--nbd", "unix:@SOCKET@", "--key-file", key,
                       f"nbd+unix:///?socket={storage.socket}"], folder, "xtent"),
        Server(QEMU, [tool("qemu-nbd", "qemu-utils"), "-t", "-e", "8", "-k", "@SOCKET@",
                      "--object", f"secret,id=s,file={key}", "--image-opts",
                      "driver=luks,key-secret=s,file.driver=nbd,file.server.type=unix,"
                      f"file.server.path={storage.socket}"], folder, "qemu"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xtent", type=pathlib.Path, required=True, help="the xtent command")
    parser.add_argument("--output", type=pathlib.Path, help="folder for far.json and far.md")
    parser.add_argument("--delays", default="0,1,5,20", help="milliseconds that a request takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="length of each run")
    parser.add_argument("--size", type=int, default=256, help="of the volume, MiB")
    parser.add_argument("--require", action="store_true",
                        help=f"fail if a read by xtent has less than {MUST} of the direct one's speed")
    args = parser.parse_args()
    args.xtent = args.xtent.resolve()
    size = args.size << 20
    amount = ["--time_based", f"--runtime={args.seconds}"]
    memory_folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    results, memory = {}, {}
    for delay in map(int, args.delays.split(",")):
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(
                tempfile.TemporaryDirectory(prefix="xtent-bench-", dir=memory_folder)))
            running = servers(args, folder, size, delay)
            for server in running:  # the storage last
                stack.callback(server.stop)
            for number in range(args.rounds):
                if sys.stderr.isatty():
                    print(f"\r\x1b[K{delay} ms, round {number + 1} of {args.rounds}",
                          end="", file=sys.stderr, flush=True)
                for case, options in CASES.items():
                    for server in running:
                        runs = results.setdefault((delay, case), {}).setdefault(server.name, [])
                        runs.append(measure(server, options, size, amount))
            memory[delay] = {server.name: server.peak_memory() for server in running[1:]}
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    lines = ["# Volumes whose store is far away", ""]
    lines += [f"* {k}: {v}" for k, v in machine(args).items()]
    lines += [f"* {args.rounds} rounds of {args.seconds} s each, interleaved; medians", "",
              "| delay, ms | requests | direct, MB/s | xtent / direct | qemu-nbd / direct "
              "| CPU ms per GB, xtent | qemu-nbd | qemu-nbd / xtent |", "|---" * 8 + "|"]
    missed = []
    for (delay, case), by_server in results.items():
        def speed(name, by_server=by_server):
            return median(a["per_second"] / b["per_second"]
                          for a, b in zip(by_server[name], by_server[DIRECT]))

        def cost(name, by_server=by_server):
            return median(1e6 / m["per_cpu"] for m in by_server[name])

        cheaper = median(a["per_cpu"] / b["per_cpu"] for a, b in zip(by_server[XTENT], by_server[QEMU]))
        direct = median(m["per_second"] for m in by_server[DIRECT])
        lines.append(f"| {delay} | {case} | {direct:.0f} | {speed(XTENT):.2f} | {speed(QEMU):.2f} "
                     f"| {cost(XTENT):.0f} | {cost(QEMU):.0f} | {cheaper:.1f} |")
        if delay > 1 and "read" in case and speed(XTENT) < MUST:
            missed.append(f"{delay} ms, {case}: {speed(XTENT):.2f}")
    lines += ["", "Peak memory, MiB resident: " + "; ".join(
        f"{delay} ms: " + ", ".join(f"{name} {mib:.0f}" for name, mib in found.items())
        for delay, found in memory.items()), ""]
    report = "\n".join(lines)
    print(report)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "far.md").write_text(report)
        (args.output / "far.json").write_text(json.dumps(
            {f"{delay} ms, {case}": found for (delay, case), found in results.items()}, indent=1))
    if args.require and missed:
        sys.exit(f"below {MUST} of direct:\n" + "\n".join(missed))


if __name__ == "__main__":
    main()
