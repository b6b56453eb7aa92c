#!/usr/bin/env python3
"""Checks that every crate the workspace depends on has a licence that goes with ours, and
writes the notices that have to go along with a program that has them inside.

usage: licences.py [--notices FILE PACKAGE...]
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

# What may be linked into programs under MIT or Apache-2.0. MPL-2.0 covers its own files
# only; their sources are where `repository` says.
ACCEPTED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
    "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip
NOTICE_FILE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def metadata():
    """Of the workspace, for this machine's kind."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    host = re.search(r"^host: (.*)$", version, re.MULTILINE).group(1)
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def is_accepted(expression):
    """Whether one of the choices of an SPDX expression (SPDX 2.3, annex D) is accepted
    whole. The old form `A/B` is a choice too."""
    if not expression:
        return False

    def either(text):
        return any(both(part) for part in split(text, " OR "))

    def both(text):
        return all(one(part) for part in split(text, " AND "))

    def one(text):
        text = text.strip()
        if text.startswith("("):
            return either(text[1:-1])
        return text in ACCEPTED

    return either(expression.replace("/", " OR "))


def split(text, separator):
    """At separators outside of parentheses."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and text.startswith(separator, at):
            parts.append(text[start:at])
            start = at + len(separator)
    return [*parts, text[start:]]


def linked(data, roots):
    """The foreign crates that are inside the programs of these packages."""
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    todo = [id for id, package in packages.items() if package["name"] in roots]
    if len(todo) != len(roots):
        sys.exit(f"licences: the workspace has not got all of {roots}")
    seen = set()
    while todo:
        id = todo.pop()
        is_macro = any("proc-macro" in target["kind"] for target in packages[id]["targets"])
        if id in seen or is_macro:
            continue
        seen.add(id)
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    found = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def notices(crates):
    """The text: who made what, and each licence once."""
    lines = ["Third-party software inside", "===========================", ""]
    texts = {}
    for crate in crates:
        title = f"{crate['name']} {crate['version']}"
        origin = crate["repository"] or f"https://crates.io/crates/{crate['name']}"
        lines.append(f"* {title}: {crate['license']}; {origin}")
        folder = Path(crate["manifest_path"]).parent
        files = [f for f in sorted(folder.iterdir()) if NOTICE_FILE.match(f.name) and f.is_file()]
        for file in files:
            text = file.read_text(errors="replace").strip()
            key = hashlib.sha256(" ".join(text.split()).encode()).digest()
            texts.setdefault(key, (text, []))[1].append(title)
        if not files:
            lines.append(f"  (no licence text comes with it; by {', '.join(crate['authors']) or 'unnamed'})")
    lines.append("* Rust's standard library: MIT OR Apache-2.0; https://github.com/rust-lang/rust")
    for text, users in texts.values():
        lines += ["", "-" * 78, f"For {', '.join(users)}:", "", text]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--notices", metavar="FILE", type=Path)
    parser.add_argument("packages", metavar="PACKAGE", nargs="*")
    args = parser.parse_args()
    if bool(args.notices) != bool(args.packages):
        parser.error("--notices and PACKAGE go together")

    data = metadata()
    foreign = [package for package in data["packages"] if package["source"]]
    refused = [package for package in foreign if not is_accepted(package["license"])]
    for package in refused:
        print(f"licences: {package['name']} {package['version']}: {package['license']}", file=sys.stderr)
    if refused:
        sys.exit("licences: not accepted by scripts/licences.py")
    if args.notices:
        crates = linked(data, args.packages)
        args.notices.parent.mkdir(parents=True, exist_ok=True)
        args.notices.write_text(notices(crates))
        print(f"{args.notices}: {len(crates)} crates")
    else:
        print(f"licences: {len(foreign)} crates, all accepted")


if __name__ == "__main__":
    main()
