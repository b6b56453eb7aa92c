#!/usr/bin/env python3
"""Compares NBD servers of encrypted volumes: server CPU time and wall time.

Every server serves its own image in memory, all run side by side, and the same
client (fio's nbd engine) works with one after the other, round by round, so
that whatever else the machine does hits all of them alike. Ratios are taken
within a round, against nbdkit without encryption; medians are reported.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TICK = os.sysconf("SC_CLK_TCK")
MUST, GOAL = 0.75, 1.0
BASE = "nbdkit, no encryption"
KEY = b"benchmark"
# The volumes that xtent serves: format and bytes per sector.
FORMATS = (("luks1", 512), ("luks2", 512), ("luks2", 4096))
BEFORE = "other build"

# Name, fio's options.
CASES = {
    "sequential read": ["--rw=read", "--bs=1m", "--iodepth=4"],
    "sequential write": ["--rw=write", "--bs=1m", "--iodepth=4"],
    "4 KiB random read": ["--rw=randread", "--bs=4k", "--iodepth=32"],
    "4 KiB random write": ["--rw=randwrite", "--bs=4k", "--iodepth=32"],
}


def tool(name, package):
    found = shutil.which(name, path=PATH)
    if not found:
        sys.exit(f"{name} is missing: install the Debian package {package} (scripts/setup.sh bench)")
    return found


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class Server:
    """A running NBD server."""

    def __init__(self, name, command, folder, number):
        self.name = name
        self.socket = folder / f"{number}.sock"
        self.log = open(folder / f"{number}.log", "w+b")
        command = [str(part).replace("@SOCKET@", str(self.socket)) for part in command]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + 20
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                sys.exit(f"{name} does not start: {' '.join(command)}\n{self.log.read().decode()}")
            time.sleep(0.01)

    def answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
                return True
            except OSError:
                return False

    def cpu(self):
        """Seconds of CPU, user and system, of all its threads so far."""
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def peak_memory(self):
        """Largest resident set so far, in MiB, without the pages of the image."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def measure(server, options, size, amount, clients=1):
    """One run of the client. Returns MB per server CPU second and per second."""
    command = [
        tool("fio", "fio"), "--name=bench", "--ioengine=nbd", "--thread", "--group_reporting",
        f"--uri=nbd+unix:///?socket={server.socket}", f"--size={size}", f"--numjobs={clients}",
        "--output-format=json", "--randrepeat=0", "--norandommap", "--zero_buffers=0",
        *amount, *options]
    before = server.cpu()
    output = run(*command)
    report = json.loads(output[output.index("{"):])  # fio's engine chats before it
    cpu = server.cpu() - before
    job = report["jobs"][0]
    moved = job["read"]["io_bytes"] + job["write"]["io_bytes"]
    seconds = max(job["read"]["runtime"], job["write"]["runtime"]) / 1000
    if moved == 0 or job["error"]:
        sys.exit(f"{server.name}: fio moved nothing or failed: {job}")
    return {
        "bytes": moved,
        "cpu_seconds": cpu,
        # A tick, where a short run used less than that.
        "per_cpu": moved / 1e6 / max(cpu, 1 / TICK),
        "per_second": moved / 1e6 / max(seconds, 1e-3),
    }


def format_image(xtent, image, key, size, kind, sector):
    with open(image, "wb") as file:
        file.truncate(size + ((16 if kind == "luks2" else 2) << 20))
    run(xtent, "format", "--batch-mode", "--type", kind, "--key-size", "512",
        "--sector-size", str(sector), "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
        "--key-file", key, image)


def format_for_peers(image, key, size):
    """A LUKS1 image for the peers, so that they run without xtent as well."""
    with open(image, "wb") as file:
        file.truncate(size + (2 << 20))
    run(tool("cryptsetup", "cryptsetup-bin"), "luksFormat", "--batch-mode", "--type", "luks1",
        "--cipher", "aes-xts-plain64", "--key-size", "512", "--pbkdf-force-iterations", "1000",
        "--key-file", key, image)


def servers(args, folder, size):
    """Starts all servers; yields them in order."""
    key = folder / "key"
    key.write_bytes(KEY)
    nbdkit, qemu = tool("nbdkit", "nbdkit"), tool("qemu-nbd", "qemu-utils")
    plain = folder / "plain.img"
    with open(plain, "wb") as file:
        file.truncate(size)
    commands = {BASE: [nbdkit, "-f", "-U", "@SOCKET@", "file", plain]}
    luks1 = {name: folder / f"{name}.img" for name in ("nbdkit", "qemu")}
    for image in luks1.values():
        format_for_peers(image, key, size)
    commands["nbdkit, LUKS1"] = [
        nbdkit, "-f", "-U", "@SOCKET@", "--filter=luks", "file", luks1["nbdkit"],
        f"passphrase=+{key}"]
    commands["qemu-nbd, LUKS1"] = [
        qemu, "-t", "-e", "8", "-k", "@SOCKET@", "--object", f"secret,id=s,file={key}",
        "--image-opts",
        f"driver=luks,key-secret=s,file.driver=file,file.filename={luks1['qemu']}"]
    for label, xtent in (("xtent", args.xtent), (BEFORE, args.before)):
        for kind, sector in FORMATS if xtent else ():
            image = folder / f"{label}-{kind}-{sector}.img"
            format_image(xtent, image, key, size, kind, sector)
            commands[f"{label}, {kind.upper()}, {sector}"] = [
                xtent, "serve", "--nbd", "unix:@SOCKET@", "--key-file", key, image]
    return [Server(name, command, folder, number)
            for number, (name, command) in enumerate(commands.items())]


def cpu_facts():
    """What there is to say of the CPU."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    flags = set(re.search(r"flags\s*: (.*)", cpuinfo)[1].split()) if "flags" in cpuinfo else set()
    return {
        "CPU": f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores",
        "CPU features": " ".join(f for f in ("aes", "avx2", "vaes", "vpclmulqdq", "avx512f") if f in flags),
    }


def machine(args):
    """What the figures depend on."""
    facts = cpu_facts() | {
        "kernel": platform.release(),
        "fio": run(tool("fio", "fio"), "--version").strip(),
        "nbdkit": run(tool("nbdkit", "nbdkit"), "--version").strip(),
        "qemu-nbd": run(tool("qemu-nbd", "qemu-utils"), "--version").splitlines()[0],
    }
    if args.xtent:
        facts["xtent"] = run(args.xtent, "--version").strip()
    return facts


def backend(xtent, folder, size):
    """The cipher implementation that xtent chooses here, in its own words."""
    image, key = folder / "probe.img", folder / "probe.key"
    key.write_bytes(KEY)
    format_image(xtent, image, key, size, "luks2", 512)
    probe = Server("xtent", [xtent, "serve", "-vv", "--nbd", "unix:@SOCKET@", "--key-file", key, image],
                   folder, "probe")
    probe.stop()
    found = re.search(r"backend=(\S+)", (folder / "probe.log").read_text())
    image.unlink()
    return found[1] if found else "not said"


def compare(running, amount, size, rounds, note):
    """All cases. Returns {case: {server: [measurement per round]}}."""
    results = {case: {server.name: [] for server in running} for case in CASES}
    for server in running:  # once unmeasured: no first touch of memory or key schedule in a figure
        measure(server, CASES["sequential write"], size, [f"--io_size={size}"])
    for number in range(rounds):
        note(f"round {number + 1} of {rounds}")
        for case, options in CASES.items():
            for server in running:
                results[case][server.name].append(measure(server, options, size, amount))
    return results


def scale(running, amount, size, rounds, note):
    """Parallel clients. Returns {server: {clients: [measurement per round]}}."""
    results = {server.name: {clients: [] for clients in (1, 2, 4)} for server in running}
    for number in range(rounds):
        note(f"parallel clients, round {number + 1} of {rounds}")
        for clients in (1, 2, 4):
            for server in running:
                results[server.name][clients].append(
                    measure(server, CASES["sequential read"], size, amount, clients))
    return results


def median(values):
    return statistics.median(list(values))


def against_other_build(results):
    """xtent against another build of it, round by round."""
    names = [name for name in next(iter(results.values())) if name.startswith(BEFORE)]
    if not names:
        return []
    lines = ["## Against the other build, per CPU second and per second", "",
             "| server | " + " | ".join(CASES) + " |", "|---" * (len(CASES) + 1) + "|"]
    for name in names:
        mine = name.replace(BEFORE, "xtent")
        cells = [" and ".join(f"{median(a[by] / b[by] for a, b in zip(case[mine], case[name])):.2f}"
                              for by in ("per_cpu", "per_second")) for case in results.values()]
        lines.append(f"| {mine} | " + " | ".join(cells) + " |")
    return lines + [""]


def tables(results, scaling, memory, judged):
    """The report as Markdown, with a verdict if `judged`, and the ratios that the goals speak of."""
    lines, ratios = [], {}
    for measure_name, title in (
            ("per_cpu", "MB per CPU second of the server"), ("per_second", "MB per second of wall time")):
        lines += [f"## {title}", "", "| server | " + " | ".join(CASES) + " |", "|---" * (len(CASES) + 1) + "|"]
        for name in next(iter(results.values())):
            cells = []
            for case in CASES:
                mine = [m[measure_name] for m in results[case][name]]
                base = [m[measure_name] for m in results[case][BASE]]
                ratio = median(a / b for a, b in zip(mine, base))
                cells.append(f"{median(mine):.0f} ({ratio:.2f})")
                if measure_name == "per_cpu" and name.startswith("xtent"):
                    ratios[name, case] = ratio
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines += ["", f"In brackets: the ratio to {BASE}, in the same round.", ""]
    lines += against_other_build(results)
    if ratios and judged:
        lines += [f"## Goals: at least {MUST} of {BASE} per CPU second (must), {GOAL} (goal)", "",
                  "| server | " + " | ".join(CASES) + " |", "|---" * (len(CASES) + 1) + "|"]
        for name in dict.fromkeys(name for name, _ in ratios):
            words = [("goal" if ratios[name, case] >= GOAL else "must" if ratios[name, case] >= MUST
                      else "MISSED") + f" {ratios[name, case]:.2f}" for case in CASES]
            lines.append(f"| {name} | " + " | ".join(words) + " |")
        lines.append("")
    if scaling:
        lines += ["## Parallel clients: CPU seconds of the server per GB, sequential read", "",
                  "| server | 1 client | 2 | 4 | 4 against 1 |", "|---|---|---|---|---|"]
        for name, by_clients in scaling.items():
            costs = {n: median(1000 / m["per_cpu"] for m in runs) for n, runs in by_clients.items()}
            lines.append(f"| {name} | " + " | ".join(f"{cost:.3f}" for cost in costs.values())
                         + f" | {costs[4] / costs[1]:.2f} |")
        lines.append("")
    lines += ["## Peak memory of the server, MiB resident", "", "| server | MiB |", "|---|---|"]
    lines += [f"| {name} | {mib:.0f} |" for name, mib in memory.items()]
    return "\n".join(lines) + "\n", ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xtent", type=pathlib.Path, help="the xtent command; without it only the peers run")
    parser.add_argument("--before", type=pathlib.Path, help="another build of xtent, to compare with")
    parser.add_argument("--output", type=pathlib.Path, help="folder for results.json and results.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1, help="length of each run")
    parser.add_argument("--size", type=int, default=256, help="of each image, MiB")
    parser.add_argument("--quick", action="store_true",
                        help="one short round, to see that it works: the figures mean nothing")
    parser.add_argument("--require", choices=("must", "goal"), help="fail unless every ratio reaches it")
    args = parser.parse_args()
    if args.xtent:
        args.xtent = args.xtent.resolve()
    if args.before:
        if not args.xtent:
            parser.error("--before compares with --xtent: give that, too")
        args.before = args.before.resolve()
    size = (16 if args.quick else args.size) << 20
    rounds = 1 if args.quick else args.rounds
    amount = [f"--io_size={size}"] if args.quick else ["--time_based", f"--runtime={args.seconds}"]

    def note(text):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    memory_folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    facts = machine(args)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="xtent-bench-", dir=memory_folder)))
        if args.xtent:
            facts["xtent's back-end"] = backend(args.xtent, folder, size)
        running = servers(args, folder, size)
        for server in running:
            stack.callback(server.stop)
        results = compare(running, amount, size, rounds, note)
        scaling = scale(running, amount, size, min(rounds, 3), note)
        memory = {server.name: server.peak_memory() for server in running}
    note("")

    report, ratios = tables(results, scaling, memory, judged=not args.quick)
    head = "# NBD servers of encrypted volumes\n\n" + "".join(f"* {k}: {v}\n" for k, v in facts.items())
    head += f"* images: {size >> 20} MiB each, in {memory_folder or 'a temporary folder'}; "
    head += "one short round, figures without meaning\n\n" if args.quick else (
        f"{rounds} rounds of {args.seconds} s each, interleaved; medians\n\n")
    print(head + report)
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "results.md").write_text(head + report)
        (args.output / "results.json").write_text(json.dumps(
            {"machine": facts, "cases": results, "clients": scaling, "peak_memory_mib": memory,
             "ratios": {f"{name}, {case}": ratio for (name, case), ratio in ratios.items()}}, indent=1))
        print(f"Written to {args.output}/results.md and results.json.")
    if args.require:
        limit = MUST if args.require == "must" else GOAL
        missed = [f"{name}, {case}: {ratio:.2f}" for (name, case), ratio in ratios.items() if ratio < limit]
        if missed:
            sys.exit(f"below {limit}:\n" + "\n".join(missed))


if __name__ == "__main__":
    main()
