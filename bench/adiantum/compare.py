#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares Adiantum with the code that Linux has for it on x86, in user space.

usage: compare.py [--library FILE] [--source FOLDER] [--starts N] [--rounds N] [--slice MS] [--quick] [--output FOLDER]

Builds XChaCha (SSSE3, AVX2, AVX-512VL), NH (SSE2, AVX2), AES and Poly1305 from the kernel's source as
Debian packages it, unchanged, links them with adiantum.c, which makes the calls of them that Linux's
Adiantum makes, and with libsector_cipher. All have to agree, both ways, with the latter's portable code;
then they encrypt 64 sectors again and again, in turns, Linux's code one sector per call, since that is
what dm-crypt asks of it. Figures are medians over the rounds of all starts, of the thread's CPU time;
ratios are taken within a round. Several starts, since in one of a dozen a back-end was a fifth slower, all along.
Linux's crypto API, and what a kernel does before it may use vector registers, are not in it.

Ends with 77 where there is nothing to compare: without AVX2 and AES, or where the kernel's source is not to be had.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FEATURES = ["ssse3", "aes", "avx2"]
ASSEMBLY = [
    "arch/x86/crypto/chacha-ssse3-x86_64.S",
    "arch/x86/crypto/chacha-avx2-x86_64.S",
    "arch/x86/crypto/chacha-avx512vl-x86_64.S",
    "arch/x86/crypto/nh-sse2-x86_64.S",
    "arch/x86/crypto/nh-avx2-x86_64.S",
    "arch/x86/crypto/aesni-intel_asm.S",
]
POLY1305 = "lib/crypto/poly1305-donna64.c"
HEADERS = ["crypto/poly1305.h", "crypto/internal/poly1305.h"]
# What user.h stands for, in Linux 6.1 and 6.12.
EMPTY = [
    "asm/frame.h", "asm/nospec-branch.h", "asm/unaligned.h", "linux/cfi_types.h", "linux/crypto.h", "linux/kernel.h",
    "linux/linkage.h", "linux/types.h", "linux/unaligned.h",
]  # fmt: skip
# As the kernel compiles it: without vector registers.
KERNELS_FLAGS = ["-O2", "-mgeneral-regs-only", "-fno-strict-aliasing"]
LINUX = "Linux, "


def skip(why):
    print(f"compare.py: nothing to compare: {why}", file=sys.stderr)
    sys.exit(77)


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"compare.py: failed: {' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def cpu():
    """What /proc/cpuinfo says of the first one."""
    facts = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    return facts


def kernel_source(folder):
    if folder is None:
        command = [ROOT / "scripts/kernel.sh", "source-6.1"]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if found.returncode != 0:
            skip("scripts/kernel.sh gets no source of Linux; see above, or name a folder with --source")
        folder = Path(found.stdout.strip())
    for name in [*ASSEMBLY, POLY1305, *(f"include/{header}" for header in HEADERS)]:
        if not (folder / name).exists():
            sys.exit(f"compare.py: {folder} has no {name}: it takes the source of Linux 6.1 or 6.12")
    return folder.resolve()


def build(source, library, work):
    """The program, in `work`: nothing of the kernel is left behind."""
    shims = work / "include"
    for name in EMPTY:
        (shims / name).parent.mkdir(parents=True, exist_ok=True)
        (shims / name).touch()
    # Only these of the kernel's headers, which would hide those of the C library.
    for name in HEADERS:
        (shims / name).parent.mkdir(parents=True, exist_ok=True)
        (shims / name).symlink_to(source / "include" / name)
    cc = ["cc", "-std=gnu11", "-I", shims, "-include", HERE / "user.h"]
    objects = []
    for name in [*ASSEMBLY, POLY1305]:
        objects.append(work / Path(name).with_suffix(".o").name)
        run(*cc, *KERNELS_FLAGS, "-c", "-o", objects[-1], source / name)
    # Not to be moved: Linux 6.1's AES in assembly is not made for it.
    run(*cc, "-no-pie", "-O2", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "crates/sector-cipher-c",
        "-o", work / "adiantum", HERE / "adiantum.c", *objects, library,
        "-lpthread", "-ldl", "-lm", "-lgcc_s")  # fmt: skip
    return work / "adiantum"


def parse(texts):
    """Rates by case and who, in the order of starts and rounds."""
    rates = {}
    for text in texts:
        # A round has one line of everybody, and is over before the next.
        for line in text.splitlines():
            rounds, size, _, rate, who = line.split(" ", 4)
            rates.setdefault((int(rounds), int(size)), {}).setdefault(who, []).append(float(rate))
    return rates


def table(rates):
    """A row for each case and who takes part in it; and how far the quartiles of any ratio are from its median."""
    peers = [who for who in next(iter(rates.values())) if who.startswith(LINUX)]
    rows = [
        f"| cipher | sectors | who | GB/s | {' | '.join('to ' + who for who in peers)} |",
        "|---" * (4 + len(peers)) + "|",
    ]
    spread = 0
    for (rounds, size), of in rates.items():
        for who, ours in of.items():
            row = [f"{statistics.median(ours):.2f}"]
            for peer in peers:
                ratios = [a / b for a, b in zip(ours, of[peer])]
                row.append(f"{statistics.median(ratios):.2f}")
                # Twice each, since there have to be two.
                low, middle, high = statistics.quantiles(ratios * 2, n=4, method="inclusive")
                spread = max(spread, middle / low - 1, high / middle - 1)
            rows.append(f"| Adiantum{rounds} | {size} | {who} | {' | '.join(row)} |")
    return rows, spread


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--library", type=Path, default=target / "release/libsector_cipher.a", help="%(default)s")
    parser.add_argument("--source", type=Path, help="of Linux; without it that of scripts/kernel.sh source-6.1")
    parser.add_argument("--starts", type=int, default=5, help="of the program (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="in each start (%(default)s)")
    parser.add_argument("--slice", type=float, default=2, metavar="MS", help="CPU time of each turn (%(default)s ms)")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--output", type=Path, help="folder for adiantum.json and adiantum.md")
    args = parser.parse_args()
    if args.starts < 1 or args.rounds < 1 or args.slice <= 0:
        parser.error("starts, rounds and slices have to be more than nothing")
    if platform.machine() != "x86_64":
        skip("this is no x86-64")
    facts = cpu()
    missing = [feature for feature in FEATURES if feature not in facts.get("flags", "").split()]
    if missing:
        skip(f"this CPU lacks {', '.join(missing)}")
    if not args.library.exists():
        sys.exit(f"compare.py: {args.library} is missing: make bench-adiantum builds it")
    source = kernel_source(args.source)
    version = run("make", "-s", "-C", source, "kernelversion").strip()
    starts, rounds, length = (1, 1, 0.1) if args.quick else (args.starts, args.rounds, args.slice)
    with tempfile.TemporaryDirectory(prefix="xtent-adiantum-") as work:
        program = build(source, args.library.resolve(), Path(work))
        print(f"Linux {version} and sector-cipher:", run(program, "check").strip(), flush=True)
        rates = parse([run(program, "time", rounds, length) for _ in range(starts)])
    rows, spread = table(rates)
    kind = ", ".join(facts.get(name, "?") for name in ("vendor_id", "model name"))
    kind += f", family {facts.get('cpu family')}, model {facts.get('model')}"
    report = [
        "# Adiantum against Linux's code",
        "",
        f"* CPU: {kind}",
        f"* Linux {version} for its code; {run('cc', '--version').splitlines()[0]}",
        f"* {starts} starts of {rounds} rounds, turns of {length:g} ms; GB/s of one core, medians",
        f"* ratios within a round; quartiles within {spread:.1%} of them",
        "",
        *rows,
        "",
    ]
    print("\n".join(report))
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "adiantum.md").write_text("\n".join(report), encoding="utf-8")
        named = {f"xchacha{case[0]}, {case[1]} bytes": of for case, of in rates.items()}
        (args.output / "adiantum.json").write_text(json.dumps(named, indent=1), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except FileNotFoundError as error:
        sys.exit(f"compare.py: {error.filename} is missing: it needs a C compiler and make")
