# SPDX-License-Identifier: Apache-2.0
"""Times one call and records everything about it.

Time and CPU are measured around the call alone. Freeing the last result, checking the cache and comparing bits happen
outside. Host memory is sampled in a separate pass, because a sampler disturbs the measured call.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import cache, methods, stats
from .device import Device
from .verify import Reference

REPORT_KEYS = ("seconds", "routes", "limiting_stage", "stages", "engine", "python", "timing", "error")


@dataclass
class Sample:
    """One run of one method. None means that a value was not measured."""

    method: str
    round: int
    nbytes: int
    variant: str = ""
    state: str = ""
    repeat: int = 1
    seconds: float | None = None
    cpu_s: float | None = None
    gpu_bytes: int | None = None
    cached_before: float | None = None
    cached_after: float | None = None
    valid: bool = True
    note: str = ""
    bits: str = ""  # "equal", or the first difference
    error: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def gbps(self) -> float | None:
        """Return the rate in GB/s: bytes of the file per second."""
        return None if not self.seconds else stats.rate(self.nbytes, self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return the sample as plain data, without empty fields."""
        data = {key: value for key, value in asdict(self).items() if value not in (None, "", {})}
        if self.gbps is not None:
            data["gbps"] = self.gbps
        return data


def cpu_seconds() -> float:
    """Return the CPU time of this process and all its threads so far, in user and kernel mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Run a call and return its result, its seconds and its CPU seconds."""
    cpu = cpu_seconds()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    return result, seconds, cpu_seconds() - cpu


def in_words(problem: BaseException) -> str:
    """Return an exception as one line of a table."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:400]


def judge(sample: Sample) -> None:
    """Mark a sample as invalid if the file was not as cold or as warm as its state requires."""
    part = sample.cached_before
    if part is None:
        return
    if sample.state == "cold" and part >= cache.COLD_LIMIT:
        sample.valid, sample.note = False, f"{part:.1%} was cached before a cold run"
    if sample.state == "warm" and part <= cache.WARM_LIMIT:
        sample.valid, sample.note = False, f"only {part:.1%} was cached before a warm run"


def run_method(device: Device, method: methods.Method, path: Path, sample: Sample,
               reference: Reference | None) -> Sample:
    """Time one load into `sample`, compare its bits and free it.

    A method that raises gives a sample with the error's text, so that the figures of other methods are kept.
    """
    device.collect()
    base = device.reset_peak()
    try:
        sample.cached_before = cache.resident(path)
        judge(sample)
        result, sample.seconds, sample.cpu_s = timed(lambda: method.load(path))
        sample.gpu_bytes = device.peak() - base if device.is_cuda else None
        sample.cached_after = cache.resident(path)
        if method.name == "nebulaio":
            report = methods.last_report()
            sample.report = {key: report[key] for key in REPORT_KEYS if key in report}
        if reference is not None:
            sample.bits = reference.differs(result) or "equal"
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    result = None
    device.collect()
    return sample


def host_memory() -> dict[str, int]:
    """Return this process's resident bytes by kind, from /proc/self/status."""
    wanted = {"RssAnon": 0, "RssFile": 0, "RssShmem": 0, "VmHWM": 0, "VmPin": 0, "VmLck": 0}
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key in wanted:
                wanted[key] = int(value.split()[0]) << 10
    return wanted


class MemoryWatch:
    """Samples this process's memory every few milliseconds inside a `with` block."""

    def __init__(self, interval: float = 0.005) -> None:
        self.interval = interval
        self.before = host_memory()
        self.peak: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        try:  # a fresh high-water mark, where the kernel lets us
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pass
        self.before = host_memory()
        self._note(self.before)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._note(host_memory())

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self._note(host_memory())

    def _note(self, now: dict[str, int]) -> None:
        now = {**now, "private": now["RssAnon"] + now["RssShmem"]}
        self.peak = {key: max(value, self.peak.get(key, 0)) for key, value in now.items()}

    @property
    def growth(self) -> int:
        """Return the peak growth of memory since the start, without files and shared libraries."""
        return self.peak["private"] - self.before["RssAnon"] - self.before["RssShmem"]


def memory_pass(device: Device, method: methods.Method, path: Path) -> dict[str, Any]:
    """Load a warm file once, untimed, under the memory sampler; this also warms the method up."""
    cache.warm(path)
    device.collect()
    try:
        with MemoryWatch() as watch:
            kept = method.load(path)  # until the watch has looked once more
        del kept
    except Exception as problem:  # noqa: BLE001  recorded as the result
        return {"error": in_words(problem)}
    device.collect()
    return {"host_growth_bytes": watch.growth, "file_mapped_bytes": watch.peak["RssFile"] - watch.before["RssFile"]}
