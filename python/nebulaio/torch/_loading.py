# SPDX-License-Identifier: Apache-2.0
"""One load of one rank: which bytes go straight to their tensors, and which go through a buffer."""

from __future__ import annotations

import importlib
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .. import _gather
from .._collector import without_collections
from ..errors import CorruptError, InvalidError, UnsupportedError
from . import _regions
from ._place import Place, address_of
from ._regions import Box
from ._rows import Want
from ._running import Running
from ._shared import Shared
from ._sources import Source, Sources
from ._stockplan import PLAIN, commits, is_stock, narrowed
from ._wishes import Detour, Wish, by_size, copy_out, is_direct
from ._written import device_of, streams_of

torch: Any = importlib.import_module("torch")
_planner: Any = importlib.import_module("torch.distributed.checkpoint.planner")

FIRST = 16
"""Items of the first read of a load. The tensors of the other items are resolved while it runs."""

BUFFER = 256 << 20
"""Bytes of buffers that live at the same time at most, unless one stored tensor that is not contiguous is larger."""


class _Job(NamedTuple):
    """A read that is being collected: the segments for one device."""

    device: str
    is_shared: bool


class Loading:
    """A load of the items of one plan."""

    def __init__(self, place: Place, sources: Sources, planner: Any, verify: bool, shared: Shared) -> None:
        self._place = place
        self._sources = sources
        self._planner = planner
        self._verify = verify
        self._shared = shared
        self._jobs: list[Any] = []
        self._seconds = 0.0  # of reads; those that ran at the same time count once
        self._is_stock = is_stock(planner)
        self._counts = {"direct": 0, "buffered": 0, "by_torch": 0, "bytes": 0, "shared": 0}
        self._sizes = {"wanted": 0, "shared": 0}

    def run(self, items: Sequence[Any]) -> None:
        """Read all items into the planner's tensors, and tell the planner."""
        kinds = _planner.LoadItemType
        tensors = [(place, item) for place, item in enumerate(items) if item.type != kinds.BYTE_IO]
        others = [item for item in items if item.type == kinds.BYTE_IO]
        requests: list[tuple[Any, Any]] = []
        wishes: list[Wish] = []  # those that are not read straight into their tensors
        with Running() as running:
            with without_collections():
                keys, counts = self._sources.locate([i for _, i in tensors], [i.storage_index for i in others])
                # The objects that are no tensors share a job with tensors in host memory. So an error about a damaged
                # block names all that is in the block.
                first, *more = list(
                    by_size([(self._sources.object(item.storage_index).length, item) for item in others], BUFFER)
                ) or [[]]
                objects = self._objects(first)
                waiting = [segment for _, _, segment in objects if segment is not None]
                for group in self._groups(tensors, keys, counts):
                    wishes += self._begin(group, requests, waiting, running)
                    waiting = []
                self._sources.forget()
            # Everything up to the end of the reads costs no time, such as the collections that are due now.
            self._sources.check_rest()
            if objects:
                running.wait_for_first()
            for item, piece, _ in objects:
                self._planner.load_bytes(item, io.BytesIO(piece))
            self._jobs += running.wait()
        self._seconds += running.seconds
        for batch in more:
            objects = self._objects(batch)
            self._read([segment for _, _, segment in objects if segment is not None], "host", 0, False)
            for item, piece, _ in objects:
                self._planner.load_bytes(item, io.BytesIO(piece))
        self._read_buffered([wish for wish in wishes if wish.source.values is not None])
        for wish in wishes:
            if wish.source.values is None:
                self._by_torch(wish)
        if commits(self._planner):
            for item, target in requests:
                self._planner.commit_tensor(item, target)

    def _begin(
        self, group: Sequence[tuple[int, Any]], requests: list[tuple[Any, Any]], others: Sequence[tuple[str, Any]],
        running: Running
    ) -> list[Wish]:
        """Begin to read a group of items, and add its tensors to `requests`. Return what has to be read in other ways.

        What only the start needs, such as a view for each part, is freed here, while the reads are running.
        """
        wanted = [(place, item, self._sources.wants(item)) for place, item in group]
        self._sources.find(want for _, _, wants in wanted for want in wants)
        some: list[Wish] = []
        for place, item, wants in wanted:
            requests.append((item, target := self._target(item)))
            some += self._wishes(place, item, wants, target)
        self._read_direct([wish for wish in some if wish.is_direct], others, running)
        return [wish for wish in some if not wish.is_direct]

    def _groups(
        self, tensors: Sequence[tuple[int, Any]], keys: Sequence[Any], counts: Sequence[int]
    ) -> Iterator[Sequence[tuple[int, Any]]]:
        """Yield the items in groups, by their keys: while one group is read, the next is located and resolved.

        `counts` has the parts of each item. Blocks that are verified, and items that several ranks read, are read by
        one job each.
        """
        if self._verify or self._shared.items or sum(counts) <= FIRST:
            yield tensors
            return
        group: list[tuple[int, Any]] = []
        parts, most = 0, FIRST
        for number in sorted(range(len(tensors)), key=keys.__getitem__):
            group.append(tensors[number])
            parts += counts[number]
            if parts >= most:
                yield group
                group, parts, most = [], 0, 4 * most
        if group:
            yield group

    def _target(self, item: Any) -> Any:
        """Return the tensor that receives an item. Raises InvalidError if it has another shape or no memory."""
        target = self._resolve(item)
        fqn = item.dest_index.fqn
        if target.size() != item.lengths and tuple(target.size()) != tuple(item.lengths):
            raise InvalidError(
                f"load {fqn!r}: the planner's tensor has shape {list(target.size())}, and the plan wants {list(item.lengths)}"
            )
        if target.device.type == "meta":
            raise InvalidError(f"load {fqn!r}: it is on meta, without memory (fix: materialise the model first)")
        return target

    def _wishes(self, place: int, item: Any, wants: Sequence[Want], target: Any) -> Iterator[Wish]:
        """Yield the parts of an item, each with its part of the target. Raises an error if it cannot hold the values."""
        fqn = item.dest_index.fqn
        is_shared = place in self._shared.items
        for want in wants:
            source, box = self._sources.of(want), want.box
            values = source.values
            if values is not None:
                if values.dtype is not target.dtype and not torch.can_cast(values.dtype, target.dtype):
                    raise InvalidError(
                        f"load {fqn!r}: it was saved as {values.dtype}, which cannot become {target.dtype} "
                        "(fix: load into a tensor of the saved dtype)"
                    )
                far = [begin + length for begin, length in zip(box.offsets, box.lengths)]
                if len(far) != len(values.shape) or any(end > extent for end, extent in zip(far, values.shape)):
                    raise CorruptError(
                        f"load {fqn!r}: the plan wants elements up to {far} of a part of shape {list(values.shape)}"
                    )
            part = target if len(wants) == 1 else target.narrow(0, want.row, box.lengths[0])
            size = part.numel() * (values.dtype.itemsize if values is not None else part.itemsize)
            self._sizes["wanted"] += size
            if is_shared:
                self._counts["shared"] += 1
                self._sizes["shared"] += size
            yield Wish(fqn, source, part, box, is_shared, is_direct(source, part, box))

    def _resolve(self, item: Any) -> Any:
        """Return the tensor that receives an item, as the planner has it."""
        if self._is_stock:
            index = item.dest_index
            found = self._planner.state_dict.get(index.fqn)
            if type(found) in PLAIN and not any(index.offset or ()):
                return narrowed(found.detach(), item.dest_offsets, item.lengths)
        return self._planner.resolve_tensor(item).detach()

    def _read_direct(self, wishes: Sequence[Wish], others: Sequence[tuple[str, Any]], running: Running) -> None:
        """Begin to read into the tensors: one job for each device. What other ranks read too is read at once."""
        self._counts["direct"] += len(wishes)
        jobs: defaultdict[_Job, list[tuple[str, Any]]] = defaultdict(list)
        if others:
            jobs[_Job("host", False)] += others
        tensors: dict[str, Any] = {}
        for wish in wishes:
            if wish.target.numel():
                job = _Job(device_of(wish.target), wish.is_shared)
                tensors[job.device] = wish.target
                jobs[job] += self._segments(wish.source, wish.box, wish.target.data_ptr(), wish.fqn)
        for job, segments in jobs.items():
            stream = streams_of([tensors[job.device]]).get(job.device, 0) if job.device in tensors else 0
            if job.is_shared:
                for part in self._from_another_place(segments):
                    self._read(part, job.device, stream, True)
            elif segments:
                files, numbered = self._numbered(segments)
                running.start(files, numbered, job.device, stream, self._verify, self._place.client)

    def _segments(self, source: Source, box: Box, address: int, label: str) -> Iterator[tuple[str, Any]]:
        """Yield the segments of a box of a stored tensor with their file. The numbers of the files come later."""
        values = source.values
        assert values is not None
        for run in _regions.runs(values.shape, box, values.dtype.itemsize):
            segment = _gather.Segment(0, source.begin + run.offset, run.size, address, run.width, run.stride, label)
            yield source.file, segment
            address += run.wanted

    def _from_another_place(self, segments: list[tuple[str, Any]]) -> list[list[tuple[str, Any]]]:
        """Return the segments in two parts: from this rank's place on, and before it."""
        ordered = sorted(segments, key=lambda one: (one[0], one[1].offset))
        total = sum(one[1].size for one in ordered)
        begin, at = 0, 0
        while begin < len(ordered) and at * self._shared.ranks < total * self._shared.place:
            at += ordered[begin][1].size
            begin += 1
        return [part for part in (ordered[begin:], ordered[:begin]) if part]

    def _numbered(self, segments: Sequence[tuple[str, Any]]) -> tuple[list[str], list[Any]]:
        """Return the files of segments, and the segments with the numbers of their files."""
        names: dict[str, int] = {}
        numbered = [segment._replace(file=names.setdefault(name, len(names))) for name, segment in segments]
        return [self._place.file(name) for name in names], numbered

    def _read(self, segments: Sequence[tuple[str, Any]], device: str, stream: int, is_shared: bool) -> None:
        files, numbered = self._numbered(segments)
        if numbered:
            report = _gather.read(
                files, numbered, device=device, stream=stream, verify=self._verify,
                cache="keep" if is_shared else "auto", client=self._place.client,
            )
            self._jobs.append(report)
            self._seconds += float(report["seconds"])

    def _read_buffered(self, wishes: Sequence[Wish]) -> None:
        """Read into buffers and copy from there: other dtypes, other layouts, and tensors that are not contiguous."""
        self._counts["buffered"] += len(wishes)
        batch: list[Detour] = []
        size = 0
        for wish in wishes:
            for detour in self._detours(wish):
                if batch and size + detour.size > BUFFER:
                    self._run_detours(batch)
                    batch, size = [], 0
                batch.append(detour)
                size += detour.size
        self._run_detours(batch)

    def _detours(self, wish: Wish) -> Iterator[Detour]:
        """Yield the parts of a wish, each small enough for the buffers."""
        values = wish.source.values
        assert values is not None
        box = wish.box
        if values.strides is not None:
            yield Detour(wish, Box((), ()), box, values.size)
            return
        itemsize = values.dtype.itemsize
        for part in _regions.slabs(box, itemsize, BUFFER // 4):
            read = _regions.widen(values.shape, part, itemsize)
            yield Detour(wish, read, part, math.prod(read.lengths) * itemsize)

    def _run_detours(self, batch: Sequence[Detour]) -> None:
        jobs: defaultdict[str, list[tuple[str, Any]]] = defaultdict(list)
        buffers = []
        for detour in batch:
            wish, values = detour.wish, detour.wish.source.values
            assert values is not None
            where = wish.target.device if wish.target.device.type in ("cpu", "cuda") else torch.device("cpu")
            if values.strides is not None:
                buffer = torch.empty(values.size // values.dtype.itemsize, dtype=values.dtype, device=where)
                if values.size:
                    segment = _gather.Segment(0, wish.source.begin, values.size, buffer.data_ptr(), label=wish.fqn)
                    jobs[device_of(buffer)].append((wish.source.file, segment))
            else:
                buffer = torch.empty(detour.read.lengths, dtype=values.dtype, device=where)
                if buffer.numel():
                    jobs[device_of(buffer)] += self._segments(wish.source, detour.read, buffer.data_ptr(), wish.fqn)
            buffers.append(buffer)
        for device, segments in jobs.items():
            some = next(buffer for buffer in buffers if device_of(buffer) == device)
            self._read(segments, device, streams_of([some]).get(device, 0), False)
        for detour, buffer in zip(batch, buffers):
            copy_out(detour, buffer)

    def _objects(self, items: Sequence[Any]) -> list[tuple[Any, bytearray, tuple[str, Any] | None]]:
        """Return the items that are no tensors, each with the memory for its bytes and the segment that reads them."""
        self._counts["bytes"] += len(items)
        found = []
        for item in items:
            source = self._sources.object(item.storage_index)
            piece = bytearray(source.length)
            self._sizes["wanted"] += len(piece)
            segment = None
            if piece:
                segment = (
                    source.file,
                    _gather.Segment(0, source.offset, len(piece), address_of(piece), label=item.dest_index.fqn),
                )
            found.append((item, piece, segment))
        return found

    def _by_torch(self, wish: Wish) -> None:
        """Let torch read an item that is no plain tensor, such as a subclass, as stock torch does."""
        self._counts["by_torch"] += 1
        piece = bytearray(wish.source.length)
        segment = _gather.Segment(0, wish.source.offset, len(piece), address_of(piece), label=wish.fqn)
        self._read([(wish.source.file, segment)], "host", 0, False)
        try:
            tensor = torch.load(io.BytesIO(piece), map_location="cpu", weights_only=True)
        except Exception as cause:
            raise UnsupportedError(
                f"load {wish.fqn!r} of {self._place.file(wish.source.file)}: torch's weights_only reader refuses the item: {cause!s:.300}"
            ) from cause
        for dimension, (begin, length) in enumerate(zip(wish.box.offsets, wish.box.lengths)):
            tensor = tensor.narrow(dimension, begin, length)
        wish.target.copy_(tensor)

    def report(self, seconds: float) -> dict[str, Any]:
        """Return the report of the load so far."""
        size, moving = sum(int(report["bytes"]) for report in self._jobs), self._seconds
        notes = []
        if self._shared.ranks > 1 and self._counts["shared"]:
            notes.append(
                f"{self._counts['shared']} items are read by several of the {self._shared.ranks} ranks of this host: they go "
                "through the page cache, so that storage delivers them once"
            )
        if self._counts["by_torch"]:
            notes.append(f"{self._counts['by_torch']} items are no plain tensors: torch.load read them in host memory")
        return {
            "op": "load",
            "path": self._place.path,
            "bytes": size,
            "wanted_bytes": self._sizes["wanted"],
            "shared_bytes": self._sizes["shared"],
            "items": dict(self._counts),
            "seconds": seconds,
            "read_seconds": moving,
            "locate_seconds": sum(float(report["seconds"]) for report in self._sources.jobs),
            "gbps": size / moving / 1e9 if moving else 0.0,
            "notes": notes,
            "jobs": [dict(report) for report in self._jobs],
        }
