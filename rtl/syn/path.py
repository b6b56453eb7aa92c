#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints the longest chain of logic between two registers of a module, of six-input LUTs.

usage: path.py [--build FOLDER] MODULE [PARAMETER=VALUE...]
for example: path.py fast KeyBits=128 Cores=2
"""

import argparse
import os
import pathlib
import sys
import tempfile

from synthesis import RTL, SOURCES, Tools, deepest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", RTL.parent / "target"))
    parser.add_argument("--build", type=pathlib.Path, default=target / "rtl", help="where the tools are, in venv/")
    parser.add_argument("module", help="a module's name, such as brw")
    parser.add_argument("parameters", nargs="*", metavar="PARAMETER=VALUE", help="others have their defaults")
    options = parser.parse_args()
    if options.module not in SOURCES:
        sys.exit(f"path.py: there is no module {options.module}")
    if not all("=" in parameter for parameter in options.parameters):
        sys.exit("path.py: a parameter is NAME=VALUE")
    parameters = dict(parameter.split("=", 1) for parameter in options.parameters)
    if not (options.build / "venv/bin/python").exists():
        sys.exit(f"path.py: there are no tools in {options.build}/venv: run scripts/setup.sh rtl")
    with tempfile.TemporaryDirectory(dir=options.build) as folder:
        print(deepest(Tools(options.build.resolve(), []), pathlib.Path(folder), options.module, parameters))


if __name__ == "__main__":
    main()
