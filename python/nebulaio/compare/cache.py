# SPDX-License-Identifier: Apache-2.0
"""The page cache: residency of files, and making files cold or warm.

Reads and posix_fadvise make a state, and cachestat(2) proves it. A run is marked if its
files were not as cold or warm as its name says.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

COLD_LIMIT = 0.01
"""A file is cold if less than this share of its pages is in the page cache."""

WARM_LIMIT = 0.99
"""A file is warm if more than this share of its pages is in the page cache."""

_DROP = "/proc/sys/vm/drop_caches"
_SYS_CACHESTAT = 451  # on every architecture
_READ = 4 << 20
_PART = 64 << 20  # bytes of a file that one thread reads


def resident(paths: Iterable[str], without_holes: bool = False) -> float | None:
    """Return the share of the files' pages in the page cache, or None if the kernel does not tell.

    With `without_holes`, it is the share of what the files take on disk.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    page = os.sysconf("SC_PAGE_SIZE")
    cached = pages = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            found = (ctypes.c_uint64 * 5)()
            whole = (ctypes.c_uint64 * 2)(0, 0)
            if libc.syscall(_SYS_CACHESTAT, ctypes.c_int(fd), whole, found, ctypes.c_uint(0)) != 0:
                return None
            cached += int(found[0])
            facts = os.fstat(fd)
            pages += -(-min(facts.st_size, facts.st_blocks * 512 if without_holes else facts.st_size) // page)
        finally:
            os.close(fd)
    return min(1.0, cached / pages) if pages else 1.0


def make_cold(paths: Sequence[str]) -> str:
    """Drop the files from the page cache. Returns the method, or "" if the files stayed cached.

    The files' own pages are dropped first. If some pages stay, because another process maps
    them, all clean pages of the machine are dropped, provided that this process may.
    """
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    left = resident(paths)
    if left is None or left < COLD_LIMIT:
        return "posix_fadvise" if left is not None else "posix_fadvise, unproven"
    if os.access(_DROP, os.W_OK):
        os.sync()
        with open(_DROP, "w", encoding="ascii") as file:
            file.write("3")
        left = resident(paths)
        if left is not None and left < COLD_LIMIT:
            return "drop_caches"
    return ""


def make_warm(paths: Sequence[str], threads: int = 8, without_holes: bool = False) -> None:
    """Bring the files into the page cache as far as memory allows, with or without the zeros of their holes."""
    if not without_holes and (resident(paths) or 0.0) > WARM_LIMIT:
        return  # of a file with holes, cached zeros count too, so that its data may be missing

    def read(job: tuple[str, int]) -> None:
        path, start = job
        fd = os.open(path, os.O_RDONLY)
        try:
            buffer = memoryview(bytearray(_READ))
            for begin, end in _data(fd, start, start + _PART) if without_holes else [(start, start + _PART)]:
                for offset in range(begin, end, _READ):
                    if os.preadv(fd, [buffer[: min(_READ, end - offset)]], offset) == 0:
                        return
        finally:
            os.close(fd)

    jobs = [(path, start) for path in paths for start in range(0, os.path.getsize(path), _PART)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, jobs))


def _data(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that are no holes."""
    at = start
    while at < stop:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            raise
        if at >= stop:
            return
        end = min(os.lseek(fd, at, os.SEEK_HOLE), stop)
        yield at, end
        at = end


def in_memory(path: str) -> bool:
    """Return whether the file is on a file system in memory, where a file is never cold."""
    best, kind = "", ""
    real = os.path.realpath(path)
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            _, point, fstype, *_ = line.split()
            point = point.replace("\\040", " ")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, fstype
    return kind in ("tmpfs", "ramfs")
