# SPDX-License-Identifier: Apache-2.0
"""Handles of open files and of their reads and writes, used by `nebulaio.cufile`."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from typing import Any

from . import _abi, _buffers, _handles, _process
from .errors import ClosedError, InvalidError, NebulaioError, from_status


class File(_handles._Handle):
    """An open file of the library."""

    def __init__(self, system: _process.System, path: str, flags: str, route: str) -> None:
        super().__init__(system)
        name = os.fsencode(path)
        if not name or b"\0" in name:
            raise InvalidError(f"open file {path!r}: a path must not be empty or contain NUL")
        options = json.dumps({"device": "host", "route": route}).encode()
        _abi.call(
            system.functions.nebulaio_file_open, system.handle, name, flags.encode(), options, ctypes.byref(self.number)
        )


class Move(_handles.Job):
    """A read or write of a range of a file. Several threads may wait for it."""

    def __init__(
        self, file: File, write: bool, memory: _buffers.Memory, span: tuple[int, int, int], stream: int,
        options: dict[str, Any]
    ) -> None:
        super().__init__(file.system, (file, memory))
        self._file = file
        self._write = write
        self._span = span
        self._stream = stream
        self._options = json.dumps(options).encode()
        self._lock = threading.Lock()
        self._outcome: int | BaseException | None = None

    def _start(self) -> None:
        functions = self.system.functions
        start = functions.nebulaio_file_write_start if self._write else functions.nebulaio_file_read_start
        address, size, offset = self._span
        _abi.call(
            start, self._file.number.value, address, size, offset, self._stream, self._options,
            ctypes.byref(self.number)
        )

    def finished(self) -> bool:
        """Return whether the move has ended, without blocking."""
        if self._outcome is not None:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # another thread is waiting for it
        try:
            self._check()
            return self._collect(0)
        finally:
            self._lock.release()

    def outcome(self) -> int:
        """Wait for the end and return the bytes moved. Raises the move's error. Ctrl-C interrupts."""
        self._check()  # before the lock: after a fork, the thread that held it may not exist
        if self._outcome is None:
            with self._lock:
                while not self._collect(_handles.SLICE_MS):
                    pass
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def stop(self, deadline: float) -> None:
        """Wait for the end. A started write is not cancelled, and closing the file would wait too."""
        try:
            self.outcome()
        except NebulaioError:
            return  # the future reports the error

    def _check(self) -> None:
        if self._outcome is None and not self.usable():
            raise ClosedError("wait for a move: it was started in another process")

    def _collect(self, milliseconds: int) -> bool:
        """Wait up to `milliseconds`. At the end, keep the outcome and release everything. The lock is held."""
        if self._outcome is not None:
            return True
        wait = self.system.functions.nebulaio_wait
        status = wait(self.number.value, milliseconds, ctypes.byref(self._progress), self._err, len(self._err))
        if status == _abi.RUNNING:
            return False
        self._ended = True
        if status == _abi.OK:
            self._outcome = int(self._progress.bytes_done)
        else:
            self._outcome = from_status(status, _abi.message(wait, status, self._err))
        self._finish()
        self._kept = None
        return True
