# SPDX-License-Identifier: Apache-2.0
"""The benchmark of checkpoints runs on host memory with torch, and finds a contender that loads other bits."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from checkpoints import loads, run, states, training  # noqa: E402
from checkpoints.background import HostWatch, Saver  # noqa: E402
from checkpoints.bench import Bench  # noqa: E402
from checkpoints.rounds import Clock  # noqa: E402
from checkpoints.states import Spec  # noqa: E402
from nbench.device import Device  # noqa: E402

PACKAGE = str(Path(__file__).resolve().parents[2] / "python")
SMALL = ["--device", "host", "--size", "2MB", "--async-size", "1MiB", "--tokens", "4", "--ranks", "2", "--rounds", "2",
         "--drop", "file"]


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PACKAGE)
    monkeypatch.syspath_prepend(PACKAGE)


def bench(tmp_path: Path) -> Bench:
    given = argparse.Namespace(
        rounds=2, timeout=120, size=10**6, ranks=2, device="host", workdir=str(tmp_path), limit=10**9
    )
    return Bench(given, lambda text: None)


def test_parts_of_ranks_make_the_whole() -> None:
    spec = Spec(10**6, 3)  # which does not divide the rows
    whole = states.whole(spec, "cpu")["model"]
    assert {name: tuple(tensor.shape) for name, tensor in whole.items()} == spec.tensors()
    for rank in range(3):
        for name, shape, mine in states.parts(spec, rank):
            rows = -(-shape[0] // 3)
            assert not states.difference(whole[name][rank * rows : (rank + 1) * rows], mine), (name, rank)
    assert states.bits(states.whole(spec, "cpu")["model"], whole) == "equal"
    first, second = whole["layers.0.q"], whole["layers.0.k"]
    assert states.difference(first, second) == "state has other bits"


def test_differences_are_named() -> None:
    state = {"a": torch.arange(4.0), "b": [torch.zeros(2), 3], "c": torch.tensor([float("nan")])}
    assert states.bits({**state, "c": torch.tensor([float("nan")])}, state) == "equal"
    target = states.blank(state)
    assert states.difference(target, state) == "state.a has other bits"
    assert states.difference({**state, "b": [torch.zeros(2), 4]}, state) == "state.b.1 is 4, not 3"
    assert states.difference({**state, "b": [torch.zeros(3), 3]}, state).startswith("state.b.0 is ")
    assert states.difference({"a": state["a"]}, state) == "state has other keys"
    assert states.difference({**state, "a": 1}, state) == "state.a is no tensor"
    states.clear(state)
    assert not state["a"].any()


def test_a_run_measures_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code = run.main([*SMALL, "--keep", "--workdir", str(tmp_path / "work"), "--out", str(out)])
    found = json.loads((out / "results.json").read_text())
    errors = [
        str(row.get("error", "")) + str([entry["failed"] for entry in row.get("contenders", {}).values()])
        for row in found["rows"].values()
    ]
    if any("page cache" in text or "O_DIRECT" in text for text in errors):
        pytest.skip(f"this file system cannot be measured: {errors}")
    assert code == 0, errors
    assert list(found["rows"]) == ["warm", "cold", "save", "pt", "async"]
    for name in ("warm", "cold", "save", "pt"):
        for contender, entry in found["rows"][name]["contenders"].items():
            assert len(entry["seconds"]) == 2 and entry["seconds"][0] > 0, (name, contender)
            assert entry.get("bits") == (None if contender.startswith(("pinned", "O_DIRECT")) else "equal"), (
                name,
                contender,
            )
    for contender, entry in found["rows"]["async"]["contenders"].items():
        assert entry["bits"] == "equal" and len(entry["saves"]) == 2 and entry["saves"][0]["steps"] >= training.LEAST, (
            contender
        )
    text = capsys.readouterr().out
    assert (out / "table.md").read_text().split() == text.split()
    assert len([*(tmp_path / "work").glob("*.made")]) == 3 and not any((tmp_path / "work" / "scratch").iterdir())
    run.clean(tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_load_of_other_bits_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench(tmp_path)
    load = loads.load

    def lazy(kind: str, path: Path, state: Any) -> Any:
        used = load(kind, path, state)
        if kind == "ours":
            state["model"]["layers.0.v"].view(torch.uint8)[-1, -1] ^= 1
        return used

    monkeypatch.setattr(loads, "load", lazy)
    found = loads.warm(one, Clock(100))["contenders"]
    assert found["ours"]["failed"] == ["round 1: state.model.layers.0.v has other bits"]
    assert not found["FileSystemReader"]["failed"] and found["FileSystemReader"]["bits"] == "equal"
    assert one.files.checkpoints(("stock", "ours"), 120) == {}, "files that are there were made again"


class Torn(Saver):
    """A saver that copies nothing, and writes when the loop has gone on."""

    def save(self, state: Any, path: Path) -> None:
        self.work = state, path

    def before_step(self) -> None:
        pass

    def done(self) -> bool:
        return False if self.work else True

    def wait(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def test_a_torn_snapshot_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from checkpoints import saves

    loop = training.Loop(Device("host"), 1 << 20, 4)

    class Late(Torn):
        steps = 0

        def before_step(self) -> None:
            self.steps += 1
            if self.steps == 3 and self.work:
                saves.save(self.work[0], saves.writer("ours", self.work[1]))
                self.work = None  # type: ignore[assignment]

    one = bench(tmp_path)
    found: dict[str, Any] = {"saves": [], "failed": []}
    with pytest.raises(RuntimeError, match="not the state at the time of the save"):
        training._contender(one, loop, "torn", Late, found, Clock(100))
    assert found["bits"].startswith("state.") and not found["saves"]


def test_waits_count_as_stalls_and_not_as_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = training.Loop(Device("host"), 1 << 20, 4)
    now = [0.0]
    monkeypatch.setattr(training.time, "perf_counter", lambda: now[0])

    class Slow(Torn):
        left = 7

        def save(self, state: Any, path: Path) -> None:
            now[0] += 2.0

        def before_step(self) -> None:
            now[0] += 0.5
            self.left -= 1

        def done(self) -> bool:
            return self.left == 0

    one = training.one_save(loop, Slow(), tmp_path)
    assert (one["call_s"], one["wait_s"], one["stall_s"], one["seconds"]) == (2.0, 3.5, 5.5, 5.5)
    assert (one["steps"], one["step_s"]) == (7, 0.0)


def test_host_memory_is_watched() -> None:
    with HostWatch(0.001) as watch:
        block = torch.ones(32 << 20, dtype=torch.uint8)
    assert watch.process >= 30 << 20
    del block
