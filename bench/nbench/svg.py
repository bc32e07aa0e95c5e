# SPDX-License-Identifier: Apache-2.0
"""Draws a bar chart as SVG: rate by method, with the ceiling as a line.

The chart has two panels, warm and cold, each with its own scale, because the rates of bus and disk differ by an order
of magnitude. The module has no dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

COLOURS = {
    "nebulaio": "#1b6ca8", "safetensors": "#d98a29", "safetensors_pread": "#e8b775",
    "torch_mmap": "#6a9f58", "torch_gds": "#8c6bb1",
}
_OTHER = "#888888"
_WIDTH, _PANEL, _LEFT, _TOP, _BETWEEN = 860, 240, 60, 60, 74


@dataclass(frozen=True)
class Bar:
    """One method in a group. low and high are the extremes."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """The bars of one row, and the ceiling above them."""

    label: str
    bars: list[Bar]
    ceiling: float | None = None
    ceiling_label: str = ""


@dataclass(frozen=True)
class Panel:
    """Groups that share a scale."""

    title: str
    groups: list[Group] = field(default_factory=list)


def ticks(highest: float) -> list[float]:
    """Return four to eight round numbers from 0 to just above a value, for an axis."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest * 1.04 / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return [step * index for index in range(math.ceil(highest * 1.04 / step) + 1)]


def draw(panels: list[Panel], caption: str = "") -> str:
    """Draw the chart as an SVG document."""
    panels = [panel for panel in panels if panel.groups]
    height = _TOP + len(panels) * (_PANEL + _BETWEEN) + 24
    out = [
        (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
         f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'),
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="22" font-size="15" font-weight="bold">Model file to tensors on the device, GB/s</text>',
    ]
    out += _legend(panels)
    for index, panel in enumerate(panels):
        out += _panel(panel, _TOP + 16 + index * (_PANEL + _BETWEEN))
    if not panels:
        out.append('<text x="12" y="48">no rows to draw</text>')
    out.append(f'<text x="12" y="{height - 10}" font-size="11" fill="#555555">{escape(caption)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _legend(panels: list[Panel]) -> list[str]:
    labels = dict.fromkeys(bar.label for panel in panels for group in panel.groups for bar in group.bars)
    out, x = [], 12
    for label in labels:
        out.append(f'<rect x="{x}" y="34" width="11" height="11" fill="{COLOURS.get(label, _OTHER)}"/>')
        out.append(f'<text x="{x + 16}" y="44">{escape(label)}</text>')
        x += 28 + 7 * len(label)
    out.append(
        f'<line x1="{x}" y1="40" x2="{x + 22}" y2="40" stroke="#b22222" stroke-width="2" stroke-dasharray="6 3"/>')
    out.append(f'<text x="{x + 28}" y="44">ceiling</text>')
    return out


def _panel(panel: Panel, top: int) -> list[str]:
    highest = max(max([bar.high for bar in group.bars] + [group.ceiling or 0.0]) for group in panel.groups)
    marks = ticks(highest)
    scale = marks[-1]
    bottom = top + _PANEL
    wide = _WIDTH - _LEFT - 20

    def y(value: float) -> float:
        return round(bottom - value / scale * _PANEL, 1)

    out = [f'<text x="12" y="{top - 8}" font-weight="bold">{escape(panel.title)}</text>']
    for value in marks:
        out.append(f'<line x1="{_LEFT}" y1="{y(value)}" x2="{_WIDTH - 20}" y2="{y(value)}" stroke="#dddddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:g}</text>')
    each = wide / len(panel.groups)
    for index, group in enumerate(panel.groups):
        out += _group(group, _LEFT + index * each, each, y, bottom)
    return out


def _group(group: Group, left: float, wide: float, y: Callable[[float], float], bottom: int) -> list[str]:
    out = []
    room = wide - 30
    step = room / max(len(group.bars), 1)
    bar_wide = min(step * 0.8, 60)
    for index, bar in enumerate(group.bars):
        x = left + 15 + index * step + (step - bar_wide) / 2
        middle = round(x + bar_wide / 2, 1)
        colour = COLOURS.get(bar.label, _OTHER)
        out.append(f'<rect x="{x:.1f}" y="{y(bar.value)}" width="{bar_wide:.1f}" '
                   f'height="{max(bottom - y(bar.value), 0):.1f}" fill="{colour}">'
                   f"<title>{escape(bar.label)}: {bar.value:.2f} GB/s ({bar.low:.2f} to {bar.high:.2f})</title></rect>")
        out.append(f'<line x1="{middle}" y1="{y(bar.low)}" x2="{middle}" y2="{y(bar.high)}" stroke="#222222"/>')
        out.append(
            f'<text x="{middle}" y="{min(y(bar.value), y(bar.high)) - 4:.1f}" text-anchor="middle" font-size="11">'
                   f"{bar.value:.3g}</text>")
    if group.ceiling:
        line = y(group.ceiling)
        out.append(f'<line x1="{left + 10:.1f}" y1="{line}" x2="{left + wide - 10:.1f}" y2="{line}" '
                   'stroke="#b22222" stroke-width="2" stroke-dasharray="6 3"/>')
        out.append(f'<text x="{left + wide - 10:.1f}" y="{line - 5:.1f}" text-anchor="end" font-size="11" '
                   f'fill="#b22222">{escape(group.ceiling_label)} {group.ceiling:.3g}</text>')
    out.append(f'<text x="{left + wide / 2:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(group.label)}</text>')
    return out
