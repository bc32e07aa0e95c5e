# SPDX-License-Identifier: Apache-2.0
"""`autotune`: the smallest settings of a loader that give nearly its best rate, in a bounded time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from ..errors import InvalidError
from ._autotune_result import Candidate, Tuning
from ._autotune_search import OutOfTimeError, Search, smallest
from ._profile_factory import SETTINGS, Factory, cuda
from ._profile_text import duration, number

_CALL = "autotune"
# Share of the best rate from which a candidate is measured again.
_CLOSE = 0.75
# How often such candidates are measured: on a quiet machine, and on one whose rounds differ.
_RUNS, _RUNS_IN_NOISE = 2, 3


def autotune(
    loader_factory: Callable[..., Iterable[Any]],
    step: Callable[[Any], Any] | None = None,
    *,
    copy: Callable[[Any], Any] | None = None,
    seconds: float | None = None,
    max_seconds: float = 60.0,
    max_workers: int | None = None,
    prefetch_factors: Sequence[int] = (2, 4),
    tolerance: float = 0.05,
    before: Callable[[], Any] | None = None,
    progress: Callable[[str], Any] | None = None,
) -> Tuning:
    """Find the smallest num_workers, prefetch_factor, pin_memory and persistent_workers that are nearly the best.

    `autotune` doubles num_workers until more workers do not help, and then narrows the number down. It
    measures the finalists again with fresh workers. A setting is chosen only if a smaller one is slower by
    more than the noise. The start of workers and the batches that they load ahead are not part of a rate.

    Args:
        loader_factory: Function that returns a new loader. It takes some of the keywords num_workers,
            prefetch_factor, pin_memory and persistent_workers, or takes none of them and returns a torch
            DataLoader.
        step: Function that is called with each batch. With a step, settings are judged by the rate of
            the whole loop, so that no workers are added beyond what the step uses up.
        copy: Function that moves a batch to the device, as in `profile`.
        seconds: Duration of each measurement. A measurement has at least three rounds. Default: a 24th of
            max_seconds, at most 1.
        max_seconds: Duration of the search. No batch is asked for afterwards: the call can last longer
            only by the batch, the step and the end of the workers that run then.
        max_workers: Largest number of workers to try. Default: twice the number of usable processors, at
            least 8 and at most 64.
        prefetch_factors: Values of prefetch_factor to try. The first one is used while workers are counted.
        tolerance: Difference of two rates, as a share, that is not worth a larger setting. If the noise
            of one of both rates is larger, the noise counts, up to 0.15.
        before: Function that is called before each measurement, for example to drop the data from the
            page cache. Its time counts as part of the search.
        progress: Function that is called with a line of text after each measurement.

    Returns:
        A `Tuning` with the settings, a reason for each, and all candidates with their rates.

    Raises:
        InvalidError: An argument is wrong, the loader has no setting to tune, or the time was over before
            the first rate was measured.

    Exceptions of the loader, of `copy` and of `step` pass through. All workers have ended on return.
    """
    begin = perf_counter()
    if not max_seconds > 0:
        raise InvalidError(f"{_CALL}: max_seconds={max_seconds!r}, expected a positive number")
    seconds = min(1.0, max_seconds / 24) if seconds is None else seconds
    if not 0 < seconds <= max_seconds:
        raise InvalidError(
            f"{_CALL}: seconds={seconds!r}, expected a positive number up to max_seconds={max_seconds!r}")
    if not 0 < tolerance < 1:
        raise InvalidError(f"{_CALL}: tolerance={tolerance!r}, expected a share between 0 and 1")
    if not prefetch_factors or not all(isinstance(each, int) and each > 0 for each in prefetch_factors):
        raise InvalidError(f"{_CALL}: prefetch_factors={prefetch_factors!r}, expected positive integers")
    cores = len(os.sched_getaffinity(0))
    if max_workers is None:
        max_workers = min(64, max(8, 2 * cores))
    elif max_workers < 0:
        raise InvalidError(f"{_CALL}: max_workers={max_workers!r}, expected 0 or more")
    factory = Factory(loader_factory, _CALL)
    if not factory.names:
        fix = f"let it take some of {', '.join(SETTINGS)}, or return a torch DataLoader"
        raise InvalidError(f"{_CALL}: loader_factory has no setting to tune (fix: {fix})")
    search = Search(factory, step, copy, begin + max_seconds, seconds, tolerance, before, progress)
    return _Choice(search, factory, tuple(dict.fromkeys(prefetch_factors)), max_workers).run(begin, max_seconds)


class _Choice:
    """Chooses one setting after the other, each with the earlier ones fixed."""

    def __init__(self, search: Search, factory: Factory, prefetch_factors: tuple[int, ...], max_workers: int) -> None:
        self._search, self._names = search, factory.names
        self._prefetch_factors, self._max_workers = prefetch_factors, max_workers
        self._settings: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}
        self._notes = [f"{name} was not varied: loader_factory does not take it" for name in SETTINGS
                       if name not in self._names]

    def run(self, begin: float, max_seconds: float) -> Tuning:
        complete = True
        try:
            self._workers()
            self._prefetch()
            self._pinning()
            self._persistence()
        except OutOfTimeError as over:
            complete = False
            self._notes.append(str(over))
            self._finish_workers()
            for name in self._settings.keys() - self._reasons.keys():
                self._reasons[name] = "the time was over before it was compared with another value."
        best = self._search.best()
        if best is None:
            raise InvalidError(
                f"{_CALL}: no rate was measured in max_seconds={max_seconds!r} (fix: raise it, or use smaller batches)"
            )
        chosen = self._search.tried.get(self._search.key(self._settings)) or best
        shown = ", ".join(f"{name}={value}" for name, value in self._settings.items())
        sentence = f"{shown}: {number(chosen.rate)} samples/s, and the best of {len(self._search.tried)} tried settings gave {number(best.rate)}."
        self._notes += self._search.notes()
        tried = tuple(self._search.tried.values())
        return Tuning(
            self._settings, sentence, self._reasons, tried, perf_counter() - begin, max_seconds, complete,
            tuple(self._notes)
        )

    def _with(self, workers: int) -> dict[str, Any]:
        """Return the settings of a number of workers, as far as the loader takes them."""
        wanted: dict[str, Any] = {"num_workers": workers}
        if workers:
            wanted |= {"prefetch_factor": self._prefetch_factors[0], "persistent_workers": True}
        return {name: value for name, value in wanted.items() if name in self._names}

    def _workers(self) -> None:
        """Double the number of workers until it does not help, narrow it down, and measure the finalists again."""
        search = self._search
        if "num_workers" not in self._names:
            search.try_(self._settings)
            return
        counts = [0, 1]
        while counts[-1] * 2 <= self._max_workers:
            counts.append(counts[-1] * 2)
        if counts[-1] < self._max_workers:
            counts.append(self._max_workers)
        counts = [count for count in counts if count <= self._max_workers]
        fastest = 0.0
        for count in counts:
            found = search.try_(self._with(count))
            if count >= 2 and found.rate <= fastest * (1 + search.tolerance):
                found = search.try_(self._with(count), again=True)  # one bad measurement does not end the search
                if found.rate <= fastest * (1 + search.tolerance):
                    break
            fastest = max(fastest, found.rate)
        self._narrow()
        # Fresh workers may be luckier or not, so that all that come close are measured again.
        while close := self._close():
            for count in close:
                search.try_(self._with(count), again=True)
            self._narrow()

    def _close(self) -> list[int]:
        """Return the numbers of workers that might be the smallest nearly best one, and were not measured often enough."""
        rates = self._rates()
        if not rates:  # no candidate gave a batch in time
            return []
        top = rates[self._fastest()]
        runs = _RUNS if top.noise <= self._search.tolerance else _RUNS_IN_NOISE
        close = [count for count, each in rates.items() if each.rate >= _CLOSE * top.rate]
        return [count for count in close if count <= self._fastest() and len(rates[count].rates) < runs]

    def _narrow(self) -> None:
        """Measure numbers between the largest that is too slow and the smallest that is nearly the best."""
        while True:
            high = self._finish_workers()
            low = max((count for count in self._rates() if count < high), default=high)
            if high - low < 2:
                return
            self._search.try_(self._with((low + high) // 2))

    def _rates(self) -> dict[int, Candidate]:
        """Return the measured candidates by number of workers, in ascending order."""
        found = {
            each.settings["num_workers"]: each
            for each in self._search.tried.values()
            if each.rates and each.settings == self._with(each.settings.get("num_workers", 0))
        }
        return dict(sorted(found.items()))

    def _fastest(self) -> int:
        rates = self._rates()
        return max(rates, key=lambda count: rates[count].rate)

    def _finish_workers(self) -> int:
        """Choose the smallest number of workers that is nearly the best, and say why."""
        rates = self._rates() if "num_workers" in self._names else {}
        if not rates:
            return 0
        chosen, limit = smallest(list(rates.values()), self._search.tolerance)
        count = int(chosen.settings["num_workers"])
        top = rates[self._fastest()]
        slower = [each for number_, each in rates.items() if number_ < count]
        more = [number_ for number_ in rates if number_ > count]
        reason = f"{number(chosen.rate)} samples/s"
        if slower:
            below = slower[-1]
            reason += f"; {below.settings['num_workers']} gives {number(below.rate)}, {(1 - below.rate / top.rate) * 100:.0f} % less than the best"
        if more:
            most = max(rates[each].rate for each in more)
            gain = f", which is within {limit * 100:.0f} %" if most > chosen.rate else ""
            reason += f"; more ({', '.join(map(str, more))}) give at most {number(most)}{gain}"
        elif count and count == self._max_workers:
            reason += f"; more than {count} were not tried (max_workers)"
        self._settings.update(self._with(count))
        if not count:
            self._settings = {name: value for name, value in self._settings.items() if name == "num_workers"}
        self._reasons["num_workers"] = reason + "."
        return count

    def _prefetch(self) -> None:
        """Try deeper queues with the chosen number of workers."""
        if "prefetch_factor" not in self._names or not self._settings.get("num_workers"):
            return
        first = self._prefetch_factors[0]
        self._reasons["prefetch_factor"] = f"{first} was used while workers were counted; no other value was tried."
        if len(self._prefetch_factors) > 1:
            rates, limit = self._compare("prefetch_factor", sorted(self._prefetch_factors))
            self._reasons[
                "prefetch_factor"] = f"{rates} samples/s; this is the smallest within {limit * 100:.0f} % of the best."

    def _pinning(self) -> None:
        """Compare pinned with ordinary memory, where there is a device to copy to."""
        if "pin_memory" not in self._names:
            return
        if cuda() is None:
            self._reasons["pin_memory"] = "torch has no CUDA device here, so pinning changes nothing."
            self._settings["pin_memory"] = False
            return
        rates, limit = self._compare("pin_memory", (False, True))
        self._reasons[
            "pin_memory"] = f"{rates} samples/s; True is chosen only if it is faster by more than {limit * 100:.0f} %."

    def _compare(self, name: str, values: Sequence[Any]) -> tuple[str, float]:
        """Choose the first value that is nearly the best. Another than the first has to be better twice."""
        search = self._search
        wanted = [{**self._settings, name: value} for value in values]
        tried = [search.try_(settings) for settings in wanted]
        chosen, limit = smallest(tried, search.tolerance)
        if chosen is not tried[0]:
            tried = [search.try_(settings, again=True) for settings in wanted]
            chosen, limit = smallest(tried, search.tolerance)
        value = values[tried.index(chosen)]
        self._settings[name] = value
        return ", ".join(f"{each} gives {number(found.rate)}" for each, found in zip(values, tried)), limit

    def _persistence(self) -> None:
        """Say what workers that stay between epochs save."""
        if "persistent_workers" not in self._names or not self._settings.get("num_workers"):
            return
        kept = self._search.try_(self._settings)
        start = max(0.0, kept.start - kept.batch_seconds * self._settings["num_workers"])
        self._reasons["persistent_workers"] = (
            f"a start of the workers costs about {duration(start)} of each epoch (first batch after {duration(kept.start)})."
        )
        if not self._search.whole_epochs:
            return
        fresh = self._search.try_({**self._settings, "persistent_workers": False})
        chosen, limit = smallest([fresh, kept], self._search.tolerance)
        self._settings["persistent_workers"] = chosen.settings["persistent_workers"]
        self._reasons["persistent_workers"] = (
            f"whole epochs give {number(kept.rate)} samples/s with workers that stay and {number(fresh.rate)} with new ones."
        )
