#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the instructions that a cipher really executes, for 64 bytes, in single steps of one call.

usage: mix.py [--library FILE] [--cpu BACKEND] [--sector-size BYTES] [--run SECTORS] [--key-bits BITS] [CIPHER]

CIPHER is dm-crypt's name. A program that encrypts one run is built with libsector_cipher
(`cargo build --release --package sector-cipher-c`), and stepped through. What is not on vectors is
one line. At the end stands what the ports of AMD's Zen 4 need for it, by what ports.py says of them: see
bench/GOALS.md. Ends with 77 where no program can be stepped through.
"""

import argparse
import collections
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include "sector_cipher.h"
static void must(int result) {
  if (result == 0) return;
  fprintf(stderr, "mix.py: %s\n", sector_cipher_error_text(result));
  exit(1);
}
int main(int count, char **words) {
  size_t sector = atol(words[2]), len = sector * atol(words[3]);
  uint8_t key[64], *data = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
  sector_cipher *cipher;
  (void)count;
  for (size_t i = 0; i < sizeof key; i++) key[i] = 37 * i + 1;
  for (size_t i = 0; i < len; i++) data[i] = i;
  must(sector_cipher_new(&cipher, words[1], sector, false, key, atol(words[4]), words[5]));
  must(sector_cipher_encrypt(cipher, 0, data, len));
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) return 77;
  __asm__ volatile("int3");
  must(sector_cipher_encrypt(cipher, 0, data, len));
  __asm__ volatile("int3");
  return 0;
}
"""
PTRACE_PEEKUSER, PTRACE_SINGLESTEP = 3, 9
RIP = 16 * 8
INT3 = 0xCC


def fail(why):
    sys.exit(f"mix.py: {why}")


def step_through(command):
    """How often each instruction ran between the two breakpoints, by its address."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    child = subprocess.Popen(command)
    ran = collections.Counter()
    memory = open(f"/proc/{child.pid}/mem", "rb", buffering=0)
    while True:
        _, status = os.waitpid(child.pid, 0)
        if os.WIFEXITED(status):
            child.returncode = os.WEXITSTATUS(status)
            if child.returncode == 77:
                print("mix.py: this machine lets no program be stepped through", file=sys.stderr)
            sys.exit(child.returncode or "mix.py: the program ended too soon")
        if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
            fail(f"the program was stopped: {status:#x}")
        rip = libc.ptrace(PTRACE_PEEKUSER, child.pid, RIP, None)
        memory.seek(rip)
        # The first stop is behind the breakpoint, the last one before the other.
        if memory.read(1)[0] == INT3:
            break
        ran[rip] += 1
        libc.ptrace(PTRACE_SINGLESTEP, child.pid, None, None)
    memory.close()
    child.kill()
    child.wait()
    return ran


def name_of(mnemonic, operands):
    """What is counted as one kind: the width, and the operation."""
    widths = [width for width in ("zmm", "ymm", "xmm") if width in operands]
    if not widths:
        return None
    if mnemonic.startswith("vpclmul"):
        mnemonic = "vpclmulqdq"
    elif mnemonic.startswith("vaes"):
        mnemonic = "AES round"
    elif mnemonic.startswith(("vmov", "vlddqu")) and "dup" not in mnemonic and mnemonic[4:6] in ("dq", "ap", "up"):
        memory = operands.find("[")
        mnemonic = "move" if memory < 0 else "store" if memory < operands.find(",") else "load"
    return widths[0], mnemonic


def zen_4(counts):
    """Cycles by the ports with rounds, and by all four: of kinds of instructions, for 64 bytes."""
    rounds = everything = 0.0
    for (width, name), count in counts.items():
        turns = count * (2 if width == "zmm" else 1)
        if name in ("load", "store", "move") or "broadcast" in name or "movddup" in name:
            continue
        if name == "vpclmulqdq":
            rounds += 2 * count
            everything += 6.5 * count
            continue
        everything += turns
        if name == "AES round" or name in ("vprolq", "vpshldq", "vpmultishiftqb", "vgf2p8affineqb"):
            rounds += turns
    return rounds / 2, everything / 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--library", type=pathlib.Path, default=target / "release/libsector_cipher.a")
    parser.add_argument("--cpu", default="vaes512", metavar="BACKEND", help="%(default)s without it")
    parser.add_argument("--sector-size", type=int, default=4096, metavar="BYTES", help="%(default)s without it")
    parser.add_argument("--run", type=int, default=64, metavar="SECTORS", help="%(default)s without it")
    parser.add_argument("--key-bits", type=int, default=256, metavar="BITS", help="of the whole key; %(default)s without it")
    parser.add_argument("cipher", nargs="?", default="aes-xts-plain64", metavar="CIPHER", help="%(default)s without it")
    args = parser.parse_args()
    if not args.library.exists():
        fail(f"{args.library} is missing: cargo build --release --package sector-cipher-c")
    if args.run < 1 or args.sector_size < 1:
        fail("a run has sectors, and a sector bytes")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "mix"
        # At a fixed address, where objdump has it.
        built = subprocess.run(
            ["cc", "-O1", "-no-pie", f"-I{ROOT}/crates/sector-cipher-c", "-x", "c", "-", "-x", "none", args.library,
             "-lpthread", "-ldl", "-lm", "-o", program],
            input=PROGRAM, text=True, check=False,
        )  # fmt: skip
        if built.returncode != 0:
            fail("the C compiler failed")
        words = [args.cipher, args.sector_size, args.run, args.key_bits // 8, args.cpu]
        ran = step_through([str(program), *map(str, words)])
        listing = subprocess.run(
            ["objdump", "--disassemble", "--no-show-raw-insn", "-M", "intel", program],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    vectors = args.sector_size * args.run / 64
    counts = collections.Counter()
    others = found = 0
    for line in listing.splitlines():
        instruction = re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*([^#]*)", line)
        times = ran.get(int(instruction[1], 16), 0) if instruction else 0
        if times:
            found += times
            name = name_of(instruction[2], instruction[3])
            if name:
                counts[name] += times / vectors
            else:
                others += times / vectors
    if found < 0.99 * sum(ran.values()):
        fail("most of what ran is in no code of the program")
    for (width, name), count in counts.most_common():
        if count >= 0.01:
            print(f"{width} {name:24} {count:8.2f}")
    print(f"{'on no vectors':28} {others:8.2f}")
    rounds, everything = zen_4(counts)
    if rounds:
        print(f"Zen 4, cycles: {rounds:.2f} by ports with AES rounds, {everything:.2f} by all ports")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except FileNotFoundError as error:
        sys.exit(f"mix.py: {error.filename} is missing: it needs a C compiler and objdump")
