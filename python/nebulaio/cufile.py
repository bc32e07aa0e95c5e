# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of files from and into arrays on a GPU or the host, with kvikio's names.

    >>> import numpy, nebulaio
    >>> array = numpy.arange(1000)
    >>> with nebulaio.CuFile("array.bin", "w") as f:
    ...     f.write(array)
    8000
    >>> with nebulaio.CuFile("array.bin") as f:
    ...     f.read(array)
    8000

A buffer is an object with the CUDA array interface (CuPy, Numba, JAX), a torch tensor,
or an object with the buffer protocol (NumPy, bytearray) or DLPack. The buffer's memory
decides the device. The engine uses the fastest available route for each range, and
`nebulaio.last_report()` names the routes.
"""

from __future__ import annotations

import ctypes
import fcntl
import operator
import os
import threading
from typing import TYPE_CHECKING, Any

from . import _abi, _buffers, _process
from ._arguments import Route
from ._files import File, Move
from ._handles import OfThisProcess
from .errors import ClosedError, InvalidError, NebulaioError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CuFile", "IOFuture", "IOFutureStream"]

_FLAGS = {"r": os.O_RDONLY, "r+": os.O_RDWR, "w": os.O_RDWR, "w+": os.O_RDWR}


class IOFuture:
    """A running read or write, returned by `CuFile.pread` and `CuFile.pwrite`.

    Dropping the future neither cancels the read or write nor frees its buffer. The file
    keeps both until the read or write has ended.
    """

    def __init__(self, move: Move) -> None:
        self._move = move

    def get(self) -> int:
        """Wait for the end of the read or write and return the number of bytes. Raises its error.

        Ctrl-C interrupts the wait; the read or write continues.
        """
        return self._move.outcome()

    def done(self) -> bool:
        """Return whether the read or write has ended."""
        return self._move.finished()


class IOFutureStream:
    """A read or write in the order of a CUDA stream, returned by `raw_read_async` and `raw_write_async`."""

    def __init__(self, move: Move) -> None:
        self._move = move

    def check_bytes_done(self) -> int:
        """Wait until the stream has passed the read or write, and return the number of bytes moved."""
        return self._move.outcome()


class CuFile(OfThisProcess):
    """An open file for reads and writes from and into arrays, with kvikio's method names.

    All methods are thread-safe. A forked child must open its own files.
    """

    def __init__(self, file: str | os.PathLike[str], flags: str = "r", *, route: Route = "auto") -> None:
        """Open a file.

        Args:
            file: Path of the file.
            flags: "r" to read, "r+" to read and write, "w" or "w+" to read and write a file
                that is created or emptied first.
            route: "buffered" (through the page cache), "direct" (O_DIRECT), "cufile" (NVIDIA's
                libcufile), or "auto" for the fastest available route of each range. "auto"
                uses libcufile if it reaches the GPU directly.

        Raises:
            InvalidError: The flags or the route are wrong.
            NotFoundError: The file does not exist.
        """
        self._pending: list[Move] = []
        self._lock = threading.Lock()
        self._file: File | None = None
        self._descriptor = -1
        if not isinstance(flags, str) or flags not in _FLAGS:
            raise InvalidError(
                f"flags={flags!r} is not one of r, r+, w, w+ "
                "(fix: to append, open with 'r+' and pass file_offset=os.path.getsize(path))"
            )
        if route not in ("auto", "buffered", "direct", "cufile"):
            raise InvalidError(f"route={route!r} is not one of auto, buffered, direct, cufile")
        path = os.fspath(file)
        opened = File(_process.current().open(), path, flags, route)
        self._descriptor = os.open(path, _FLAGS[flags] | os.O_CLOEXEC)
        self._file = opened

    @property
    def closed(self) -> bool:
        """Return whether the file is closed."""
        return self._file is None

    def close(self) -> None:
        """Wait for running reads and writes, then close the file. A second call does nothing."""
        if self._file is not None and not self._file.usable():
            self._lock = threading.Lock()  # after a fork, the thread that held the old lock does not exist
        with self._lock:
            file, self._file = self._file, None
            pending, self._pending = self._pending, []
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        if file is None or not file.usable():
            return
        try:
            for move in pending:
                try:
                    move.outcome()
                except NebulaioError:
                    pass  # the future reports the error
        finally:
            # After an interrupt the rest is cancelled: the library must not touch
            # memory that its owner may free now.
            for move in pending:
                if not move.finished():
                    move._finish()
            file.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None and not file.system.ended:
            self.close()

    def fileno(self) -> int:
        """Return a file descriptor of the file. `close` closes the descriptor."""
        self._opened()
        return self._descriptor

    def open_flags(self) -> int:
        """Return the flags of the descriptor that `fileno` returns; see open(2)."""
        self._opened()
        return fcntl.fcntl(self._descriptor, fcntl.F_GETFL)

    def size(self) -> int:
        """Return the current length of the file in bytes."""
        length = ctypes.c_uint64()
        file = self._opened()
        _abi.call(file.system.functions.nebulaio_file_size, file.number.value, ctypes.byref(length))
        return int(length.value)

    def sync(self) -> None:
        """Make all earlier writes durable."""
        file = self._opened()
        _abi.call(file.system.functions.nebulaio_file_sync, file.number.value)

    def pread(
        self, buf: Any, size: int | None = None, file_offset: int = 0, task_size: int | None = None, *,
        dev_offset: int = 0
    ) -> IOFuture:
        """Start to read up to size bytes (default: the whole buffer) at file_offset into buf.

        If the result is smaller than size, the file has ended. The future keeps the buffer alive
        until the read has ended.
        task_size is accepted for compatibility with kvikio and ignored.
        """
        return IOFuture(self._begin(False, buf, size, file_offset, dev_offset))

    def pwrite(
        self, buf: Any, size: int | None = None, file_offset: int = 0, task_size: int | None = None, *,
        dev_offset: int = 0
    ) -> IOFuture:
        """Start to write size bytes (default: the whole buffer) of buf at file_offset."""
        return IOFuture(self._begin(True, buf, size, file_offset, dev_offset))

    def read(
        self, buf: Any, size: int | None = None, file_offset: int = 0, task_size: int | None = None, *,
        dev_offset: int = 0
    ) -> int:
        """Read into buf as `pread` does, wait, and return the number of bytes read. Ctrl-C cancels the read."""
        return self._whole(False, buf, size, file_offset, dev_offset)

    def write(
        self, buf: Any, size: int | None = None, file_offset: int = 0, task_size: int | None = None, *,
        dev_offset: int = 0
    ) -> int:
        """Write from buf as `pwrite` does, wait, and return the number of bytes written. Ctrl-C cancels the write."""
        return self._whole(True, buf, size, file_offset, dev_offset)

    def raw_read(self, buf: Any, size: int | None = None, file_offset: int = 0, dev_offset: int = 0) -> int:
        """Read into the buffer from dev_offset on, and wait, as `read` does."""
        return self._whole(False, buf, size, file_offset, dev_offset)

    def raw_write(self, buf: Any, size: int | None = None, file_offset: int = 0, dev_offset: int = 0) -> int:
        """Write from the buffer from dev_offset on, and wait, as `write` does."""
        return self._whole(True, buf, size, file_offset, dev_offset)

    def raw_read_async(
        self, buf: Any, raw_stream: Any, size: int | None = None, file_offset: int = 0, dev_offset: int = 0
    ) -> IOFutureStream:
        """Read in the order of a CUDA stream. Work queued on the stream later sees the data.

        raw_stream is the number of a stream, or a stream of cupy, torch or numba. libcufile
        carries out the read if the route is "cufile" or a direct path to the GPU is likely.
        Without libcufile, the read has ended when the call returns, which keeps the order too.
        """
        return IOFutureStream(self._begin(False, buf, size, file_offset, dev_offset,
                                          _buffers.stream_number(raw_stream)))

    def raw_write_async(
        self, buf: Any, raw_stream: Any, size: int | None = None, file_offset: int = 0, dev_offset: int = 0
    ) -> IOFutureStream:
        """Write in the order of a CUDA stream; `raw_read_async` describes the arguments."""
        return IOFutureStream(self._begin(True, buf, size, file_offset, dev_offset, _buffers.stream_number(raw_stream)))

    def _opened(self) -> File:
        file = self._file
        if file is None:
            raise ClosedError("use file: it is closed")
        if not file.usable():
            raise ClosedError("use file: it was opened in another process (fix: open it again after fork)")
        return file

    def _make(
        self, write: bool, buf: Any, size: int | None, file_offset: int, dev_offset: int, stream: int | None
    ) -> Move:
        file = self._opened()
        begin, skipped = _whole_number("file_offset", file_offset), _whole_number("dev_offset", dev_offset)
        asked = None if size is None else _whole_number("size", size)
        memory = _buffers.memory_of(buf, writable=not write)
        wanted = max(memory.size - skipped, 0) if asked is None else asked
        if skipped + wanted > memory.size:
            raise InvalidError(
                f"{wanted} bytes at dev_offset {skipped}: the buffer has only {memory.size} bytes "
                "(fix: pass a smaller size or dev_offset, or a larger buffer)"
            )
        options: dict[str, Any] = {"device": memory.device}
        if memory.device != "host":
            _process.current().require_cuda_after_fork(memory.device)
            file.system.cuda_used = True
        if stream is not None:
            if memory.device == "host":
                raise InvalidError("moves in the order of a stream need CUDA memory (fix: use read or write)")
            options["async"] = True
        span = (memory.address + skipped, wanted, begin)
        return Move(file, write, memory, span, memory.stream if stream is None else stream, options)

    def _whole(self, write: bool, buf: Any, size: int | None, file_offset: int, dev_offset: int) -> int:
        with self._make(write, buf, size, file_offset, dev_offset, None) as move:
            return move.outcome()

    def _begin(
        self, write: bool, buf: Any, size: int | None, file_offset: int, dev_offset: int, stream: int | None = None
    ) -> Move:
        move = self._make(write, buf, size, file_offset, dev_offset, stream)
        move.__enter__()
        with self._lock:
            if self._file is None:
                move._finish()
                raise ClosedError("use file: another thread has closed it")
            self._pending = [m for m in self._pending if not m.finished()]
            self._pending.append(move)
        return move


def _whole_number(name: str, value: Any) -> int:
    """Return the value if it fits the library's type, because ctypes silently truncates larger values."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise InvalidError(f"{name}={value!r} is not a whole number of 0 or more and less than 2^63")
    return number
