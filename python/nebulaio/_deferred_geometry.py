# SPDX-License-Identifier: Apache-2.0
"""Geometry of deferred copies: which ranges of a file fill a strided view, and whether two views overlap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

MOST_SEGMENTS = 1 << 14
"""The largest number of segments of one copy. A copy of more segments goes through a buffer."""

SMALLEST = 256
"""The average size in bytes of a segment below which a copy of many segments goes through a buffer."""

_FEW = 64  # segments that are read one by one, however small they are


class View(NamedTuple):
    """A strided view of memory or of a stored tensor. Strides and offset count bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    itemsize: int

    def is_empty(self) -> bool:
        """Return whether the view has no element."""
        return 0 in self.shape

    def hull(self) -> tuple[int, int]:
        """Return the first byte and the end of the smallest range around a view that is not empty."""
        last = sum((n - 1) * stride for n, stride in zip(self.shape, self.strides))
        return self.offset, self.offset + last + self.itemsize


class Range(NamedTuple):
    """A range of a stored tensor and its destination, as `_gather.Segment` without file and label."""

    offset: int
    size: int
    address: int
    width: int
    stride: int


def ranges(source: View, target: View) -> list[Range] | None:
    """Return the ranges that copy a stored view to a view of memory, in the order of the file.

    The views have one shape and one element size. Returns None if the copy needs a buffer: a
    stored element has several targets, or the ranges would be too many or too small.
    """
    if source.is_empty():
        return []
    itemsize = source.itemsize
    levels = _levels(source, target)
    if any(far <= 0 for _, far, _ in levels):
        return None
    width = itemsize
    if levels and levels[-1][1:] == (itemsize, itemsize):
        width = levels.pop()[0] * itemsize
    size, stride = width, 0
    if levels and levels[-1][2] == width:
        count, stride, _ = levels.pop()
        size = (count - 1) * stride + width
        if stride < width:
            return None  # rows of the file overlap
    number = 1
    for count, _, _ in levels:
        number *= count
    bytes_each = width if stride == 0 else (size + stride - width) // stride * width
    if number > MOST_SEGMENTS or (number > _FEW and bytes_each < SMALLEST):
        return None
    found = []
    for steps in product(*(range(count) for count, _, _ in levels)):
        offset = source.offset + sum(step * level[1] for step, level in zip(steps, levels))
        address = target.offset + sum(step * level[2] for step, level in zip(steps, levels))
        found.append(Range(offset, size, address, width if stride else 0, stride))
    return found


def _levels(source: View, target: View) -> list[tuple[int, int, int]]:
    """Return (count, stride of the source, stride of the target) from the outside of the file to the inside.

    Dimensions that continue each other in both views are joined.
    """
    dimensions = sorted(
        ((n, far, there) for n, far, there in zip(source.shape, source.strides, target.strides) if n > 1),
        key=lambda one: (one[1], one[2]),
        reverse=True,
    )
    joined: list[tuple[int, int, int]] = []
    for n, far, there in dimensions:
        if joined and joined[-1][1] == n * far and joined[-1][2] == n * there:
            joined[-1] = joined[-1][0] * n, far, there
        else:
            joined.append((n, far, there))
    return joined


def overlap(one: View, other: View) -> bool:
    """Return whether two views of one memory have a byte in common.

    Offsets count from the beginning of the memory. The result may be True for views of different tensors in that
    memory that have no byte in common.
    """
    if one.is_empty() or other.is_empty():
        return False
    (begin, end), (start, stop) = one.hull(), other.hull()
    if end <= start or stop <= begin:
        return False
    unit = min(one.itemsize, other.itemsize)
    if one.itemsize % unit or other.itemsize % unit:
        return True
    steps = sorted({*_steps(one), *_steps(other), unit}, reverse=True)
    if any(big % small for big, small in zip(steps, steps[1:])):
        return True
    mine, theirs = _box(one, steps), _box(other, steps)
    if mine is None or theirs is None:
        return True
    return all(a < b + m and b < a + n for (a, n), (b, m) in zip(mine, theirs))


def _steps(view: View) -> Iterator[int]:
    for n, stride in zip(view.shape, view.strides):
        if n > 1 and stride:  # all elements of the others have one place
            yield stride
    yield view.itemsize


def _box(view: View, steps: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the range of a view along each step, or None if the view is no box of these steps."""
    counts = dict.fromkeys(steps, 1)
    counts[steps[-1]] = view.itemsize // steps[-1]
    for n, stride in zip(view.shape, view.strides):
        if n > 1 and stride:
            if stride < 0 or (counts[stride] != 1 and stride != steps[-1]):
                return None
            counts[stride] *= n
    rest, box = view.offset, []
    for step in steps:
        box.append((rest // step, counts[step]))
        rest %= step
    if rest:
        return None
    for at in range(len(steps) - 1, 0, -1):
        ratio = steps[at - 1] // steps[at]
        begin, count = box[at]
        if begin + count <= ratio:
            continue
        outer = box[at - 1]
        if begin or count % ratio or outer[1] != 1:
            return None
        box[at], box[at - 1] = (0, ratio), (outer[0], count // ratio)
    return box


class Occupied:
    """Views of one memory that do not overlap each other, each with a value."""

    def __init__(self) -> None:
        self._sorted: list[tuple[int, int, int]] = []  # begin, end, number
        self._views: dict[int, tuple[View, Any]] = {}
        self._longest = 0
        self._next = 0

    def __len__(self) -> int:
        return len(self._views)

    def values(self) -> list[Any]:
        """Return the values in the order in which they were added."""
        return [value for _, value in self._views.values()]

    def near(self, view: View) -> list[tuple[View, Any]]:
        """Return the views that overlap a view, with their values."""
        if view.is_empty():
            return []
        begin, end = view.hull()
        at = bisect_left(self._sorted, (begin - self._longest, 0, 0))
        found = []
        while at < len(self._sorted) and self._sorted[at][0] < end:
            known = self._views[self._sorted[at][2]]
            if overlap(known[0], view):
                found.append(known)
            at += 1
        return found

    def add(self, view: View, value: Any) -> None:
        """Add a view that overlaps no other and is not empty."""
        begin, end = view.hull()
        insort(self._sorted, (begin, end, self._next))
        self._views[self._next] = view, value
        self._longest = max(self._longest, end - begin)
        self._next += 1

    def replace(self, view: View, value: Any) -> None:
        """Give an added view another value."""
        number = next(number for number, (known, _) in self._views.items() if known == view)
        self._views[number] = view, value
