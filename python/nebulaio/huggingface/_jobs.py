# SPDX-License-Identifier: Apache-2.0
"""Jobs that read stored tensors into memory of torch, and the segments of their bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import _abi, _gather
from .._report import Report
from ..errors import ClosedError, NebulaioError

Ranges = tuple[tuple[int, int], ...]
"""A part of a tensor: (first, end) of each dimension."""


class Stored(NamedTuple):
    """A tensor of the files: its name, its place, and its form in torch."""

    name: str
    file: int  # number of its file
    offset: int  # of its first byte in the file
    size: int  # in bytes
    shape: tuple[int, ...]
    dtype: Any  # the torch.dtype
    code: str  # the dtype as the file names it, such as "BF16"


@dataclass
class Files:
    """The files of a model, and how they are read."""

    names: list[str]  # paths or URLs
    cache: str = "auto"
    verify: bool = False
    client: Any = None
    reports: list[Report] = field(default_factory=list)  # of the jobs that have ended
    lock: threading.Lock = field(default_factory=threading.Lock)


class Part(NamedTuple):
    """A part of a stored tensor that is to be read, and the memory for it. Ranges of None mean the whole tensor."""

    stored: Stored
    ranges: Ranges | None
    memory: Any  # a tensor of torch

    def segments(self) -> Iterator[_gather.Segment]:
        """Yield the ranges of the file that hold the part."""
        stored, address = self.stored, self.memory.data_ptr()
        if not self.memory.numel():
            return
        if self.ranges is None:
            yield _gather.Segment(stored.file, stored.offset, stored.size, address, label=stored.name)
            return
        from ..torch import _regions  # imports torch.distributed, which only parts of tensors need

        box = _regions.Box(tuple(a for a, _ in self.ranges), tuple(b - a for a, b in self.ranges))
        for run in _regions.runs(stored.shape, box, stored.dtype.itemsize):
            yield _gather.Segment(
                stored.file, stored.offset + run.offset, run.size, address, run.width, run.stride, stored.name
            )
            address += run.wanted


class Job:
    """A running read of parts into memory of one device. Any number of threads may wait for it."""

    def __init__(self, files: Files, parts: Sequence[Part], device: str, stream: int) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._error: NebulaioError | None = None
        self._job: Any = None
        segments = [segment for part in parts for segment in part.segments()]
        if segments:
            used = {number: at for at, number in enumerate(sorted({segment.file for segment in segments}))}
            self._job = _gather.start_read(
                [files.names[number] for number in used],
                [segment._replace(file=used[segment.file]) for segment in segments],
                device=device, stream=stream, verify=files.verify, cache=files.cache, client=files.client,
                kept=parts,
            )
            self._job.__enter__()

    def wait(self) -> None:
        """Wait until all parts are complete. Raises the error of a failed or cancelled read, in each call."""
        with self._lock:
            if self._job is not None:
                try:
                    self._job.wait(None)
                except NebulaioError as error:
                    self._error = error
                self._end()
        if self._error is not None:
            raise self._error

    def poll(self) -> bool:
        """Return whether the read still runs. Does not block."""
        if not self._lock.acquire(blocking=False):
            return True  # another thread waits for it
        try:
            job = self._job
            if job is None:
                return False
            if job.system.functions.nebulaio_wait(job.number.value, 0, None, None, 0) == _abi.RUNNING:
                return True
        finally:
            self._lock.release()
        try:
            self.wait()
        except NebulaioError:
            return False  # raised for those who ask for its parts
        return False

    def cancel(self) -> None:
        """Ask the read to stop. It has stopped when `close` returns."""
        job = self._job
        if job is not None:
            job.cancel()

    def close(self) -> None:
        """Cancel the read and wait for its end. Whoever waits for it gets an error."""
        with self._lock:
            if self._job is not None:
                self._error = ClosedError("read tensors: the load has ended before all of them were read")
                self._end()

    def _end(self) -> None:
        job = self._job
        job._finish()
        self._job = None
        if job.report is not None:
            with self._files.lock:
                self._files.reports.append(job.report)
