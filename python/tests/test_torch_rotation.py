# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run: which is the latest, which are kept, on files, on objects and on several ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import serving
from nebulaio.errors import CorruptError, InvalidError, NebulaioError, NotFoundError
from torch_worlds import run_world

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[serving.Server]:
    with serving.serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, server: serving.Server) -> None:
    monkeypatch.setenv("NEBULAIO_ENDPOINT", server.endpoint)
    monkeypatch.setenv("NEBULAIO_ACCESS_KEY", serving.ACCESS)
    monkeypatch.setenv("NEBULAIO_SECRET_KEY", serving.SECRET)


def run(root: Any, **options: Any) -> Any:
    from nebulaio.torch import Checkpoints

    return Checkpoints(root, **options)


def state(torch: Any, step: int) -> dict[str, Any]:
    return {"w": torch.full((50,), float(step)), "step": step}


def check(torch: Any, checkpoints: Any, step: int, wanted: int | None = None, **options: Any) -> None:
    """Load a checkpoint, and fail unless it is the one of that step."""
    found = state(torch, -1)
    assert checkpoints.load(found, wanted, **options) == step
    assert found["step"] == step and torch.equal(found["w"], torch.full((50,), float(step)))


@pytest.mark.parametrize("place", ["files", "objects"])
def test_saves_are_kept_and_removed(torch: Any, tmp_path: Path, keys: None, place: str) -> None:
    root: Any = tmp_path / "run" if place == "files" else "s3://bucket/team/run/"
    with run(root, keep_last=2, keep_every=40) as checkpoints:
        assert checkpoints.latest() is None and checkpoints.steps() == [] and checkpoints.entries() == []
        with pytest.raises(NotFoundError, match="no complete one"):
            checkpoints.load(state(torch, -1))
        seen = []
        for number in range(10, 100, 10):
            if number % 20:
                report = checkpoints.save(number, state(torch, number))
                assert report["bytes"] > 0
            else:
                checkpoints.async_save(number, state(torch, number))
                checkpoints.wait()
            seen.append(checkpoints.steps())
            assert checkpoints.latest() == number
        assert seen[:5] == [[10], [10, 20], [20, 30], [30, 40], [40, 50]]
        assert seen[-1] == [40, 80, 90] and {one["step"] for one in checkpoints.pruned["kept"]} == {40, 80, 90}
        check(torch, checkpoints, 90)
        check(torch, checkpoints, 40, 40, verify=True)
        assert checkpoints.verify()["verdict"] == checkpoints.verify(40)["verdict"] == "good"
        with pytest.raises(NebulaioError, match="step-0000000070"):
            checkpoints.load(state(torch, -1), 70)
        assert [one["step"] for one in checkpoints.entries()] == [40, 80, 90]
    if place == "files":
        assert sorted(os.listdir(root)) == ["step-0000000040", "step-0000000080", "step-0000000090"]


def test_nothing_is_removed_without_a_rule(torch: Any, tmp_path: Path) -> None:
    with run(tmp_path) as checkpoints:
        for step in range(4):
            checkpoints.async_save(step, state(torch, step))
        checkpoints.wait()
        assert checkpoints.steps() == [0, 1, 2, 3] and checkpoints.pruned is None
        with pytest.raises(InvalidError, match="keep_last and keep_every"):
            checkpoints.prune()
    ruled = run(tmp_path, keep_last=1)
    assert [one["step"] for one in ruled.prune(dry_run=True)["removed"]] == [0, 1, 2]
    assert ruled.steps() == [0, 1, 2, 3]
    ruled.prune()
    assert ruled.steps() == [3]


def test_an_unfinished_save_is_no_checkpoint(torch: Any, tmp_path: Path) -> None:
    checkpoints = run(tmp_path, keep_last=1)
    checkpoints.save(1, state(torch, 1))
    checkpoints.save(2, state(torch, 2))
    (tmp_path / "step-0000000003").mkdir()
    (tmp_path / "step-0000000003" / "__0_0_0123456789abcdef.distcp").write_bytes(b"half")
    (tmp_path / "notes").mkdir()
    assert checkpoints.latest() == 2 and checkpoints.steps() == [2]
    check(torch, checkpoints, 2)
    (tmp_path / "step-0000000002" / ".metadata").unlink()
    assert checkpoints.latest() is None
    incomplete = {one["step"] for one in checkpoints.entries(incomplete=True) if not one["complete"]}
    assert {2, 3} <= incomplete


def test_a_failed_save_removes_nothing(torch: Any, tmp_path: Path) -> None:
    checkpoints = run(tmp_path, keep_last=1)
    checkpoints.save(1, state(torch, 1))
    (tmp_path / "step-0000000002").write_bytes(b"a file in the way")
    checkpoints.async_save(2, state(torch, 2))
    with pytest.raises(NebulaioError, match="save checkpoint .*step-0000000002"):
        checkpoints.wait()
    assert checkpoints.steps() == [1]
    check(torch, checkpoints, 1)


def test_a_lost_server_is_told_at_the_next_call(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving.serving(tmp_path) as lost:
        monkeypatch.setenv("NEBULAIO_ENDPOINT", lost.endpoint)
        monkeypatch.setenv("NEBULAIO_ACCESS_KEY", serving.ACCESS)
        monkeypatch.setenv("NEBULAIO_SECRET_KEY", serving.SECRET)
        checkpoints = run("s3://bucket/run", keep_last=1)
        checkpoints.save(1, state(torch, 1))
        check(torch, checkpoints, 1)
        lost.kill()
        checkpoints.async_save(2, state(torch, 2))
        with pytest.raises(NebulaioError, match="save checkpoint s3://bucket/run/step-0000000002: "):
            checkpoints.wait()


def test_a_flipped_bit_is_found(torch: Any, tmp_path: Path) -> None:
    checkpoints = run(tmp_path, keep_last=1)
    checkpoints.save(1, {"model": {"w": torch.rand(5000)}})
    (data,) = (tmp_path / "step-0000000001").glob("*.distcp")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 4
    data.write_bytes(content)
    with pytest.raises(CorruptError, match=rf"damaged: {data.name} of model.w: "):
        checkpoints.verify()
    with pytest.raises(CorruptError, match=rf'load checkpoint .*step-0000000001: .*{data.name}: block.*"model.w"'):
        checkpoints.load({"model": {"w": torch.zeros(5000)}}, verify=True)


def test_a_prune_that_fails_is_a_warning(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nebulaio import _checkpoints

    def full(*_: Any, **__: Any) -> Any:
        raise NotFoundError("prune: the root is gone")

    monkeypatch.setattr(_checkpoints, "prune_checkpoints", full)
    checkpoints = run(tmp_path, keep_last=1)
    with pytest.warns(UserWarning, match="the root is gone.*the new checkpoint is durable"):
        checkpoints.save(1, state(torch, 1))
    assert checkpoints.latest() == 1


def test_wrong_arguments(torch: Any, tmp_path: Path) -> None:
    for options in ({"keep_last": 0}, {"keep_every": -1}, {"keep_last": True}, {"keep_every": "3"}):
        with pytest.raises(InvalidError, match=next(iter(options))):
            run(tmp_path, **options)
    with pytest.raises(InvalidError, match="empty"):
        run("")
    with pytest.raises(InvalidError, match="client="):
        run(tmp_path, client=object())
    for step in (-1, 1 << 40, True, "1"):
        with pytest.raises(InvalidError, match="step="):
            run(tmp_path).save(step, {})
    with pytest.raises(NotFoundError):
        run(tmp_path).verify()
    assert os.listdir(tmp_path) == []


WORLD = """
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
mesh = init_device_mesh("cpu", (world,))
with nebulaio.torch.Checkpoints(folder + "/run", keep_last=2) as checkpoints:
    assert checkpoints.latest() is None
    for step in range(5):
        weight = distribute_tensor(torch.arange(12.0) + step, mesh, [Shard(0)])
        save = checkpoints.save if step % 2 else checkpoints.async_save
        save(step, {"weight": weight, "step": step})
    checkpoints.wait()
    dist.barrier()
    assert checkpoints.steps() == [3, 4], checkpoints.steps()
    assert (checkpoints.pruned is not None) == (rank == 0)  # only rank 0 removes
    state = {"weight": distribute_tensor(torch.zeros(12), mesh, [Shard(0)]), "step": -1}
    assert checkpoints.load(state) == 4 and state["step"] == 4
    assert torch.equal(state["weight"].full_tensor(), torch.arange(12.0) + 4)
"""


def test_two_ranks_share_a_root(tmp_path: Path) -> None:
    run_world(WORLD, tmp_path)
