"""Draws what a GB costs by the size of the requests, reads beside writes."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, TOP = 330, 260, 60, 40


def text(x, y, words, size=12, anchor="middle"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def panel(x0, direction, colours, requests, cost, bottom, top):
    def x(request):
        first, last = math.log2(requests[0]), math.log2(requests[-1])
        return x0 + WIDTH * (math.log2(request) - first) / max(last - first, 1)

    def y(value):
        return TOP + HEIGHT * (1 - math.log2(value / bottom) / math.log2(top / bottom))

    parts = [text(x0 + WIDTH / 2, TOP - 14, f"{direction}: CPU seconds per GB, by the size of the requests", 13)]
    mark = bottom
    while mark <= top:
        parts += [f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#dddddd"/>',
                  text(x0 - 6, y(mark) + 4, f"{mark:g}", 11, "end")]
        mark *= 2
    for request in requests:
        name = f"{request >> 20} MiB" if request >= 1 << 20 else f"{request >> 10} KiB"
        parts.append(text(x(request), TOP + HEIGHT + 16, name, 11))
    for name, colour in colours.items():
        points = [(x(r), y(cost(direction, r, name))) for r in requests]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
    return parts


def draw(names, colours, requests, cost, columns=4):
    """Of `cost(direction, request, name)`, CPU seconds per GB; the names' words are put in so many columns."""
    costs = [cost(d, r, n) for d in ("read", "write") for r in requests for n in names]
    # Powers of two: small requests cost ten times as much as large ones.
    bottom, top = (2.0 ** edge for edge in (math.floor(math.log2(min(costs))), math.ceil(math.log2(max(costs)))))
    width = 2 * (WIDTH + LEFT) + 30
    parts = []
    for i, direction in enumerate(("read", "write")):
        parts += panel(LEFT + i * (WIDTH + LEFT), direction, colours, requests, cost, bottom, top)
    for i, (name, title) in enumerate(names.items()):
        px, py = LEFT + i % columns * (720 // columns), TOP + HEIGHT + 44 + i // columns * 20
        parts += [f'<rect x="{px}" y="{py - 9}" width="14" height="10" fill="{colours[name]}"/>',
                  text(px + 20, py, title, 12, "start")]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TOP + HEIGHT + 40 + -(-len(names) // columns) * 20}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts) + "\n</svg>\n")
