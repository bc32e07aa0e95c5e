# SPDX-License-Identifier: Apache-2.0
"""Keeps pages of files in the page cache for tests that need them there.

A kernel takes clean pages that were only read or written at any time: where DAMON reclaims memory, every few
seconds. Mapped and locked pages stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_READ, _SHARED, _RANDOM, _POPULATE = 1, 1, 1, 22  # PROT_READ, MAP_SHARED, MADV_RANDOM, MADV_POPULATE_READ
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _name, _more in (("munmap", []), ("mlock", []), ("madvise", [ctypes.c_int])):
    getattr(_libc, _name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, *_more]


@contextlib.contextmanager
def hold(path: str | os.PathLike[str], begin: int = 0, end: int | None = None) -> Iterator[None]:
    """Bring the bytes from begin to end into the page cache, without readahead, and keep them there in the block.

    The default is the whole file.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        start = begin - begin % os.sysconf("SC_PAGE_SIZE")
        size = (os.fstat(file).st_size if end is None else end) - start
        address = _libc.mmap(None, size, _READ, _SHARED, file, start)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), "mmap", str(path))
    finally:
        os.close(file)
    try:
        _libc.madvise(address, size, _RANDOM)
        # A user who may lock only little memory reads the pages. Mapped pages are the last ones that a kernel takes.
        if _libc.mlock(address, size) != 0 and _libc.madvise(address, size, _POPULATE) != 0:
            raise OSError(ctypes.get_errno(), "madvise", str(path))
        yield
    finally:
        _libc.munmap(address, size)


class Keeper:
    """Holds files until it is closed."""

    def __init__(self) -> None:
        self._files = contextlib.ExitStack()

    def __call__(self, path: Path) -> Path:
        """Hold a whole file, and return its path."""
        self._files.enter_context(hold(path))
        return path

    def close(self) -> None:
        """Let all files go."""
        self._files.close()
