#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks the FuseSoC cores: every source is in one of them, in an order in which
packages come before what uses them, FuseSoC's own lint of those for users passes, and
the README's diagrams name modules that there are.

usage: cores.py FOLDER, with the tools in FOLDER/venv (scripts/setup.sh rtl)
"""

import pathlib
import re
import subprocess
import sys

RTL = pathlib.Path(__file__).resolve().parents[1]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    listed = []
    for core in RTL.glob("*.core"):
        lines = core.read_text().splitlines()
        listed += [line.split("- ")[1] for line in lines if line.strip().startswith("- ") and line.endswith(".sv")]
    folders = ("aes", "field", "common", "designs", "top", "engine")
    sources = {str(p.relative_to(RTL)) for name in folders for p in (RTL / name).glob("*.sv")}
    if sorted(listed) != sorted(sources):
        sys.exit(f"the .core files and rtl/ differ: {sorted(set(listed) ^ sources)}")
    diagrams = "".join(re.findall(r"```mermaid\n(.*?)```", (RTL / "README.md").read_text(), re.DOTALL))
    # Boxes, and with them what has an underscore within: a(..) is what goes in or out.
    named = set(re.findall(r"\w\[\(?(\w+)", diagrams)) | set(re.findall(r"\b[a-z]\w*_\w+", diagrams))
    unknown = named - {pathlib.Path(name).stem for name in sources}
    if unknown or not named:
        sys.exit(f"diagrams in README.md: no modules {sorted(unknown)}")
    for core in ("sector_engine", "engine"):
        command = [build / "venv/bin/fusesoc", "--cores-root", RTL, "run", "--target=lint"]
        command += ["--work-root", build / f"fusesoc-{core}", f"xtent:rtl:{core}"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=build, check=False
        )
        if done.returncode != 0:
            sys.exit(done.stdout)
    print(f"FuseSoC: {len(listed)} files, lint passes; the diagrams name {len(named)} modules")


if __name__ == "__main__":
    main()
