# SPDX-License-Identifier: Apache-2.0
"""The memory of this process: resident memory, its peak, and samples of anonymous memory."""

from __future__ import annotations

import threading
from typing import TypedDict


class Resident(TypedDict):
    """Resident bytes of this process. `anonymous` counts pages that belong to no file."""

    rss: int
    anonymous: int
    peak: int


def _fields(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    with open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            words = value.split()
            if len(words) == 2 and words[1] == "kB":
                found[key] = int(words[0]) << 10
    return found


def resident() -> Resident:
    """Return the resident memory of this process now, and its peak since `reset_peak`."""
    status = _fields("/proc/self/status")
    try:
        rollup = _fields("/proc/self/smaps_rollup")
    except OSError:
        rollup = {}  # a kernel or container without it: status tells nearly the same
    anonymous = rollup.get("Anonymous", status.get("RssAnon", 0)) + status.get("RssShmem", 0)
    return {"rss": status.get("VmRSS", 0), "anonymous": anonymous, "peak": status.get("VmHWM", 0)}


def reset_peak() -> bool:
    """Start a new peak. Returns False if the kernel refuses; then the peak is that of the whole process."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def available() -> int:
    """Return the bytes of memory that programs can still get. Page cache counts as free."""
    return _fields("/proc/meminfo").get("MemAvailable", 0)


class Watch:
    """A context manager that samples the memory of this process every few milliseconds.

    `anonymous` is the largest growth of the process's anonymous memory since the start, in
    bytes. `machine` is the largest drop of the machine's available memory. The drop also
    shows pinned memory of a driver, which counts for no process.
    """

    def __init__(self, interval: float = 0.005) -> None:
        self.anonymous = 0
        self.machine = 0
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._first = self._now()

    def __enter__(self) -> Watch:
        self._first = self._now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._note()

    def _now(self) -> tuple[int, int]:
        status = _fields("/proc/self/status")
        return status.get("RssAnon", 0) + status.get("RssShmem", 0), available()

    def _note(self) -> None:
        used, free = self._now()
        self.anonymous = max(self.anonymous, used - self._first[0])
        self.machine = max(self.machine, self._first[1] - free)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._note()
