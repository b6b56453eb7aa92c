#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the machine code of two builds of the ciphers, function by function.

usage: code.py [--all] BEFORE AFTER [REGEX]

BEFORE and AFTER are libsector_cipher.a of two revisions, both of
`cargo build --release --package sector-cipher-c`. A function is the same if its
instructions are, wherever it and its constants lie, and whatever these are. Names the functions, of those whose name
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


def fail(why):
    sys.exit(f"code.py: {why}")


def plain(name):
    """A symbol without what differs from build to build: hashes of crates and of constants."""
    name = re.sub(r"17h[0-9a-f]{16}E?|::h[0-9a-f]{16}\b", "", name)
    return re.sub(r"\S*anon\.[0-9a-f]{32}\.\S+|\.L\w+|\.rodata\S*", "constant", name)


def functions(library):
    """The instructions of each function of the ciphers, by name. Several may have one name."""
    command = ["objdump", "--disassemble", "--reloc", "--demangle", "--no-show-raw-insn", "--no-addresses", library]
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if said.returncode != 0:
        fail(f"objdump cannot read {library}")
    found, name, code, places = collections.defaultdict(list), None, [], {}

    def end():
        # Padding behind the function.
        while code and re.match(r"(nop|int3|cs nop|data16|xchg %ax,%ax)", code[-1]):
            code.pop()
        if name and code:
            found[name].append(tuple(code))

    for line in said.stdout.splitlines():
        start = re.fullmatch(r"<(.+)>:", line.strip())
        if start:
            end()
            name, code, places = plain(start[1]), [], {}
            name = name if "sector_cipher" in name else None
        elif name and line.strip() and not line.startswith(("Disassembly", library)):
            # Where jumps go by the distance from the function's start; what a relocation says instead of zeros.
            text = re.sub(r"\s+", " ", plain(line.split("#")[0].strip()))
            text = re.sub(r"\b[0-9a-f]+ <.*?(\+0x[0-9a-f]+)?>", r"<\1>", text)
            if "R_X86_64" in text or "R_AARCH64" in text:
                text = re.sub(r"[-+]0x[0-9a-f]+$", "", text)
            code.append(text)
    end()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="name those that are the same, too")
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("regex", nargs="?", default="", help="of names; all by default")
    options = parser.parse_args()
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
