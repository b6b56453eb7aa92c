#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes what registers.toml says as constants in SystemVerilog, Rust and C, and as
the tables of README.md. With --check it writes nothing, and fails if a file differs.

usage: generate.py [--check]
"""

import re
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LICENCE = "SPDX-License-Identifier: MIT OR Apache-2.0"
NOTE = "Written by rtl/engine/generate.py from registers.toml: change that."


def load():
    data = tomllib.loads((HERE / "registers.toml").read_text())
    check(data)
    return data


def check(data):
    """Overlaps are mistakes of the description."""
    taken = {}
    for register in data["register"]:
        for i in range(register.get("count", 1)):
            place(taken, register["offset"] + i * register.get("stride", 4), 4, register["name"])
        bits = {}
        for name, low, width, _ in register.get("fields", []):
            place(bits, low, width, f"{register['name']}.{name}")
            assert low + width <= 32, name
    for layout in ("submission", "completion", "list_entry"):
        places = {}
        for name, offset, size, _ in data[layout]["fields"]:
            place(places, offset, size, f"{layout}.{name}")
        assert len(places) == data[layout]["bytes"], f"{layout} has gaps"
    for table in TABLES:
        values = [value for _, value, _ in data[table]["values"]]
        assert len(set(values)) == len(values), table


def place(taken, start, size, name):
    for at in range(start, start + size):
        assert at not in taken, f"{name} lies upon {taken[at]}"
        taken[at] = name


TABLES = {
    "ops": "OP",
    "flags": "FLAG",
    "ciphers": "CIPHER",
    "statuses": "STATUS",
    "faults": "FAULT",
    "key_results": "KEY_RESULT",
}
LAYOUTS = {"submission": "SQE", "completion": "CQE", "list_entry": "ENTRY"}


def constants(data):
    """(name, value, bits, hexadecimal, text) of every constant, in order."""
    identity = data["identity"]
    yield "ID", identity["id"], 32, True, "what register ID reads"
    yield "MAJOR", identity["major"], 32, False, "version of the layout: another one is refused"
    yield "MINOR", identity["minor"], 32, False, "version of the layout"
    yield "PCI_VENDOR", identity["vendor"], 32, True, "of the simulated device"
    yield "PCI_DEVICE", identity["device"], 32, True, "of the simulated device"
    yield "BAR_BYTES", identity["bar_bytes"], 32, True, "bytes of BAR 0"
    for register in data["register"]:
        yield f"REG_{register['name']}", register["offset"], 32, True, register["text"]
        if "count" in register:
            yield f"{register['name']}_COUNT", register["count"], 32, False, "registers of that name"
        yield from fields(register["name"], register)
    yield "RINGS_OFFSET", data["rings"]["offset"], 32, True, "the first ring's registers"
    yield "RINGS_STRIDE", data["rings"]["stride"], 32, True, "from one ring's registers to the next"
    for register in data["ring_register"]:
        yield f"RING_{register['name']}", register["offset"], 32, True, register["text"]
        yield from fields(f"RING_{register['name']}", register)
    counters = data["counters"]
    for i, (name, text) in enumerate(counters["names"]):
        yield f"REG_COUNTER_{name}", counters["offset"] + i * counters["stride"], 32, True, text
    yield "COUNTERS", len(counters["names"]), 32, False, "counters"
    for layout, prefix in LAYOUTS.items():
        yield f"{prefix}_BYTES", data[layout]["bytes"], 32, False, data[layout]["text"].split(";")[0].split(",")[0]
        for name, offset, _, text in data[layout]["fields"]:
            yield f"{prefix}_{name.upper()}", offset, 32, False, text
    for table, prefix in TABLES.items():
        for name, value, text in data[table]["values"]:
            yield f"{prefix}_{name}", value, 32, False, text


def fields(prefix, register):
    for name, low, width, text in register.get("fields", []):
        name = f"{prefix}_{name.upper()}"
        yield f"{name}_LOW", low, 32, False, text or "lowest bit"
        yield f"{name}_BITS", width, 32, False, "its width"


def system_verilog(data):
    lines = [f"// {LICENCE}", "//", f"// The co-processor's registers and descriptors. {NOTE}", "",
             "package engine_regs_pkg;", "", "  // Whoever reads it takes some of them.",
             "  /* verilator lint_off UNUSEDPARAM */"]
    for name, value, _, hexadecimal, text in constants(data):
        for line in wrapped(text, 90):
            lines.append(f"  // {line}")
        shown = f"32'h{value:x}" if hexadecimal else f"{value}"
        lines.append(f"  localparam int unsigned {camel(name)} = {shown};")
    lines += ["  /* verilator lint_on UNUSEDPARAM */", "", "endpackage"]
    return "\n".join(lines) + "\n"


def rust(data):
    lines = [f"// {LICENCE}", "", "//! The co-processor's registers and descriptors, as `rtl/engine/README.md` has them.",
             "//!", f"//! {NOTE}", ""]
    for name, value, _, hexadecimal, text in constants(data):
        for line in wrapped(text, 90):
            lines.append(f"/// {line}")
        kind = "u32" if name.startswith(("ID", "REG_", "RING")) or name.endswith(("_LOW", "_BITS")) else "usize"
        if name.startswith(tuple(f"{p}_" for p in TABLES.values())):
            kind = "u8"
        if name.startswith(("PCI_", "MAJOR", "MINOR")):
            kind = "u16"
        if name == "BAR_BYTES":
            kind = "u32"
        if hexadecimal:
            digits = f"{value:x}"
            if len(digits) > 4:
                digits = digits[:-4] + "_" + digits[-4:]
            shown = f"0x{digits}"
        else:
            shown = str(value)
        lines.append(f"pub const {name}: {kind} = {shown};")
    return "\n".join(lines) + "\n"


def c_header(data):
    lines = [f"/* {LICENCE} */", "/*", " * The co-processor's registers and descriptors.", f" * {NOTE}", " */",
             "#ifndef XTENT_ENGINE_REGISTERS_H", "#define XTENT_ENGINE_REGISTERS_H", ""]
    for name, value, _, hexadecimal, text in constants(data):
        for line in wrapped(text, 90):
            lines.append(f"/* {line} */")
        lines.append(f"#define XTENT_ENGINE_{name} {value:#x}" if hexadecimal else f"#define XTENT_ENGINE_{name} {value}")
    lines += ["", "#endif"]
    return "\n".join(lines) + "\n"


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def wrapped(text, width):
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        yield line


def tables(data):
    """The tables of README.md, by the name of their place."""
    rows = ["| offset | name | access | |", "|---|---|---|---|"]
    for register in data["register"]:
        rows += register_rows(register, f"{register['offset']:#05x}")
    yield "registers", rows
    rows = ["| offset | name | access | |", "|---|---|---|---|"]
    for register in data["ring_register"]:
        rows += register_rows(register, f"+ {register['offset']:#04x}")
    yield "rings", rows
    rows = ["| offset | counter | |", "|---|---|---|"]
    counters = data["counters"]
    for i, (name, text) in enumerate(counters["names"]):
        rows.append(f"| {counters['offset'] + i * counters['stride']:#06x} | `{name}` | {text} |")
    yield "counters", rows
    for layout in LAYOUTS:
        rows = ["| byte | bytes | field | |", "|---|---|---|---|"]
        for name, offset, size, text in data[layout]["fields"]:
            rows.append(f"| {offset} | {size} | `{name}` | {text} |")
        yield layout, rows
    for table in TABLES:
        head = "bit" if table == "flags" else "value"
        rows = [f"| {head} | name | |", "|---|---|---|"]
        for name, value, text in data[table]["values"]:
            rows.append(f"| {value} | `{name}` | {text} |")
        yield table, rows


def register_rows(register, offset):
    name = f"`{register['name']}`" + (f" x {register['count']}" if "count" in register else "")
    yield f"| {offset} | {name} | {register['access']} | {register['text']} |"
    for field, low, width, text in register.get("fields", []):
        bits = f"{low}" if width == 1 else f"{low + width - 1}:{low}"
        yield f"| | | {bits} | `{field}`{': ' if text else ''}{text} |"


def readme(data, text):
    for name, rows in tables(data):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
        assert pattern.search(text), f"README.md has no place for {name}"
        text = pattern.sub(lambda found: found.group(1) + "\n".join(rows) + "\n" + found.group(2), text)
    return text


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    data = load()
    wanted = {
        HERE / "engine_regs_pkg.sv": system_verilog(data),
        ROOT / "crates/coprocessor/src/registers.rs": rust(data),
        ROOT / "kernel/pci/registers.h": c_header(data),
        HERE / "README.md": readme(data, (HERE / "README.md").read_text()),
    }
    wrong = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if sys.argv[1:]:
        for path in wrong:
            print(f"{path.relative_to(ROOT)} is not what registers.toml says: run rtl/engine/generate.py", file=sys.stderr)
        sys.exit(1 if wrong else 0)
    for path in wrong:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])


if __name__ == "__main__":
    main()
