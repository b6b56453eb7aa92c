#!/usr/bin/env python3
"""Checks the locked dependencies of the workspace, the fuzz targets, the ciphers' benchmark
and the simulated co-processor: that no Cargo.lock is behind its manifests, and that nothing in one needs a newer
Rust than the rust-version of the crates that use it.

usage: dependencies.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

WORKSPACES = [".", "fuzz", "bench/ciphers", "rtl/cosim"]


def metadata(folder):
    """What cargo knows of a workspace, or None where its lock file is behind."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--quiet"]
    done = subprocess.run([*command, "--manifest-path", f"{folder}/Cargo.toml"], stdout=subprocess.PIPE)
    return json.loads(done.stdout) if done.returncode == 0 else None


def version(text):
    """Of a rust-version, whose patch number may be missing: comparable."""
    numbers = [int(part) for part in text.split("-")[0].split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


def main():
    faults, seen = [], set()
    for folder in WORKSPACES:
        data = metadata(folder)
        if data is None:
            faults.append(f"{folder}/Cargo.lock is behind: run cargo metadata in {folder}, and commit what it changes")
            continue
        members = set(data["workspace_members"])
        own = {package["rust_version"] for package in data["packages"] if package["id"] in members}
        if len(own) != 1 or None in own:
            faults.append(f"{folder}: its crates do not agree on a rust-version: {own}")
            continue
        ours = own.pop()
        for package in data["packages"]:
            name = f"{package['name']} {package['version']}"
            seen.add(name)
            if package["rust_version"] and version(package["rust_version"]) > version(ours):
                faults.append(f"{folder}: {name} needs Rust {package['rust_version']}, we promise {ours}")
    for fault in faults:
        print(f"dependencies: {fault}", file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"dependencies: {len(seen)} crates, all locked, none needs a newer Rust than ours")


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    main()
