# SPDX-License-Identifier: Apache-2.0
"""Figures as text for people: durations, rates, sizes and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def duration(seconds: float) -> str:
    """Return seconds with three digits and the unit that fits, such as "12.5 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:.0f} {unit}"
    return "0 s" if seconds <= 0 else f"{seconds * 1e6:.2g} µs"


def size(count: float) -> str:
    """Return a number of bytes with its unit, such as "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def number(value: float) -> str:
    """Return a rate with three digits, or whole if it is larger."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of text: the first column is aligned left, the others right, and the last left."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    out = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in (0, len(head) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)
