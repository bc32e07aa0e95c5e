# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on samples: medians, spreads, rates and the models that some rows need.

All functions are pure functions on numbers, so that every figure of a report can be recomputed and tested without a
device.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Spread:
    """Median and spread of some samples."""

    n: int
    median: float
    min: float
    max: float
    q1: float
    q3: float

    @property
    def iqr(self) -> float:
        """Distance between the quartiles."""
        return self.q3 - self.q1

    def as_dict(self) -> dict[str, float]:
        """Return the spread as plain data, including the distance between the quartiles."""
        return {**asdict(self), "iqr": self.iqr}


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted samples, linear between neighbours (numpy's default)."""
    if not ordered:
        raise ValueError("quantile of no samples")
    at = (len(ordered) - 1) * q
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread(samples: Iterable[float]) -> Spread | None:
    """Return median, extremes and quartiles, or None without samples."""
    ordered = sorted(samples)
    if not ordered:
        return None
    return Spread(
        n=len(ordered),
        median=statistics.median(ordered),
        min=ordered[0],
        max=ordered[-1],
        q1=quantile(ordered, 0.25),
        q3=quantile(ordered, 0.75),
    )


def median(samples: Iterable[float]) -> float | None:
    """Return the median, or None without samples."""
    found = spread(samples)
    return None if found is None else found.median


def rate(nbytes: float, seconds: float) -> float:
    """Return the rate in GB/s, with 10**9 bytes to the GB."""
    return nbytes / seconds / 1e9 if seconds > 0 else 0.0


def half_expected(cold_bytes: float, cold_rate: float, warm_bytes: float, warm_rate: float) -> float:
    """Return the seconds that a half-cached load needs if disk and page cache work at the same time.

    The uncached part comes at the cold rate, while the cached part comes at the warm rate. The longer of the two is
    the least possible time. Rates are in GB/s.
    """
    cold = cold_bytes / (cold_rate * 1e9) if cold_bytes else 0.0
    warm = warm_bytes / (warm_rate * 1e9) if warm_bytes else 0.0
    return max(cold, warm)


@dataclass(frozen=True)
class Cost:
    """The cost of a load: time = per_tensor * tensors + per_byte * bytes."""

    per_tensor: float  # seconds
    per_byte: float  # seconds

    def seconds(self, tensors: float, nbytes: float) -> float:
        """Return the seconds that the model predicts for a load."""
        return self.per_tensor * tensors + self.per_byte * nbytes

    @property
    def gbps(self) -> float | None:
        """Return the rate of bytes alone, or None if the fit assigns no cost to bytes."""
        return 1e-9 / self.per_byte if self.per_byte > 0 else None


def fit_cost(points: Sequence[tuple[float, float, float]]) -> Cost | None:
    """Fit (tensors, bytes, seconds) by least squares; two points fit exactly.

    Returns None if the points cannot separate tensors from bytes: fewer than two points, or all in proportion.
    """
    tt = sum(t * t for t, _, _ in points)
    tb = sum(t * b for t, b, _ in points)
    bb = sum(b * b for _, b, _ in points)
    ts = sum(t * s for t, _, s in points)
    bs = sum(b * s for _, b, s in points)
    determinant = tt * bb - tb * tb
    if len(points) < 2 or determinant <= 1e-12 * tt * bb:
        return None
    return Cost(
        per_tensor=(ts * bb - bs * tb) / determinant,
        per_byte=(bs * tt - ts * tb) / determinant,
    )


def setup_cost(seconds: Sequence[float]) -> float | None:
    """Return how much longer the first of several equal loads took than the median of the others."""
    if len(seconds) < 2:
        return None
    return seconds[0] - statistics.median(seconds[1:])
