# SPDX-License-Identifier: Apache-2.0
"""Handles of clients and of object transfers, used by `nebulaio.gpudirect`."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _abi, _buffers, _handles, _process
from ._entries import Entries
from ._report import Report
from .errors import from_status


class Client(_handles._Handle):
    """A client of the library: a server and an account."""

    def __init__(self, system: _process.System, options: dict[str, Any]) -> None:
        super().__init__(system)
        _abi.call(system.functions.nebulaio_client_open, system.handle, json.dumps(options).encode(),
                  ctypes.byref(self.number))


class Model(_handles.Model):
    """A model of objects, which keeps its client alive.

    A thread reads the headers, because the server may be slow and Ctrl-C must work
    meanwhile.
    """

    def __init__(self, client: Client, bucket: str, key: str, options: dict[str, Any]) -> None:
        _handles._Handle.__init__(self, client.system)
        self._client = client
        self._opening = threading.Lock()
        self._wanted = True  # by the one who waits, or taken by the one who asks
        problem: list[BaseException] = []
        names = client.checked(), os.fsencode(bucket), os.fsencode(key), json.dumps(options).encode()

        def ask() -> None:
            number = ctypes.c_uint64()
            try:
                _abi.call(client.system.functions.nebulaio_client_model_open, *names, ctypes.byref(number))
            except BaseException as cause:  # noqa: BLE001 - raised in the caller's thread
                problem.append(cause)
            with self._opening:
                self.number = number
                given_up, self._wanted = not self._wanted, False
            if given_up:
                self.release()

        asking = threading.Thread(target=ask, name="nebulaio-open", daemon=True)
        asking.start()
        try:
            while asking.is_alive():
                asking.join(_handles.SLICE_MS / 1000)
        except BaseException:
            with self._opening:
                opened, self._wanted = not self._wanted, False
            if opened:
                self.release()
            raise
        if problem:
            raise problem[0]


class Write(NamedTuple):
    """A write of one object."""

    bucket: bytes
    key: bytes
    memory: _buffers.Memory
    at: int
    size: int
    stream: int


class ObjectJob(_handles.Job):
    """A job of a client. The job keeps its arguments alive until it has ended."""

    def __init__(self, client: Client, begin: Callable[[ObjectJob], None], kept: object) -> None:
        super().__init__(client.system, (client, kept))
        self.client = client
        self.raw = b"{}"
        self._begin: Callable[[ObjectJob], None] | None = begin
        self._silent = False

    def _start(self) -> None:
        assert self._begin is not None
        self._begin(self)

    def outcome(self, progress: _handles.ProgressCallback | None = None) -> Report:
        """Wait for the end and return the report. Raises the job's error. Ctrl-C interrupts."""
        with self:
            self.wait(progress)
        return Report(self.raw)

    def collect(self) -> Report | Exception:
        """Return the outcome of a job that has ended, and release everything."""
        wait = self.system.functions.nebulaio_wait
        status = wait(self.number.value, -1, ctypes.byref(self._progress), self._err, len(self._err))
        self._ended = True
        problem = None if status == _abi.OK else from_status(status, _abi.message(wait, status, self._err))
        self._finish()
        self._kept = self._begin = None
        return Report(self.raw) if problem is None else problem

    def _keep_report(self) -> None:
        try:
            self.raw = _abi.text(self.system.functions.nebulaio_report, self.number.value)
        except Exception:  # noqa: BLE001 - report the job's own error
            return
        if not self._silent:
            _process.current().reports.last = self.raw


def read(client: Client, entries: Entries, options: dict[str, Any]) -> ObjectJob:
    """Return a job that reads objects into memory."""

    def begin(job: ObjectJob) -> None:
        _abi.call(
            job.system.functions.nebulaio_object_read_start,
            client.checked(), entries.pack(), len(entries), _text(options), ctypes.byref(job.number),
        )

    return ObjectJob(client, begin, entries)


def write(client: Client, one: Write, options: dict[str, Any]) -> ObjectJob:
    """Return a job that writes an object from memory."""

    def begin(job: ObjectJob) -> None:
        entry = _abi.ObjectWrite(
            ctypes.sizeof(_abi.ObjectWrite), one.bucket, one.key,
            one.memory.address + one.at, one.size, one.memory.device.encode(), one.stream,
        )
        _abi.call(
            job.system.functions.nebulaio_object_write_start,
            client.checked(), ctypes.byref(entry), _text(options), ctypes.byref(job.number),
        )

    return ObjectJob(client, begin, one)


def ask(client: Client, function: str, *arguments: Any) -> dict[str, Any]:
    """Return the server's answer to a query. Ctrl-C cancels the query."""

    def begin(job: ObjectJob) -> None:
        _abi.call(getattr(job.system.functions, function), client.checked(), *arguments, ctypes.byref(job.number))

    job = ObjectJob(client, begin, None)
    job._silent = True  # last_report covers only moved bytes
    return dict(job.outcome())


def _text(options: dict[str, Any]) -> bytes | None:
    return json.dumps(options).encode() if options else None
