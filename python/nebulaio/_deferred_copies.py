# SPDX-License-Identifier: Apache-2.0
"""Runs copies of stored tensors to tensors in memory: straight into them, or through small buffers."""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import _deferred_geometry, _gather
from ._deferred_files import Stored
from ._deferred_geometry import Range, View
from ._handles import ProgressCallback

torch: Any = importlib.import_module("torch")

BUFFER = 256 << 20
"""Bytes of all buffers that exist at a time."""

_SLAB = BUFFER // 4  # bytes of one buffer


class Copy(NamedTuple):
    """The copy of a view of a stored tensor to a tensor of the same shape.

    `source` is the view on the device meta. Its storage stands for the stored tensor.
    """

    target: Any
    stored: Stored
    source: Any

    @property
    def size(self) -> int:
        """The number of bytes that the target takes from the file."""
        return int(self.source.numel() * self.source.dtype.itemsize)


class Place(NamedTuple):
    """A device, and the client of files that are objects."""

    device: str
    client: Any


class Runner:
    """Reads copies, and counts what it reads.

    `names` are the paths or URLs of the files by number, `clients` their clients. `names` and `clients` may grow.
    """

    def __init__(self, verify: bool, cache: str, gap: int, progress: ProgressCallback | None) -> None:
        self.names: list[str] = []
        self.clients: list[Any] = []
        self.reports: list[Any] = []
        self.direct = self.buffered = 0
        self.direct_bytes = self.buffered_bytes = 0
        self.segments = 0
        self._verify = verify
        self._cache = cache
        self._gap = gap
        self._progress = progress

    def run(self, copies: Sequence[Copy]) -> None:
        """Fill the targets of copies that do not overlap. On return the values are there."""
        jobs: defaultdict[Place, list[tuple[int, Range, str]]] = defaultdict(list)
        detours = []
        for copy in copies:
            found = None
            if copy.source.dtype is copy.target.dtype:
                found = _deferred_geometry.ranges(stored_view(copy), memory_view(copy.target))
            if found is None:
                detours.append(copy)
                continue
            self.direct += 1
            self.direct_bytes += copy.size
            if found:
                jobs[self._place(copy)] += ((copy.stored.file, one, copy.stored.name) for one in found)
        self._read(jobs)
        self._run_buffered(detours)

    def _run_buffered(self, copies: Sequence[Copy]) -> None:
        """Fill targets of another dtype, and targets whose elements are not in the order of the file."""
        jobs: defaultdict[Place, list[tuple[int, Range, str]]] = defaultdict(list)
        waiting: list[tuple[Any, Any]] = []
        size = 0
        for copy in copies:
            self.buffered += 1
            self.buffered_bytes += copy.size
            for part in _slabs(copy):
                value, buffer, found = _detour(part)
                bytes_of = buffer.numel() * buffer.dtype.itemsize
                if waiting and size + bytes_of > BUFFER:
                    self._finish(jobs, waiting)
                    jobs, waiting, size = defaultdict(list), [], 0
                jobs[self._place(part)] += ((part.stored.file, one, part.stored.name) for one in found)
                waiting.append((part.target, value))
                size += bytes_of
        self._finish(jobs, waiting)

    def _finish(self, jobs: Any, waiting: Sequence[tuple[Any, Any]]) -> None:
        self._read(jobs)
        for target, value in waiting:
            target.copy_(value.expand(target.shape))

    def _place(self, copy: Copy) -> Place:
        device = copy.target.device
        name = "host" if device.type == "cpu" else f"cuda:{device.index}"
        return Place(name, self.clients[copy.stored.file])

    def _read(self, jobs: dict[Place, list[tuple[int, Range, str]]]) -> None:
        for (device, client), wanted in jobs.items():
            if not wanted:
                continue
            numbers: dict[int, int] = {}
            segments = [
                _gather.Segment(
                    numbers.setdefault(file, len(numbers)), one.offset, one.size, one.address, one.width, one.stride,
                    label
                )
                for file, one, label in wanted
            ]
            stream = 0 if device == "host" else int(torch.cuda.current_stream(int(device[5:])).cuda_stream)
            report = _gather.read(
                [self.names[number] for number in numbers], segments, device=device, stream=stream, verify=self._verify,
                cache=self._cache, gap=self._gap, client=client, progress=self._progress,
            )
            self.segments += len(segments)
            self.reports.append(report)


def stored_view(copy: Copy) -> View:
    """Return the source of a copy as a view of its file."""
    source, width = copy.source, copy.source.dtype.itemsize
    strides = tuple(stride * width for stride in source.stride())
    return View(tuple(source.shape), strides, copy.stored.begin + source.storage_offset() * width, width)


def memory_view(tensor: Any) -> View:
    """Return a tensor as a view of its device's memory."""
    return _view_at(tensor, tensor.data_ptr() if tensor.numel() else 0)


def storage_view(tensor: Any) -> View:
    """Return a tensor as a view of its storage."""
    return _view_at(tensor, tensor.storage_offset() * tensor.dtype.itemsize)


def _view_at(tensor: Any, offset: int) -> View:
    width = tensor.dtype.itemsize
    return View(tuple(tensor.shape), tuple([stride * width for stride in tensor.stride()]), offset, width)


def _slabs(copy: Copy) -> Iterator[Copy]:
    """Yield parts of a copy whose buffers are small, cut along the longest stride of the source."""
    shape, strides = copy.source.shape, copy.source.stride()
    long = [(stride, place) for place, (n, stride) in enumerate(zip(shape, strides)) if n > 1 and stride]
    if copy.size <= _SLAB or not long:
        yield copy
        return
    place = max(long)[1]
    count = shape[place]
    step = max(1, _SLAB * count // copy.size)
    for begin in range(0, count, step):
        length = min(step, count - begin)
        part = copy._replace(target=copy.target.narrow(place, begin, length),
                             source=copy.source.narrow(place, begin, length))
        if step == 1:
            yield from _slabs(part)
        else:
            yield part


def _detour(copy: Copy) -> tuple[Any, Any, list[Range]]:
    """Return the values of a copy as a view of a new buffer, the buffer, and the ranges that fill it."""
    source = copy.source
    for place, stride in enumerate(source.stride()):
        if stride == 0 and source.shape[place] > 1:
            source = source.narrow(place, 0, 1)  # each value of the file is read once
    order = sorted(range(source.dim()), key=lambda place: source.stride(place), reverse=True)
    device = copy.target.device
    buffer = torch.empty([source.shape[place] for place in order], dtype=source.dtype, device=device)
    view = stored_view(copy._replace(source=source.permute(order)))
    found = _deferred_geometry.ranges(view, memory_view(buffer))
    if found is not None:
        return buffer.permute([order.index(place) for place in range(len(order))]), buffer, found
    # Many small pieces, or elements that occur several times: read everything between the first and the last one.
    begin, end = view.hull()
    buffer = torch.empty((end - begin) // view.itemsize, dtype=source.dtype, device=device)
    whole = Range(begin, end - begin, buffer.data_ptr(), 0, 0)
    return buffer.as_strided(source.shape, source.stride()), buffer, [whole]


def summary(reports: Sequence[Any]) -> dict[str, Any]:
    """Return the sums over the reports of jobs: bytes that were read, bytes that were wanted, seconds, routes."""
    routes: defaultdict[str, int] = defaultdict(int)
    for report in reports:
        for name, size in report.routes.items():
            routes[name] += size
    seconds = math.fsum(report.seconds for report in reports)
    size = sum(report.bytes for report in reports)
    return {
        "jobs": len(reports),
        "bytes": size,
        "read_bytes": sum(int(report.get("read_bytes", 0)) for report in reports),
        "read_seconds": seconds,
        "gbps": size / seconds / 1e9 if seconds else 0.0,
        "routes": dict(routes),
    }
