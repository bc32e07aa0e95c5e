# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on samples, and numbers as text. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TypedDict, TypeVar

Item = TypeVar("Item")


class Spread(TypedDict):
    """Middle and extremes of some samples."""

    n: int
    median: float
    min: float
    max: float


def spread(samples: Iterable[float | None]) -> Spread | None:
    """Return median and extremes of the samples that are not None; None if there is no sample."""
    found = [sample for sample in samples if sample is not None]
    if not found:
        return None
    return {"n": len(found), "median": statistics.median(found), "min": min(found), "max": max(found)}


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """Return the items rotated by the round, so that no item is always first."""
    by %= max(len(items), 1)
    return [*items[by:], *items[:by]]


def rate(nbytes: int, seconds: float) -> float:
    """Return the rate in decimal GB/s, or 0 if no time passed."""
    return nbytes / seconds / 1e9 if seconds > 0 else 0.0


def overhead_per_tensor(seconds: float, nbytes: int, ceiling_gbps: float, tensors: int) -> float:
    """Return the seconds per tensor beyond a copy of all bytes at the ceiling's rate, at least 0."""
    if ceiling_gbps <= 0 or tensors <= 0:
        return 0.0
    return max(0.0, seconds - nbytes / (ceiling_gbps * 1e9)) / tensors


def overhead_share(seconds: float, nbytes: int, ceiling_gbps: float) -> float:
    """Return the share of a load's time beyond a copy of its bytes at the ceiling's rate, from 0 to 1."""
    if ceiling_gbps <= 0 or seconds <= 0:
        return 0.0
    return max(0.0, 1.0 - nbytes / (ceiling_gbps * 1e9) / seconds)


def seconds_text(seconds: float) -> str:
    """A time with a unit that suits it: 830 µs, 12.3 ms, 4.56 s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def bytes_text(nbytes: float) -> str:
    """Bytes in binary units: 12.3 MiB, 1.40 GiB; negative ones keep their sign."""
    size = abs(nbytes)
    sign = "-" if nbytes < 0 else ""
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= limit:
            return f"{sign}{size / limit:.2f} {unit}" if unit == "GiB" else f"{sign}{size / limit:.1f} {unit}"
    return f"{sign}{size:.0f} B"


def times_text(theirs: float, ours: float) -> str:
    """Return the ratio of two times as text: "2.50 times as fast", "1.30 times slower"."""
    if ours <= 0 or theirs <= 0:
        return "not comparable"
    factor = theirs / ours
    if 0.97 <= factor <= 1.03:
        return "as fast, within 3 %"
    return f"{factor:.2f} times as fast" if factor > 1 else f"{1 / factor:.2f} times slower"
