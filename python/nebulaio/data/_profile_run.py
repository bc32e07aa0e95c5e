# SPDX-License-Identifier: Apache-2.0
"""Runs a loader for a bounded time, alone or together with copy and step, and times whole rounds of its workers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from ..errors import InvalidError, NebulaioError
from . import _profile_usage
from ._profile_clock import Meter, samples_of
from ._profile_factory import is_torch_loader, lanes_of, quiet

# Batches of a round at least. A round is a multiple of the number of workers, because their batches come in bursts.
_ROUND = 4
# Rounds that a measurement has at least, if its time allows.
_LEAST = 3
# Rounds that a measurement has at most: short ones are joined, because workers may be ahead in one and behind in the
# next.
_MOST = 5
# Seconds that a worker may take to end by itself before it is killed.
_LAST = 5.0


class StalledError(NebulaioError):
    """A worker gave no batch before the time was over."""


@dataclass(frozen=True)
class Round:
    """The sums of some consecutive batches."""

    batches: int
    seconds: float
    copy: float
    step: float
    queued: float = 0.0  # in which a batch was taken, and the thread was ready to run but had no processor

    @property
    def wait(self) -> float:
        """Seconds in which the device waited for the loader: it had neither a copy nor a step, and the loop a processor."""
        return max(0.0, self.seconds - self.copy - self.step - self.queued)


@dataclass
class Measurement:
    """What one run of a loader gave. Its rounds leave out the start of workers and the first batches."""

    lanes: int
    samples: int = 1  # in a batch
    start: float = 0.0  # seconds from iter() to the first batch
    whole_epochs: bool = False  # an epoch is too short for a round: each round is a whole epoch
    rounds: list[Round] = field(default_factory=list)
    partial: bool = False  # the time was over before the first round was
    used: _profile_usage.Usage = field(default_factory=_profile_usage.Usage)  # of this process and its workers
    window: float = 0.0  # seconds in which it was used

    @property
    def seconds(self) -> float:
        """Seconds of all rounds."""
        return sum(each.seconds for each in self.rounds)

    def per_batch(self, part: Callable[[Round], float] = lambda each: each.seconds) -> float:
        """Return the median over the rounds of the seconds per batch."""
        return statistics.median(part(each) / each.batches for each in self.rounds) if self.rounds else math.nan

    def rates(self) -> list[float]:
        """Return the samples per second of each round."""
        return [each.batches * self.samples / max(each.seconds, 1e-9) for each in self.rounds]


class Feed:
    """The batches of a loader, epoch after epoch. `close` ends its workers."""

    def __init__(self, make: Callable[[], Any], deadline: float, call: str) -> None:
        self._make, self._deadline, self._call = make, deadline, call
        self.loader = make()
        self._iterator: Iterator[Any] | None = None
        self._limited = False  # whether the timeout of the loader is ours
        self._batches = 0  # of the current epoch

    def begin(self) -> None:
        """Start an epoch."""
        used = self._iterator is not None
        if used and not getattr(self.loader, "persistent_workers", False):
            _shut_down(self._iterator)
        if used and self._iterator is self.loader:  # a generator gives its batches once
            self.loader = self._make()
        self._bound_waiting()
        with quiet():
            self._iterator, self._batches = iter(self.loader), 0

    def take(self) -> Any:
        """Return the next batch. Raises StopIteration at the end of an epoch."""
        assert self._iterator is not None
        try:
            batch = next(self._iterator)
        except StopIteration:
            if self._batches == 0:
                fix = "check its data set and drop_last, and let loader_factory make a new loader at each call"
                raise InvalidError(f"{self._call}: the loader gives no batch (fix: {fix})") from None
            raise
        except RuntimeError as cause:
            if "timed out after" in str(cause):
                raise StalledError(f"{self._call}: no batch in time: {cause}") from cause
            raise
        self._batches += 1
        return batch

    def _bound_waiting(self) -> None:
        """Let torch stop to wait for a worker when the time is over, unless the caller has set a limit."""
        if is_torch_loader(self.loader) and lanes_of(self.loader) and (self._limited or not self.loader.timeout):
            self._limited = True
            self.loader.timeout = max(0.1, self._deadline - perf_counter())

    def close(self) -> None:
        """End the workers of the loader."""
        _shut_down(self._iterator)
        kept = getattr(self.loader, "_iterator", None)
        if kept is not None and is_torch_loader(self.loader):
            _shut_down(kept)
            self.loader._iterator = None
        if self._limited:
            self.loader.timeout = 0
        self._iterator = None

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def _shut_down(iterator: Any) -> None:
    """End the workers of an iterator now, and wait until they have ended.

    Without it they would live until Python drops the iterator. Torch ends a worker by a signal if it does not end by
    itself, and before torch 2.13 it does not wait for that: its process would still be there on return.
    """
    for name in ("_shutdown_workers", "close"):
        end = getattr(iterator, name, None)
        if callable(end):
            end()
            break
    for worker in getattr(iterator, "_workers", ()):
        worker.join(_LAST)
        if worker.is_alive():  # its code ignores SIGTERM
            worker.kill()
            worker.join()


class _Log:
    """Arrival and part times of batches, from which rounds are cut."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self.ends: list[float] = []
        self._queued: list[float] = []

    def take(self, feed: Feed) -> None:
        """Take a batch, and run copy and step."""
        if self._meter is None:
            feed.take()
            self._queued.append(0.0)
        else:
            before = _profile_usage.queued()
            batch = feed.take()
            self._queued.append(_profile_usage.queued() - before)
            self._meter.run(batch)
        self.ends.append(perf_counter())

    def drop(self) -> None:
        """Forget the batches so far. The device goes on: a pause would change the first round."""
        if self._meter is not None:
            self._meter.forget()
        self.ends, self._queued = [], []

    def cut(self, begin: float, size: int) -> list[Round]:
        """Return the rounds of `size` batches since begin; batches that do not fill a round are left out."""
        parts = self._meter.finish() if self._meter is not None else [(0.0, 0.0)] * len(self.ends)
        rounds = []
        for last in range(size, len(self.ends) + 1, size):
            copies, steps = zip(*parts[last - size : last])
            queued = sum(self._queued[last - size : last])
            rounds.append(Round(size, self.ends[last - 1] - begin, sum(copies), sum(steps), queued))
            begin = self.ends[last - 1]
        self.ends, self._queued = [], []
        return rounds


def measure(
    feed: Feed, meter: Meter | None, seconds: float, deadline: float, hook: _profile_usage.Timed | None = None
) -> Measurement:
    """Run a loader and return its rounds.

    The first batches of each worker are left out, as many as workers load ahead: they contain the start of
    the workers, and batches that were ready before. The run ends after `seconds` and at least three rounds,
    and in any case with the first batch after `deadline`. Without a meter the loader runs alone.
    """
    started = perf_counter()
    feed.begin()
    log = _Log(meter)
    batch = feed.take()
    found = Measurement(lanes_of(feed.loader), _samples(feed.loader, batch), perf_counter() - started)
    if meter is not None:
        meter.run(batch)
        meter.forget()
    before, began = _profile_usage.now(hook), perf_counter()
    if not _inside_epochs(feed, log, found, seconds, deadline):
        found.whole_epochs = True
        _whole_epochs(feed, log, found, seconds, deadline)
    found.rounds = _joined(found.rounds)
    found.used, found.window = _profile_usage.now(hook).since(before), perf_counter() - began
    return found


def _inside_epochs(feed: Feed, log: _Log, found: Measurement, seconds: float, deadline: float) -> bool:
    """Cut rounds out of epochs, without the first batches. Return False if epochs are shorter than a round."""
    lanes = max(1, found.lanes)
    size = lanes * math.ceil(_ROUND / lanes)
    ahead = max(1, found.lanes * (getattr(feed.loader, "prefetch_factor", None) or 2))
    until = math.inf
    while True:
        count, ended, begin = 0, False, perf_counter()
        try:
            # Slow steps fill the queue again at once, so that they need not use it up.
            while len(log.ends) < ahead and (at := perf_counter()) < deadline and (len(log.ends) < lanes
                                                                                   or at < begin + seconds):
                log.take(feed)
            log.drop()
            begin = perf_counter()
            until = min(until, begin + seconds)
            while (at := perf_counter()) < deadline and (at < until or len(found.rounds) + count // size < _LEAST):
                log.take(feed)
                count += 1
        except StopIteration:
            ended = True
        if not ended and not found.rounds and 0 < count < size:
            size, found.partial = count, True  # better than no figure at all
        found.rounds += log.cut(begin, size)
        if not ended:
            return True
        if not found.rounds:
            return False
        feed.begin()


def _whole_epochs(feed: Feed, log: _Log, found: Measurement, seconds: float, deadline: float) -> None:
    """Measure epochs from iter() to their last batch. The first epoch, which has started workers, is left out."""
    until = perf_counter() + seconds
    while (at := perf_counter()) < deadline and (at < until or len(found.rounds) < _LEAST):
        feed.begin()
        over = False
        try:
            while not over:
                log.take(feed)
                over = perf_counter() >= deadline
        except StopIteration:
            over = False
        rounds = log.cut(at, len(log.ends))
        if not over or not found.rounds:  # part of an epoch is better than no figure at all
            found.rounds += rounds
            found.partial = over


def _joined(rounds: list[Round]) -> list[Round]:
    """Return at most five rounds, each the sum of about as many consecutive ones."""
    count = min(_MOST, len(rounds))
    joined = []
    for number in range(count):
        part = rounds[number * len(rounds) // count : (number + 1) * len(rounds) // count]
        joined.append(
            Round(
                sum(each.batches for each in part),
                sum(each.seconds for each in part),
                sum(each.copy for each in part),
                sum(each.step for each in part),
                sum(each.queued for each in part),
            )
        )
    return joined


def _samples(loader: Any, batch: Any) -> int:
    size = getattr(loader, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else samples_of(batch)


def repeat(meter: Meter, batch: Any, seconds: float, deadline: float) -> list[tuple[float, float]]:
    """Run copy and step on one batch again and again. Return the seconds of each run, without the first."""
    meter.run(batch)
    meter.finish()
    until = perf_counter() + seconds
    times: list[tuple[float, float]] = []
    while not times or perf_counter() < deadline and (perf_counter() < until or len(times) < _LEAST):
        meter.run(batch)
        times += meter.finish()
    return times
