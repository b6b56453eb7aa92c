"""Linux 7 with one and two CPUs: latency of single reads, writes of one file, and the goals there."""

import statistics

# dm-xtent with 512-byte sectors may cost so much of what dm-crypt costs above the device.
GOAL_512 = 0.6
HOW = {"": "", "noqueue": ", no queues", "nowrite": ", no_write_workqueue", "write": ", write_workqueue"}
WHO = {"stock": "dm-crypt", "inline": "dm-inlinecrypt", "xtent": "dm-xtent"}
ORDER = {
    "latency": ("stock", "stock-noqueue", "inline", "xtent"),
    "writeback": ("stock", "stock-noqueue", "inline", "xtent", "xtent-nowrite", "xtent-write"),
}
TITLES = {
    "latency": "One read of 4 KiB at a time",
    "writeback": "Writes of one program",
}
COMPLETES = {
    "irqmode=0": "it completes where it was made",
    "irqmode=1": "it completes in a soft interrupt",
    "irqmode=2": "it completes 10 us later, by a timer, which is a hard interrupt",
}


def names(part):
    """The contestants, as job and tables have them."""
    found = ["raw"]
    for size in ("512", "4096"):
        for one in ORDER[part]:
            who, _, how = one.partition("-")
            found.append("-".join(filter(None, (who, size, how))))
    return found


def title(name):
    if name == "raw":
        return "the device as it is"
    who, size, how = (name.split("-") + [""])[:3]
    return f"{WHO[who]}, {size}{HOW[how]}"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def head(*cells):
    return [row(*cells), "|" + "---|" * len(cells)]


def ratio(results, case, name, other, which):
    """The median of the ratios within a round."""
    return statistics.median(
        a / b for a, b in zip(results.of(case, name, which), results.of(case, other, which)))


def both(results, case, name, which):
    """The median, and the least: what it is where nobody else wanted a core."""
    values = results.of(case, name, which)
    return f"{statistics.median(values):.3f} ({min(values):.3f})"


def judged(results, goal, case, name, other, which, missed):
    """A goal's cell: what it is to another's, and whether that is no more than 1."""
    got = ratio(results, case, name, other, which)
    if got > 1:
        missed.append(f"{goal}, {title(name)}: {got:.3f} of {title(other)}'s")
    return f"{got:.3f} {'MISSED' if got > 1 else 'met'}"


def latency(results, missed):
    lines = []
    for case in [case for case in results.cases if case[1] == "LATENCY"]:
        lines += [f"4 KiB from a null_blk in memory, `{case[2]}`: {COMPLETES[case[2]]}. Microseconds; the median of the rounds'",
                  "medians, and of what 99 of 100 reads take at most. The goal: half of dm-xtent's reads take no longer than dm-crypt's without queues.", ""]
        lines += head("", "half", "above raw", "99 %", "to dm-crypt, no queues", "CPU us")
        for name in names("latency"):
            half, most = (statistics.median(results.of(case, name, which)) / 1000 for which in (2, 3))
            above = statistics.median(
                a - b for a, b in zip(results.of(case, name, 2), results.of(case, "raw", 2))) / 1000
            other = f"stock-{name.split('-')[1]}-noqueue" if name != "raw" else name
            to = f"{ratio(results, case, name, other, 2):.2f}"
            if name.startswith("xtent-"):
                to = judged(results, f"4 KiB, {case[2]}", case, name, other, 2, missed)
            lines.append(row(title(name), f"{half:.1f}", "" if name == "raw" else f"{above:.1f}", f"{most:.0f}",
                             "" if name == "raw" else to, f"{results.cost(case, name) * 4096 / 1000:.1f}"))
        lines.append("")
    return lines


def writeback(results, missed):
    lines = ["In brackets the least of all rounds: where both of the guest's CPUs were there, or nearly.", ""]
    for case in sorted((case for case in results.cases if case[1] in ("BUFFERED", "DEPTH")), key=lambda case: case[1:]):
        goal = case[1] == "BUFFERED" and results.facts["cpus"] != "1"
        if case[1] == "BUFFERED":
            lines += [f"A file of {int(case[3]) >> 20} MiB on ext4 is written again through the page cache, and then is on the RAM disk"
                      " (`fsync`)." + (" The goal: dm-xtent's wall time is no more than dm-crypt's." if goal else ""), ""]
        else:
            lines += [f"{case[2]} requests of {int(case[3]) >> 10} KiB at a time, past the page cache:", ""]
        lines += head("", "wall s/GB", "to dm-crypt", "CPU s/GB", "above raw", "to dm-crypt")
        for name in names("writeback"):
            if name == "raw":
                cells = [both(results, case, name, 1), "", both(results, case, name, 0), "", ""]
            else:
                other = f"stock-{name.split('-')[1]}"
                to = f"{ratio(results, case, name, other, 1):.2f}"
                if goal and name in ("xtent-512", "xtent-4096"):
                    to = judged(results, "write-back", case, name, other, 1, missed)
                cells = [both(results, case, name, 1), to, both(results, case, name, 0),
                         f"{results.above(case, name):.3f}", f"{ratio(results, case, name, other, 0):.2f}"]
            lines.append(row(title(name), *cells))
        lines.append("")
    if results.counts:
        lines += ["What dm-xtent did with its requests in the last round, by `dmsetup status`:", ""]
        lines += [f"* {title(name)}: {counts}" for (what, name), counts in results.counts.items() if what == "ext4"]
        lines.append("")
    return lines


def tables(results, part):
    """Lines, and which goals were missed."""
    missed = []
    lines = [f"## {TITLES[part]}", ""]
    lines += latency(results, missed) if part == "latency" else writeback(results, missed)
    return lines + [f"{note}\n" for note in sorted(results.notes) if part == "latency"], missed
