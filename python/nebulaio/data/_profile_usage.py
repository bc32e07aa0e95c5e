# SPDX-License-Identifier: Apache-2.0
"""What loading costs this process and its workers: processor time, waiting for a processor, bytes from storage."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any


class Timed:
    """A decode function that adds up the time of its calls. Threads may call it at the same time."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self.seconds = 0.0  # on the clock
        self.processor = 0.0  # of these, on a processor
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        clock, processor = perf_counter(), thread_time()
        try:
            return self._function(*args, **kwargs)
        finally:
            clock, processor = perf_counter() - clock, thread_time() - processor
            with self._lock:
                self.seconds += clock
                self.processor += processor
                self.calls += 1

    def use(self, function: Callable[..., Any]) -> None:
        """Call another function from now on, and keep the times."""
        self._function = function

    def __getattr__(self, name: str) -> Any:
        # Only for names that Timed does not have: the loader may read attributes of its hook.
        if name == "_function":
            raise AttributeError(name)
        return getattr(self._function, name)


@dataclass(frozen=True)
class Usage:
    """Counters of a process and its workers at one moment. The difference of two moments is a usage too."""

    user: float = 0.0  # seconds of processor time in programs, of all threads and workers
    system: float = 0.0  # seconds of processor time in the kernel
    queued: float = 0.0  # seconds that the calling thread was ready to run and had no processor
    storage: int = -1  # bytes that were fetched from storage, not from the page cache; -1 if the kernel does not say
    hook: float = 0.0  # seconds inside the caller's decode function
    hook_processor: float = 0.0  # of these, on a processor

    def since(self, before: Usage) -> Usage:
        """Return what was used between two moments."""
        known = self.storage >= 0 and before.storage >= 0
        return Usage(
            max(0.0, self.user - before.user),
            max(0.0, self.system - before.system),
            max(0.0, self.queued - before.queued),
            max(0, self.storage - before.storage) if known else -1,
            self.hook - before.hook,
            self.hook_processor - before.hook_processor,
        )


def now(hook: Timed | None = None) -> Usage:
    """Return the counters of this process, its live multiprocessing children and the caller's decode function."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    user, system, storage = own.ru_utime, own.ru_stime, _storage("self")
    for pid in worker_pids():
        more = _times(pid)
        user, system = user + more[0], system + more[1]
        read = _storage(str(pid))
        storage = storage + read if storage >= 0 and read >= 0 else storage
    inside = (hook.seconds, hook.processor) if hook is not None else (0.0, 0.0)
    return Usage(user, system, queued(), storage, *inside)


def worker_pids() -> list[int]:
    """Return the processes that multiprocessing has started here and that still run."""
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def _times(pid: int) -> tuple[float, float]:
    """Return user and system seconds of another process; zeros if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return int(fields[11]) / tick, int(fields[12]) / tick
    except (OSError, IndexError, ValueError):
        return 0.0, 0.0


def _storage(pid: str) -> int:
    """Return the bytes that a process has fetched from storage; -1 if the kernel does not say."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("read_bytes:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return -1


def queued() -> float:
    """Return the seconds that this thread has waited for a processor; 0 if the kernel does not count them."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
