#!/usr/bin/env python3
"""What TLS costs: an encrypted volume that is served with it and without, one behind a server with
it and without, and nbdkit without encryption.

One client (nbdcopy) copies all of it, with one after the other, round by round. Ratios are taken
within a round: of the server's CPU time with TLS to that without.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

from compare import KEY, TICK, Server, format_image, machine, median, run, tool

# With TLS and without, by what is measured.
PAIRS = {
    "xtent": ("xtent with TLS", "xtent"),
    "xtent behind nbdkit": ("xtent behind nbdkit with TLS", "xtent behind nbdkit"),
    "nbdkit, no encryption": ("nbdkit with TLS", "nbdkit"),
}


def certificates(folder):
    """An authority that has signed for a server; clients trust it."""
    openssl = tool("openssl", "openssl")
    new = [openssl, "req", "-x509", "-newkey", "ed25519", "-noenc", "-days", "2", "-subj"]
    run(*new, "/CN=bench", "-addext", "keyUsage=critical,keyCertSign",
        "-keyout", folder / "ca-key.pem", "-out", folder / "ca-cert.pem")
    run(*new, "/CN=server", "-CA", folder / "ca-cert.pem", "-CAkey", folder / "ca-key.pem",
        "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "extendedKeyUsage=serverAuth", "-addext", "keyUsage=critical,digitalSignature",
        "-keyout", folder / "server-key.pem", "-out", folder / "server-cert.pem")


def servers(args, folder, size, stack):
    """All of them by name, with the URI for the client."""
    key = folder / "key"
    key.write_bytes(KEY)
    certificates(folder)
    running = {}

    def start(name, command, tls):
        server = Server(name, command, folder, len(running))
        stack.callback(server.stop)
        scheme, parameters = ("nbds", f"&tls-certificates={folder}") if tls else ("nbd", "")
        running[name] = (server, f"{scheme}+unix:///?socket={server.socket}{parameters}")

    def image(name):
        format_image(args.xtent, folder / name, key, size, "luks2", 4096)
        return folder / name

    nbdkit = [tool("nbdkit", "nbdkit"), "-f", "-U", "@SOCKET@"]
    xtent = [args.xtent, "serve", "--nbd", "unix:@SOCKET@", "--key-file", key]
    for tls in False, True:
        label = " with TLS" if tls else ""
        far = ["--tls=require", f"--tls-certificates={folder}"] if tls else []
        near = ["--tls-certificates", folder] if tls else []
        plain = folder / f"plain{label}"
        with open(plain, "wb") as file:
            file.truncate(size)
        start(f"nbdkit{label}", [*nbdkit, *far, "file", plain], tls)
        start(f"xtent{label}", [*xtent, *near, image(f"volume{label}")], tls)
        start(f"storage{label}", [*nbdkit, *far, "file", image(f"far{label}")], tls)
        # Its own client has none: what is measured is the connection to the storage.
        start(f"xtent behind nbdkit{label}", [*xtent, running[f"storage{label}"][1]], False)
    return running


def measure(server, uri, data, writes):
    """One copy; CPU seconds of the server per GB, and bytes per second."""
    places = [data, uri] if writes else [uri, "null:"]
    size = data.stat().st_size
    before, begun = server.cpu(), time.monotonic()
    run(tool("nbdcopy", "libnbd-bin"), "--connections=1", "--requests=16", *places)
    seconds, cpu = time.monotonic() - begun, server.cpu() - before
    return {"cpu_per_gb": max(cpu, 1 / TICK) / size * 1e9, "per_second": size / seconds / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xtent", type=pathlib.Path, required=True, help="the xtent command")
    parser.add_argument("--output", type=pathlib.Path, help="folder for tls.json and tls.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="of the volumes, MiB")
    args = parser.parse_args()
    args.xtent = args.xtent.resolve()
    size = args.size << 20
    memory_folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    results = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="xtent-bench-", dir=memory_folder)))
        data = folder / "data"
        with open(data, "wb") as file:
            for _ in range(args.size):
                file.write(os.urandom(1 << 20))
        running = servers(args, folder, size, stack)
        measured = [name for pair in PAIRS.values() for name in pair]
        for name in measured:  # once unmeasured: every block is there
            measure(*running[name], data, True)
        for number in range(args.rounds):
            if sys.stderr.isatty():
                print(f"\r\x1b[Kround {number + 1} of {args.rounds}", end="", file=sys.stderr, flush=True)
            for writes in False, True:
                for name in measured:
                    runs = results.setdefault(name, {}).setdefault("write" if writes else "read", [])
                    runs.append(measure(*running[name], data, writes))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    lines = ["# TLS", ""]
    lines += [f"* {k}: {v}" for k, v in machine(args).items()]
    lines += [f"* {args.rounds} rounds of {args.size} MiB each, interleaved; medians", "",
              "| server | copy | CPU s per GB | with TLS | ratio | MB/s | with TLS | ratio |", "|---" * 8 + "|"]
    for label, (secure, plain) in PAIRS.items():
        for case in "read", "write":
            with_tls, without = results[secure][case], results[plain][case]

            def both(key, with_tls=with_tls, without=without):
                ratio = median(a[key] / b[key] for a, b in zip(with_tls, without))
                return median(m[key] for m in without), median(m[key] for m in with_tls), ratio

            cost, speed = both("cpu_per_gb"), both("per_second")
            lines.append(f"| {label} | {case} | {cost[0]:.2f} | {cost[1]:.2f} | {cost[2]:.1f} "
                         f"| {speed[0]:.0f} | {speed[1]:.0f} | {speed[2]:.2f} |")
    report = "\n".join([*lines, ""])
    print(report)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "tls.md").write_text(report)
        (args.output / "tls.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
