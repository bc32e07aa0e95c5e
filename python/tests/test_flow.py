# SPDX-License-Identifier: Apache-2.0
"""The flow of a load against the fake library: errors at each step, interrupts, handles."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import nebulaio
import numpy
import pytest
from nebulaio import _process, errors
from nebulaio.safetensors import inspect, load_file, load_model
from support import interrupt_when

STATUSES = {status: errors._BY_STATUS[status] for status in range(1, 12)}


def load(script: str, **options: Any) -> dict[str, Any]:
    return load_file(script, "cpu", framework="numpy", **options)


def log(holder: _process.Holder) -> list[str]:
    """The calls that the fake has seen, once it is sure that no handle is left."""
    functions = holder.load().functions
    assert functions.fake_live() == 0
    calls: list[str] = functions.fake_log().decode().split()
    return calls


def test_a_load_in_order(fake: _process.Holder) -> None:
    out = load("size=300")
    assert bytes(out["t"]) == bytes(i % 256 for i in range(300))
    assert log(fake) == ["start", "ended", "report", "release-load", "release-model"]
    assert nebulaio.last_report() == {"fake": True, "status": 0}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("step", ["open", "files", "start", "describe", "wait"])
def test_every_status_at_every_step(fake: _process.Holder, step: str, status: int) -> None:
    with pytest.raises(STATUSES[status], match="scripted") as caught:
        load(f"{step}={status}")
    assert type(caught.value) is STATUSES[status]
    assert "release-running" not in log(fake)


def test_failed_load_leaves_its_report(fake: _process.Holder) -> None:
    assert nebulaio.last_report() is None
    with pytest.raises(errors.ReadError):
        load("wait=6")
    assert nebulaio.last_report() == {"fake": True, "status": 6}


def test_reports_are_per_thread(fake: _process.Holder) -> None:
    load("size=1")
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(nebulaio.last_report()))
    thread.start()
    thread.join()
    assert seen == [None]


def test_long_description_is_read_whole(fake: _process.Holder) -> None:
    assert list(load("longname=200000")) == ["t" * 200000]


@pytest.mark.parametrize("align", [1, 64, 4096, 1 << 21])
def test_destination_is_aligned(fake: _process.Holder, align: int) -> None:
    out = load(f"size=100,align={align}")
    assert out["t"].ctypes.data % align == 0
    assert out["t"].flags.writeable


def test_progress_is_called(fake: _process.Holder) -> None:
    seen: list[tuple[int, int]] = []
    load("size=77", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(77, 77)]


def test_exception_in_progress_cancels(fake: _process.Holder) -> None:
    def progress(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        load("slow", progress=progress)
    calls = log(fake)
    assert calls == ["start", "running", "cancel", "stopping", "stopping", "stopping", "ended"] + [
        "report",
        "release-load",
        "release-model",
    ]


@pytest.mark.parametrize("signals", [1, 2])
def test_interrupt_waits_until_nothing_is_in_flight(fake: _process.Holder, signals: int) -> None:
    def progress(done: int, total: int) -> None:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        load("slow", progress=progress)
    calls = log(fake)
    assert calls[:2] == ["start", "running"]
    assert calls[-4:] == ["ended", "report", "release-load", "release-model"]
    assert "release-running" not in calls


def test_interrupt_inside_the_wait(fake: _process.Holder) -> None:
    with pytest.raises(KeyboardInterrupt):
        sender = interrupt_when(lambda: b"running" in fake.load().functions.fake_log())
        load("slow")
    sender.join()
    assert "release-running" not in log(fake)


def test_interrupt_while_stopping_is_put_off(fake: _process.Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.open()
    real = fake.load().functions.nebulaio_cancel
    shots = [3]

    class Interrupting:
        """The library's functions, with a Ctrl-C on each of the first cancels."""

        def __getattr__(self, name: str) -> Any:
            if name == "nebulaio_cancel" and shots[0]:
                shots[0] -= 1
                raise KeyboardInterrupt
            return getattr(fake.load().functions, name)

    assert fake.system is not None
    monkeypatch.setattr(fake.system, "functions", Interrupting())

    def progress(done: int, total: int) -> None:
        raise LookupError

    with pytest.raises(KeyboardInterrupt):
        load("slow", progress=progress)
    assert shots == [0] and real is not None
    assert "release-running" not in log(fake)


def test_fork_inside_progress_does_not_touch_the_parents_load(fake: _process.Holder) -> None:
    children: list[int] = []

    def progress(done: int, total: int) -> None:
        child = os.fork()
        if child == 0:
            return
        children.append(os.waitpid(child, 0)[1])
        raise LookupError

    parent = os.getpid()
    try:
        with pytest.raises(LookupError):
            load("slow", progress=progress)
    except BaseException as error:
        if os.getpid() != parent:
            os._exit(7 if isinstance(error, errors.ClosedError) else 1)
        raise
    assert [os.waitstatus_to_exitcode(status) for status in children] == [7]


@pytest.mark.parametrize("dtype", ["F6_E2M3", "F6_E3M2", "F4", "F99"])
def test_dtype_without_a_type(fake: _process.Holder, dtype: str) -> None:
    script = f"size=12,dtype={dtype},shape=4:4"
    with pytest.raises(errors.UnsupportedError, match=f"'t': dtype {dtype}.*unsupported='bytes'"):
        load(script)
    assert log(fake) == ["start", "cancel", "ended", "report", "release-load", "release-model"]
    out = load(script, unsupported="bytes")["t"]
    assert (out.dtype, out.shape, bytes(out)) == (numpy.uint8, (12,), bytes(range(12)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"route": "fast"}, "route='fast' is not one of auto, buffered, direct"),
        ({"cache": "no"}, "cache='no' is not one of auto, keep, bypass"),
        ({"unsupported": "skip"}, "unsupported='skip'"),
        ({"tensors": []}, "tensors="),
        ({"tensors": [1]}, "tensors="),
    ],
)
def test_bad_arguments(fake: _process.Holder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidError, match=message):
        load("size=1", **options)


def test_bad_paths(fake: _process.Holder) -> None:
    for path in ("", "a\0b"):
        with pytest.raises(errors.InvalidError, match="path"):
            load_model(path, "cpu", framework="numpy")
    with pytest.raises(errors.InvalidError, match="load_model"):
        load("model.safetensors.index.json")
    with pytest.raises(errors.InvalidError, match="load_model"):
        load("/")


def test_frameworks(fake: _process.Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.InvalidError, match="framework 'tf' is not known"):
        load_file("size=1", framework="tf")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidError, match="'numpy' holds host memory only"):
        load_file("size=1", "cuda", framework="numpy")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(errors.UnsupportedError, match="None means 'pt'.*install torch.*'numpy'"):
        load_file("size=1", "cpu")


def test_inspect_releases(fake: _process.Holder) -> None:
    assert inspect("size=5")["tensors"][0]["size"] == 5
    assert log(fake) == ["release-model"]
