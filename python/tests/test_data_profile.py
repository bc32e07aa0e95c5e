# SPDX-License-Identifier: Apache-2.0
"""`nebulaio.data.profile` and `autotune` of plain iterables, which need no torch."""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import nebulaio.data
import pytest
from nebulaio.data import _profile_clock, _profile_run, autotune, profile
from nebulaio.data._autotune_result import Candidate
from nebulaio.data._autotune_search import smallest
from nebulaio.data._profile_result import Variant
from nebulaio.data._profile_run import Measurement, Round
from nebulaio.data._profile_split import Split
from nebulaio.data._profile_verdict import judge
from nebulaio.errors import InvalidError
from support import python


class Source:
    """An iterable of batches whose read and decode take a known time."""

    def __init__(self, read: float = 0.0, decode: Callable[[int], Any] | None = None, batches: int = 1000) -> None:
        self._read, self._batches = read, batches
        if decode is not None:
            self.decode = decode

    def decode(self, number: int) -> Any:
        return [number] * 4

    def __iter__(self) -> Iterator[Any]:
        for number in range(self._batches):
            if self._read:
                time.sleep(self._read)
            yield self.decode(number)


def compute(seconds: float) -> None:
    """Keep a processor busy for some seconds of its own time, however loaded the machine is."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(500))


def decode_slowly(number: int) -> list[int]:
    compute(0.01)
    return [number] * 4


def pause(seconds: float) -> Callable[[Any], Any]:
    def wait(batch: Any) -> Any:
        if seconds:
            time.sleep(seconds)
        return batch

    return wait


# Each slow part takes at least 20 times as long as the other parts.
LOOPS = {
    "cpu-bound": ({"decode": decode_slowly}, 0.0, 0.0),
    "storage-bound": ({"read": 0.02}, 0.0, 0.0),
    "copy-bound": ({}, 0.02, 0.0),
    "compute-bound": ({}, 0.0, 0.02),
}


@pytest.mark.parametrize("verdict", LOOPS)
def test_the_slow_part_is_found(verdict: str) -> None:
    source, copy, step = LOOPS[verdict]
    found = profile(lambda: Source(**source), pause(step), copy=pause(copy), seconds=0.05)
    assert found.verdict == verdict, str(found)
    assert found.sentence.startswith(verdict + ": of ") and found.sentence.endswith(".")
    assert found.sentence in str(found)
    assert json.loads(found.to_json())["figures"]["together"] > 0
    figures = found.figures
    parts = figures["wait"] + figures["copy"] + figures["step"]
    assert parts <= figures["together"] * 1.5
    assert figures["timing"] == "clock"
    assert any("workers were not varied" in note for note in found.notes)


def test_a_decode_that_sleeps_is_found_by_its_name() -> None:
    source = Source(decode=pause(0.02))
    assert profile(lambda: source, pause(0), seconds=0.05).verdict == "storage-bound"
    found = profile(lambda: source, pause(0), decode="decode", seconds=0.05)
    assert found.verdict == "cpu-bound"
    assert "decode=" in found.figures["decode_by"]
    assert not hasattr(source.decode, "seconds"), "the source has its own function back"


def test_a_decode_that_sleeps_is_found_as_an_argument() -> None:
    found = profile(lambda decode=None: Source(decode=decode), pause(0), decode=pause(0.02), seconds=0.05)
    assert found.verdict == "cpu-bound"
    # The same time outside of the named function is not decode.
    slow = profile(lambda decode=None: Source(0.02, decode), pause(0), decode=pause(0), seconds=0.05)
    assert slow.verdict == "storage-bound"


def test_without_a_copy_the_result_says_so() -> None:
    found = profile(lambda: Source(), pause(0.01), seconds=0.02)
    assert found.figures["copy_alone"] is None
    assert any(note.startswith("no device copy: host") for note in found.notes)


def test_generators_are_made_anew() -> None:
    found = profile(lambda: (n for n in range(3)), pause(0.005), seconds=0.02)
    assert found.verdict == "compute-bound"


def test_errors_of_the_loop_pass_through() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError("sample 7 is damaged")

    with pytest.raises(LookupError, match="sample 7"):
        profile(broken, pause(0))

    def fail(batch: Any) -> None:
        raise ArithmeticError("loss is NaN")

    with pytest.raises(ArithmeticError, match="loss"):
        profile(lambda: Source(), fail)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: profile([1, 2], pause(0)), "expected a function"),
        (lambda: profile(lambda: 5, pause(0)), "returned int, expected an iterable"),
        (lambda: profile(list, pause(0)), "gives no batch"),
        (lambda: profile(lambda folder: [folder], pause(0)), "requires folder"),
        (lambda: profile(lambda: [1], "step"), "step and copy are functions"),
        (lambda: profile(lambda: [1], pause(0), tolerated_idle=2), "tolerated_idle=2"),
        (lambda: profile(lambda: [1], pause(0), seconds=5, max_seconds=1), "max_seconds=1"),
        (lambda: profile(lambda: [1] * 9, pause(0), decode="missing", seconds=0.01), "has a function 'missing'"),
        (lambda: profile(lambda: [1] * 9, pause(0), decode="index", seconds=0.01), "'index'"),
        (lambda: profile(lambda: [1] * 9, pause(0), decode=pause(0), seconds=0.01), "takes no decode"),
        (lambda: autotune(lambda: [1]), "no setting to tune"),
        (lambda: autotune(lambda num_workers: [1], max_seconds=0), "max_seconds=0"),
        (lambda: autotune(lambda num_workers: [1], seconds=0), "seconds=0"),
        (lambda: autotune(lambda num_workers: [1], tolerance=1), "tolerance=1"),
        (lambda: autotune(lambda num_workers: [1], max_workers=-1), "max_workers=-1"),
        (lambda: autotune(lambda num_workers: [1], prefetch_factors=[0]), r"prefetch_factors=\[0\]"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        call()


def verdict_of(alone: Measurement, together: Measurement, loading: Split) -> str:
    """What the library says about a loop with these rounds."""
    variant = Variant("as configured", {}, 1.0, 0.0, 1.0, 0.5, 0.0, 0.5, 1.0, len(together.rounds))
    said = judge(alone, together, loading, 0.1, [variant], {})
    assert said.sentence.startswith(said.verdict + ": of 1.00 s per batch") and said.advice
    return said.verdict


def measured(*parts: tuple[float, float, float]) -> Measurement:
    """A loop whose rounds have these seconds of wait, copy and step."""
    return Measurement(0, rounds=[Round(1, wait + copy + step, copy, step) for wait, copy, step in parts])


DECODES, READS = Split(1, 0.9, 0.1, "", None), Split(1, 0.1, 0.9, "", None)


@pytest.mark.parametrize(
    ("rounds", "loading", "verdict"),
    [
        ([(0.04, 0.04, 0.92)], READS, "compute-bound"),
        ([(0.2, 0.1, 0.7)], READS, "storage-bound"),
        ([(0.2, 0.1, 0.7)], DECODES, "cpu-bound"),
        ([(0.1, 0.2, 0.7)], DECODES, "copy-bound"),
        ([(0.0, 0.0, 1.0), (0.9, 0.0, 0.1), (0.9, 0.0, 0.1)], READS, "storage-bound"),
        ([(0.0, 0.0, 1.0), (0.9, 0.0, 0.1), (0.0, 0.9, 0.1)], READS, "no clear verdict"),
    ],
)
def test_verdicts(rounds: list[tuple[float, float, float]], loading: Split, verdict: str) -> None:
    assert verdict_of(measured(*rounds), measured(*rounds), loading) == verdict


def test_a_short_wait_is_not_the_fault_of_fast_workers() -> None:
    loop = measured((0.2, 0.0, 0.8))
    fast, slow = Measurement(2, rounds=[Round(1, 0.3, 0, 0)]), Measurement(2, rounds=[Round(1, 0.9, 0, 0)])
    assert verdict_of(fast, loop, READS) == "compute-bound"
    assert verdict_of(slow, loop, READS) == "storage-bound"
    assert verdict_of(fast, measured((0.4, 0.0, 0.6)), READS) == "storage-bound"


def test_time_without_a_processor_is_no_wait_for_the_loader() -> None:
    assert Round(1, seconds=1.0, copy=0.1, step=0.5, queued=0.3).wait == pytest.approx(0.1)


def candidate(workers: int, *rates: float) -> Candidate:
    return Candidate({"num_workers": workers}, list(rates), list(rates))


def test_the_smallest_candidate_within_noise_is_chosen() -> None:
    tried = [candidate(1, 50), candidate(2, 96, 97, 98), candidate(4, 99, 100, 101)]
    assert smallest(tried, 0.05)[0].settings == {"num_workers": 2}
    assert smallest(tried, 0.01)[0].settings == {"num_workers": 4}
    noisy = [candidate(1, 50), candidate(2, 86), candidate(4, 60, 100, 140)]  # noise counts, up to 15 %
    assert smallest(noisy, 0.05) == (noisy[1], 0.15)
    noisy = [candidate(1, 50), candidate(2, 80, 90, 100), candidate(4, 100)]  # of the smaller one, too
    assert smallest(noisy, 0.05) == (noisy[1], pytest.approx(1 / 9))


class Pool:
    """A loader without processes: its rate is that of the given number of workers, by a clock of its own."""

    def __init__(self, clock: list[float], num_workers: int, useful: int) -> None:
        self._clock, self.num_workers, self._useful = clock, num_workers, useful

    def __iter__(self) -> Iterator[int]:
        while True:
            self._clock[0] += 0.01 / max(1, min(self.num_workers, self._useful))
            yield 0


@pytest.mark.parametrize("useful", [0, 1, 2, 3, 5, 6, 7, 8, 11, 16])
def test_autotune_finds_the_number_of_useful_workers(useful: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only loading moves, there is no noise: the number is exact."""
    clock = [0.0]
    for module in ("_profile_run", "_autotune", "_autotune_search"):
        monkeypatch.setattr(f"nebulaio.data.{module}.perf_counter", lambda: clock[0])
    found = autotune(lambda num_workers: Pool(clock, num_workers, useful), max_seconds=60, max_workers=16)
    expected = 0 if useful <= 1 else useful
    assert found.settings == {"num_workers": expected}, str(found)
    assert found.complete and found.seconds <= 60
    assert max(each.rate for each in found.tried) == pytest.approx(100 * max(1, useful))
    assert all(each.rates for each in found.tried)
    content = json.loads(found.to_json())
    assert [entry["rate"] for entry in content["tried"]] == [each.rate for each in found.tried]
    assert f"num_workers={expected}: " in str(found)
    assert all(f"{name} was not varied" in str(found)
               for name in ("prefetch_factor", "pin_memory", "persistent_workers"))


@pytest.mark.parametrize("limit", [0.05, 0.2, 0.5, 1.0, 2.0, 5.0])
def test_autotune_ends_in_its_time(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search asks for no batch after its time, however short it is, and says that it ended early."""
    clock = [0.0]
    for module in ("_profile_run", "_autotune", "_autotune_search"):
        monkeypatch.setattr(f"nebulaio.data.{module}.perf_counter", lambda: clock[0])
    found = autotune(lambda num_workers: Pool(clock, num_workers, 16), max_seconds=limit, max_workers=16)
    assert found.seconds <= limit + 0.01 + 1e-9
    if not found.complete:
        assert any("ended early" in note for note in found.notes)
    best = max(found.tried, key=lambda each: each.rate)
    assert found.settings["num_workers"] <= best.settings["num_workers"]


class Device:
    """Stands for torch with a CUDA device: work is queued, and takes its time on a clock of its own."""

    def __init__(self) -> None:
        self.cuda = self
        self.host = self.device = 0.0
        self.ahead = 0.0  # the most that the device had left to do when the host went on

    def queue(self, seconds: float) -> None:
        self.device = max(self.device, self.host) + seconds

    def synchronize(self, until: float | None = None) -> None:
        self.host = max(self.host, self.device if until is None else until)

    def Event(self, *, enable_timing: bool) -> Any:
        device = self

        class Mark:
            def record(self) -> None:
                self.at = max(device.device, device.host)

            def synchronize(self) -> None:
                device.synchronize(self.at)
                device.ahead = max(device.ahead, device.device - device.host)

            def elapsed_time(self, other: Any) -> float:
                return (other.at - self.at) * 1e3

        return Mark()


def test_events_time_work_that_returns_at_once() -> None:
    """Copy and step of a GPU return before they have ended. Events say how long they took."""
    device = Device()
    meter = _profile_clock.EventMeter(device, lambda batch: device.queue(0.002), lambda batch: device.queue(0.01))
    for _ in range(3):
        meter.run(0)
    meter.forget()
    for _ in range(5):
        device.host += 0.02  # the loader is slower than the device
        meter.run(0)
    assert meter.finish() == [(pytest.approx(0.002), pytest.approx(0.01))] * 5
    assert meter.finish() == []
    assert device.ahead <= 2 * 0.012 + 1e-9, "the host runs at most two batches ahead"


@pytest.mark.parametrize("stubborn", [False, True])
def test_workers_have_ended_when_their_loader_is_closed(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch before 2.13 asks a slow worker to end by SIGTERM, and does not wait for it."""
    monkeypatch.setattr(_profile_run, "_LAST", 0.01 if stubborn else 60.0)
    parent, child = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(child, stubborn), daemon=True)
    worker.start()
    assert parent.recv() == "ready"

    class Batches:
        _workers = (worker,)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            return 1

        def _shutdown_workers(self) -> None:
            worker.terminate()

    with _profile_run.Feed(Batches, time.perf_counter() + 60, "profile") as feed:
        feed.begin()
        assert feed.take() == 1 and worker.is_alive()
    assert worker.exitcode == -(signal.SIGKILL if stubborn else signal.SIGTERM)


def _work(told: Any, stubborn: bool) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else signal.SIG_DFL)
    told.send("ready")
    told.recv()


def test_rounds_are_joined() -> None:
    joined = _profile_run._joined([Round(4, 1.0, 0.1, 0.2)] * 12)
    assert len(joined) == 5
    assert sum(each.batches for each in joined) == 48
    assert sum(each.seconds for each in joined) == pytest.approx(12)


def test_names_are_imported_at_first_use() -> None:
    out = python("import sys, nebulaio.data; print([m for m in sys.modules if m.startswith('nebulaio.data')], 'torch' in sys.modules)")
    assert out.strip() == "['nebulaio.data'] False"
    assert set(nebulaio.data.__all__) <= set(dir(nebulaio.data))
    with pytest.raises(AttributeError, match="nothing"):
        _ = nebulaio.data.nothing
