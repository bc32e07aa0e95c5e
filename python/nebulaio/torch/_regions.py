# SPDX-License-Identifier: Apache-2.0
"""The bytes of a box of a stored tensor: which ranges of the file hold them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

MOST_RUNS = 1 << 14
"""The largest number of runs of one box. A box of more runs is widened: more is read, and copied out afterwards."""


class Run(NamedTuple):
    """A range of a stored tensor. If `stride` is not 0, only the first `width` bytes of every `stride` are wanted."""

    offset: int
    size: int
    width: int
    stride: int

    @property
    def wanted(self) -> int:
        """The number of bytes that the run delivers."""
        return self.size if self.stride == 0 else (self.size + self.stride - self.width) // self.stride * self.width


class Box(NamedTuple):
    """A part of a tensor: where it begins in each dimension, and how long it is there."""

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]

    def overlaps(self, other: Box) -> bool:
        """Return whether two boxes of one tensor have an element in common."""
        return all(
            a < b + n and b < a + m
            for a, m, b, n in zip(self.offsets, self.lengths, other.offsets, other.lengths)
        )


def runs(shape: Sequence[int], box: Box, itemsize: int) -> Iterator[Run]:
    """Yield the runs of a box of a contiguous tensor, in the order of the box's elements."""
    base, width, levels = _levels(shape, box, itemsize)
    if not levels:
        yield Run(base, width, 0, 0)
        return
    count, stride = levels[0]
    size = (count - 1) * stride + width
    outer = levels[:0:-1]
    for steps in product(*(range(count) for count, _ in outer)):
        at = base + sum(step * far for step, (_, far) in zip(steps, outer))
        yield Run(at, size, width, stride)


def count_runs(shape: Sequence[int], box: Box, itemsize: int) -> int:
    """Return the number of runs of a box, without making them."""
    return math.prod(count for count, _ in _levels(shape, box, itemsize)[2][1:])


def widen(shape: Sequence[int], box: Box, itemsize: int) -> Box:
    """Return the smallest of some boxes around a box that has at most MOST_RUNS runs.

    The innermost dimensions become whole, one after the other, until the runs are few enough.
    """
    offsets, lengths = list(box.offsets), list(box.lengths)
    dimension = len(offsets)
    while count_runs(shape, Box(tuple(offsets), tuple(lengths)), itemsize) > MOST_RUNS:
        dimension -= 1
        offsets[dimension], lengths[dimension] = 0, shape[dimension]
    return Box(tuple(offsets), tuple(lengths))


def slabs(box: Box, itemsize: int, most: int) -> Iterator[Box]:
    """Yield parts of a box of at most `most` bytes each, cut along its first dimensions. An element is never cut."""
    if math.prod(box.lengths) * itemsize <= most or max(box.lengths, default=1) <= 1:
        yield box
        return
    first = next(place for place, length in enumerate(box.lengths) if length > 1)
    row = math.prod(box.lengths[first + 1 :]) * itemsize
    step = max(1, most // max(row, 1))
    for begin in range(0, box.lengths[first], step):
        offsets, lengths = list(box.offsets), list(box.lengths)
        offsets[first] += begin
        lengths[first] = min(step, box.lengths[first] - begin)
        part = Box(tuple(offsets), tuple(lengths))
        if step == 1 and row > most:
            yield from slabs(part, itemsize, most)
        else:
            yield part


def _levels(shape: Sequence[int], box: Box, itemsize: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the offset of a box, its contiguous bytes, and the repetitions of them from the inside out.

    A repetition is (count, distance in bytes). Repetitions that continue each other are joined.
    """
    base, width, stride = 0, itemsize, itemsize
    levels: list[tuple[int, int]] = []
    for extent, offset, length in zip(reversed(shape), reversed(box.offsets), reversed(box.lengths)):
        base += offset * stride
        if length > 1:
            if not levels and stride == width:
                width *= length
            elif levels and stride == levels[-1][0] * levels[-1][1]:
                levels[-1] = levels[-1][0] * length, levels[-1][1]
            else:
                levels.append((length, stride))
        stride *= extent
    return base, width, levels
