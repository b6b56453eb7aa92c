"""Draws what a GB costs by the size of the requests, reads beside writes, on the RAM disk."""

import math
from html import escape

COLOURS = {
    "raw": "#777777",
    "stock-512": "#d62728",
    "stock-512-noqueue": "#ff9896",
    "xtent-512": "#1f77b4",
    "stock-4096": "#e08214",
    "stock-4096-noqueue": "#fdb863",
    "xtent-4096": "#17becf",
}
WIDTH, HEIGHT, LEFT, TOP = 330, 260, 60, 40


def text(x, y, words, size=12, anchor="middle"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def panel(x0, direction, names, results, requests, bottom, top):
    def x(request):
        first, last = math.log2(requests[0]), math.log2(requests[-1])
        return x0 + WIDTH * (math.log2(request) - first) / max(last - first, 1)

    def y(cost):
        return TOP + HEIGHT * (1 - math.log2(cost / bottom) / math.log2(top / bottom))

    parts = [text(x0 + WIDTH / 2, TOP - 14, f"{direction}: CPU seconds per GB, by the size of the requests", 13)]
    mark = bottom
    while mark <= top:
        parts += [f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#dddddd"/>',
                  text(x0 - 6, y(mark) + 4, f"{mark:g}", 11, "end")]
        mark *= 2
    for request in requests:
        name = f"{request >> 20} MiB" if request >= 1 << 20 else f"{request >> 10} KiB"
        parts.append(text(x(request), TOP + HEIGHT + 16, name, 11))
    for name in names:
        points = [(x(r), y(results.cost(("ram", "POINT", direction, str(r)), name))) for r in requests]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{COLOURS[name]}"/>' for px, py in points]
    return parts


def draw(names, results):
    requests = sorted({int(case[3]) for case in results.cases if case[:2] == ("ram", "POINT")})
    costs = [results.cost(("ram", "POINT", d, str(r)), n) for d in ("read", "write") for r in requests for n in names]
    # Powers of two: small requests cost ten times as much as large ones.
    bottom, top = (2.0 ** edge for edge in (math.floor(math.log2(min(costs))), math.ceil(math.log2(max(costs)))))
    width = 2 * (WIDTH + LEFT) + 30
    parts = []
    for i, direction in enumerate(("read", "write")):
        parts += panel(LEFT + i * (WIDTH + LEFT), direction, names, results, requests, bottom, top)
    for i, (name, title) in enumerate(names.items()):
        px, py = LEFT + i % 4 * 180, TOP + HEIGHT + 44 + i // 4 * 20
        parts += [f'<rect x="{px}" y="{py - 9}" width="14" height="10" fill="{COLOURS[name]}"/>',
                  text(px + 20, py, title, 12, "start")]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 80}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts) + "\n</svg>\n")
