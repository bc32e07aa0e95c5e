# SPDX-License-Identifier: Apache-2.0
"""Handles of open files and of moves of their bytes; `nebulaio.cufile` is their face."""

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
    """A read or write of a range, from start to end; several threads may wait for it."""

    def __init__(
        self, file: File, write: bool, memory: _buffers.Memory, span: tuple[int, int, int], stream: int, options: dict[str, Any]
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
            start, self._file.number.value, address, size, offset, self._stream, self._options, ctypes.byref(self.number)
        )

    def finished(self) -> bool:
        """Whether the move has ended; does not block."""
        if self._outcome is not None:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # someone is waiting for it
        try:
            self._check()
            return self._collect(0)
        finally:
            self._lock.release()

    def outcome(self) -> int:
        """Wait for the end, interruptibly: the bytes moved, or the move's error raised."""
        self._check()  # before the lock: a thread may have held it that did not come along when we were forked
        if self._outcome is None:
            with self._lock:
                while not self._collect(_handles.SLICE_MS):
                    pass
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def stop(self, deadline: float) -> None:
        """Wait for the end: closing the file would, and a write that was started is not given up."""
        try:
            self.outcome()
        except NebulaioError:
            return  # whoever holds its future is told

    def _check(self) -> None:
        if self._outcome is None and not self.usable():
            raise ClosedError("wait for a move: this is not the process that started it")

    def _collect(self, milliseconds: int) -> bool:
        """Wait a little; at the end keep the outcome and let go of everything. The lock is held."""
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
