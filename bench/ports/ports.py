#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures which 64-byte vector instructions a CPU can start beside each other.

usage: ports.py [INSTRUCTION...]

For each instruction that the ciphers' kernels are made of (all of them by default): cycles for
one alone, and for four AES rounds with one, two and four of it. Where these take no longer
than the rounds alone, two cycles on a CPU that starts two rounds in each, four on one that
starts one, it does not take the turn of AES. Everything is on registers, and no
instruction waits for another. A cycle is what an addition takes that waits for the one
before. Needs a C compiler, and a CPU with VAES and AVX-512, else it ends with 77; runs some seconds.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

# With operands that leave the registers of AES (12 to 27) alone; {d} is the destination.
INSTRUCTIONS = {
    "vpclmulqdq": "vpclmulqdq $0, %zmm30, %zmm31, %zmm{d}",
    "vpxorq": "vpxorq %zmm30, %zmm31, %zmm{d}",
    "vpternlogq": "vpternlogq $0x96, %zmm30, %zmm31, %zmm{d}",
    "vpaddq": "vpaddq %zmm30, %zmm31, %zmm{d}",
    "vpshufd": "vpshufd $0x4e, %zmm31, %zmm{d}",
    "vpunpcklqdq": "vpunpcklqdq %zmm30, %zmm31, %zmm{d}",
    "vpshufb": "vpshufb %zmm30, %zmm31, %zmm{d}",
    "vpalignr": "vpalignr $15, %zmm30, %zmm31, %zmm{d}",
    "vpslldq": "vpslldq $8, %zmm31, %zmm{d}",
    "vpermt2b": "vpermt2b %zmm30, %zmm31, %zmm{d}",
    "vshufi64x2": "vshufi64x2 $0, %zmm30, %zmm31, %zmm{d}",
    "vpsllq": "vpsllq $3, %zmm31, %zmm{d}",
    "vpsllvq": "vpsllvq %zmm30, %zmm31, %zmm{d}",
    "vprolq": "vprolq $4, %zmm31, %zmm{d}",
    "vpshldq": "vpshldq $4, %zmm30, %zmm31, %zmm{d}",
    "vpmultishiftqb": "vpmultishiftqb %zmm30, %zmm31, %zmm{d}",
    "vgf2p8affineqb": "vgf2p8affineqb $0, %zmm30, %zmm31, %zmm{d}",
}
AES = "vaesenc %zmm30, %zmm{d}, %zmm{d}"
UNITS = 48
FEATURES = "vaes vpclmulqdq avx512f avx512bw avx512vbmi avx512_vbmi2 gfni".split()

START = """
#include <stdio.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
"""
# The best of some: who else uses the core only makes it slower.
LOOP = """
static double {name}(void) {{
  double best = 1e9;
  for (int round = 0; round < 9; round++) {{
    long n = 20000;
    double start = now();
    __asm__ volatile("1:\\n{body}dec %0\\n jnz 1b" : "+r"(n) : : {clobbers});
    double time = now() - start;
    if (time < best) best = time;
  }}
  return best / 20000 / {units};
}}
"""


def loop(name, lines, units, clobbers):
    body = "".join(line.replace("%", "%%") + "\\n" for line in lines)
    return LOOP.format(name=name, body=body, units=units, clobbers=clobbers)


def unit(instruction, rounds, count):
    """So many AES rounds and instructions, a number of times: no two in a row write one register."""
    lines = []
    for i in range(UNITS):
        lines += [AES.format(d=12 + (rounds * i + k) % 16) for k in range(rounds)]
        lines += [instruction.format(d=(count * i + k) % 12) for k in range(count)]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="INSTRUCTION", help="; ".join(INSTRUCTIONS))
    names = parser.parse_args().names or list(INSTRUCTIONS)
    for name in names:
        if name not in INSTRUCTIONS:
            sys.exit(f"ports.py: {name} is not known: there are {', '.join(INSTRUCTIONS)}")
    flags = next((line for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("flags")), "").split()
    missing = [feature for feature in FEATURES if feature not in flags]
    if missing:
        print(f"ports.py: this CPU lacks {', '.join(missing)}", file=sys.stderr)
        sys.exit(77)
    vectors = ", ".join(f'"xmm{i}"' for i in range(32))
    source = START + loop("cycle", ["add $1, %rax"] * 100, 100, '"rax"')
    source += loop("rounds", unit("", 1, 0), UNITS, vectors)
    report = 'double c = cycle(); printf("AES rounds a cycle: %.2f\\n", c / rounds());'
    report += 'printf("%-16s %8s %8s %8s %8s\\n", "cycles", "one", "4 AES+1", "4 AES+2", "4 AES+4");'
    for i, name in enumerate(names):
        parts = [(0, 1), (4, 1), (4, 2), (4, 4)]
        for rounds, count in parts:
            lines = unit(INSTRUCTIONS[name], rounds, count)
            source += loop(f"t{i}_{rounds}_{count}", lines, UNITS, vectors)
        values = ", ".join(f"t{i}_{rounds}_{count}() / c" for rounds, count in parts)
        report += f'printf("%-16s %8.2f %8.2f %8.2f %8.2f\\n", "{name}", {values});\n'
    source += "int main(void) { " + report + " return 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "ports"
        built = subprocess.run(
            ["cc", "-O1", "-mavx512f", "-x", "c", "-", "-o", program], input=source, text=True, check=False
        )
        if built.returncode != 0:
            sys.exit("ports.py: the C compiler failed")
        sys.exit(subprocess.run([program], check=False).returncode)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except FileNotFoundError as error:
        sys.exit(f"ports.py: {error.filename} is missing: it needs a C compiler")
