# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report's tables in Markdown, with the paper's figures beside ours."""

from speed import DEVICE_LUTS

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


def time_ratio(designs, blocks, name, what):
    """Our time over the paper's, each with its own AES-PEC's clock as the unit of time."""
    d, pec = designs[name], blocks.get("aes-pec", {}).get("route")
    if not (d["paper"] and d["cycles"] and d["route"] and d["route"]["mhz"] and pec):
        return "–"
    ours = worst(d["cycles"], what) * pec["mhz"] / d["route"]["mhz"]
    # Its Virtex-7, the faster of the two in every row.
    theirs = d["paper"] * PAPER["aes-pec"][1][2] / PAPER[name.removesuffix("-alike")][1][2]
    return f"{ours / theirs:.2f}"


def cycle_rows(designs, blocks):
    for name, d in designs.items():
        c, paper = d["cycles"], d["paper"]
        if c is None:
            continue
        yield (
            name,
            both(c, "cold"),
            paper or "–",
            f"{worst(c, 'cold') / paper:.3f}" if paper else "–",
            time_ratio(designs, blocks, name, "cold"),
            both(c, "warm"),
            both(c, "steady"),
            f"{d['bound']:g}",
            f"{worst(c, 'steady') / d['bound']:.3f}",
            f"{paper / worst(c, 'steady'):.2f}" if paper else "–",
            time_ratio(designs, blocks, name, "steady"),
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
            f"{d['short_bound']:g}",
            f"{worst(c, 'steady') / d['short_bound']:.3f}",
            f"{8 * worst(c, 'steady'):g}",
            f"{worst(d['cycles'], 'steady'):g}" if d["cycles"] else "–",
        )


def area_rows(units):
    for name, unit in units.items():
        a = unit["area"]
        # The paper's AEZ cores have no tweak, as ours called -alike; its figures stand beside
        # the others as well.
        v5, v7 = PAPER.get(name.removesuffix("-alike"), (("–", "–"), ("–", "–")))
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
        )


def clock_rows(units):
    pec = units.get("aes-pec", {})
    for name, unit in units.items():
        route, delay = unit.get("route"), unit.get("delay")
        if not (unit["depth"] or route or delay):
            continue
        seeds = best = ratio = "–"
        if route:
            fits = route["lut4"] <= DEVICE_LUTS
            seeds = ", ".join(route["seeds"]) if fits else "–"
            best = f"{route['mhz']:g}" if route["mhz"] else "none" if fits else "does not fit"
            if route["mhz"] and pec.get("route"):
                ratio = f"{route['mhz'] / pec['route']['mhz']:.2f}"
        paper = PAPER.get(name.removesuffix("-alike"))
        yield (
            name,
            unit["depth"] or "–",
            seeds,
            best,
            ratio,
            f"{paper[1][2] / PAPER['aes-pec'][1][2]:.2f}" if paper else "–",
            route["lut4"] if route else "–",
            f"{delay:.2f}" if delay else "–",
            f"{pec['delay'] / delay:.2f}" if delay and pec.get("delay") else "–",
        )


# What rows of the co-processor are, where there are any.
ENGINES = (
    " *engine-…*: the co-processor of `engine/`, with one ring, four key slots and a bus of 16 bytes; *-cipher*: only its"
    " cipher, with what feeds it, so that the difference is registers, rings, lists and DMA."
)


def markdown(figures):
    areas = {**figures["blocks"], **figures["designs"]}
    areas = {name: unit for name, unit in areas.items() if unit["area"]}
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
        " more, for fast-brw-2 319 + 12 = 331 cycles. The paper has no runs, so that *paper/steady* is"
        " what they bring. *Time*: our time for a sector over"
        " the paper's, each in clock periods of the AES pipeline of the same flow: (cycles × MHz of our"
        " *aes-pec* / MHz of the design, ECP5) / (the paper's cycles × 405.02 / its MHz for the design, Virtex-7)."
        " The goals are 1.00 cold and 0.75 in steady state.\n",
        table(
            ["design", "cold", "paper", "cold/paper", "time, cold", "warm", "steady", "bound",
             "steady/bound", "paper/steady", "time, steady", "alternating", "key"],
            cycle_rows(figures["designs"], figures["blocks"]),
        ),
        "## Cycles for one sector of 512 bytes\n",
        "The cores are made for sectors of 4096 bytes. With shorter ones the steps between the passes"
        " weigh more. *Bound* as above, for"
        " these sectors; the goal is at most 1.100 of it. Less than the bound: queues of several sectors still fill or empty. *Eight* sectors are as much"
        " data as one of 4096 bytes, whose steady state stands beside them.\n",
        table(
            ["design", "AES", "cold", "warm", "steady", "bound", "steady/bound", "eight", "4096 bytes"],
            short_rows(figures["designs"]),
        ),
        "## Area\n",
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
        + (ENGINES if any(name.startswith("engine-") for name in areas) else "") + "\n",
        table(
            ["unit", "LUT", "sites", "FF", "MUXF7 + F8", "CARRY4", "BRAM", "sites/4", "slices, at least",
             "paper, Virtex-7", "paper, Virtex-5"],
            area_rows(areas),
        ),
        "## Clock\n",
        "*Levels*: six-input LUTs in a row between registers, memories and S-boxes, without delays; an S-box has"
        " three of its own, so that a round of *aes-pec* has five. *MHz*: after place and route by"
        " nextpnr on an LFE5U-85F (83,640 LUT4, lowest speed grade), all with the same router and goal and with"
        " five seeds; the best counts. Ports are behind shift registers, so that what is inside decides, and resets of"
        " more than 1,000 flip-flops on a global network. *aes-duplex*: PEC and PDC and nothing else, for how fast the flow"
        " is in a device that is four fifths full."
        " */aes-pec*: MHz over those of *aes-pec*, the AES pipeline; the goal is 0.90. *Paper*: the same"
        " ratio of the paper's MHz on Virtex-7. *none*: this seed was not routed, –: not yet tried. *Logic*: the longest path"
        " between registers in ns after `synth_xilinx -abc9`, with Yosys's delays of LUTs, carries, block RAM"
        " and registers of the 7 series (Artix-7) and without any wires: a second opinion that has neither"
        " router nor luck in it, and also of what does not fit the ECP5. *aes-pec/*: the logic of *aes-pec*"
        " over it. Neither is a frequency on a Virtex, and none is made of them.\n",
        table(
            ["unit", "levels", "MHz of seeds 1 to 5", "MHz", "/ aes-pec", "paper's / its PEC", "LUT4",
             "logic, ns", "aes-pec / logic"],
            clock_rows({**figures["blocks"], **figures["designs"]}),
        ),
    ]
    return "\n".join(parts)
