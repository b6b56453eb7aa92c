# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report's tables in Markdown, with the paper's figures beside ours."""

# Chakraborty, Ghosh, Mancillas-Lopez, Sarkar, "Fast Low Level Disk Encryption Using
# FPGAs": slices, block RAMs and MHz on Virtex-5 and on Virtex-7.
PAPER = {
    "aes-pec": ((2859, 0, 300.56), (2093, 0, 405.02)),
    "aes-pdc": ((3110, 0, 239.34), (2352, 0, 352.19)),
    "aes-sdc": ((1800, 0, 292.48), (1575, 0, 390.06)),
    "multiplier": ((1650, 0, 298.43), (1884, 0, 404.86)),
    "fast-brw-2": ((7175, 0, 289.56), (7202, 0, 375.43)),
    "fast-horner-2": ((8983, 0, 289.98), (8906, 0, 377.03)),
    "xcb-2": ((9752, 0, 270.52), (9330, 0, 358.84)),
    "eme2-2": ((10970, 4, 230.56), (11800, 4, 315.58)),
    "aez-2-pre": ((5646, 12, 269.56), (6072, 12, 361.52)),
    "aez-2-otf": ((5854, 8, 272.32), (5202, 8, 362.78)),
    "fast-brw-1": ((5064, 0, 290.57), (5024, 0, 377.87)),
    "fast-horner-1": ((4781, 0, 291.05), (4783, 0, 379.25)),
    "xcb-1": ((6070, 0, 272.75), (5875, 0, 360.67)),
    "eme2-1": ((6500, 4, 233.58), (6350, 4, 319.74)),
}


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def both(cycles, what):
    """A figure of encryption and decryption, once if they are the same."""
    pair = [f"{cycles[d][what]:g}" for d in ("encrypt", "decrypt")]
    return pair[0] if pair[0] == pair[1] else " / ".join(pair)


def worst(cycles, what):
    return max(cycles[d][what] for d in ("encrypt", "decrypt"))


def cycle_rows(designs):
    for name, d in designs.items():
        c, paper = d["cycles"], d["paper"]
        if c is None:
            continue
        yield (
            name,
            both(c, "cold"),
            paper or "–",
            f"{worst(c, 'cold') / paper:.3f}" if paper else "–",
            both(c, "warm"),
            both(c, "steady"),
            f"{d['bound']:g}",
            f"{worst(c, 'steady') / d['bound']:.3f}",
            f"{paper / worst(c, 'steady'):.2f}" if paper else "–",
            both(c, "alternating"),
            both(c, "key_load"),
        )


def shared(cells):
    """How many LUTs can share the place of another whatever their inputs are: a six-input
    LUT has two outputs, and holds any two functions of up to two inputs, or one of two
    beside one of three."""
    two, three = (sum(cells.get(f"LUT{n}", 0) for n in inputs) for inputs in ((1, 2), (3,)))
    beside = min(two, three)
    return beside + (two - beside) // 2


def slices_at_least(area):
    """Slices that packing cannot go below: a slice has four six-input LUTs and eight
    flip-flops, and only a function of six inputs has a LUT to itself in any case."""
    full = area["cells"].get("LUT6", 0)
    small = sum(area["cells"].get(f"LUT{inputs}", 0) for inputs in range(1, 6))
    # Places are rounded up, then slices. What is neither is memory, RAM32M here, which
    # cannot share its four places.
    memory = area["lut"] - full - small
    return max(-(-(full + -(-small // 2) + memory) // 4), -(-area["ff"] // 8))


def short_rows(designs):
    for name, d in designs.items():
        c = d.get("short")
        if not c:
            continue
        e = c["encrypt"]
        yield (
            name,
            f"{e['key_bits']}",
            both(c, "cold"),
            both(c, "warm"),
            both(c, "steady"),
            f"{8 * worst(c, 'steady'):g}",
            f"{worst(d['cycles'], 'steady'):g}" if d["cycles"] else "–",
        )


def area_rows(units):
    for name, unit in units.items():
        a = unit["area"]
        if a is None:
            continue
        # The paper's AEZ cores have no tweak, as ours called -alike; its figures stand beside
        # the others as well.
        v5, v7 = PAPER.get(name.removesuffix("-alike"), (("–", "–"), ("–", "–")))
        route = unit.get("route")
        yield (
            name,
            a["lut"],
            a["lut"] - shared(a["cells"]),
            a["ff"],
            f"{a['muxf7']} + {a['muxf8']}",
            a["carry4"],
            f"{a['bram']:g}",
            -(-(a["lut"] - shared(a["cells"])) // 4),
            slices_at_least(a),
            f"{v7[0]} / {v7[1]}",
            f"{v5[0]} / {v5[1]}",
            unit["depth"] or "–",
            f"{route['mhz']:g} / {route['lut4']}" if route else "–",
        )


def markdown(figures):
    parts = [
        "# The hardware cores in figures\n",
        "Written by `make rtl-report`. README.md says what is measured and how to read it. What is"
        " not in a table was not measured with the sources as they are.\n",
        "Tools: " + ", ".join(figures["tools"]) + ".\n",
        "## Cycles for one sector of 4096 bytes\n",
        "AES-128. Encryption / decryption, or one figure where they are the same. *Cold*: the key"
        " was loaded just before, counted from when all its round keys are there. *Warm*: it was"
        " there. *Steady*: a sector in the middle of a run; *bound* is what the busiest unit has to do for it. *Alternating*: runs of one sector that"
        " change direction. *Key*: from the key's acceptance to all its round keys; the first"
        " AES calls, for tau or H, go on at the same time. *Paper*: the paper's"
        " cycles for a sector, all of which are compared with a cold one, although they have those calls"
        " inside: 11 of the 319 of FAST-BRW-2 are tau's. From the key's acceptance a cold sector takes *key*"
        " more, for fast-brw-2 309 + 11 = 320 cycles. The paper has no runs, so that *paper/steady* is"
        " what they bring.\n",
        table(
            ["design", "cold", "paper", "cold/paper", "warm", "steady", "bound", "steady/bound",
             "paper/steady", "alternating", "key"],
            cycle_rows(figures["designs"]),
        ),
        "## Cycles for one sector of 512 bytes\n",
        "The cores are made for sectors of 4096 bytes. With shorter ones the steps between the passes"
        " weigh more: in FAST the Feistel part takes one sector at a time. *Eight* sectors are as much"
        " data as one of 4096 bytes, whose steady state stands beside them.\n",
        table(
            ["design", "AES", "cold", "warm", "steady", "eight", "4096 bytes"],
            short_rows(figures["designs"]),
        ),
        "## Area and levels of logic\n",
        "After `synth_xilinx -family xc7`, before packing, with each S-box kept as a module. A"
        " six-input LUT has two outputs and can hold two functions of up to five inputs in all, so that"
        " smaller LUTs may pair; a LUT6 cannot. *Sites* is an estimate of the LUTs after packing:"
        " those of two inputs pair with each other or with those of three, which fits whatever the"
        " inputs are, and all others are alone. Inputs in common let more of them pair, and placement"
        " may keep some apart. *Sites/4* is the same estimate in slices. *Slices, at least* is a bound: LUT6"
        " and memory in LUTs with places of their own and all smaller LUTs in pairs, four places a slice,"
        " or eight flip-flops a slice where that is more; no packing of these cells takes fewer. The"
        " paper's slices and block RAMs (36 kbit) are after place and route with other tools, and stand"
        " beside it for orientation only. Its AEZ cores have no tweak, like those called *-alike*."
        " *Levels*: six-input LUTs in a row between registers. *ECP5*: MHz after place and route by"
        " nextpnr on an LFE5U-85F (blocks by its default router, designs by a quicker one that costs speed),"
        " and four-input LUTs there, with ports behind shift registers;"
        " another kind of device altogether, not comparable with a Virtex. *engine-…*: the co-processor of"
        " `engine/`, with one ring, four key slots and a bus of 16 bytes; *-cipher*: only its cipher, with"
        " what feeds it, so that the difference is registers, rings, lists and DMA.\n",
        table(
            ["unit", "LUT", "sites", "FF", "MUXF7 + F8", "CARRY4", "BRAM", "sites/4", "slices, at least",
             "paper, Virtex-7", "paper, Virtex-5", "levels", "ECP5"],
            area_rows({**figures["blocks"], **figures["designs"]}),
        ),
    ]
    return "\n".join(parts)
