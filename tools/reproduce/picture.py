"""Small SVG pictures for docs/reproduction.md; they follow the reader's light or dark."""

import html
import math

STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#5b6675}.t{font-weight:600;fill:#1d2530}.g{stroke:#dfe4ea}
.c0{--c:#2f6fde}.c1{--c:#e06c00}.c2{--c:#14855f}.c3{--c:#b6439f}.c4{--c:#8a6d00}.c5{--c:#0e8fb0}.c6{--c:#d03a3a}.c7{--c:#6b55c9}
.l{fill:none;stroke:var(--c);stroke-width:2}.f{fill:var(--c)}.p{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#9aa7b8}.t{fill:#e6eaf0}.g{stroke:#2c3542}.p{fill:#11161d}
.c0{--c:#6ea2ff}.c1{--c:#ff9a4d}.c2{--c:#3fc79a}.c3{--c:#e58bd3}.c4{--c:#d9b64a}.c5{--c:#4cc4e4}.c6{--c:#ff7d7d}.c7{--c:#a695ff}}
</style>"""


def _text(x, y, text, anchor="start", kind=""):
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' class='{kind}'>{html.escape(str(text))}</text>"


def _steps(least, most):
    span = max(most - least, 1e-12)
    power = 10 ** math.floor(math.log10(span))
    step = next(s * power for s in (0.2, 0.5, 1, 2) if span / (s * power) <= 6)
    value = math.ceil(least / step - 1e-9) * step
    while value <= most + step * 1e-6:
        yield value
        value += step


def _keys(names, y, left):
    parts, x = [], left
    for i, name in enumerate(names):
        parts.append(f"<rect class='f c{i % 8}' x='{x:.0f}' y='{y - 9}' width='10' height='10' rx='2'/>")
        parts.append(_text(x + 15, y, name))
        x += 30 + 6.6 * len(name)
    return "".join(parts)


def _page(width, height, title, body):
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>{STYLE}"
        f"<rect class='p' width='{width}' height='{height}'/>{_text(16, 22, title, kind='t')}{body}</svg>\n"
    )


def scatter(title, groups, x_label, y_label):
    """Points against the diagonal: groups is {name: [(paper, ours), ...]}; hollow ones are held out."""
    width, height, left, top, size = 640, 460, 60, 50, 350
    points = [p for group in groups.values() for p in group]
    least, most = math.log10(min(min(p[:2]) for p in points) * 0.85), math.log10(max(max(p[:2]) for p in points) * 1.15)
    at = lambda v: (math.log10(v) - least) / (most - least) * size
    body = "".join(_keys([name], 70 + 22 * i, left + size + 24).replace("c0", f"c{i % 8}") for i, name in enumerate(groups))
    for v in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100):
        if least <= math.log10(v) <= most:
            body += f"<path class='g' d='M{left + at(v):.1f} {top}v{size}M{left} {top + size - at(v):.1f}h{size}'/>"
            body += _text(left + at(v), top + size + 16, v, "middle") + _text(left - 6, top + size - at(v) + 4, v, "end")
    body += f"<path class='g' style='stroke-width:2' d='M{left} {top + size}L{left + size} {top}'/>"
    for i, group in enumerate(groups.values()):
        for paper, ours, held_out in group:
            x, y = left + at(paper), top + size - at(ours)
            kind = "l p" if held_out else "f"
            body += f"<circle class='c{i % 8} {kind}' cx='{x:.1f}' cy='{y:.1f}' r='4.5' style='stroke:var(--c)'/>"
    body += _text(left + size / 2, top + size + 36, x_label, "middle") + _text(left, top - 4, y_label)
    return _page(width, height, title, body)


def bars(title, names, series, unit=""):
    """Groups of bars: series is {name: [value, ...]}, one value per name of `names`; None leaves a gap."""
    width, left, top, tall = 640, 50, 62, 190
    most = max((v for values in series.values() for v in values if v is not None), default=1) * 1.08 or 1
    body = _keys(series, 44, left)
    for v in _steps(0, most):
        y = top + tall - v / most * tall
        body += f"<path class='g' d='M{left} {y:.1f}H{width - 16}'/>" + _text(left - 6, y + 4, f"{v:g}", "end")
    group = (width - 16 - left) / len(names)
    bar = min(26, group * 0.8 / len(series))
    for n, name in enumerate(names):
        start = left + n * group + (group - bar * len(series)) / 2
        for i, values in enumerate(series.values()):
            if values[n] is not None:
                high = values[n] / most * tall
                body += f"<rect class='f c{i % 8}' x='{start + i * bar:.1f}' y='{top + tall - high:.1f}' width='{bar - 2:.1f}' height='{high:.1f}'/>"
        body += _text(left + (n + 0.5) * group, top + tall + 16, name, "middle")
    return _page(width, top + tall + 30, f"{title}{f' [{unit}]' if unit else ''}", body)


def lines(title, series, x_label, y_label, y_most=None):
    """Lines: series is {name: [(x, y), ...]}."""
    width, left, top, wide, tall = 640, 56, 62, 560, 220
    xs = [x for line in series.values() for x, _ in line]
    ys = [y for line in series.values() for _, y in line]
    x0, x1 = min(xs), max(max(xs), min(xs) + 1e-9)
    most = y_most or max(ys) * 1.08 or 1
    px = lambda x: left + (x - x0) / (x1 - x0) * wide
    py = lambda y: top + tall - min(y / most, 1) * tall
    body = _keys(series, 44, left)
    for v in _steps(0, most):
        body += f"<path class='g' d='M{left} {py(v):.1f}h{wide}'/>" + _text(left - 6, py(v) + 4, f"{v:g}", "end")
    for v in _steps(x0, x1):
        body += f"<path class='g' d='M{px(v):.1f} {top}v{tall}'/>" + _text(px(v), top + tall + 16, f"{v:g}", "middle")
    for i, line in enumerate(series.values()):
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in line)
        body += f"<polyline class='l c{i % 8}' points='{path}'/>"
        body += "".join(f"<circle class='f c{i % 8}' cx='{px(x):.1f}' cy='{py(y):.1f}' r='3'/>" for x, y in line)
    body += _text(left + wide / 2, top + tall + 34, x_label, "middle")
    return _page(width, top + tall + 44, f"{title} [{y_label}]", body)
