# SPDX-License-Identifier: Apache-2.0
"""Measures the highest rates of the bus and the disk, beside the methods.

`ceiling_pinned` copies as many bytes as the file has from pinned host memory to the device, in copies of 1 GiB. No
loader that brings bytes from the host can be faster. On the host, threads that copy memory replace it.

`ceiling_raw` reads the file with O_DIRECT into huge-page memory and does nothing else. The best number of threads and
the best block size differ by disk. A short sweep therefore finds the two best settings, and both are timed in every
round.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import stats
from .device import Device

COPY = 1 << 30
_HUGE = 2 << 20
_MEMCPY = 8 << 20
_ALIGN = 16 << 20


@dataclass(frozen=True)
class Setting:
    """One way to read a file: the number of threads, and the bytes per read."""

    threads: int
    block: int

    def __str__(self) -> str:
        return f"{self.threads}x{self.block >> 20}M" if self.block >> 20 else f"{self.threads}x{self.block >> 10}K"


SWEEP = tuple(
    Setting(threads, mib << 20)
    for threads, mib in ((2, 8), (4, 4), (4, 16), (8, 1), (8, 4), (16, 1), (16, 2), (16, 4), (32, 1))
)


class Slots:
    """Page-aligned memory with huge pages: one slot per thread, touched before use."""

    def __init__(self, count: int, size: int) -> None:
        self.size = size
        step = -(-size // _HUGE) * _HUGE
        self._map = mmap.mmap(-1, count * step + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                self._map.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # a kernel without transparent huge pages: small pages do as well
        handle = ctypes.c_char.from_buffer(self._map)
        first = -ctypes.addressof(handle) % _HUGE
        del handle
        self._whole = memoryview(self._map)
        self.views = [self._whole[first + i * step : first + i * step + size] for i in range(count)]
        for view in self.views:
            view[:: mmap.PAGESIZE] = bytes(len(range(0, size, mmap.PAGESIZE)))

    def close(self) -> None:
        """Free the memory."""
        for view in self.views:
            view.release()
        self._whole.release()
        self._map.close()


def direct_read(path: str | os.PathLike[str], setting: Setting, slots: Slots, limit: int | None = None,
                first: int = 0) -> int:
    """Read a file (or `limit` bytes from `first` on) with O_DIRECT; returns the bytes read."""
    size = os.path.getsize(path)
    end = size if limit is None else min(size, first + limit)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(view: memoryview, start: int, want: int) -> None:
        got = os.preadv(fd, [view], start)
        if got < want:
            raise OSError(f"{path}: {got} bytes at {start}, not {want}")

    try:
        each_block(setting, slots, first, end, read)
    finally:
        os.close(fd)
    return max(end - first, 0)


def each_block(setting: Setting, slots: Slots, first: int, end: int,
               move: Callable[[memoryview, int, int], None]) -> None:
    """Call move(view, start, want) for each block from `first` to `end`, in the setting's threads.

    Each thread has a view of its own and takes the next block from a common counter, as a
    loader would. The first error of move ends all threads and is raised.
    """
    blocks = iter(range(first, end, setting.block))
    lock = threading.Lock()
    problems: list[BaseException] = []

    def work(index: int) -> None:
        view = slots.views[index][: setting.block]
        try:
            while not problems:
                with lock:
                    start = next(blocks, None)
                if start is None:
                    return
                move(view, start, min(setting.block, end - start))
        except BaseException as problem:  # noqa: BLE001  handed to the caller below
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(setting.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def best_settings(rates: Sequence[tuple[Setting, float]], keep: int = 2) -> list[Setting]:
    """Return the fastest settings of a sweep, best first."""
    return [setting for setting, _ in sorted(rates, key=lambda item: -item[1])[:keep]]


class RawCeiling:
    """The disk's rate for one file: first a sweep, then the two best settings."""

    def __init__(self, path: Path, *, sweep_bytes: int = 2 << 30, settings: Sequence[Setting] = SWEEP,
                 drop: Callable[[], Any] = lambda: None) -> None:
        self.path = path
        self.sweep: list[tuple[Setting, float]] = []
        self.slots = Slots(max(s.threads for s in settings), max(s.block for s in settings))
        drop()
        room = max(path.stat().st_size - sweep_bytes, 0)
        for index, setting in enumerate(settings):
            # Read another part of the file each time, because a cache below may have kept earlier reads.
            first = index * sweep_bytes % (room + 1) // _ALIGN * _ALIGN
            start = time.perf_counter()
            got = direct_read(path, setting, self.slots, sweep_bytes, first)
            self.sweep.append((setting, stats.rate(got, time.perf_counter() - start)))
        self.best = best_settings(self.sweep)

    def run(self, setting: Setting) -> None:
        """Read the whole file once."""
        direct_read(self.path, setting, self.slots)

    def close(self) -> None:
        """Free the buffers."""
        self.slots.close()


class CopyCeiling:
    """The bus's rate: pinned host memory to the device, or memory to memory on the host."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device = device
        self.nbytes = nbytes
        if device.is_cuda:
            self.source = device.torch.empty(min(COPY, nbytes), dtype=device.torch.uint8, pin_memory=True)
            self.source.fill_(1)
        else:
            self.threads = min(8, len(os.sched_getaffinity(0)))
            self.source = ctypes.create_string_buffer(b"\1" * _MEMCPY, _MEMCPY)
            self.target = [ctypes.create_string_buffer(_MEMCPY) for _ in range(self.threads)]

    def run(self) -> Any:
        """Copy the bytes once and return the destination, which the caller frees."""
        if not self.device.is_cuda:
            self._on_host()
            return None
        target = self.device.empty(self.nbytes)
        for at in range(0, self.nbytes, COPY):
            end = min(at + COPY, self.nbytes)
            target[at:end].copy_(self.source[: end - at], non_blocking=True)
        self.device.sync()
        return target

    def _on_host(self) -> None:
        rounds = -(-self.nbytes // (_MEMCPY * self.threads))

        def work(index: int) -> None:
            for _ in range(rounds):
                _memmove(self.target[index], self.source, _MEMCPY)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


_memmove = ctypes.CDLL(None).memmove  # unlike ctypes.memmove it lets other threads run
_memmove.restype = ctypes.c_void_p
_memmove.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
