#!/usr/bin/env python3
"""A volume on a disk past the page cache, and what waiting in the kernel saves there.

Three servers of xtent, each with an image of its own on the disk: as it is (the page cache is
emptied of the image before each run), with --direct-io, and with --direct-io where io_uring is
forbidden, so that threads wait (root sets kernel.io_uring_disabled while that one starts). The
client is fio's nbd engine; the servers take turns, round by round, and ratios are taken within a round.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile

from compare import KEY, Server, format_image, machine, measure, median, run

CACHED, RING, THREADS = "through the cache", "--direct-io", "--direct-io, no io_uring"
SWITCH = pathlib.Path("/proc/sys/kernel/io_uring_disabled")

# Name, fio's options.
CASES = {
    "4 KiB random read, depth 1": ["--rw=randread", "--bs=4k", "--iodepth=1"],
    "4 KiB random read, depth 32": ["--rw=randread", "--bs=4k", "--iodepth=32"],
    "4 KiB random read, depth 128": ["--rw=randread", "--bs=4k", "--iodepth=128"],
    "4 KiB random write, depth 1": ["--rw=randwrite", "--bs=4k", "--iodepth=1"],
    "4 KiB random write, depth 32": ["--rw=randwrite", "--bs=4k", "--iodepth=32"],
    "sequential read, 256 KiB, depth 16": ["--rw=read", "--bs=256k", "--iodepth=16"],
    "sequential write, 256 KiB, depth 16": ["--rw=write", "--bs=256k", "--iodepth=16"],
}


@contextlib.contextmanager
def no_io_uring():
    before = SWITCH.read_text()
    SWITCH.write_text("2")
    try:
        yield
    finally:
        SWITCH.write_text(before)


def start(args, folder, size):
    key = folder / "key"
    key.write_bytes(KEY)

    def serve(name, number, *options):
        image = folder / f"{number}.img"
        format_image(args.xtent, image, key, size, "luks2", 512)
        # A read of a hole asks no disk.
        with open(image, "r+b") as file:
            file.seek(16 << 20)
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        server = Server(name, [args.xtent, "serve", "--nbd", "unix:@SOCKET@", "--key-file", key,
                               *options, image], folder, number)
        server.image = image
        return server

    yield serve(CACHED, "cached")
    yield serve(RING, "ring", "--direct-io")
    if os.access(SWITCH, os.W_OK):
        with no_io_uring():
            server = serve(THREADS, "threads", "--direct-io")
        yield server
    else:
        print("NOT MEASURED: --direct-io without io_uring: root has to forbid it "
              f"({SWITCH}, Linux 6.6 or newer)", file=sys.stderr)


def forget(image):
    """Empties the page cache of the image."""
    with open(image, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xtent", type=pathlib.Path, required=True, help="the xtent command")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."),
                        help="where the images lie: on the disk to be measured (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, help="folder for direct.json and direct.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="length of each run")
    parser.add_argument("--size", type=int, default=1024, help="of each volume, MiB")
    args = parser.parse_args()
    args.xtent = args.xtent.resolve()
    size = args.size << 20
    amount = ["--time_based", f"--runtime={args.seconds}"]
    results = {case: {} for case in CASES}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="xtent-bench-", dir=args.folder))).resolve()
        kind = run("stat", "--file-system", "--format=%T", folder).strip()
        if kind == "tmpfs":
            sys.exit(f"{args.folder} is in memory: give --folder on a disk")
        running = []
        for server in start(args, folder, size):
            stack.callback(server.stop)
            running.append(server)
        for number in range(args.rounds):
            if sys.stderr.isatty():
                print(f"\r\x1b[Kround {number + 1} of {args.rounds}", end="", file=sys.stderr, flush=True)
            for case, options in CASES.items():
                for server in running:
                    forget(server.image)
                    results[case].setdefault(server.name, []).append(measure(server, options, size, amount))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    facts = {k: v for k, v in machine(args).items() if k not in ("nbdkit", "qemu-nbd")}
    facts["file system"] = kind
    lines = ["# Past the page cache", "", *(f"* {k}: {v}" for k, v in facts.items()),
             f"* {args.rounds} rounds of {args.seconds} s each, interleaved; medians", "",
             f"| requests | {RING}, MB/s | CPU ms per GB | " +
             " | ".join(f"speed to {s.name} | CPU to it" for s in running if s.name != RING) + " |"]
    lines.append("|---" * (1 + 2 * len(running)) + "|")
    for case, by_server in results.items():
        ring = by_server[RING]
        row = [f"{median(m['per_second'] for m in ring):.0f}", f"{median(1e6 / m['per_cpu'] for m in ring):.0f}"]
        for name, runs in by_server.items():
            if name != RING:
                row += [f"{median(a['per_second'] / b['per_second'] for a, b in zip(ring, runs)):.2f}",
                        f"{median(b['per_cpu'] / a['per_cpu'] for a, b in zip(ring, runs)):.2f}"]
        lines.append(f"| {case} | " + " | ".join(row) + " |")
    report = "\n".join([*lines, ""])
    print(report)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "direct.md").write_text(report)
        (args.output / "direct.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
