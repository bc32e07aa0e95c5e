# SPDX-License-Identifier: Apache-2.0
"""Reads of small tensors directly from the page cache, without a job of the engine.

A job costs about 150 microseconds, even for one byte. A tensor of a kilobyte in the
page cache takes one system call. The module calls preadv with RWF_NOWAIT from Python,
which returns only bytes that are already in the page cache. The kernel thereby confirms
the route "page_cache" in the report. The engine makes all other reads: missing pages,
large tensors, GPUs, verified reads, and explicit routes or cache policies.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from . import _frameworks, _process
from ._frameworks.plain import NAMES as _IN_BUFFERS

LARGEST = 1 << 20
"""Largest tensor in bytes that Python reads. For larger tensors the engine's threads are faster."""

_TMPFS = 0x01021994
_NO_NOWAIT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Entry(TypedDict):
    """A tensor's entry in a header that the library has checked."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


class CachedFile:
    """A second descriptor of an open file, for reads of its header and of cached tensors.

    `read` returns None if the engine must read instead.
    """

    def __init__(self, path: str, maker: _frameworks.Framework, module: Any) -> None:
        """Open the file. Call `settle` after the library has opened the file too."""
        self._path = path
        self._maker = maker
        self._module = module
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._data = 0  # offset of the tensor data in the file
        self._kinds: dict[str, Any] = {}
        try:
            found = os.fstat(self._fd)
            self._size, self._mtime, self._which = found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino)
            self._flags = _flags(self._fd)
        except BaseException:
            os.close(self._fd)
            raise

    def settle(self) -> tuple[dict[str, Entry], dict[str, str]] | None:
        """Return the tensors by name and the metadata.

        Returns None if the library may have opened another file of that name. Call it after
        the library has opened and checked the file.
        """
        length = int.from_bytes(os.pread(self._fd, 8, 0), "little")
        self._data = 8 + length
        text = os.pread(self._fd, min(length, self._size), 8)
        try:
            found = os.stat(self._path)
            if ((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns) != (self._which, self._size,
                                                                                    self._mtime):
                return None
            header: dict[str, Any] = json.loads(text)
        except (OSError, ValueError):
            return None
        metadata = header.pop("__metadata__", None)
        return header, metadata or {}

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # The descriptor is closed after the last read of any thread.
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            close(fd)

    def read(self, entry: Entry) -> Any:
        """Return the whole tensor, or None."""
        begin, end = entry["data_offsets"]
        return self.part(entry["dtype"], entry["shape"], begin, end - begin)

    def part(self, name: str, shape: Sequence[int], begin: int, size: int) -> Any:
        """Return the tensor of `size` bytes at offset `begin` of the data, or None. Keeps the facts for the report."""
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = self._kind(name)
        dtype, plain = kind
        if size > LARGEST or dtype is None or self._flags < 0:
            return None
        began = time.perf_counter()
        if not size:
            _process.current().reports.last = (self, 0, 0.0)
            return self._module.empty(tuple(shape), dtype=dtype)
        # NumPy gives no buffer for foreign types, and torch has no fast way to get one.
        memory = self._module.empty(shape, dtype) if plain else bytearray(size)
        try:
            got = os.preadv(self._fd, (memory,), self._data + begin, self._flags)
        except OSError as error:
            if error.errno in _NO_NOWAIT:
                self._flags = -1
            return None  # EAGAIN: nothing is in the page cache
        found = os.fstat(self._fd)
        if got != size or found.st_mtime_ns != self._mtime or found.st_size != self._size:
            return None  # the file has changed: the engine reports that
        _process.current().reports.last = (self, size, time.perf_counter() - began)
        return memory if plain else self._module.frombuffer(memory, dtype=dtype).reshape(shape)

    def report(self, size: int, seconds: float) -> bytes:
        """Return the report of a read in the library's form. Made only when `last_report` asks for it."""
        rate = size / seconds / 1e9 if seconds > 0 else 0
        span = {"bytes": size, "span_seconds": seconds, "gbps": rate}
        report = {
            "direction": "load", "path": self._path, "tensors": 1, "open_seconds": 0, "alloc_seconds": 0,
            "device": {"id": "host", "kind": "host", "model": "host memory"},
            "asked": {"route": "auto", "cache": "auto"},
            "bytes": size, "wanted_bytes": size, "read_bytes": size, "read_amplification": 1,
            "seconds": seconds, "gbps": rate,
            "routes": [{"route": "page_cache", "chunks": 1, **span}] if size else [],
            "stages": [{"stage": "read_cache", "busy_seconds": seconds, **span}] if size else [],
            "limiting_stage": "page-cache read (CPU)" if size else "",
            "engine": {"workers": 0, "io": "unused", "staging_used": False, "staging": "unused"},
            "files": [{"path": self._path, "size": self._size, "cache": "auto"}],
            "refusals": [],
            "notes": ["the tensor was copied from the page cache in the calling thread, without the engine"],
        }
        return json.dumps(report).encode()

    def _kind(self, name: str) -> tuple[Any, bool]:
        """Return the framework's dtype, and whether its array is a buffer to read into.

        None means that the engine must read: the framework has no such dtype, or two values
        share a byte.
        """
        dtype = self._maker.dtypes({name}).get(name)
        if name == "F4":
            return None, False
        return dtype, self._maker.name == "numpy" and name in _IN_BUFFERS


def open_beside(path: str, maker: _frameworks.Framework) -> CachedFile | None:
    """Return the file for page-cache reads, or None if the framework or file system does not allow them."""
    if maker.name not in ("numpy", "pt"):
        return None
    module: Any = getattr(maker, "_numpy" if maker.name == "numpy" else "_torch")
    try:
        return CachedFile(path, maker, module)
    except OSError:
        return None  # the library reports the error when it opens the file


def _flags(fd: int) -> int:
    """Return the preadv flags for page-cache reads. A memory file system needs none."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = (ctypes.c_long * 32)()  # struct statfs: the first field is the type
    if libc.fstatfs(fd, found) == 0 and found[0] == _TMPFS:
        return 0
    return os.RWF_NOWAIT
