# SPDX-License-Identifier: Apache-2.0
"""`profile`: what a training loop waits for, found by measuring its parts alone and together."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from ..errors import InvalidError
from . import _profile_clock as _clock
from ._profile_factory import Factory, cuda, settings_of
from ._profile_result import Profile, Variant
from ._profile_run import Feed, Measurement, measure, repeat
from ._profile_split import Split, hooked, one_thread, owner_of, split
from ._profile_text import duration
from ._profile_verdict import judge

_CALL = "profile"


def profile(
    loader_factory: Callable[..., Iterable[Any]],
    step: Callable[[Any], Any],
    *,
    copy: Callable[[Any], Any] | None = None,
    decode: str | Callable[..., Any] | None = None,
    workers: int | None = None,
    tolerated_idle: float = 0.1,
    seconds: float = 1.0,
    max_seconds: float = 60.0,
) -> Profile:
    """Measure a training loop and say what limits it: storage, processors, the copy or compute.

    `profile` measures the step alone on one kept batch, the copy alone, the loader alone and the whole
    loop. It does so as configured, with and without workers, and with a CUDA device also with and
    without pinned memory.

    Args:
        loader_factory: Function that returns a new iterable of batches, such as a torch DataLoader. It
            may take the keywords num_workers, prefetch_factor, pin_memory, persistent_workers and
            decode. If it takes none of them and returns a DataLoader, `profile` builds the DataLoader
            anew for other settings. Any other loader is only measured as it is.
        step: Function that is called with each batch on the device. On a device other than CUDA the
            step has to wait until its work is done.
        copy: Function that moves a batch to the device and returns it. Default: every torch tensor goes
            to the current CUDA device; without one, there is no copy. Copies and steps are timed by
            CUDA events if torch has a CUDA device, and by the clock elsewhere.
        decode: What decodes: the name of an attribute or method of the loader's data set or of the
            loader, such as "transform"; or a function, which goes to `loader_factory` as its keyword
            `decode`. Calls of this function count as decode. Without it, processor time of programs
            counts as decode, and other time as reading.
        workers: Number of workers of the measurement with workers, if the loader as configured has
            none. Default: the number of usable processors, at most 4.
        tolerated_idle: Share of the loop's time that the device may wait in a compute-bound loop.
        seconds: Duration of each measurement. A measurement has at least three rounds.
        max_seconds: Time after which no batch is asked for. The call can last longer by the batch and the
            step that run then, and by up to a second in which decode and read are told apart.

    Returns:
        A `Profile` with the verdict, in the words of `nebulaio diagnose`, a sentence with the figures behind it, and all figures.

    Raises:
        InvalidError: An argument is wrong, or the loader gives no batch.

    Exceptions of the loader, of `copy` and of `step` pass through. All workers have ended on return.
    """
    _check(step, copy, tolerated_idle, seconds, max_seconds)
    return _Session(Factory(loader_factory, _CALL), step, copy, decode, seconds, max_seconds).run(workers,
                                                                                                  tolerated_idle)


def _check(step: Any, copy: Any, tolerated_idle: float, seconds: float, max_seconds: float) -> None:
    """Refuse arguments that cannot be meant."""
    if not callable(step) or copy is not None and not callable(copy):
        raise InvalidError(f"{_CALL}: step and copy are functions of a batch; got {step!r} and {copy!r}")
    if not 0 < tolerated_idle < 1:
        raise InvalidError(f"{_CALL}: tolerated_idle={tolerated_idle!r}, expected a share between 0 and 1")
    if not 0 < seconds <= max_seconds:
        raise InvalidError(
            f"{_CALL}: seconds={seconds!r} and max_seconds={max_seconds!r}, expected 0 < seconds <= max_seconds")


class _Session:
    """The measurements of one call of `profile`, in a bounded time."""

    def __init__(
        self,
        factory: Factory,
        step: Callable[[Any], Any],
        copy: Callable[[Any], Any] | None,
        decode: str | Callable[..., Any] | None,
        seconds: float,
        max_seconds: float,
    ) -> None:
        self._factory, self._step, self._decode = factory, step, decode
        self._seconds = seconds
        self._deadline = perf_counter() + max_seconds
        self._device = cuda()
        self._copy = copy if copy is not None else _clock.to_cuda if self._device is not None else None
        self._own_copy = copy is not None
        self.notes: list[str] = []
        if self._copy is None:
            self.notes.append("no device copy: host (torch has no CUDA device here, and no copy= was given)")

    def run(self, workers: int | None, tolerated_idle: float) -> Profile:
        batch, configured = self._first()
        figures = self._parts(batch)
        variants, found = self._variants(configured, workers)
        loading = self._split(found["as configured"][0])
        said = judge(*found["as configured"], loading, tolerated_idle, variants, figures)
        first = variants[0]
        figures |= {
            "loader_alone": first.alone,
            "together": first.together,
            "wait": first.wait,
            "copy": first.copy,
            "step": first.step,
            "busy_share": first.busy,
            "samples_per_second": first.samples_per_second,
            "queued": found["as configured"][1].per_batch(lambda each: each.queued),
            "batch_samples": found["as configured"][1].samples,
            "batch_bytes": _clock.bytes_of(batch) or None,
            "in_process": loading.total,
            "decode": loading.decode,
            "read": loading.read,
            "decode_by": loading.by,
            "storage_bytes": loading.storage,
            "rounds_that_agree": said.agree,
            "timing": _clock.meter(None, None).timing,
        }
        if figures["queued"] > 0.05 * first.together:
            self.notes.append(
                f"this machine is loaded: for {duration(figures['queued'])} per batch the loop was ready to take a batch and had "
                "no processor, which counts as no one's fault"
            )
        if said.agree < 0.5:
            self.notes.append(
                f"only {said.agree * 100:.0f} % of the rounds gave the same verdict: measure longer (seconds=)")
        return Profile(said.verdict, said.sentence, _known(figures), tuple(variants), tuple(self.notes), said.advice)

    def _feed(self, settings: dict[str, Any], **more: Any) -> Feed:
        return Feed(lambda: self._factory.make(settings, **more), self._deadline, _CALL)

    def _first(self) -> tuple[Any, dict[str, Any]]:
        """Return one batch to keep, and the settings of the loader as configured."""
        if callable(self._decode) and not self._factory.takes_decode:
            fix = "let it take decode=, or pass the name of an attribute of the data set"
            raise InvalidError(f"{_CALL}: decode is a function, and loader_factory takes no decode (fix: {fix})")
        with self._feed({}) as feed:
            if isinstance(self._decode, str):
                owner_of(feed.loader, self._decode, _CALL)
            feed.begin()
            return feed.take(), settings_of(feed.loader)

    def _parts(self, batch: Any) -> dict[str, Any]:
        """Measure the step alone and the copy alone, on one kept batch."""
        moved = self._copy(batch) if self._copy is not None else batch
        alone = repeat(_clock.meter(None, self._step), moved, self._seconds, self._deadline)
        figures: dict[str, Any] = {"step_alone": statistics.median(step for _, step in alone), "copy_alone": None}
        if self._copy is None:
            return figures

        def timed(kept: Any) -> float:
            runs = repeat(_clock.meter(self._copy, None), kept, self._seconds, self._deadline)
            return statistics.median(copy for copy, _ in runs)

        figures["copy_alone"] = timed(batch)
        if self._device is not None:
            figures["copy_pinned"] = timed(_clock.pinned(batch))
            figures["copy_pageable"] = timed(_clock.pageable(batch))
        return figures

    def _variants(
        self, configured: dict[str, Any], workers: int | None
    ) -> tuple[list[Variant], dict[str, tuple[Measurement, Measurement]]]:
        """Measure the loader alone and the loop: as configured, with other workers, and with other memory."""
        wanted: dict[str, dict[str, Any]] = {"as configured": {}}
        if "num_workers" not in self._factory.names:
            self.notes.append(
                "workers were not varied: loader_factory takes no num_workers and returns no torch DataLoader")
        elif configured.get("num_workers"):
            wanted["num_workers=0"] = {"num_workers": 0}
        else:
            count = workers or min(4, len(os.sched_getaffinity(0)))
            wanted[f"num_workers={count}"] = {"num_workers": count}
        if self._device is None:
            self.notes.append("pinned memory was not varied: torch has no CUDA device here")
        elif "pin_memory" not in self._factory.names:
            self.notes.append("pinned memory was not varied: loader_factory takes no pin_memory")
        else:
            other = not configured.get("pin_memory")
            wanted[f"pin_memory={other}"] = {"pin_memory": other}
        variants: list[Variant] = []
        found: dict[str, tuple[Measurement, Measurement]] = {}
        for name, settings in wanted.items():
            if found and perf_counter() >= self._deadline:
                self.notes.append(f"{name} was not measured: max_seconds was over")
                continue
            with self._feed(settings) as feed:
                alone = measure(feed, None, self._seconds, self._deadline)
                shown = settings_of(feed.loader)
            with self._feed(settings) as feed:
                together = measure(feed, _clock.meter(self._copy, self._step), self._seconds, self._deadline)
            found[name] = (alone, together)
            variants.append(_variant(name, shown, alone, together))
        if math.isnan(variants[0].together):
            fix = "raise max_seconds, or use smaller batches"
            raise InvalidError(f"{_CALL}: the time was over before the loop gave a second batch (fix: {fix})")
        return variants, found

    def _split(self, configured: Measurement) -> Split:
        """Split the time of loading into decode and read: in this process, if the loader can run here, else in its workers."""
        if configured.lanes and "num_workers" not in self._factory.names:
            return split(configured, None)
        settings = {"num_workers": 0} if configured.lanes else {}
        deadline = max(self._deadline, perf_counter() + min(1.0, self._seconds))  # without it there is no verdict
        if self._decode is None:
            with one_thread(), self._feed(settings) as feed:
                return split(measure(feed, None, self._seconds, deadline), None)
        with hooked(self._factory, self._decode) as (make, hook):
            with one_thread(), Feed(lambda: make(settings), deadline, _CALL) as feed:
                alone = measure(feed, None, self._seconds, deadline, hook)
            if hook.calls == 0:
                fix = "name the function that the data set calls in this process"
                raise InvalidError(
                    f"{_CALL}: decode={self._decode!r} was not called while batches were loaded (fix: {fix})")
        return split(alone, hook)


def _variant(name: str, shown: dict[str, Any], alone: Measurement, together: Measurement) -> Variant:
    return Variant(
        name,
        shown,
        alone.per_batch(),
        alone.start,
        together.per_batch(),
        together.per_batch(lambda each: each.wait),
        together.per_batch(lambda each: each.copy),
        together.per_batch(lambda each: each.step),
        statistics.median(together.rates()) if together.rounds else math.nan,
        len(together.rounds),
    )


def _known(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures with None for those that are not a number."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
