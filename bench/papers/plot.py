"""Bars and lines as SVG."""

import math
from html import escape

COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 380, 60, 30, 90


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(str(words))}</text>'


def ticks(top):
    """Round numbers from 0 to beyond `top`."""
    step = 10 ** math.floor(math.log10(top))
    step = next(step * f for f in (0.1, 0.2, 0.5, 1, 2) if top / (step * f) <= 8)
    return [step * i for i in range(math.ceil(top / step) + 1)]


def frame(title, marks, y):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, TOP - 12, title, "start")]  # fmt: skip
    for mark in marks:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y(mark) + 4, f"{mark:g}", "end"))
    return parts


def legend(names):
    parts = []
    for i, name in enumerate(names):
        x = LEFT + i * (WIDTH - LEFT) / len(names)
        parts.append(f'<rect x="{x:.1f}" y="{HEIGHT - 20}" width="12" height="10" fill="{COLOURS[i]}"/>')
        parts.append(text(x + 17, HEIGHT - 11, name, "start"))
    return parts


def bars(path, title, groups, series, stacked=False):
    """A group of bars, or one of parts, for each of `groups`; `series` has a value for each by its name."""
    tops = [sum(s[i] for s in series.values()) for i in range(len(groups))] if stacked else [v for s in series.values() for v in s]
    marks = ticks(max(tops))
    y = lambda value: HEIGHT - BOTTOM - value / marks[-1] * (HEIGHT - BOTTOM - TOP)
    parts = frame(title, marks, y)
    room = (WIDTH - 20 - LEFT) / len(groups)
    for i, group in enumerate(groups):
        below = 0
        for n, values in enumerate(series.values()):
            width = room * 0.7 / (1 if stacked else len(series))
            x = LEFT + room * (i + 0.15) + (0 if stacked else n * width)
            parts.append(f'<rect x="{x:.1f}" y="{y(below + values[i]):.1f}" width="{width:.1f}" '
                         f'height="{y(below) - y(below + values[i]):.1f}" fill="{COLOURS[n]}"/>')  # fmt: skip
            below += values[i] if stacked else 0
        # In two lines where it is long.
        for line, words in enumerate(group.split(", ")):
            parts.append(text(LEFT + room * (i + 0.5), HEIGHT - BOTTOM + 16 + 13 * line, words))
    path.write_text("\n".join([*parts, *legend(series), "</svg>"]) + "\n")


def lines(path, below, title, xs, series, logarithmic=False):
    """Lines over `xs`, which are set apart by their logarithms; so may values be."""
    every = [v for s in series.values() for v in s]
    if logarithmic:
        low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
        marks = [10**power for power in range(low, high + 1)]
        part = lambda value: (math.log10(value) - low) / (high - low)
    else:
        marks = ticks(max(every))
        part = lambda value: value / marks[-1]
    first, last = math.log2(xs[0]), math.log2(xs[-1])
    x = lambda value: LEFT + 10 + (math.log2(value) - first) / max(last - first, 1e-9) * (WIDTH - 60 - LEFT)
    y = lambda value: HEIGHT - BOTTOM - part(value) * (HEIGHT - BOTTOM - TOP)
    parts = frame(title, marks, y)
    for value in xs:
        parts.append(text(x(value), HEIGHT - BOTTOM + 16, f"{value:g}"))
    parts.append(text(WIDTH / 2, HEIGHT - BOTTOM + 36, below))
    for n, values in enumerate(series.values()):
        path_points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(xs, values))
        parts.append(f'<polyline points="{path_points}" fill="none" stroke="{COLOURS[n]}" stroke-width="2"/>')
        parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{COLOURS[n]}"/>' for a, b in zip(xs, values)]
    path.write_text("\n".join([*parts, *legend(series), "</svg>"]) + "\n")
