# SPDX-License-Identifier: Apache-2.0
"""Read many ranges of files into memory, and write pieces of memory to a file. No byte passes through Python."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _abi, _arguments, _device, _handles, _load, _process, _save
from ._report import Report
from ._segments import Segment as Segment  # a part of what callers of this module name
from ._segments import labels_of, natural, table_of
from .errors import InvalidError, NebulaioError


class Piece(NamedTuple):
    """A range of memory on a device ("host", "cuda" or "cuda:N"). The caller keeps the memory alive."""

    address: int
    size: int
    device: str


class _Reported(_handles.Job):
    """A job that keeps its report."""

    report: Report | None = None

    def _keep_report(self) -> None:
        try:
            text = _abi.text(self.system.functions.nebulaio_report, self.number.value)
        except NebulaioError:
            return  # report the job's own error
        _process.current().reports.last = text
        self.report = Report(text)

    def reported(self) -> Report:
        """Return the report of a job that has ended."""
        if self.report is None:
            raise NebulaioError("report: the job has ended without a report; this is a defect")
        return self.report


class _Gather(_Reported):
    """A read of segments."""

    def __init__(
        self,
        system: _process.System,
        files: Sequence[bytes],
        segments: Sequence[Segment],
        stream: int,
        options: dict[str, Any],
        kept: object,
    ) -> None:
        super().__init__(system, kept)
        self._files = (ctypes.c_char_p * len(files))(*files)
        self._stream = stream
        self._options = json.dumps(options).encode()
        self._labels, places = labels_of(segments)
        self._segments = table_of(segments, places)

    def _start(self) -> None:
        _abi.call(
            self.system.functions.nebulaio_gather_start,
            self.system.handle,
            self._files,
            len(self._files),
            self._segments,
            len(self._segments),
            self._stream,
            self._options,
            ctypes.byref(self.number),
        )


def read(
    files: Sequence[str | os.PathLike[str]],
    segments: Sequence[Segment],
    *,
    device: str,
    stream: int = 0,
    verify: bool = False,
    cache: str = "auto",
    gap: int = 0,
    client: Any = None,
    progress: _handles.ProgressCallback | None = None,
) -> Report:
    """Read segments of files into memory of one device, and return the report.

    The files are paths or object URLs. The segments may have any order, and neighbours are
    read together. Copies begin after the work that is queued on `stream`. With `verify`,
    every block is compared with its checksum, and a CorruptError names the file and the
    labels. `gap` is the smallest number of unwanted bytes across which nothing is read; 0
    means 64 KiB. `client` is a GPUDirectClient for URLs.
    """
    with start_read(
        files, segments, device=device, stream=stream, verify=verify, cache=cache, gap=gap, client=client
    ) as running:
        running.wait(progress)
    return running.reported()


def start_read(
    files: Sequence[str | os.PathLike[str]],
    segments: Sequence[Segment],
    *,
    device: str,
    stream: int = 0,
    verify: bool = False,
    cache: str = "auto",
    gap: int = 0,
    client: Any = None,
    kept: object = None,
) -> _Gather:
    """Start a read as `read` describes it. The caller uses the result as a context, waits, and asks for the report.

    `kept` holds the memory of the segments. It lives at least as long as the read, also if the caller forgets both.
    """
    options: dict[str, Any] = {"device": _device.canonical(device), **_arguments.choices("auto", cache)}
    if _arguments.truth("verify", verify):
        options["verify"] = True
    if gap:
        options["gap"] = natural("gather", "gap", gap)
    names = [_name(file, "gather") for file in files]
    urls = [file for file in files if _load.is_url(file)]
    if urls:
        options["client"] = _save.server_of(urls[0], client)
    elif client is not None and files:
        _save.server_of(files[0], client)  # raises: a path needs no client
    system = _system(options["device"], client)
    return _Gather(system, names, segments, natural("gather", "stream", stream), options, kept)


class _Write(_Reported):
    """A write of pieces."""

    def __init__(self, system: _process.System, path: bytes, pieces: Sequence[Piece], options: dict[str, Any]) -> None:
        super().__init__(system, None)
        self._path = path
        self._pieces = (_abi.Piece * len(pieces))()
        self._options = json.dumps(options).encode()
        names = {device: _device.canonical(device).encode() for device in {piece.device for piece in pieces}}
        for at, (slot, piece) in enumerate(zip(self._pieces, pieces)):
            slot.address = natural(f"piece {at}", "address", piece.address)
            slot.size = natural(f"piece {at}", "size", piece.size)
            slot.device = names[piece.device]

    def _start(self) -> None:
        _abi.call(
            self.system.functions.nebulaio_write_start,
            self.system.handle,
            self._path,
            self._pieces,
            len(self._pieces),
            0,
            self._options,
            ctypes.byref(self.number),
        )


class Write:
    """A running write. Leaving its context before it has ended cancels the write and waits for the end.

    Several threads may wait for one write.
    """

    def __init__(self, job: _Write) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._error: NebulaioError | None = None

    def wait(self, progress: _handles.ProgressCallback | None = None) -> Report:
        """Wait for the end and return the report. Raises the error of a failed write, in each call.

        `progress` is called in this thread with (bytes done, bytes in total).
        """
        with self._lock:
            if self._job.report is None and self._error is None:
                try:
                    self._job.wait(progress)
                except NebulaioError as error:
                    if not self._job._ended:  # the wait failed, not the write
                        raise
                    self._error = error
                self._job._finish()
        if self._error is not None:
            raise self._error
        return self._job.reported()

    def done(self) -> bool:
        """Return whether the write has ended, successfully or not, without blocking."""
        job = self._job
        if job._ended or not job.usable():
            return True
        status = job.system.functions.nebulaio_wait(job.number.value, 0, None, None, 0)
        return bool(status != _abi.RUNNING)

    def counted(self) -> tuple[int, int]:
        """Return the bytes written so far and the bytes in total."""
        return self._job.counted()

    def cancel(self) -> None:
        """Ask the write to stop. It has stopped when `wait` returns or raises."""
        self._job.cancel()

    def __enter__(self) -> Write:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.cancel()
        with self._lock:
            self._job._finish()


def start_write(
    path: str | os.PathLike[str],
    pieces: Sequence[Piece],
    *,
    streams: Mapping[str, int] | None = None,
    checksum: bool = True,
    client: Any = None,
) -> Write:
    """Start to write pieces of memory, one behind the other, to a file or an object URL.

    The file appears under its name when it is complete and durable, with FILE.crc64nvme
    unless `checksum` is false. The report's "crc64nvme" is the checksum of the whole file.
    The memory must not change or be freed before the write has ended. `streams` holds the
    CUDA stream of each device after whose work the pieces are read.
    """
    options: dict[str, Any] = {}
    if not _arguments.truth("checksum", checksum):
        options["checksum"] = False
    if streams:
        options["streams"] = {
            _device.canonical(name): natural("write", f"stream of {name}", stream) for name, stream in streams.items()
        }
    server = _save.server_of(path, client)
    if server is not None:
        options["client"] = server
    gpus = {_device.canonical(name) for name in {piece.device for piece in pieces}} - {"host"}
    job = _Write(_system(min(gpus, default="host"), client), _name(path, "write"), pieces, options)
    job.__enter__()
    return Write(job)


def write(
    path: str | os.PathLike[str],
    pieces: Sequence[Piece],
    *,
    streams: Mapping[str, int] | None = None,
    checksum: bool = True,
    client: Any = None,
    progress: _handles.ProgressCallback | None = None,
) -> Report:
    """Write pieces of memory to a file or an object URL, as `start_write`, and wait for the end."""
    with start_write(path, pieces, streams=streams, checksum=checksum, client=client) as running:
        return running.wait(progress)


def _system(device: str, client: Any) -> _process.System:
    """Return the process's system for memory on a device."""
    holder = _process.current()
    if device != "host":
        holder.require_cuda_after_fork(device)
    system: _process.System = holder.open() if client is None else client._open().system
    if device != "host":
        system.cuda_used = True
    return system


def _name(path: str | os.PathLike[str], doing: str) -> bytes:
    """Return the bytes of a path or URL."""
    name = os.fsencode(path)
    if not name or b"\0" in name:
        raise InvalidError(f"{doing} {os.fspath(path)!r}: a path must not be empty or contain NUL")
    return name
