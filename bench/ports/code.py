#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the machine code of two builds of the ciphers for x86-64, function by function.

usage: code.py [--all] BEFORE AFTER [REGEX]
       code.py --self-test

BEFORE and AFTER are libsector_cipher.a of two revisions, both of
`cargo build --release --package sector-cipher-c`. A function is the same if its
instructions are, wherever it and its constants lie; what is in constants and in tables of jumps is not
looked at. Names the functions, of those whose name
REGEX is found in, that are only in one or differ, with their instructions, the largest first; --all those that
are the same as well. Ends with 1 if there is a difference. It says what a change left alone, not
what it made faster.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile


def fail(why):
    sys.exit(f"code.py: {why}")


def plain(name):
    """A symbol without what differs from build to build: hashes of crates, numbers of copies, names of constants."""
    name = re.sub(r"17h[0-9a-f]{16}E?|::h[0-9a-f]{16}\b", "", name)
    name = re.sub(r"\S*anon\.[0-9a-f]{32}\.\S+?(?=[-+]0x|$|[\s>])|\.L\w+|\.rodata[^\s+-]*", "constant", name)
    return re.sub(r"(\.llvm)?\.\d+(?=[-+>\s]|$)", "", name)


def functions(library):
    """The instructions of each function of the ciphers, by name. Several may have one name."""
    options = ["--disassemble", "--reloc", "--demangle", "--no-show-raw-insn", "--no-addresses"]
    try:
        said = subprocess.run(["objdump", *options, library], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        fail("there is no objdump: it is in Debian's package binutils")
    if said.returncode != 0:
        fail(said.stderr.strip())
    found, name, code = collections.defaultdict(list), None, []

    def end():
        # Padding behind the function.
        while code and re.match(r"(nop|int3|cs nop|data16|xchg %ax,%ax)", code[-1]):
            code.pop()
        if name and code:
            found[name].append(tuple(code))

    for line in said.stdout.splitlines():
        start = re.fullmatch(r"<(.+)>:", line.strip())
        if start or "file format" in line:
            end()
            name, code = plain(start[1]) if start else None, []
            name = name if name and "sector_cipher" in name else None
        elif name and line.strip() and not line.startswith("Disassembly"):
            text = re.sub(r"\s+", " ", plain(line.split("#")[0].strip()))
            if text.startswith("R_X86_64"):
                # Whose place in a call or an address: not what objdump takes for the nearest symbol.
                code[-1] = re.sub(r" <.*>$", "", code[-1])
                text = re.sub(r"constant[-+]0x[0-9a-f]+$", "constant", text)
            code.append(text)
    end()
    return found


def self_test():
    """Pairs of functions that have to be the same, and that must not be."""
    pairs = [
        (True, "nop", "nop; ret; .p2align 4; .globl other; other: nop"),
        (True, "lea .Lone(%rip), %rax; .pushsection .rodata; .Lone: .byte 1; .popsection",
         "lea .Ltwo(%rip), %rax; .pushsection .rodata; .byte 0; .Ltwo: .byte 1; .popsection"),
        (False, "add $16, %rax", "add $64, %rax"),
        (False, "mov table+8(%rip), %rax", "mov table+16(%rip), %rax"),
        (False, "call one", "call two"),
        (False, "1: nop; dec %ecx; jnz 1b", "nop; 1: dec %ecx; jnz 1b"),
        (False, "vaesenc %xmm0, %xmm1, %xmm2", "vaesenc %xmm1, %xmm0, %xmm2"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, (same, *bodies) in enumerate(pairs):
            seen = []
            for which, body in enumerate(bodies):
                source = f".globl sector_cipher_test; sector_cipher_test: xor %eax, %eax; {body}; ret\n"
                place = f"{folder}/{number}-{which}.o"
                command = ["as", "--64", "-o", place]
                subprocess.run(command, input=source.replace("; ", "\n"), text=True, check=True)
                seen.append(functions(place)["sector_cipher_test"])
            if (seen[0] == seen[1]) != same:
                fail(f"{bodies[0]} and {bodies[1]} are {'not ' if same else ''}the same")
    print(f"{len(pairs)} pairs as they should be")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="name those that are the same, too")
    parser.add_argument("--self-test", action="store_true", help="compare what is known, and nothing else")
    parser.add_argument("before", type=pathlib.Path, nargs="?")
    parser.add_argument("after", type=pathlib.Path, nargs="?")
    parser.add_argument("regex", nargs="?", default="", help="of names; all by default")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return
    if not options.after:
        parser.error("two libraries to compare")
    for library in (options.before, options.after):
        if not library.exists():
            fail(f"there is no {library}")
    before, after = (functions(str(library)) for library in (options.before, options.after))
    lines, same, changed = [], 0, 0
    for name in sorted(before.keys() | after.keys()):
        if not re.search(options.regex, name):
            continue
        old, new = collections.Counter(before[name]), collections.Counter(after[name])
        equal = sum((old & new).values())
        same += equal
        only_old, only_new = ([len(code) for code in (a - b).elements()] for a, b in ((old, new), (new, old)))
        changed += max(len(only_old), len(only_new))
        if only_old or only_new:
            lengths = [" and ".join(map(str, sorted(lengths, reverse=True))) or "none" for lengths in (only_old, only_new)]
            lines.append((max(only_old + only_new), f"{name}: {lengths[0]} instructions before, {lengths[1]} after"))
        elif options.all:
            lines.append((max(map(len, old)), f"{name}: the same, {' and '.join(str(len(code)) for code in old.elements())}"))
    for _, line in sorted(lines, reverse=True):
        print(line)
    print(f"{same} functions the same, {changed} not")
    if same + changed == 0:
        fail("no function has such a name")
    sys.exit(1 if changed else 0)


if __name__ == "__main__":
    main()
