# SPDX-License-Identifier: Apache-2.0
"""safe_open.prefetch: plans, the order of arrival, threads, errors, and the end in the middle of a load."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
from nebulaio import _abi, _handles, errors
from nebulaio.safetensors import PrefetchLoader, TensorMeta, safe_open, stream
from support import encode, in_threads, random_entry, write, write_sparse

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture
def entries() -> dict[str, Any]:
    """Tensors whose order in the file is not that of their names."""
    found = {f"{n % 7}.layer.{n}": random_entry(n, "F32" if n % 3 else "U8", [n % 5 + 1, 33]) for n in range(40)}
    return {**found, "scalar": random_entry(50, "F64", []), "empty": ("I32", [0, 4], b""),
            "[odd*]?": random_entry(51, "I16", [6, 2])}


@pytest.fixture
def path(tmp_path: Path, entries: dict[str, Any]) -> Path:
    return write(tmp_path / "model.safetensors", entries, {"k": "v"})


def same(found: Any, entry: Any, rows: slice = slice(None)) -> bool:
    dtype, shape, data = entry
    kind = {"F32": "f4", "U8": "u1", "F64": "f8", "I32": "i4", "I16": "i2"}[dtype]
    wanted = numpy.frombuffer(data, kind).reshape(shape)
    wanted = wanted[rows] if shape else wanted
    return bool(found.dtype == wanted.dtype and found.shape == wanted.shape and found.tobytes() == wanted.tobytes())


@pytest.mark.parametrize("whole", [None, "plan"])
def test_every_tensor_arrives_once(path: Path, entries: dict[str, Any], whole: str | None) -> None:
    with safe_open(path, "numpy") as file:
        loader = file.prefetch(None if whole is None else dict.fromkeys(sorted(entries)))
        assert isinstance(loader, PrefetchLoader) and len(loader) == len(entries)
        assert loader.names() == list(entries) == file.offset_keys()
        assert loader.report is None
        seen = dict(loader)
        assert seen.keys() == entries.keys() and all(same(seen[name], entry) for name, entry in entries.items())
        assert list(loader) == [] and len(loader) == len(entries)
        assert loader.report is not None
        assert loader.report["wanted_bytes"] == sum(len(entry[2]) for entry in entries.values())
        assert nebulaio.last_report() == loader.report


@pytest.mark.parametrize("options", [{}, {"route": "buffered"}], ids=["host", "engine"])
def test_the_header_is_described_once_and_meanwhile(path: Path, entries: dict[str, Any], options: dict[str, Any],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The description of thousands of tensors takes longer than the load of a small file."""
    calls: list[str] = []
    text, start = _abi.text, _handles.Load._start

    def described(function: Any, *args: Any) -> bytes:
        if function.__name__ == "nebulaio_model_describe":
            calls.append("describe")
        return text(function, *args)

    def started(self: _handles.Load) -> None:
        calls.append("start")
        start(self)

    monkeypatch.setattr(_abi, "text", described)
    monkeypatch.setattr(_handles.Load, "_start", started)
    with safe_open(path, "numpy", **options) as file, file.prefetch() as loader:
        assert calls == ["start", "describe"]
        assert loader.names() == file.offset_keys() == list(entries) and file.metadata() == {"k": "v"}
        assert len(dict(loader)) == len(entries)
    assert calls == ["start", "describe"]


def test_take(path: Path, entries: dict[str, Any]) -> None:
    with safe_open(path, "numpy") as file, file.prefetch() as loader:
        for name in reversed(list(entries)[5:]):
            assert same(loader.take(name), entries[name])
            with pytest.raises(errors.InvalidError, match="already handed out"):
                loader.take(name)
        assert [name for name, _ in loader] == list(entries)[:5]
        for wrong, kind in (("nope", errors.NotFoundError), (1, TypeError), (None, TypeError)):
            with pytest.raises(kind):
                loader.take(wrong)  # type: ignore[arg-type]


def test_rows(path: Path, entries: dict[str, Any]) -> None:
    wide = [name for name, entry in entries.items() if len(entry[1]) == 2 and entry[1][0] > 2]
    for rows in (slice(1, 3), slice(0, 2), slice(-2, None), slice(1, 100), slice(None), slice(0, 3, 1), slice(2, 1),
                 slice(9, 12), slice(1, 1)):
        plan = dict.fromkeys(wide, rows) | {"scalar": None, "empty": rows}
        with safe_open(path, "numpy") as file, file.prefetch(plan) as loader:
            assert loader.names() == [name for name in entries if name in plan]
            seen = dict(loader)
            for name in wide:
                assert same(seen[name], entries[name], rows), (name, rows)
            assert same(seen["scalar"], entries["scalar"]) and seen["empty"].shape == (0, 4)
            wanted = sum(array.nbytes for array in seen.values())
            assert loader.report is not None and loader.report["wanted_bytes"] == wanted


def test_a_wrong_plan_starts_nothing(path: Path) -> None:
    with safe_open(path, "numpy") as file:
        for plan, kind, says in (
            ({"nope": None}, errors.NotFoundError, "no tensor 'nope'"),
            ({"scalar": slice(0, 1)}, errors.InvalidError, "has no rows"),
            ({"[odd*]?": slice(0, 4, 2)}, errors.InvalidError, "has a step"),
            ({"[odd*]?": slice(None, None, -1)}, errors.InvalidError, "has a step"),
            ({"[odd*]?": 1}, TypeError, "1 in the plan"),
            ({"[odd*]?": (slice(0, 1),)}, TypeError, "is not a slice"),
            ({1: None}, TypeError, "not a tensor name"),
            (["[odd*]?"], TypeError, "not a dictionary"),
        ):
            with pytest.raises(kind, match=says):
                file.prefetch(plan)  # type: ignore[arg-type]
        for threads, kind in ((0, errors.InvalidError), (-1, errors.InvalidError), ("x", TypeError), (None, TypeError)):
            with pytest.raises(kind):
                file.prefetch(threads=threads)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidError, match="device 'nope'"):
            file.prefetch(device="nope")
        assert list(file.prefetch({})) == [] and len(file.prefetch({})) == 0
        assert nebulaio.devices() is not None
    with pytest.raises(errors.ClosedError):
        file.prefetch()


def test_a_dtype_without_a_type(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"ok": random_entry(1, "U8", [4]),
                                              "six": random_entry(2, "F6_E2M3", [4, 4])})
    with safe_open(path, "numpy") as file:
        with pytest.raises(errors.UnsupportedError, match="six"):
            file.prefetch()
        assert [name for name, _ in file.prefetch({"ok": None})] == ["ok"]


def test_a_file_without_tensors(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {})
    with safe_open(path, "numpy") as file, file.prefetch() as loader:
        assert (len(loader), loader.names(), list(loader)) == (0, [], [])


def test_the_loader_outlives_its_file(path: Path, entries: dict[str, Any]) -> None:
    with safe_open(path, "numpy") as file:
        loaders = [file.prefetch(), file.prefetch({"scalar": None}, device="cpu", threads=1)]
    del file
    gc.collect()
    assert dict(loaders[0]).keys() == entries.keys() and same(loaders[1].take("scalar"), entries["scalar"])


def test_every_tensor_goes_to_one_thread(path: Path, entries: dict[str, Any]) -> None:
    """Some threads iterate and others take by name. No tensor is lost, and none is handed out twice."""
    for _ in range(10):
        with safe_open(path, "numpy") as file, file.prefetch() as loader:
            found: list[str] = []

            def work(number: int, loader: PrefetchLoader = loader, found: list[str] = found) -> None:
                if number % 2:
                    for name, array in loader:
                        assert same(array, entries[name])
                        found.append(name)
                    return
                for name in list(entries)[:: number + 1]:
                    try:
                        array = loader.take(name)
                    except errors.InvalidError:
                        continue  # another thread has it
                    assert same(array, entries[name])
                    found.append(name)

            in_threads(work, 6)
            assert sorted(found) == sorted(entries)


def held_back(monkeypatch: pytest.MonkeyPatch, count: int) -> Callable[[], None]:
    """Let a load show only its first `count` tensors until the returned function is called."""
    gate = threading.Event()
    ready, cancel = _handles.Load.ready, _handles.Load.cancel

    def slow(self: _handles.Load, known: int, idle: Any) -> int:
        if known < count:
            return min(ready(self, known, idle), count)
        gate.wait()
        return ready(self, known, idle)

    def stop(self: _handles.Load) -> None:
        cancel(self)
        gate.set()

    monkeypatch.setattr(_handles.Load, "cancel", stop)
    monkeypatch.setattr(_handles.Load, "ready", slow)
    return gate.set


def test_tensors_come_before_the_end(path: Path, entries: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = held_back(monkeypatch, 3)
    with safe_open(path, "numpy") as file, file.prefetch() as loader:
        arriving = iter(loader)
        assert [next(arriving)[0] for _ in range(3)] == list(entries)[:3]
        waiting = threading.Thread(target=loader.take, args=("scalar",))
        waiting.start()
        go_on()
        waiting.join()
        assert {name for name, _ in arriving} == set(list(entries)[3:]) - {"scalar"}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of 16 tensors of 8 MiB without content."""
    path = tmp_path / "large.safetensors"
    size, count = 8 << 20, 16
    head = encode({f"t{n:02}": {"dtype": "U8", "shape": [size], "data_offsets": [n * size, (n + 1) * size]}
                   for n in range(count)})
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + size * count)
    return path


def test_close_in_the_middle(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting threads hear of it, and the memory is freed, also if somebody keeps the error."""
    held_back(monkeypatch, 2)
    with safe_open(large, "numpy") as file:
        loader = file.prefetch()
        memory = weakref.ref(loader._places[0].array.base)
        told: list[BaseException] = []

        def wait(number: int) -> None:
            with pytest.raises(errors.ClosedError) as caught:
                loader.take(f"t{number:02}")
            told.append(caught.value)

        waiting = [threading.Thread(target=wait, args=(number,)) for number in (5, 10, 15)]
        for one in waiting:
            one.start()
        while not loader._waits:
            time.sleep(0)
        loader.close()
        for one in waiting:
            one.join()
        assert len(told) == 3 and loader.report is not None
        assert memory() is None
        for use in (lambda: loader.take("t00"), lambda: list(loader)):
            with pytest.raises(errors.ClosedError):
                use()
        loader.close()
        assert len(loader) == 16 and len(loader.names()) == 16


def test_close_stops_the_load(large: Path) -> None:
    """A load that is closed at once has a report, whether or not it had ended by then."""
    with safe_open(large, "numpy") as file:
        for _ in range(20):
            loader = file.prefetch()
            loader.close()
            assert loader.report is not None and loader.report["bytes"] <= 16 * (8 << 20)
            assert loader._load is None and not loader._places


def test_what_was_handed_out_stays(large: Path) -> None:
    with safe_open(large, "numpy") as file:
        loader = file.prefetch({"t00": None, "t01": None})
        first = loader.take("t00")
        loader.close()
        assert first.shape == (8 << 20,) and not first.any()


def test_a_dropped_loader_stops(large: Path) -> None:
    with safe_open(large, "numpy") as file:
        loader = file.prefetch()
        job = weakref.ref(loader._load)
        del loader
        gc.collect()
        assert job() is None


def test_a_file_that_gets_short(large: Path) -> None:
    """The error comes at take and in the loop, in each thread, and the loader can be closed."""
    with safe_open(large, "numpy") as file:
        with open(large, "r+b") as short:
            short.truncate(20 << 20)
        loader = file.prefetch()
        with pytest.raises(errors.NebulaioError):
            loader.take("t15")
        with pytest.raises(errors.NebulaioError):
            list(loader)
        assert loader.report is not None
        loader.close()


def test_a_file_that_is_replaced_before_another_device(path: Path, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    with safe_open(path, "numpy") as file:
        file._device = "cuda:0"  # as if it were opened for another device
        assert "scalar" in dict(file.prefetch(device="cpu"))
        write(path, {"scalar": random_entry(1, "F64", [2])})
        with pytest.raises(errors.CorruptError, match="was replaced"):
            file.prefetch(device="cpu")


def test_tensor_meta(path: Path, entries: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with safe_open(path, "numpy") as file, safe_open(path, "numpy", route="buffered") as engine:
        assert file._cached is not None and engine._cached is None
        at = 0
        for name, (dtype, shape, data) in entries.items():
            wanted = TensorMeta(dtype, shape, (at, at + len(data)))
            assert file.get_tensor_meta(name) == wanted == engine.get_tensor_meta(name)
            at += len(data)
        with pytest.raises(errors.NotFoundError):
            file.get_tensor_meta("nope")
        with pytest.raises(AttributeError):
            file.get_tensor_meta("scalar").dtype = "F32"  # type: ignore[misc]
    with pytest.raises(errors.ClosedError):
        file.get_tensor_meta("scalar")


def test_memory_is_that_of_the_plan(tmp_path: Path) -> None:
    """A plan of a few rows of a large file allocates these rows alone."""
    path = write_sparse(tmp_path / "big.safetensors", 1 << 34)
    with safe_open(path, "numpy") as file, file.prefetch({"big": slice(1 << 33, (1 << 33) + 5000)}) as loader:
        assert sum(place.size for place in loader._places) < 1 << 20
        assert loader.take("big").tolist() == [0] * 5000


def test_the_same_as_stream(path: Path) -> None:
    with safe_open(path, "numpy") as file:
        ours = {name: array.tobytes() for name, array in file.prefetch()}
    assert ours == {name: array.tobytes() for name, array in stream(path, "cpu", framework="numpy")}


@pytest.mark.torch
def test_torch(path: Path) -> None:
    import torch

    with safe_open(path, "pt") as file:
        seen = dict(file.prefetch())
        for name, tensor in seen.items():
            assert tensor.is_contiguous() and tensor.numpy().tobytes() == file.get_tensor(name).numpy().tobytes()
            tensor.add_(1)  # its memory is the caller's
        assert torch.equal(file.prefetch({"[odd*]?": slice(2, 4)}).take("[odd*]?"), file.get_slice("[odd*]?")[2:4])


@pytest.mark.cuda
@pytest.mark.torch
def test_cuda(path: Path) -> None:
    import torch

    with safe_open(path, "pt") as file, file.prefetch(device="cuda:0") as loader, file.prefetch() as host:
        for name, tensor in loader:
            assert tensor.device == torch.device("cuda:0")
            assert tensor.cpu().numpy().tobytes() == host.take(name).numpy().tobytes()
    with safe_open(path, "pt", device="cuda:0") as file, file.prefetch({"[odd*]?": slice(2, 4)}) as loader:
        assert torch.equal(loader.take("[odd*]?").cpu(), file.get_slice("[odd*]?")[2:4].cpu())
