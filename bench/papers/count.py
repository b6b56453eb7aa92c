#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the instructions that dm-xtent's engine path and the kernel's software XTS take on the CPU
of the papers' boards, and writes them, with what a bio, a request, a piece of memory, a sector and a block of 16
bytes cost by them, to costs.json.

usage: count.py [--source FOLDER] [--build FOLDER] [--output FILE] [--kernel] [--check]

The kernel's makefiles compile kernel/{engine,flight,iv}.c and the kernel's own AES and XTS with its
configuration for these boards (sama5_defconfig); count.c stands for the rest of the kernel; QEMU runs each
instruction by itself and names its address. So the counts are exact, and the same on every machine with this compiler.
--kernel: also what a whole kernel takes for a request that another thread completes, in QEMU's bed `armhf`, a minute more;
without it what the file has of that stays. --check: counts again and compares with the file, and writes nothing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CROSS = "arm-linux-gnueabihf-"
# enum xt_row of kernel/xtent.h.
ROWS = ["other", "tweak", "iv_engine", "xor1", "xor2", "engine"]
# Ours; then the kernel's, with what they are called here, and the functions there that count.c calls.
OURS = ["engine", "flight", "iv"]
KERNELS = {
    "crypto/aes_generic.c": ["crypto_aes_encrypt", "crypto_aes_decrypt"],
    "crypto/ecb.c": ["crypto_ecb_encrypt", "crypto_ecb_decrypt"],
    "crypto/xts.c": ["xts_encrypt", "xts_decrypt"],
    "crypto/md5.c": ["md5_init", "md5_update", "md5_final"],
    "crypto/skcipher.c": [],
    "crypto/scatterwalk.c": [],
    "lib/crypto/aes.c": [],
    "lib/crypto/utils.c": [],
    "lib/llist.c": [],
    "arch/arm/lib/memset.S": [],
    "arch/arm/lib/memcpy.S": [],
}
# A trace line has cs_base / pc / flags in brackets.
PC = re.compile(r"^Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/")
# What coefficients are made from, and what else they have to foretell: bytes, request, sector.
MADE_FROM = [(512, 512, 512), (4096, 4096, 512), (65536, 65536, 512), (65536, 4096, 512), (65536, 65536, 4096)]
FORETOLD = [
    (4096, 512, 512),
    (65536, 512, 512),
    (8192, 8192, 512),
    (16384, 4096, 512),
    (32768, 32768, 512),
    (65536, 16384, 512),
    (4096, 4096, 4096),
    (32768, 8192, 4096),
    (32768, 4096, 2048),
]
PER = ["bio", "request", "piece", "sector", "block"]


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise SystemExit(f"count: failed: {' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def build(source, folder):
    """The program to count in."""
    for tool in (f"{CROSS}gcc", "qemu-arm"):
        if not shutil.which(tool):
            raise SystemExit(f"count: {tool} is missing; Debian packages gcc-arm-linux-gnueabihf and qemu-user")
    kernel, work = folder / "linux", folder / "count"
    kernel.mkdir(parents=True, exist_ok=True)
    make = ["make", "-s", "-C", source, "ARCH=arm", f"CROSS_COMPILE={CROSS}", f"O={kernel}"]
    if not (kernel / "scripts/mod/modpost").exists():
        run(*make, "sama5_defconfig")
        run(*make, "modules_prepare")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for file in (ROOT / "kernel").glob("*.h"):
        shutil.copy(file, work)
    for name in OURS:
        shutil.copy(ROOT / f"kernel/{name}.c", work)
    shutil.copy(HERE / "count.c", work)
    objects = ["count.o"] + [f"{name}.o" for name in OURS]
    calls = {}
    for path, wanted in KERNELS.items():
        # Of another name than ours, and than one another.
        name = "kernel_" + path.replace("/", "_")
        shutil.copy(source / path, work / name)
        objects.append(str(Path(name).with_suffix(".o")))
        calls[objects[-1]] = wanted
    # What memcpy.S includes by its place.
    shutil.copy(source / "arch/arm/lib/copy_template.S", work)
    (work / "Kbuild").write_text(f"ccflags-y := -I$(srctree)/crypto\nobj-m := {' '.join(objects)}\n")
    # Single objects: there are no modules to be linked.
    run(*make, f"M={work}", *objects)
    for name, wanted in calls.items():
        if wanted:
            run(f"{CROSS}objcopy", *(f"--globalize-symbol={w}" for w in wanted), work / name)
    libgcc = run(f"{CROSS}gcc", "-print-libgcc-file-name").strip()
    # Ciphers register themselves, which nothing here calls; a call of what is missing ends the program.
    run(
        f"{CROSS}ld", "-e", "_start", "-z", "muldefs", "-z", "noexecstack", "--unresolved-symbols=ignore-all",
        "-o", work / "counted", *(work / o for o in objects), libgcc,
    )  # fmt: skip
    return work


def registers(arguments):
    """In a list such as {r4, r6-r8, lr}."""
    number = {"sl": 10, "fp": 11, "ip": 12, "sp": 13, "lr": 14, "pc": 15}
    found = 0
    for part in arguments[arguments.index("{") + 1 : arguments.index("}")].split(","):
        ends = [number[r] if r in number else int(r[1:]) for r in part.strip().split("-")]
        found += ends[-1] - ends[0] + 1
    return found


def cycles(name, arguments):
    """The least and the most that an instruction keeps a Cortex-A5 from the next one, caches aside: it issues one
    each cycle, and with it a direct branch; pairs and lists of registers go one by one; what is
    loaded cannot be used by the instruction right behind. (GCC's description of its pipeline, gcc/config/arm/cortex-a5.md.)"""
    words = 1
    if name.startswith(("ldm", "stm", "push", "pop")):
        words = registers(arguments)
    elif name.startswith(("ldrd", "strd")):
        words = 2
    if name.startswith(("ld", "pop")):
        return words, words + 1
    if re.match(r"bl?(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?$", name):
        return 0, 1
    return words, words


class Counter:
    def __init__(self, work):
        self.work = work
        self.marks = {}
        found = []
        for line in run(f"{CROSS}nm", "-n", work / "counted").splitlines():
            address, kind, name = line.split()[-3:]
            if kind in "tT" and not name.startswith("$"):
                found.append((int(address, 16), name))
                self.marks[name] = int(address, 16)
        rest = {
            line.split()[-1]
            for line in run(f"{CROSS}nm", work / "count.o").splitlines()
            if len(line.split()) == 3 and line.split()[1] in "tT"
        }
        # Of each address that counts: the least and the most cycles it takes to issue.
        self.cycles = {}
        name = None
        line_of_code = re.compile(r"^ *([0-9a-f]+):\t(\S+)\s*(.*)")
        for line in run(f"{CROSS}objdump", "-d", "--no-show-raw-insn", work / "counted").splitlines():
            if line.endswith(">:"):
                name = line.split("<")[1][:-2]
            elif name and name not in rest and (match := line_of_code.match(line)):
                self.cycles[int(match[1], 16)] = cycles(match[2], match[3])

    def count(self, what, direction, size, request=0, sector=0, bits=0):
        """Instructions by row, and the least and the most cycles to issue them all."""
        log = self.work / "trace"
        run("qemu-arm", "-singlestep", "-d", "exec,nochain", "-D", log, self.work / "counted",
            what, direction, size, request, sector, bits)  # fmt: skip
        rows = dict.fromkeys(ROWS, 0)
        issue = [0, 0]
        switch = {self.marks[f"count_row_{i}"]: name for i, name in enumerate(ROWS)}
        counting, row = False, "other"
        with open(log) as lines:
            for line in lines:
                match = PC.match(line)
                if not match:
                    continue
                pc = int(match[1], 16)
                if pc == self.marks["count_begin"]:
                    counting = True
                elif pc == self.marks["count_end"]:
                    break
                elif pc in switch:
                    row = switch[pc]
                elif counting and (found := self.cycles.get(pc)):
                    rows[row] += 1
                    issue[0] += found[0]
                    issue[1] += found[1]
            else:
                raise SystemExit("count: the trace has no end")
        log.unlink()
        return rows, issue


def amounts(size, request, sector):
    """Bios, requests, pieces (of up to a page, each with an XOR of its own), sectors and blocks."""
    return [1, -(-size // request), (-(-size // request)) * (-(-min(size, request) // 4096)), size // sector, size // 16]


def solve(matrix, values):
    """Of as many equations as unknowns, exactly."""
    rows = [[Fraction(x) for x in line] + [Fraction(v)] for line, v in zip(matrix, values)]
    n = len(rows)
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(n):
            if r != i:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i])]
    return [line[-1] for line in rows]


def engine(counter, direction):
    counted = {key: counter.count("engine", direction, *key) for key in MADE_FROM + FORETOLD}
    made = {}
    for row in ROWS:
        found = solve([amounts(*key) for key in MADE_FROM], [counted[key][0][row] for key in MADE_FROM])
        made[row] = {per: round(float(x), 4) for per, x in zip(PER, found)}
    checks = []
    for key in FORETOLD:
        rows = counted[key][0]
        told = sum(sum(made[row][per] * n for per, n in zip(PER, amounts(*key))) for row in ROWS)
        worst = max(
            (abs(sum(made[row][per] * n for per, n in zip(PER, amounts(*key))) - rows[row]) for row in ROWS),
        )
        total = sum(rows.values())
        checks.append(
            {"bytes": key[0], "request": key[1], "sector": key[2], "counted": total, "foretold": round(told, 1),
             "off_by": round(told / total - 1, 4), "worst_row_off_by": round(worst / total, 4)}
        )  # fmt: skip
    raw = [
        {"bytes": key[0], "request": key[1], "sector": key[2], "rows": counted[key][0], "issue_cycles": counted[key][1]}
        for key in MADE_FROM
    ]
    return {"instructions": made, "made_from": raw, "checks": checks}


def software(counter, direction):
    """The kernel's XTS in C, a request a sector."""
    out = {}
    for bits in (128, 256):
        one, two = (sum(counter.count("block", direction, n * 16, bits=bits)[0].values()) for n in (1, 101))
        aes = (two - one) / 100
        counts = {}
        for sector, size in ((512, 4096), (512, 8192), (4096, 4096), (4096, 16384)):
            counts[sector, size] = sum(counter.count("xts", direction, size, 0, sector, bits)[0].values())
        short = (counts[512, 8192] - counts[512, 4096]) / 8
        long = (counts[4096, 16384] - counts[4096, 4096]) / 3
        # A sector more than its blocks; blocks, AES and masks and both XORs.
        block = (long - short) / (256 - 32)
        out[f"aes-{bits}"] = {"block": aes, "xts_sector_512": short, "xts_sector_4096": long,
                              "xts_sector": round(short - 32 * block, 2), "xts_block": round(block, 3)}  # fmt: skip
    return out


JOB = """insmod /in/dm-xtent.ko timing=1 && insmod /in/xtent_run_test.ko || exit 1
rmmod brd 2>/dev/null
modprobe brd rd_nr=1 rd_size=8192
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
for cut in 512 4096 65536; do
    dmsetup create d --noudevrules --noudevsync \\
        --table "0 4096 xtent engine:ecb-xtent-test-plain64 $key 0 /dev/ram0 0 2 in_flight:1 request_size:$cut" || exit 1
    dmsetup mknodes d
    dd bs=1M count=1 if=/dev/zero of=/dev/mapper/d oflag=direct 2>/dev/null || exit 1
    for i in 1 2; do
        echo "AT $cut $(dmsetup status d)"
        dd bs=1M count=2 if=/dev/zero of=/dev/mapper/d oflag=direct 2>/dev/null || exit 1
    done
    dmsetup remove d --noudevrules --noudevsync
done
"""


def kernel(folder):
    """What a whole kernel executes for a request that completes in another thread: in QEMU's 32-bit ARM, an instruction is
    a nanosecond of its clock. The rows of what count.c counts stand beside, with the readings of the clock in them."""
    modules = run(ROOT / "kernel/test/build.sh", "armhf", env={**os.environ, "CONFIG_XTENT_RUN_TEST": "m"}).strip()
    job = folder / "job"
    job.write_text(JOB)
    lines = run(
        ROOT / "scripts/guest.sh", "--on", "armhf", "--count-instructions", "--timeout", "600",
        "--file", f"dm-xtent.ko={modules}/dm-xtent.ko", "--file", f"xtent_run_test.ko={modules}/xtent_run_test.ko", job,
    ).splitlines()  # fmt: skip
    rows = {}
    for cut in (512, 4096, 65536):
        before, after = (line.split() for line in lines if line.startswith(f"AT {cut} "))
        requests = (2 << 20) // cut
        rows[cut] = {r: (int(after[after.index(r) + 1]) - int(before[before.index(r) + 1])) / requests for r in ROWS}
    # A tweak a sector, and a sector of data, have a request's cost on top: sectors are told apart by the longest.
    fixed = {}
    for row in ("iv_engine", "engine"):
        each = (rows[65536][row] - rows[4096][row]) / (128 - 8)
        fixed[row] = round(rows[4096][row] - 8 * each, 1)
    return {
        "kernel": (Path(run(ROOT / "scripts/kernel.sh", "armhf").strip()) / "version").read_text().strip(),
        "instructions_by_request": fixed,
        "rows": {str(cut): {r: round(x, 1) for r, x in of.items()} for cut, of in rows.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--source", type=Path, help="Linux 6.1; without it that of scripts/kernel.sh source-6.1")
    parser.add_argument("--build", type=Path, default=target.resolve() / "bench-papers")
    parser.add_argument("--output", type=Path, default=HERE / "costs.json")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--kernel", action="store_true")
    args = parser.parse_args()
    source = args.source or Path(run(ROOT / "scripts/kernel.sh", "source-6.1").strip())
    work = build(source.resolve(), args.build.resolve())
    counter = Counter(work)
    flags = (work / ".engine.o.cmd").read_text().split()
    parts = {name: engine(counter, name[0]) for name in ("encryption", "decryption")}
    raw = [point for part in parts.values() for point in part["made_from"]]
    total = sum(sum(point["rows"].values()) for point in raw)
    result = {
        "what": "instructions of 32-bit ARM, counted by bench/papers/count.py",
        "toolchain": {
            "compiler": run(f"{CROSS}gcc", "--version").splitlines()[0],
            "flags": sorted({f for f in flags if re.match(r"-(O\d|march|mcpu|mtune|marm|mthumb|mfpu)", f)}),
            "kernel": run("make", "-s", "-C", source, "kernelversion").strip() + ", sama5_defconfig",
            "emulator": run("qemu-arm", "--version").splitlines()[0],
        },
        # Cycles for an instruction of the engine's path on a Cortex-A5, from the counts below: caches that miss are
        # not in it.
        "cpi": [round(sum(point["issue_cycles"][i] for point in raw) / total, 3) for i in (0, 1)],
        "engine": parts,
        "software": {name: software(counter, name[0]) for name in ("encryption", "decryption")},
    }
    for name, part in result["engine"].items():
        for check in part["checks"]:
            print(f"{name}: {check}")
            if abs(check["off_by"]) > 0.02 or check["worst_row_off_by"] > 0.02:
                raise SystemExit("count: the coefficients do not foretell what was counted")
    short, long = (sum(counter.count("md5", "e", n)[0].values()) for n in (4096, 65536))
    result["md5_block"] = (long - short) / ((65536 - 4096) / 64)
    known = json.loads(args.output.read_text()) if args.output.exists() else {}
    if args.kernel:
        result["kernel"] = kernel(args.build.resolve())
    elif "kernel" in known:
        result["kernel"] = known["kernel"]
    text = json.dumps(result, indent=1) + "\n"
    if args.check:
        if args.output.read_text() != text:
            raise SystemExit(f"count: {args.output} does not hold what was counted; run {Path(__file__).name} again")
        print("as in", args.output)
        return
    args.output.write_text(text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
