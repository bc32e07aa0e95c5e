# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from and to CUDA tensors: stock torch reads ours, and we read those of stock torch, with equal bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import CorruptError

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")

import nebulaio.torch as ours  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import every_dtype, in_world, load, random_tensor, refused, same, save  # noqa: E402
from nebulaio.torch import AsyncSaver, StorageReader, StorageWriter  # noqa: E402

DEVICE = "cuda:0"
LARGE = 64 << 20  # bytes of a tensor whose copy takes longer than the call that starts it


def on(state: Any, device: str) -> Any:
    """A copy of a state with all tensors on a device."""
    if isinstance(state, torch.Tensor):
        return state.to(device, copy=True)
    if isinstance(state, dict):
        return {key: on(value, device) for key, value in state.items()}
    return [on(value, device) for value in state] if isinstance(state, list) else state


def blank(state: Any, device: str) -> Any:
    """A state of the same form on a device, with other values. The zeros are bytes: not every dtype can be filled."""
    if isinstance(state, torch.Tensor):
        if not state.numel():
            return torch.empty(state.shape, dtype=state.dtype, device=device)
        return (
            torch.zeros(state.numel() * state.itemsize, dtype=torch.uint8, device=device)
            .view(state.dtype)
            .view(state.shape)
        )
    if isinstance(state, dict):
        return {key: blank(value, device) for key, value in state.items()}
    return [blank(value, device) for value in state] if isinstance(state, list) else None


def devices(state: Any) -> set[str]:
    """The devices of all tensors of a state."""
    if isinstance(state, torch.Tensor):
        return {str(state.device)}
    values = state.values() if isinstance(state, dict) else state if isinstance(state, list) else ()
    return set().union(*map(devices, values))


def busy() -> None:
    """Keep the current stream busy for some hundredths of a second, so that later work on it is still to come."""
    torch.cuda._sleep(50_000_000)


@pytest.mark.parametrize("source", ["cpu", DEVICE])
@pytest.mark.parametrize("writer", [StorageWriter, dcp.FileSystemWriter])
def test_either_side_reads_both(tmp_path: Path, writer: Callable[[Path], Any], source: str) -> None:
    state = on(every_dtype(1), source)
    save(state, writer(tmp_path))
    for reader in (StorageReader(tmp_path), dcp.FileSystemReader(tmp_path)):
        for target in (DEVICE, "cpu"):
            got = load(blank(state, target), reader)
            assert same(got, state) and devices(got) == {target}, (reader, target)


def test_views_are_saved_as_they_are_seen(tmp_path: Path) -> None:
    base = random_tensor(random.Random(2), torch.bfloat16, (300, 200)).to(DEVICE)
    state = {
        "whole": base,
        "row": base[7],
        "columns": base[:, 30:77],
        "turned": base.t(),
        "steps": base[::3, 1::2],
        "last": base[299:, 199:],
    }
    for place, writer in (("ours", StorageWriter), ("stock", dcp.FileSystemWriter)):
        save(state, writer(tmp_path / place))
        for reader in (StorageReader(tmp_path / place), dcp.FileSystemReader(tmp_path / place)):
            assert same(load(blank(state, DEVICE), reader), state), (place, reader)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.float8_e4m3fn, torch.complex128])
def test_targets_that_are_not_contiguous(tmp_path: Path, dtype: Any) -> None:
    tensor = random_tensor(random.Random(3), dtype, (257, 130))
    for place, writer in (("ours", StorageWriter), ("stock", dcp.FileSystemWriter)):
        save({"w": tensor.to(DEVICE)}, writer(tmp_path / place))
        wide = blank(torch.empty(257, 400, dtype=dtype), DEVICE)
        targets = {
            "columns": wide[:, 100:230],
            "turned": blank(torch.empty(130, 257, dtype=dtype), DEVICE).t(),
            "rows": blank(torch.empty(514, 130, dtype=dtype), DEVICE)[::2],
            "steps": blank(torch.empty(257, 260, dtype=dtype), DEVICE)[:, ::2],
        }
        for name, target in targets.items():
            load({"w": target}, StorageReader(tmp_path / place))
            assert same(target, tensor), (place, name)
        outside = wide.view(torch.uint8).view(257, 400, dtype.itemsize)
        assert not outside[:, :100].any() and not outside[:, 230:].any(), "bytes beside the target were changed"


def test_large_tensors_verified(tmp_path: Path) -> None:
    state = {
        name: torch.randint(0, 256, (LARGE + extra,), dtype=torch.uint8, device=DEVICE)
        for extra, name in enumerate("abc")
    }
    save(state, StorageWriter(tmp_path))
    for verify in (False, True):
        reader = StorageReader(tmp_path, verify=verify)
        assert same(load(blank(state, DEVICE), reader), state)
        assert reader.report is not None and reader.report["bytes"] >= 3 * LARGE


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    state = {"model": {f"layer.{n}": torch.rand(512, 512, device=DEVICE) for n in range(4)}}
    save(state, StorageWriter(tmp_path))
    (file,) = tmp_path.glob("*.distcp")
    content = bytearray(file.read_bytes())
    wanted = bytes(state["model"]["layer.2"].cpu().view(torch.uint8).numpy())
    content[content.index(wanted) + 1000] ^= 4
    file.write_bytes(content)
    with refused(rf"(?s){file.name}.*layer\.2"):
        load(blank(state, DEVICE), StorageReader(tmp_path, verify=True))
    others = {"model": {name: tensor for name, tensor in blank(state, DEVICE)["model"].items() if name == "layer.2"}}
    assert not same(load(others, StorageReader(tmp_path)), {"model": {"layer.2": state["model"]["layer.2"]}})


def test_hugging_face_models(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter

    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool]
    state = {
        f"{n}.w": random_tensor(random.Random(n), dtype, (40 + n, 30)).to(DEVICE) for n, dtype in enumerate(dtypes)
    }
    save(state, StorageWriter(tmp_path / "ours", format="safetensors"))
    save(on(state, "cpu"), HuggingFaceStorageWriter(str(tmp_path / "stock")))
    for place in ("ours", "stock"):
        for reader in (StorageReader(tmp_path / place), HuggingFaceStorageReader(str(tmp_path / place))):
            assert same(load(blank(state, DEVICE), reader), state), (place, reader)


def shards(rank: int, world: int, folder: str) -> None:
    """Rows and narrow columns of DTensors on the card, saved by both writers, loaded in the other placement."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh(DEVICE.partition(":")[0], (world,))
    whole = torch.arange(96 * 70, dtype=torch.float32).reshape(96, 70).to(DEVICE)

    def part(dimension: int, values: Any) -> Any:
        mine = values.chunk(world, dimension)[rank].contiguous()
        return DTensor.from_local(
            mine, mesh, [Shard(dimension)], run_check=False, shape=whole.shape, stride=whole.stride()
        )

    for place, writer in (("ours", StorageWriter), ("stock", dcp.FileSystemWriter)):
        dcp.save(
            {"rows": part(0, whole), "columns": part(1, whole), "step": 3}, storage_writer=writer(f"{folder}/{place}")
        )
        target = {"rows": part(1, whole * 0), "columns": part(0, whole * 0), "step": 0}
        dcp.load(target, storage_reader=StorageReader(f"{folder}/{place}"))
        assert torch.equal(target["rows"].to_local(), whole.chunk(world, 1)[rank]), place
        assert torch.equal(target["columns"].to_local(), whole.chunk(world, 0)[rank]), place


def test_shards_of_ranks_on_the_card(tmp_path: Path) -> None:
    in_world(2, shards, str(tmp_path))
    whole = torch.arange(96 * 70, dtype=torch.float32).reshape(96, 70)
    for place in ("ours", "stock"):
        for reader in (StorageReader(tmp_path / place), dcp.FileSystemReader(tmp_path / place)):
            got = load(
                {"rows": torch.zeros(96, 70, device=DEVICE), "columns": torch.zeros(96, 70, device=DEVICE), "step": 0},
                reader,
            )
            assert same(got, {"rows": whole, "columns": whole, "step": 3}), (place, reader)


def test_pt_files(tmp_path: Path) -> None:
    state = on(every_dtype(5), DEVICE)
    whole = torch.rand(1000, 30, device=DEVICE)
    state["views"] = {"whole": whole, "columns": whole[:, 4:9], "turned": whole.t()}
    torch.save(state, tmp_path / "stock.pt")
    ours.save(state, tmp_path / "ours.pt")
    for name in ("stock.pt", "ours.pt"):
        for target in (None, DEVICE, "cpu"):
            for one in (ours.load(tmp_path / name, target), torch.load(tmp_path / name, target)):
                assert same(one, state) and devices(one) == {target or DEVICE}, (name, target)
                assert one["views"]["columns"].stride() == (30, 1)
                assert (
                    one["views"]["columns"].untyped_storage().data_ptr()
                    == one["views"]["whole"].untyped_storage().data_ptr()
                )


def test_a_flipped_bit_in_a_pt_file_is_found(tmp_path: Path) -> None:
    state = {"a": torch.rand(3000, device=DEVICE), "b": torch.rand(4000, device=DEVICE)}
    path = tmp_path / "x.pt"
    ours.save(state, path)
    assert same(ours.load(path, DEVICE, verify=True), state)
    content = bytearray(path.read_bytes())
    content[content.index(bytes(state["b"].cpu().view(torch.uint8).numpy())) + 77] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptError, match="x.pt"):
        ours.load(path, DEVICE, verify=True)


@pytest.mark.parametrize("side", [False, True])
def test_saves_and_loads_keep_to_the_order_of_the_stream(tmp_path: Path, side: bool) -> None:
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(LARGE // 4, device=DEVICE)
        busy()
        tensor += 1  # after the save is called
        save({"w": tensor}, StorageWriter(tmp_path))
        tensor += 1
        busy()
        copy = tensor * 2  # reads the tensor after the load is called
        load({"w": tensor}, StorageReader(tmp_path))
        after = tensor * 3
    torch.cuda.synchronize()
    assert bool((after == 3).all()) and bool((copy == 4).all())


@pytest.mark.parametrize("kind", ["device", "staging"])
def test_parameters_change_after_the_snapshot(tmp_path: Path, kind: Any) -> None:
    state = {f"w{n}": torch.zeros(LARGE // 4, device=DEVICE) for n in range(4)}
    with AsyncSaver(snapshot=kind, memory=5 * LARGE) as saver:
        for number in range(3):
            busy()
            for tensor in state.values():
                tensor += 1  # queued, and part of the snapshot
            started = saver.save(state, tmp_path / str(number))
            saver.wait_before_step()
            for tensor in state.values():
                tensor += 1  # queued, and not part of it
            report = started.wait()
            assert report["snapshot"]["kind"] == kind and report["snapshot"]["direct_bytes"] == 0
            for reader in (
                StorageReader(tmp_path / str(number), verify=True),
                dcp.FileSystemReader(tmp_path / str(number)),
            ):
                got = load(blank(state, DEVICE), reader)
                assert all(bool((tensor == 2 * number + 1).all()) for tensor in got.values()), (kind, number, reader)


def test_staging_memory_is_bounded(tmp_path: Path) -> None:
    """What does not fit into the staging memory is written from the parameters, and wait_before_step waits for it."""
    state = {f"w{n}": torch.full((LARGE // 4,), float(n), device=DEVICE) for n in range(4)}
    with AsyncSaver(snapshot="staging", memory=2 * LARGE) as saver:
        started = saver.save(state, tmp_path / "a")
        saver.wait_before_step()
        for tensor in state.values():
            tensor.fill_(-1)
        report = started.wait()["snapshot"]
    assert report["staged_bytes"] <= 2 * LARGE and report["staged_bytes"] + report["direct_bytes"] == 4 * LARGE
    got = load(blank(state, DEVICE), StorageReader(tmp_path / "a"))
    assert all(bool((tensor == n).all()) for n, tensor in enumerate(got.values()))


@pytest.mark.parametrize("kind", ["device", "staging"])
def test_a_training_goes_on_from_its_checkpoint(tmp_path: Path, kind: Any) -> None:
    def make() -> tuple[Any, Any]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).to(DEVICE)
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    def train(model: Any, optimizer: Any, first: int, last: int, before: Callable[[], object] = lambda: None) -> None:
        for number in range(first, last):
            values = torch.full((8, 256), number / 10, device=DEVICE)
            optimizer.zero_grad()
            model(values).square().mean().backward()
            before()
            optimizer.step()

    def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    model, optimizer = make()
    with AsyncSaver(snapshot=kind, memory=1 << 28) as saver:
        train(model, optimizer, 0, 3)
        saver.save(state_of(model, optimizer), tmp_path / "a", step=3)
        train(model, optimizer, 3, 6, saver.wait_before_step)
    other, its = make()
    train(other, its, 0, 1)  # the optimizer then has its state
    target = state_of(other, its)
    load(target, StorageReader(tmp_path / "a"))
    other.load_state_dict(target["model"])
    its.load_state_dict(target["optimizer"])
    train(other, its, 3, 6)
    assert same(state_of(other, its), state_of(model, optimizer))
