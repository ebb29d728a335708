"""A plot of measured lines as SVG, drawn by hand: no library, no fonts of its own, readable in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, GAP = 250, 240, 44, 40, 34, 16
COLOURS = ("#c2410c", "#0369a1", "#4d7c0f")


@dataclass(frozen=True)
class Line:
    """Seconds by amount: one line in the panel of what grows."""

    panel: str
    label: str
    points: tuple[tuple[int, float], ...]


def svg(lines: Sequence[Line]) -> str:
    """One panel for each thing that grows, side by side, both axes logarithmic and the seconds shared."""
    panels = list(dict.fromkeys(line.panel for line in lines))
    labels = list(dict.fromkeys(line.label for line in lines))
    seconds = [s for line in lines for _, s in line.points]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    width = LEFT + len(panels) * (WIDTH + GAP)
    box = f'viewBox="0 0 {width} {HEIGHT + TOP + BOTTOM}"'
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{HEIGHT + TOP + BOTTOM}" fill="#ffffff"/>',
    ]
    for n, label in enumerate(labels):
        x = LEFT + n * 170
        made.append(f'<rect x="{x}" y="8" width="14" height="4" fill="{COLOURS[n]}"/>')
        made.append(f'<text x="{x + 20}" y="14">{label}</text>')
    for n, panel in enumerate(panels):
        mine = [line for line in lines if line.panel == panel]
        made += _panel(LEFT + n * (WIDTH + GAP), panel, mine, labels, (low, high), first=n == 0)
    return "\n".join([*made, "</svg>", ""])


def _panel(
    left: int, name: str, lines: Sequence[Line], labels: Sequence[str], span: tuple[int, int], *, first: bool
) -> list[str]:
    amounts = sorted({a for line in lines for a, _ in line.points})
    low, high = span
    bottom = TOP + HEIGHT

    def x(amount: int) -> float:
        along = math.log(amount / amounts[0]) / math.log(amounts[-1] / amounts[0])
        return left + 14 + along * (WIDTH - 28)

    def y(seconds: float) -> float:
        return bottom - (math.log10(seconds) - low) / (high - low) * HEIGHT

    made = [f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        made.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>')
        if first:
            text = f"{10**power} s" if power >= 0 else f"{10 ** (power + 3)} ms"
            made.append(f'<text x="{left - 4}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
    for amount in amounts:
        made.append(f'<text x="{x(amount):.1f}" y="{bottom + 16}" text-anchor="middle">{amount:,}</text>')
    made.append(f'<text x="{left + WIDTH / 2:.1f}" y="{bottom + 32}" text-anchor="middle">{name}</text>')
    for line in lines:
        colour = COLOURS[labels.index(line.label)]
        points = " ".join(f"{x(a):.1f},{y(s):.1f}" for a, s in line.points)
        made.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        made += [f'<circle cx="{x(a):.1f}" cy="{y(s):.1f}" r="3" fill="{colour}"/>' for a, s in line.points]
    return made
