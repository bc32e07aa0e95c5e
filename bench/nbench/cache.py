# SPDX-License-Identifier: Apache-2.0
"""Measures how much of a file is in the page cache, and brings a file into a wanted state.

Every state is made by reads and advice, then proven with cachestat(2). If the state of a run is not the one that its
row promises, the run is marked as invalid.
"""

from __future__ import annotations

import ctypes
import os
import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

PAGE = os.sysconf("SC_PAGE_SIZE")
WINDOW = 2 << 20  # the unit of the alternating pattern
COLD_LIMIT = 0.01  # a cold file has less than this resident
WARM_LIMIT = 0.99  # a warm file more than this
DROP_CACHES = "/proc/sys/vm/drop_caches"

_SYS_CACHESTAT = 451  # on every architecture
_READ = 4 << 20
_libc = ctypes.CDLL(None, use_errno=True)

Range = tuple[int, int]  # start and end in the file


class CacheError(Exception):
    """A cache state could not be made or queried."""


def resident_pages(fd: int, start: int, length: int) -> int:
    """Return the number of pages of a range in the page cache. length 0 means to the end."""
    wanted = (ctypes.c_uint64 * 2)(start, length)
    found = (ctypes.c_uint64 * 5)()
    if _libc.syscall(_SYS_CACHESTAT, ctypes.c_int(fd), wanted, found, ctypes.c_uint(0)) != 0:
        code = ctypes.get_errno()
        raise CacheError(f"cachestat: {os.strerror(code)} (it needs Linux 6.5 or later)")
    return int(found[0])


def resident(path: str | os.PathLike[str]) -> float:
    """Return the share of a file in the page cache, from 0 to 1."""
    fd = os.open(path, os.O_RDONLY)
    try:
        pages = -(-os.fstat(fd).st_size // PAGE)
        return resident_pages(fd, 0, 0) / pages if pages else 1.0
    finally:
        os.close(fd)


def resident_windows(path: str | os.PathLike[str], window: int = WINDOW) -> list[float]:
    """Return the cached share of each window of a file, in order."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        parts = []
        for start in range(0, size, window):
            length = min(window, size - start)
            parts.append(resident_pages(fd, start, length) / -(-length // PAGE))
        return parts
    finally:
        os.close(fd)


def drop(path: str | os.PathLike[str], *, everything: bool = True) -> float:
    """Drop a file from the page cache and return the share that is still resident.

    Dirty pages are written first. With `everything`, if this process may write /proc/sys/vm/drop_caches, all clean
    pages, directory entries and inodes of the machine are dropped. Otherwise only the file's own pages are. The kernel
    may hold single pages for a moment, so `drop` asks again for up to 20 ms.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        for pause in (0.001, 0.004, 0.016, 0.0):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not pause or not resident_pages(fd, 0, 0):
                break
            time.sleep(pause)
    finally:
        os.close(fd)
    if everything and os.access(DROP_CACHES, os.W_OK):
        os.sync()
        with open(DROP_CACHES, "w") as file:
            file.write("3")
    return resident(path)


def warm(path: str | os.PathLike[str], threads: int = 8) -> float:
    """Read a whole file into the page cache if necessary, and return the resident share."""
    now = resident(path)
    if now <= WARM_LIMIT:
        size = os.path.getsize(path)
        read_ranges(path, ((at, min(at + _READ, size)) for at in range(0, size, _READ)), threads)
        now = resident(path)
    return now


def read_ranges(path: str | os.PathLike[str], ranges: Iterable[Range], threads: int = 8, *,
                exact: bool = False) -> None:
    """Read ranges through the page cache with several threads.

    With `exact`, readahead is off (POSIX_FADV_RANDOM), so that no page outside of the ranges becomes resident.
    """
    parts: list[list[Range]] = [[] for _ in range(threads)]
    for index, part in enumerate(ranges):
        parts[index % threads].append(part)

    def work(mine: Sequence[Range]) -> None:
        buffer = memoryview(bytearray(max((end - start for start, end in mine), default=0)))
        fd = os.open(path, os.O_RDONLY)
        try:
            if exact:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for start, end in mine:
                while start < end:
                    got = os.preadv(fd, [buffer[: end - start]], start)
                    if got <= 0:
                        raise CacheError(f"{path}: no bytes at {start}, the file became shorter")
                    start += got
        finally:
            os.close(fd)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts))


@dataclass(frozen=True)
class PatternState:
    """The measured state of a file that was brought half into the page cache."""

    pattern: str
    cached_bytes: int
    size: int
    wrong: float  # part of the checked windows or pages that is not as meant

    @property
    def valid(self) -> bool:
        """Return whether the file is half cached as intended."""
        return self.wrong <= 0.01 and 0.45 <= self.cached_bytes / self.size <= 0.55


PATTERNS = ("first-half", "alternate-2MiB", "random-4KiB")


def pattern_ranges(pattern: str, size: int, seed: int = 7) -> list[Range]:
    """Return the ranges that a pattern caches. Each range is within a file of that size."""
    if pattern == "first-half":
        half = size // 2 // WINDOW * WINDOW
        return [(at, min(at + WINDOW, half)) for at in range(0, half, WINDOW)]
    if pattern == "alternate-2MiB":
        return [(at, min(at + WINDOW, size)) for at in range(0, size, 2 * WINDOW)]
    if pattern == "random-4KiB":
        pages = -(-size // PAGE)
        chosen = random.Random(seed).sample(range(pages), pages // 2)
        return [(page * PAGE, min((page + 1) * PAGE, size)) for page in chosen]
    raise ValueError(f"{pattern}: not one of {', '.join(PATTERNS)}")


def make_pattern(path: str | os.PathLike[str], pattern: str, *, everything: bool = True,
                 threads: int = 16, seed: int = 7) -> PatternState:
    """Drop a file from the page cache, read one half of it back, and return the resulting state."""
    size = os.path.getsize(path)
    ranges = pattern_ranges(pattern, size, seed)
    drop(path, everything=everything)
    read_ranges(path, ranges, threads, exact=True)
    return check_pattern(path, pattern, ranges)


def check_pattern(path: str | os.PathLike[str], pattern: str, ranges: Sequence[Range]) -> PatternState:
    """Compare a file's residency with a pattern, by windows or by sampled pages."""
    size = os.path.getsize(path)
    step = PAGE if pattern == "random-4KiB" else WINDOW
    meant = {start // step for start, _ in ranges}
    if step == WINDOW:
        seen = dict(enumerate(resident_windows(path)))
    else:
        pages = -(-size // PAGE)
        sample = random.Random(1).sample(range(pages), min(pages, 4096))
        fd = os.open(path, os.O_RDONLY)
        try:
            seen = {page: float(resident_pages(fd, page * PAGE, PAGE)) for page in sample}
        finally:
            os.close(fd)
    wrong = sum((part < WARM_LIMIT) if unit in meant else (part > COLD_LIMIT) for unit, part in seen.items())
    cached = min(size, round(resident(path) * -(-size // PAGE)) * PAGE)
    return PatternState(pattern, cached, size, wrong / len(seen) if seen else 1.0)
