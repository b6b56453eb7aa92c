#!/usr/bin/env python3
"""Reads what time.sh prints, and prints tables: CPU seconds per GB above the RAM disk of the same round, medians."""

import collections
import statistics
import sys

NAMES = {"before": "before", "series": "series", "xtent": "dm-xtent"}


def main():
    cost = collections.defaultdict(dict)  # (request, direction, name) to round to s/GB
    for line in sys.stdin:
        fields = line.split()
        if fields[:1] == ["FACT"]:
            print(f"* {fields[1]}: {' '.join(fields[2:])}")
        if fields[:1] == ["POINT"]:
            _, turn, name, request, direction, spent, moved = fields
            cost[int(request), direction, name][turn] = int(spent) / int(moved)
    if not cost:
        sys.exit("nothing was measured")
    rounds = len(next(iter(cost.values())))
    names = {name for _, _, name in cost}
    print(f"* {rounds} rounds\n")
    columns = ["before", "series", "series / before", "before, no queues", "series, no queues", "series / before"]
    if "xtent-512" in names:
        columns += ["dm-xtent", "dm-xtent / before"]
    print("| sectors | request | | " + " | ".join(columns) + " |\n|" + "---|" * (3 + len(columns)))

    def above(case, name):
        return {turn: spent - cost[*case, "raw"][turn] for turn, spent in cost[*case, name].items()}

    for sector in (512, 4096):
        for request, direction in sorted({key[:2] for key in cost}):
            case = request, direction
            cells = []
            base = above(case, f"before-{sector}")
            for suffix in ("", "-noqueue"):
                old, new = above(case, f"before-{sector}{suffix}"), above(case, f"series-{sector}{suffix}")
                cells += [f"{statistics.median(old.values()):.3f}", f"{statistics.median(new.values()):.3f}",
                          f"{statistics.median(new[turn] / old[turn] for turn in old):.2f}"]
            if "xtent-512" in names:
                ours = above(case, f"xtent-{sector}")
                cells += [f"{statistics.median(ours.values()):.3f}",
                          f"{statistics.median(ours[turn] / base[turn] for turn in base):.2f}"]
            print(f"| {sector} | {request >> 10} KiB | {direction} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
