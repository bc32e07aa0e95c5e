# SPDX-License-Identifier: Apache-2.0
"""Joins the stored parts of a tensor for a planner, and takes its requests apart again.

Torch's planner makes one item for each stored part. A tensor that several ranks have saved in rows becomes one part
here, so that a plan of thousands of parts has hundreds of items, and the first read begins earlier.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ._regions import Box
from ._shared import box_of

torch: Any = importlib.import_module("torch")
_kinds: Any = importlib.import_module("torch.distributed.checkpoint.metadata")


class Rows(_kinds.ChunkStorageMetadata):  # type: ignore[misc] # torch's types are unknown here
    """All parts of a tensor as one. Each of `parts` has some rows of the tensor, and they follow each other."""

    def __init__(self, size: Any, parts: Sequence[tuple[int, int, Any]]) -> None:
        """Set the size of the tensor, and the first row, the row behind the last one, and the chunk of each part."""
        super().__init__(offsets=torch.Size([0] * len(size)), sizes=size)
        self.parts = parts


class Want(NamedTuple):
    """A box of one stored part that an item of the plan wants. `at` is the part's place in the tensor."""

    fqn: str
    at: Any  # None: the metadata has the tensor without a place
    shape: tuple[int, ...]
    box: Box
    row: int  # of the item's tensor, where the box begins


def join(metadata: Any) -> None:
    """Replace the parts of each tensor by one `Rows`, where they are rows that follow each other without a gap."""
    known: dict[Any, Rows | None] = {}
    for entry in metadata.state_dict_metadata.values():
        if not isinstance(entry, _kinds.TensorStorageMetadata) or len(entry.chunks) < 2:
            continue
        # The metadata of our checkpoints has one object for equal parts of different tensors.
        key = (*entry.size, *map(id, entry.chunks))
        if key not in known:
            known[key] = _joined(tuple(entry.size), entry.chunks)
        rows = known[key]
        if rows is not None:
            entry.chunks = [rows]


def _joined(size: tuple[int, ...], chunks: Sequence[Any]) -> Rows | None:
    """Return the parts of a tensor as one, or None if they are not rows that follow each other."""
    if not size:
        return None
    parts, end = [], 0
    for chunk in sorted(chunks, key=lambda chunk: tuple(chunk.offsets)):
        offsets, (count, *others) = tuple(chunk.offsets), chunk.sizes
        if offsets != (end, *(0 for _ in others)) or (*others,) != size[1:] or not count:
            return None
        parts.append((end, end + count, chunk))
        end += count
    return Rows(torch.Size(size), parts) if end == size[0] else None


def rows_of(entry: Any, index: Any) -> Rows | None:
    """Return the joined parts that the storage index of an item names, or None if it names one stored part.

    A planner may have kept the parts from before `join`. The first part and the joined ones have the same index, and
    a box of the first part is the same box of the joined ones.
    """
    first = entry.chunks[0] if entry.chunks else None
    return first if isinstance(first, Rows) and index.offset is not None and not any(index.offset) else None


def places(rows: Rows, item: Any) -> Iterator[Any]:
    """Yield the places of the stored parts that an item of joined parts needs."""
    begin = item.storage_offsets[0]
    end = begin + item.lengths[0]
    for first, last, chunk in rows.parts:
        if first < end and begin < last:
            yield chunk.offsets


def wants(rows: Rows, item: Any) -> Iterator[Want]:
    """Yield the boxes of stored parts that make up an item of joined parts. The item is inside of the tensor."""
    fqn, offsets, lengths = item.storage_index.fqn, tuple(item.storage_offsets), tuple(item.lengths)
    begin, end = offsets[0], offsets[0] + lengths[0]
    for first, last, chunk in rows.parts:
        top, bottom = max(begin, first), min(end, last)
        if top < bottom:
            box = Box((top - first, *offsets[1:]), (bottom - top, *lengths[1:]))
            yield Want(fqn, chunk.offsets, tuple(chunk.sizes), box, top - begin)


def stored(entry: Any, item: Any) -> Want | None:
    """Return what an item of one stored part wants, or None if the metadata has no such part."""
    index = item.storage_index
    if index.offset is None:
        return Want(index.fqn, None, tuple(entry.size), box_of(item), 0)
    chunks = entry.chunks
    if chunks and isinstance(chunks[0], Rows):
        chunks = [chunk for _, _, chunk in chunks[0].parts]
    hint = index.index
    if hint is not None and hint < len(chunks) and chunks[hint].offsets == index.offset:
        return Want(index.fqn, index.offset, tuple(chunks[hint].sizes), box_of(item), 0)
    for chunk in chunks:
        if chunk.offsets == index.offset:
            return Want(index.fqn, index.offset, tuple(chunk.sizes), box_of(item), 0)
    return None
