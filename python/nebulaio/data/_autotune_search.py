# SPDX-License-Identifier: Apache-2.0
"""Measures candidates of `autotune` one after the other, within the time of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from ..errors import NebulaioError
from . import _profile_clock as _clock
from ._autotune_result import Candidate
from ._profile_factory import Factory, cuda
from ._profile_run import Feed, StalledError, measure
from ._profile_text import number, size

# The noise of a candidate counts up to this share. More would hide the gain of a sixth worker.
_MOST_NOISE = 0.15


class OutOfTimeError(NebulaioError):
    """The time of the search is over, or does not suffice for another candidate."""


def smallest(tried: Sequence[Candidate], tolerance: float) -> tuple[Candidate, float]:
    """Return the first candidate that is nearly the best, and the share that counts as nearly.

    Two rates that differ by less than the noise of one of them are equal, as far as one can tell.
    """
    best = max(tried, key=lambda each: each.rate)
    for each in tried:
        limit = max(tolerance, min(max(best.noise, each.noise), _MOST_NOISE))
        if each.rate >= best.rate * (1 - limit):
            return each, limit
    return best, tolerance


class Search:
    """The tried candidates, and the time that is left."""

    def __init__(
        self,
        factory: Factory,
        step: Callable[[Any], Any] | None,
        copy: Callable[[Any], Any] | None,
        deadline: float,
        seconds: float,
        tolerance: float,
        before: Callable[[], Any] | None,
        progress: Callable[[str], Any] | None,
    ) -> None:
        self._factory, self._deadline = factory, deadline
        self._step = step
        self._copy = copy if copy is not None else _clock.to_cuda if cuda() is not None else None
        self._seconds = seconds
        self._before, self._progress = before, progress
        self.tolerance = tolerance
        self.whole_epochs = False
        self.tried: dict[tuple[tuple[str, Any], ...], Candidate] = {}
        self._costs: list[float] = []
        self._closing = 0.0  # seconds that the workers of a candidate took to end, at most

    @staticmethod
    def key(settings: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
        """Return settings as a key of `tried`. Ordinary memory is the default of pin_memory."""
        return tuple(sorted(item for item in settings.items() if item != ("pin_memory", False)))

    def best(self) -> Candidate | None:
        """Return the fastest candidate, or None if none has a rate."""
        rated = [each for each in self.tried.values() if each.rates]
        return max(rated, key=lambda each: each.rate, default=None)

    def try_(self, settings: dict[str, Any], again: bool = False) -> Candidate:
        """Return the candidate with these settings; measure it if it is new, or again.

        Raises OutOfTimeError if the time left is shorter than what the last measurement took.
        """
        found = self.tried.get(self.key(settings))
        if found is not None and not again:
            return found
        left = self._deadline - perf_counter() - self._closing
        likely = max(self._costs[-2:], default=0.0)
        if left <= likely or left <= 0:
            raise OutOfTimeError(
                f"the search ended early: {left:.1f} s were left, and a measurement takes about {likely:.1f} s")
        if found is None:
            found = self.tried[self.key(settings)] = Candidate(dict(settings))
        begin = perf_counter()
        try:
            self._measure(found)
        finally:
            found.seconds += perf_counter() - begin
            self._costs.append(perf_counter() - begin)
        if self._progress is not None:
            self._progress(f"{found.name}: {number(found.rate)} samples/s")
        return found

    def _measure(self, candidate: Candidate) -> None:
        if self._before is not None:
            self._before()
        meter = _clock.meter(self._copy, self._step) if self._step is not None or self._copy is not None else None
        deadline = self._deadline - self._closing  # workers end within the time, too
        with Feed(lambda: self._factory.make(candidate.settings), deadline, "autotune") as feed:
            try:
                run = measure(feed, meter, self._seconds, deadline)
            except StalledError as stalled:
                candidate.remark = str(stalled)
                return
            ended = perf_counter()
        self._closing = max(self._closing, perf_counter() - ended)
        candidate.start = run.start
        if run.rounds:
            candidate.batch_seconds = run.per_batch()
        candidate.storage_bytes = run.used.storage if run.used.storage >= 0 else None
        self.whole_epochs = self.whole_epochs or run.whole_epochs
        if not run.rounds or run.partial and run.lanes:  # batches of workers come in bursts: part of a round misleads
            candidate.remark = "the time was over before a round was"
            return
        candidate.rates.append(run.samples * sum(each.batches for each in run.rounds) / max(run.seconds, 1e-9))
        candidate.rounds += run.rates()

    def notes(self) -> list[str]:
        """Return what makes the figures doubtful."""
        found = []
        if self.whole_epochs:
            found.append("an epoch is shorter than a round of the workers, so each round is a whole epoch")
        read = [each.storage_bytes for each in self.tried.values() if each.storage_bytes is not None]
        if read and max(read) > 1 << 20 and min(read) * 10 < max(read):
            found.append(
                f"some candidates read up to {size(max(read))} from storage and others {size(min(read))}: the page cache "
                "helped later ones (fix: pass before= to drop the data from the page cache, or use a data set larger than memory)"
            )
        return found
