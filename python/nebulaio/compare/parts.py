# SPDX-License-Identifier: Apache-2.0
"""What one rank of a tensor-parallel group has of each tensor. Pure data and arithmetic.

The layout is that of serving programs: projections into a layer, embeddings and heads are
divided by rows, projections out of a layer by columns, and every rank has all norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidError
from .shapes import BYTES, Spec, size_of

BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
"""Tensors whose rows are divided, by the last part but one of their names."""

BY_COLUMNS = ("o_proj", "down_proj")
"""Tensors whose columns are divided."""

PAGE = 4096
"""Bytes of a page of the page cache, and of the smallest piece of a file on disk."""


@dataclass(frozen=True)
class Rank:
    """One of `world` ranks of a tensor-parallel group, counted from 0."""

    index: int
    world: int

    def __str__(self) -> str:
        return f"rank {self.index} of {self.world}"


def divided(name: str) -> int | None:
    """Return the dimension by which a tensor is divided among ranks. None: every rank has the whole tensor."""
    kind = name.split(".")[-2]
    return 0 if kind in BY_ROWS else 1 if kind in BY_COLUMNS else None


def check(spec: Spec, rank: Rank) -> None:
    """Raise InvalidError if the model cannot be divided among the ranks."""
    if spec.kv_heads % rank.world:
        raise InvalidError(
            f"model {spec.name}: its {spec.kv_heads} key-value heads cannot be divided among {rank.world} ranks "
            f"(fix: --rank R/N with an N that divides {spec.kv_heads})"
        )


def part(name: str, shape: tuple[int, ...], rank: Rank) -> tuple[slice, ...]:
    """Return the part of a tensor that the rank has, as a slice for each dimension."""
    found = [slice(0, extent) for extent in shape]
    dimension = divided(name)
    if dimension is not None:
        width = shape[dimension] // rank.world
        found[dimension] = slice(rank.index * width, (rank.index + 1) * width)
    return tuple(found)


def runs(name: str, shape: tuple[int, ...], rank: Rank) -> Iterator[tuple[int, int]]:
    """Yield the ranges of bytes of a tensor that the rank has, each with its first byte and its end."""
    wanted = part(name, shape, rank)
    inner = size_of(shape[1:])
    if len(shape) < 2 or wanted[1] == slice(0, shape[1]):
        yield wanted[0].start * inner, wanted[0].stop * inner
        return
    for row in range(shape[0]):
        yield row * inner + wanted[1].start * BYTES, row * inner + wanted[1].stop * BYTES


def share(spec: Spec, rank: Rank) -> int:
    """Return the bytes of all tensors that the rank has."""
    return sum(size_of(shape) // (1 if divided(name) is None else rank.world)
               for name, shape in spec.tensors().items())


def footprint(spec: Spec, rank: Rank) -> int:
    """Return the most bytes that files take on disk if they have only the part of the rank."""
    rows = sum(shape[0] if divided(name) == 1 else 1 for name, shape in spec.tensors().items())
    return min(spec.nbytes(), share(spec, rank) + rows * PAGE)
