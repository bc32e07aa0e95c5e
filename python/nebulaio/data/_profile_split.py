# SPDX-License-Identifier: Apache-2.0
"""Splits the time of loading into decode and read.

Processor time that programs spend counts as decode: parsing, decompression, transforms and collating. Time
in which nothing computes, and processor time of the kernel, counts as reading: waits for storage or the
network, and copies from the page cache. Time in which the thread was ready to run but had no processor
counts as neither, so that other programs of the machine do not change the split. A decode that sleeps or
waits is only seen if the caller names it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidError
from ._profile_factory import Factory
from ._profile_run import Measurement
from ._profile_usage import Timed


@dataclass(frozen=True)
class Split:
    """Decode and read of a batch, in seconds of the process that loads it."""

    total: float
    decode: float
    read: float
    by: str  # how they were told apart
    storage: int | None  # bytes that a batch fetched from storage; None if the kernel does not say

    @property
    def decodes(self) -> bool:
        """Whether decode takes at least half of the time."""
        return self.decode >= self.read


def split(alone: Measurement, hook: Timed | None) -> Split:
    """Split the time of a loader that was measured alone, in this process or in its workers."""
    total = alone.per_batch() * max(1, alone.lanes)
    if math.isnan(total):
        return Split(total, math.nan, math.nan, "not measured", None)
    used, window = alone.used, alone.window * max(1, alone.lanes)
    ours = max(window - (used.queued if alone.lanes == 0 else 0.0), 1e-9)
    computed = max(0.0, used.user - used.hook_processor) + used.hook if hook is not None else used.user
    decode = total * min(1.0, computed / ours)
    by = "time inside decode=, and processor time elsewhere" if hook is not None else "processor time"
    batches = max(1.0, alone.window / max(alone.per_batch(), 1e-9))
    return Split(total, decode, total - decode, by, round(used.storage / batches) if used.storage >= 0 else None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, as in a worker. Idle threads of torch spin, which looks like decoding."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_num_threads"):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def hooked(
    factory: Factory, decode: str | Callable[..., Any]
) -> Iterator[tuple[Callable[[dict[str, Any]], Any], Timed]]:
    """Yield a function that makes loaders whose decode is timed, and the timer. Attributes are restored at the end."""
    if callable(decode):
        timer = Timed(decode)
        yield lambda settings: factory.make(settings, decode=timer), timer
        return
    timer = Timed(_nothing)
    changed: list[tuple[Any, bool, Any]] = []

    def make(settings: dict[str, Any]) -> Any:
        loader = factory.make(settings)
        owner = owner_of(loader, decode, "profile")
        function = getattr(owner, decode)
        if function is not timer:
            own = decode in getattr(owner, "__dict__", {})
            timer.use(function)
            setattr(owner, decode, timer)
            changed.append((owner, own, function))
        return loader

    try:
        yield make, timer
    finally:
        for owner, own, function in reversed(changed):
            if own:
                setattr(owner, decode, function)
            else:
                delattr(owner, decode)


def owner_of(loader: Any, decode: str, call: str) -> Any:
    """Return the data set or the loader: the one that has a function of this name, which can be replaced."""
    for owner in (getattr(loader, "dataset", None), loader):
        if owner is not None and hasattr(owner, "__dict__") and callable(getattr(owner, decode, None)):
            return owner
    fix = "name a method or attribute that the data set or the loader has"
    raise InvalidError(f"{call}: neither data set nor loader has a function {decode!r} (fix: {fix})")


def _nothing() -> None:
    """Stand for the decode function until the first loader is made."""
