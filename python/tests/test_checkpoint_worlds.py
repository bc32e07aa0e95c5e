# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of several ranks: saved by one world and loaded by another, FSDP2, DTensor and plain tensors."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import blank, in_world, load, refused, same, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter  # noqa: E402

WIDTH = 10  # not a multiple of 3: shards of different sizes


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, 2 * WIDTH + 1)
        self.second = torch.nn.Linear(2 * WIDTH + 1, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


def trained() -> tuple[Any, Any]:
    """A model and its Adam after some steps, the same in every process."""
    torch.manual_seed(5)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, WIDTH)).square().mean().backward()
        optimizer.step()
    model.seen.fill_(3.0)
    return model, optimizer


def state_of(model: Any, optimizer: Any, **options: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    weights, moments = get_state_dict(model, optimizer, options=StateDictOptions(**options))
    return {"model": weights, "optimizer": moments}


def sharded(offload: bool = False) -> tuple[Any, Any]:
    """An FSDP2 model on the CPU with an Adam of its own, untrained."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    torch.manual_seed(9)
    model = Net()
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    options = {"offload_policy": CPUOffloadPolicy(pin_memory=False)} if offload else {}
    for part in (model.first, model.second, model):
        fully_shard(part, mesh=mesh, **options)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def reshard(rank: int, world: int, source: str, target: str, stock: bool, verify: bool, offload: bool) -> dict[str,
                                                                                                               Any]:
    """Load a checkpoint into a sharded model, save it again, and return the report and the whole state."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

    model, optimizer = sharded(offload)
    state = state_of(model, optimizer)
    reader = StorageReader(source, verify=verify)
    dcp.load(state, storage_reader=reader)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    dcp.save(state_of(model, optimizer), storage_writer=dcp.FileSystemWriter(target) if stock
             else StorageWriter(target))
    weights, moments = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    whole = {"model": weights, "optimizer": moments}
    assert reader.report is not None
    return {"report": {key: reader.report[key] for key in ("items", "shared_bytes", "wanted_bytes")},
            "state": _bytes(whole) if rank == 0 else None}


def _bytes(state: Any) -> Any:
    """The state with tensors as bytes, which need no shared memory on their way to another process."""
    if isinstance(state, torch.Tensor):
        return ("tensor", str(state.dtype), tuple(state.shape),
                bytes(state.detach().contiguous().reshape(-1).view(torch.uint8).numpy()))
    if isinstance(state, dict):
        return {key: _bytes(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [_bytes(value) for value in state]
    return state


@pytest.mark.parametrize(("stock", "offload"), [(False, False), (True, True)])
def test_fsdp_state_goes_through_worlds_of_2_3_and_1(tmp_path: Path, stock: bool, offload: bool) -> None:
    """The unsharded state is saved, and loaded, sharded and saved by 2 ranks, then 3, then 1."""
    expected = state_of(*trained())
    save(expected, StorageWriter(tmp_path / "0"))
    for number, world in enumerate((2, 3, 1)):
        got = in_world(world, reshard, str(tmp_path / str(number)), str(tmp_path / str(number + 1)), stock
                       and number < 2, not stock, offload)
        assert got[0]["state"] == _bytes(expected), world
        files = list((tmp_path / str(number + 1)).glob("*.distcp"))
        assert len(files) >= world
    for reader in (StorageReader(tmp_path / "3"), dcp.FileSystemReader(tmp_path / "3")):
        assert same(load(blank(expected), reader), expected)


def meshes(rank: int, world: int, folder: str) -> None:
    """DTensors on a mesh of 2 x 2 in several placements, saved by 4 ranks, loaded in other placements."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2))
    wholes = {name: torch.arange(7 * 6 * 5, dtype=torch.float32).reshape(7, 6, 5) * scale
              for scale, name in enumerate("abc", 1)}
    saved = {"a": (Shard(0), Shard(1)), "b": (Replicate(), Shard(2)), "c": (Shard(1), Replicate())}
    state = {name: distribute_tensor(wholes[name], mesh, saved[name]) for name in wholes}
    for writer, place in ((StorageWriter, "ours"), (dcp.FileSystemWriter, "stock")):
        dcp.save({**state, "plain": torch.arange(4.0), "step": 3}, storage_writer=writer(f"{folder}/{place}"))
        for placements in ((Shard(2), Shard(0)), (Shard(1), Shard(1)), (Replicate(), Replicate())):
            other = {name: distribute_tensor(torch.zeros_like(whole), mesh, placements)
                     for name, whole in wholes.items()}
            target = {**other, "plain": torch.zeros(4), "step": 0}
            dcp.load(target, storage_reader=StorageReader(f"{folder}/{place}"))
            for name, whole in wholes.items():
                assert torch.equal(target[name].full_tensor(), whole), (place, name, placements)
            assert torch.equal(target["plain"], torch.arange(4.0)) and target["step"] == 3


def test_dtensors_on_a_mesh_of_two_dimensions(tmp_path: Path) -> None:
    in_world(4, meshes, str(tmp_path))


def replicas(rank: int, world: int, folder: str) -> dict[str, Any]:
    """Every rank loads the same tensors, and a tensor of its own."""
    state = {"same": torch.zeros(3000), "also": torch.zeros(50, 4), "step": 0}
    reader = StorageReader(folder)
    dcp.load(state, storage_reader=reader)
    assert torch.equal(state["same"], torch.arange(3000.0)) and torch.equal(state["also"], torch.full((50, 4), 2.0))
    report = reader.report
    assert report is not None
    return {"shared": report["shared_bytes"], "notes": report["notes"], "items": report["items"]["shared"]}


def test_replicated_items_are_read_once_by_the_host(tmp_path: Path) -> None:
    state = {"same": torch.arange(3000.0), "also": torch.full((50, 4), 2.0), "step": 7}
    save(state, StorageWriter(tmp_path))
    for report in in_world(2, replicas, str(tmp_path)):
        assert (report["shared"], report["items"]) == (3000 * 4 + 200 * 4, 2)
        assert "page cache" in report["notes"][0]


def failing(rank: int, world: int, folder: str) -> str:
    """One rank cannot write. Every rank sees the error."""
    from checkpoint_support import cause_of
    from torch.distributed.checkpoint.api import CheckpointException

    state = {f"rank{rank}": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8) if rank == 1
             else torch.ones(3)}
    try:
        dcp.save(state, storage_writer=StorageWriter(folder))
    except CheckpointException as problem:
        return cause_of(problem)
    return ""


def test_a_rank_that_fails_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    old = {"rank0": torch.zeros(3)}
    save(old, StorageWriter(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for text in in_world(2, failing, str(tmp_path)):
        assert "'rank1'" in text and "quantised" in text
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    assert same(load(blank(old), StorageReader(tmp_path, verify=True)), old)
    # The other rank's files are removed by the next save.
    save(old, StorageWriter(tmp_path))
    assert len(list(tmp_path.iterdir())) == 5


def in_background(rank: int, world: int, folder: str) -> None:
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    for kind in (AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS):
        state = {"w": torch.full((4, 3), float(rank)), f"own{rank}": torch.arange(5), "step": 2}
        dcp.async_save(state, storage_writer=StorageWriter(f"{folder}/{kind.name}"),
                       async_checkpointer_type=kind).result()


def test_async_save_of_ranks_in_threads_and_processes(tmp_path: Path) -> None:
    in_world(2, in_background, str(tmp_path))
    for kind in ("THREAD", "PROCESS"):
        state = {"w": torch.full((4, 3), 9.0), "own0": torch.zeros(5, dtype=torch.int64),
                 "own1": torch.zeros(5, dtype=torch.int64), "step": 0}
        for reader in (StorageReader(tmp_path / kind, verify=True), dcp.FileSystemReader(tmp_path / kind)):
            load(state, reader)
            assert torch.equal(state["own0"], torch.arange(5)) and torch.equal(state["own1"],
                                                                               torch.arange(5)) and state["step"] == 2


def alone(rank: int, world: int, folder: str) -> None:
    state = {"w": torch.full((6,), float(rank))}
    for _ in range(2):
        dcp.save(state, storage_writer=StorageWriter(folder), use_collectives=False)
    got = {"w": torch.zeros(6)}
    dcp.load(got, storage_reader=StorageReader(folder, verify=True))
    assert torch.equal(got["w"], state["w"])


def test_ranks_that_save_without_each_other(tmp_path: Path) -> None:
    in_world(2, alone, str(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if name.endswith(".metadata")] == ["__0.metadata", "__1.metadata"]
    assert len(names) == 10, names


def load_alone(rank: int, world: int, folder: str) -> str:
    from checkpoint_support import cause_of
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        dcp.load({"w": torch.zeros(6)}, storage_reader=StorageReader(folder))
    except CheckpointException as problem:
        return cause_of(problem)
    return ""


def test_a_world_of_another_size(tmp_path: Path) -> None:
    """Ranks that saved alone can be loaded by as many ranks only. A manifest of another world is refused."""
    in_world(2, alone, str(tmp_path / "alone"))
    for text in in_world(3, load_alone, str(tmp_path / "alone")):
        assert "2 ranks have saved" in text and "rank 2 is none of them" in text
    in_world(2, write_both, str(tmp_path / "both"))
    manifest = next((tmp_path / "both").glob("checkpoint-*.json"))
    told = json.loads(manifest.read_bytes())
    manifest.write_text(json.dumps({**told, "world": 1}))
    with refused("says that 1 ranks have saved, and has a file of rank 1"):
        load({"own0": torch.zeros(5)}, StorageReader(tmp_path / "both"))


def test_missing_file_of_a_rank_is_named(tmp_path: Path) -> None:
    in_world(2, write_both, str(tmp_path))
    told = json.loads(next(tmp_path.glob("checkpoint-*.json")).read_bytes())
    assert told["world"] == 2 and len(told["files"]) == 2
    shutil.copytree(tmp_path, tmp_path / "copy")
    gone = next(file["name"] for file in told["files"] if file["name"].startswith("__1_"))
    os.unlink(tmp_path / "copy" / gone)
    with refused(f"{gone}.*no such file.*'own1'"):
        load({"own0": torch.zeros(5), "own1": torch.zeros(5)}, StorageReader(tmp_path / "copy"))
    assert torch.equal(load({"own0": torch.zeros(5)}, StorageReader(tmp_path / "copy"))["own0"], torch.full((5,), 0.0))


def write_both(rank: int, world: int, folder: str) -> None:
    dcp.save({f"own{rank}": torch.full((5,), float(rank))}, storage_writer=StorageWriter(folder))
