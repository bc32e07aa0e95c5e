# SPDX-License-Identifier: Apache-2.0
"""The parts of a load: items and the tensors that receive them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import _items, _regions
from ._regions import Box
from ._sources import Source


class Wish(NamedTuple):
    """A stored part and the tensor that receives a box of it."""

    fqn: str
    source: Source
    target: Any
    box: Box  # of the stored tensor
    is_shared: bool
    is_direct: bool


class Detour(NamedTuple):
    """A part of a wish that goes through a buffer: what is read, and which part of the target it fills."""

    wish: Wish
    read: Box  # of the stored tensor; unused if the whole storage is read, because it is not contiguous
    want: Box  # inside of the stored tensor
    size: int


def is_direct(source: Source, target: Any, box: Box) -> bool:
    """Return whether the bytes of the file can go straight to the memory of a tensor."""
    values = source.values
    return (
        values is not None
        and values.strides is None
        and values.dtype is target.dtype
        and _items.is_plain(target)
        and _items.is_direct(target)
        and _regions.count_runs(values.shape, box, values.dtype.itemsize) <= _regions.MOST_RUNS
    )


def copy_out(detour: Detour, buffer: Any) -> None:
    """Copy the wanted part of a buffer to its place in the target."""
    wish = detour.wish
    values = wish.source.values
    assert values is not None
    if values.strides is not None:
        whole = buffer.as_strided(values.shape, values.strides, values.first)
        inside = detour.want.offsets
    else:
        whole = buffer
        inside = tuple(want - read for want, read in zip(detour.want.offsets, detour.read.offsets))
    target = wish.target
    for dimension, (begin, length) in enumerate(zip(inside, detour.want.lengths)):
        whole = whole.narrow(dimension, begin, length)
        target = target.narrow(
            dimension, detour.want.offsets[dimension] - wish.box.offsets[dimension], length
        )
    target.copy_(whole)


def by_size(items: Sequence[tuple[int, Any]], most: int) -> Iterator[list[Any]]:
    """Yield groups of items of at most `most` bytes together."""
    batch: list[Any] = []
    total = 0
    for size, item in items:
        if batch and total + size > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
