# SPDX-License-Identifier: Apache-2.0
"""`nebulaio.data.profile` and `autotune` of torch DataLoaders with real workers.

The parts of the loops sleep or compute for a known time, and the slow part takes many times as long as the
others. So the right answer is known by construction, also on a loaded machine.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import pytest
from nebulaio.data import autotune, profile
from nebulaio.errors import InvalidError

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests of this file use no GPU, and leave no worker behind."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    yield
    assert multiprocessing.active_children() == []


def cases() -> list[Any]:
    names = {"cpu-bound": 2, "storage-bound": 1, "copy-bound": 1, "compute-bound": 1}
    return [pytest.param(name, number, id=f"{name}-{number}") for name, count in names.items()
            for number in range(count)]


@pytest.mark.parametrize(("verdict", "number"), cases())
def test_the_slow_part_is_found(verdict: str, number: int) -> None:
    from data_loops import LOOPS, pause

    make, copy, step, more = LOOPS[verdict][number]
    found = profile(make(), pause(step), copy=pause(copy), seconds=0.1, **more)
    assert found.verdict == verdict, str(found)
    assert len(found.variants) == 2, "with and without workers"
    assert sorted(bool(each.settings["num_workers"]) for each in found.variants) == [False, True]
    assert any("pinned memory was not varied" in note for note in found.notes)
    json.loads(found.to_json())


def test_a_dataloader_is_built_anew_for_other_settings() -> None:
    from data_loops import Samples, pause
    from torch.utils.data import DataLoader

    class Taught(DataLoader):  # type: ignore[type-arg]
        """A class of the caller's own stays."""

    samples = Samples(read=0.01)
    loader = Taught(samples, batch_size=2, shuffle=True, num_workers=1, drop_last=True)
    found = profile(lambda: loader, pause(0.001), seconds=0.05)
    assert [each.name for each in found.variants] == ["as configured", "num_workers=0"]
    assert found.verdict == "storage-bound"
    assert (loader.timeout, loader.num_workers, loader._iterator) == (0, 1, None), "the caller's loader is as it was"
    assert found.figures["batch_samples"] == 2


def test_iterable_datasets_and_no_batches() -> None:
    from data_loops import pause
    from torch.utils.data import DataLoader, IterableDataset

    class Numbers(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(64))

    for size in (4, None):  # a long step, beside which the pauses of a busy machine are short
        found = profile(lambda: DataLoader(Numbers(), batch_size=size), pause(0.05), workers=1, seconds=0.25)
        assert found.verdict == "compute-bound", str(found)
        assert found.variants[1].name == "num_workers=1"


def test_errors_of_workers_pass_through() -> None:
    from data_loops import maker, pause

    class Broken(list[int]):
        def __getitem__(self, number: Any) -> Any:
            raise LookupError("sample 7 is damaged")

    with pytest.raises(LookupError, match="sample 7 is damaged"):
        profile(maker(Broken([1, 2, 3, 4]), workers=1), pause(0))
    with pytest.raises(LookupError, match="sample 7 is damaged"):
        autotune(maker(Broken([1, 2, 3, 4])), max_seconds=5)


def test_autotune_finds_the_workers_that_decode_best() -> None:
    """Three workers give the best rate. Two give 67 % of it, four 75 %, one 33 % and five 60 %."""
    from data_loops import Samples, maker

    make = maker(Samples(decode=0.08, useful=3), batch_size=1)
    found = autotune(make, seconds=0.3, max_seconds=90, max_workers=6, prefetch_factors=[2])
    assert abs(found.settings["num_workers"] - 3) <= 1, str(found)
    assert found.settings["persistent_workers"] is True and found.settings["pin_memory"] is False
    assert set(found.reasons) == set(found.settings)
    json.loads(found.to_json())


def test_autotune_finds_the_workers_that_feed_a_step() -> None:
    """A batch takes 80 ms and a step 40 ms: two workers feed the step, one gives half of that, and four give half, too."""
    from data_loops import Samples, maker, pause

    make = maker(Samples(decode=0.08, useful=2), batch_size=1)
    found = autotune(make, pause(0.04), seconds=0.3, max_seconds=90, max_workers=6)
    assert abs(found.settings["num_workers"] - 2) <= 1, str(found)
    best = max(found.tried, key=lambda each: each.rate)
    assert found.settings["num_workers"] <= best.settings["num_workers"]


def test_autotune_without_gain_advises_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow step hides the loader, so workers help nothing.

    The clock counts the processor time of the loop and 50 ms for each step. A pause of the whole machine in one
    measurement would look like a gain of the others.
    """
    from data_loops import Samples, maker

    stepped = [0.0]

    def step(batch: Any) -> Any:
        stepped[0] += 0.05
        return batch

    for module in ("_profile_run", "_profile_clock", "_autotune", "_autotune_search"):
        monkeypatch.setattr(f"nebulaio.data.{module}.perf_counter", lambda: time.thread_time() + stepped[0])
    found = autotune(maker(Samples()), step, seconds=0.3, max_seconds=60, max_workers=4)
    assert found.settings["num_workers"] == 0, str(found)
    assert "prefetch_factor" not in found.settings and "persistent_workers" not in found.settings


def test_short_epochs_are_measured_whole() -> None:
    """An epoch of two batches has no round of four: epochs are timed from their start to their end."""
    from data_loops import Samples, maker

    found = autotune(maker(Samples(decode=0.01, length=4)), seconds=0.3, max_seconds=30, max_workers=1)
    assert any("each round is a whole epoch" in note for note in found.notes)
    # Rates of whole epochs cannot be faster than the samples of one process, or of both batches at once.
    assert all(each.rate <= 110 * 2 for each in found.tried), str(found)


def test_autotune_stops_waiting_for_a_worker_that_hangs() -> None:
    from data_loops import Samples, maker

    begin = time.perf_counter()
    with pytest.raises(InvalidError, match="no rate was measured"):
        autotune(lambda num_workers=1: maker(Samples(read=3))(num_workers=1), max_seconds=1, max_workers=1)
    assert time.perf_counter() - begin < 60
