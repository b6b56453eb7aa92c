#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds the co-processor for cocotb and runs test_coprocessor.py on it.

usage: coprocessor.py FOLDER [PARAMETER=VALUE...]

FOLDER is where to build, and has the tools in venv/ (scripts/setup.sh rtl), with
whose Python this runs.
"""

import pathlib
import sys

from engine import run


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    parameters = {"Level": "3", "Ciphers": "3", "KeyBits": "128", "Rings": "2", "Slots": "4"}
    parameters |= dict(p.split("=") for p in sys.argv[2:])
    tests = run(build / "cocotb-coprocessor", "xtent_engine", parameters, "test_coprocessor", {})
    print(f"co-processor behind AXI4 and AXI4-Lite: {tests} cocotb tests passed")


if __name__ == "__main__":
    main()
