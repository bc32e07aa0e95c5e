# SPDX-License-Identifier: Apache-2.0
"""Parts of tensors: conversion from Python indexes to the library's options."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Union

from .errors import InvalidError

Slices = Mapping[str, Union[slice, "tuple[slice | None, ...]"]]
"""Parts by glob of tensor names: {"*.q_proj.weight": numpy.s_[0:128, :]}; None is a whole dimension."""

Shards = Mapping[str, "tuple[int, int, int]"]
"""Even parts by glob: {"*.q_proj.weight": (dimension, rank, world)}."""

_GLOB = re.compile(r"([*?\[\\])")


def literally(name: str) -> str:
    """Return the glob that matches only this name."""
    return _GLOB.sub(r"\\\1", name)


def options(slices: Slices | None, shards: Shards | None) -> dict[str, Any]:
    """Return the options of nebulaio_model_open for these parts. Raises InvalidError for anything else."""
    out: dict[str, Any] = {}
    if slices is not None:
        _named("slices", slices)
        out["slices"] = [{"tensor": glob, "ranges": _ranges(glob, part)} for glob, part in slices.items()]
    if shards is not None:
        _named("shards", shards)
        out["shards"] = [_shard(glob, part) for glob, part in shards.items()]
    return out


def _named(argument: str, parts: object) -> None:
    if not isinstance(parts, Mapping) or not parts or not all(isinstance(glob, str) for glob in parts):
        raise InvalidError(f"{argument}={parts!r} is not a dictionary of parts by glob (None: whole tensors)")


def _ranges(glob: str, part: object) -> list[list[int] | None]:
    dimensions = part if isinstance(part, tuple) else (part,)
    return [_range(f"slices[{glob!r}]", one) for one in dimensions]


def _range(where: str, part: object) -> list[int] | None:
    if part is None:
        return None
    if not isinstance(part, slice):
        raise InvalidError(f"{where}: {part!r} is not a slice such as 0:128 or None (fix: for one row pass n:n+1)")
    if part.step not in (None, 1):
        raise InvalidError(f"{where}: {part!r} has a step; only contiguous ranges are read")
    if part.stop is None and part.start in (None, 0):
        return None
    if part.stop is None:
        raise InvalidError(f"{where}: {part!r} has no end; one glob can match tensors of different shapes")
    start, stop = _whole(where, part.start or 0), _whole(where, part.stop)
    if not 0 <= start <= stop:
        raise InvalidError(f"{where}: {part!r} is not a range from 0 upwards")
    return [start, stop]


def _shard(glob: str, part: object) -> dict[str, Any]:
    where = f"shards[{glob!r}]"
    if not isinstance(part, tuple) or len(part) != 3:
        raise InvalidError(f"{where}: {part!r} is not (dimension, rank, world)")
    dim, rank, world = (_whole(where, number) for number in part)
    if dim < 0 or not 0 <= rank < world:
        raise InvalidError(f"{where}: {part!r} is not (dimension, rank, world) with 0 <= rank < world")
    return {"tensor": glob, "dim": dim, "rank": rank, "world": world}


def _whole(where: str, number: Any) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise InvalidError(f"{where}: {number!r} is not a whole number") from None


class Box(NamedTuple):
    """The part of a tensor that an index selects: a range per dimension, and the result's view."""

    ranges: list[tuple[int, int]]
    steps: list[int]
    kept: list[bool]  # whether the dimension stays in the result

    def whole(self, shape: Sequence[int]) -> bool:
        """Return whether the part is the whole tensor."""
        return all(part == (0, extent) for part, extent in zip(self.ranges, shape, strict=True))

    def lengths(self) -> list[int]:
        """Return the number of elements of each range."""
        return [stop - start for start, stop in self.ranges]

    def run(self, shape: Sequence[int]) -> tuple[int, int] | None:
        """Return the first element and their number if the part is contiguous, else None."""
        begin, count, step = 0, 1, 1
        for (start, stop), extent in zip(reversed(self.ranges), reversed(shape), strict=True):
            if stop - start != 1 and count != step:
                return None  # an inner dimension is not complete
            begin += start * step
            count *= stop - start
            step *= extent
        return begin, count

    def view(self, tensor: Any) -> Any:
        """Return the result from a tensor that holds the ranges."""
        if any(step != 1 for step in self.steps):
            tensor = tensor[tuple(slice(None, None, step) for step in self.steps)]
        if all(self.kept):
            return tensor
        return tensor.reshape([extent for extent, kept in zip(tensor.shape, self.kept, strict=True) if kept])


def box(index: Any, shape: Sequence[int], what: str) -> Box:
    """Parse an index by Python's rules: integers, slices clipped to the dimension, one Ellipsis.

    The reference does the same with NumPy. Raises InvalidError for everything else: lists,
    masks, None and booleans, which only torch interprets.
    """
    parts = index if isinstance(index, tuple) else (index,)
    dots = sum(part is Ellipsis for part in parts)
    if dots > 1:
        raise InvalidError(f"{what}: {index!r} has more than one Ellipsis")
    if len(parts) - dots > len(shape):
        raise InvalidError(f"{what}: {index!r} has more parts than the shape {list(shape)} has dimensions")
    spread = (slice(None),) * (len(shape) - len(parts) + dots)
    at = next((place for place, part in enumerate(parts) if part is Ellipsis), len(parts))
    parts = (*parts[:at], *spread, *parts[at + 1 :])
    out = Box([], [], [])
    for part, extent in zip(parts, shape, strict=True):
        if isinstance(part, slice):
            start, stop, step = _bounds(part, extent, what)
        else:
            start = _place(part, extent, what)
            stop, step = start + 1, 1
        out.ranges.append((start, stop))
        out.steps.append(step)
        out.kept.append(isinstance(part, slice))
    return out


def _bounds(part: slice, extent: int, what: str) -> tuple[int, int, int]:
    start = 0 if part.start is None else _whole(what, part.start)
    stop = extent if part.stop is None else _whole(what, part.stop)
    step = 1 if part.step is None else _whole(what, part.step)
    if step < 1:
        raise InvalidError(f"{what}: {part!r} has a step of {step}, expected 1 or more")
    start, stop, step = slice(start, stop, step).indices(extent)
    return start, max(start, stop), step


def _place(part: Any, extent: int, what: str) -> int:
    try:
        if isinstance(part, bool) or getattr(part, "ndim", None) or str(getattr(part, "dtype", "")).endswith("bool"):
            raise TypeError  # a one-element tensor is a list index, and a boolean is a mask
        place = operator.index(part)
    except TypeError:
        raise InvalidError(f"{what}: {part!r} is not a slice, a whole number or an Ellipsis") from None
    if not -extent <= place < extent:
        raise InvalidError(f"{what}: {place} is not in a dimension of {extent}")
    return place % extent
