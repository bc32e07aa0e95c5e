# SPDX-License-Identifier: Apache-2.0
"""What all rows share: options, the clock, the rounds and the form of a row.

Time on a GPU is short, so every row estimates its duration in advance. A round that would not end within the row's
limit or the budget is not started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from . import cache, ceilings, machine, methods, stfile
from .device import Device
from .measure import Sample, in_words, memory_pass
from .models import Library

ROW_LIMIT = 420.0  # seconds; every row ends well within 8 minutes

# GB/s to expect, for estimates alone: (cold, warm) on a GPU behind PCIe 5 x16 and on a small host.
_RATES = {
    "cuda": {"nebulaio": (3.8, 50), "safetensors": (1.9, 6.5), "safetensors_pread": (1.9, 5),
             "torch_mmap": (1.7, 5), "torch_gds": (3.4, 3.4), "ceiling_pinned": (55, 55), "ceiling_raw": (3.8, 3.8)},
    "host": {"nebulaio": (1.0, 2.5), "safetensors": (0.8, 1.5), "safetensors_pread": (0.8, 1.5),
             "torch_mmap": (0.8, 1.5), "torch_gds": (1.0, 1.0), "ceiling_pinned": (5, 5), "ceiling_raw": (1.0, 1.0)},
}

T = TypeVar("T")


class NoTime(Exception):
    """Too little time is left for the set-up and one round of a row."""


def rotated(items: Sequence[T], by: int) -> list[T]:
    """Return items in rotating order, so that no method always follows the same one."""
    if not items:
        return []
    at = by % len(items)
    return [*items[at:], *items[:at]]


class Clock:
    """The time left, for the whole run and for the current row."""

    def __init__(self, budget: float | None, row_limit: float = ROW_LIMIT,
                 now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.start = now()
        self.budget = budget
        self.row_limit = row_limit
        self.row_start = self.start

    def begin_row(self) -> None:
        """Start the time of the next row."""
        self.row_start = self.now()

    def left(self) -> float:
        """Return the seconds until the row must end."""
        row = self.row_limit - (self.now() - self.row_start)
        return row if self.budget is None else min(row, self.budget - (self.now() - self.start))

    def took(self) -> float:
        """Return the seconds since the row began."""
        return self.now() - self.row_start


@dataclass
class Row:
    """A row in progress; `as_dict` is the part for the results file."""

    name: str
    kind: str
    model: str = ""
    device: str = ""
    rounds_asked: int = 0
    rounds_done: int = 0
    stopped: str = ""
    estimate_s: float = 0.0
    took_s: float = 0.0
    files: dict[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    last_report: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        data = dict(self.__dict__)
        data["samples"] = [sample.as_dict() for sample in self.samples]
        return {"date": machine.now(), **data}


@dataclass
class Context:
    """The run: its device, methods, options and time."""

    device: Device
    library: Library
    clock: Clock
    rounds: int = 5
    wanted: Sequence[str] = methods.DEFAULT  # methods and ceilings
    models: Sequence[str] = ("0.6b", "7b")
    drop_everything: bool = True
    sweep_bytes: int = 2 << 30
    log: Callable[[str], None] = print
    route: str | None = None
    expected: float = 0.0  # seconds that a round of the row under way takes at least

    def has(self, method: str) -> bool:
        """Return whether a method or ceiling was selected."""
        return method in self.wanted

    def drop(self, path: Path) -> float:
        """Drop a file from the page cache."""
        return cache.drop(path, everything=self.drop_everything)

    def method(self, name: str, **options: Any) -> methods.Method:
        """Return a method for this device, with the run's own options."""
        if name == "nebulaio":
            options.setdefault("route", self.route)
        return methods.build(self.device, name, **options)

    def usable(self, row: Row, names: Sequence[str], **options: Any) -> list[methods.Method]:
        """Return the selected methods that can run; the row notes why others cannot."""
        found = []
        for name in names:
            if not self.has(name) or name in methods.CEILINGS:
                continue
            method = self.method(name, **(options if name == "nebulaio" else {}))
            if method.unavailable:
                row.skipped[name] = method.unavailable
            else:
                found.append(method)
        return found

    def warm_up(self, row: Row, loaders: Sequence[tuple[methods.Method, Path]]) -> list[methods.Method]:
        """Run every method once, untimed, on its file, and return those that work.

        Host memory is sampled here too. A method that raises is recorded in the row with its error, and is not tried
        again.
        """
        working = []
        for method, path in loaders:
            seen = memory_pass(self.device, method, path)
            row.memory.setdefault(method.name, seen)
            if "error" in seen:
                self.log(f"  {method.name}: {seen['error']}")
                row.samples.append(Sample(method.name, 0, 0, valid=False, error=seen["error"]))
            else:
                working.append(method)
        return working

    def describe(self, path: Path) -> dict[str, Any]:
        """Describe a model file in numbers."""
        header = stfile.read_header(path)
        return {"name": path.name, "bytes": header.size, "tensors": len(header.tensors)}

    def seconds(self, method: str, state: str, nbytes: float) -> float:
        """Estimate the seconds of one load; used only for estimates."""
        rates = _RATES["cuda" if self.device.is_cuda else "host"]
        return nbytes / 1e9 / rates[method][0 if state == "cold" else 1] + 0.05

    def begin(self, row: Row, rounds: int, per_round: float, setup: float) -> None:
        """Add a row's estimate and print it.

        Raises NoTime if clearly not even one round would fit. Estimates are rough, so a close case is tried.
        """
        row.rounds_asked = rounds
        row.device = self.device.name
        row.estimate_s = round(setup + rounds * per_round, 1)
        self.log(f"row {row.name}: estimate {row.estimate_s:.0f} s "
                 f"({rounds} rounds of {per_round:.1f} s, set-up {setup:.0f} s); "
                 f"at most {max(self.clock.left(), 0):.0f} s")
        self.expected = per_round / 2
        if self.clock.left() < (setup + per_round) / 2:
            raise NoTime(f"time: {max(self.clock.left(), 0):.0f} s were left, set-up and a round take "
                         f"{setup + per_round:.0f} s")

    def each_round(self, row: Row) -> Iterator[int]:
        """Yield round numbers while there is time; a round that would not fit is not started."""
        longest = self.expected
        for index in range(row.rounds_asked):
            if self.clock.left() <= longest * 1.05:
                row.stopped = f"time: {max(self.clock.left(), 0):.0f} s were left, a round takes {longest:.0f} s"
                self.log(f"row {row.name}: stopped after {index} of {row.rounds_asked} rounds ({row.stopped})")
                return
            start = self.clock.now()
            yield index
            longest = max(longest, self.clock.now() - start)
            row.rounds_done = index + 1

    def raw_ceiling(self, row: Row, path: Path) -> ceilings.RawCeiling | None:
        """Return the disk's ceiling for a file, if selected and possible; its sweep goes into the row."""
        if not self.has("ceiling_raw"):
            return None
        try:
            raw = ceilings.RawCeiling(path, sweep_bytes=self.sweep_bytes, drop=lambda: self.drop(path))
        except OSError as problem:  # a file system without O_DIRECT
            row.skipped["ceiling_raw"] = in_words(problem)
            return None
        row.facts["raw_sweep_gbps"] = {str(setting): round(rate, 3) for setting, rate in raw.sweep}
        self.log("  raw sweep GB/s: " + ", ".join(f"{s} {r:.2f}" for s, r in raw.sweep))
        return raw

    def show(self, sample: Sample) -> None:
        """Print one line about a run as it happens."""
        label = " ".join(filter(None, (sample.method, sample.variant, sample.state)))
        repeat = f" #{sample.repeat}" if sample.repeat > 1 else ""
        if sample.error or sample.seconds is None:
            self.log(f"  {sample.round + 1}: {label}{repeat}: {sample.error}")
            return
        tail = "" if sample.valid else f"  INVALID: {sample.note}"
        bits = f"  bits {sample.bits}" if sample.bits else ""
        self.log(f"  {sample.round + 1}: {label}{repeat}: {sample.seconds * 1e3:.1f} ms, "
                 f"{sample.gbps or 0:.2f} GB/s{bits}{tail}")
