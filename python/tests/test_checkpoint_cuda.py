# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from GPU memory and into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.cuda]
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import every_dtype, load, same, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter  # noqa: E402


def on(state: Any, device: str) -> Any:
    """The state with its tensors on a device."""
    if isinstance(state, torch.Tensor):
        return state.to(device)
    if isinstance(state, dict):
        return {key: on(value, device) for key, value in state.items()}
    return [on(value, device) for value in state] if isinstance(state, list) else state


def blank_on(state: Any, device: str) -> Any:
    """A state of the same form with other values, on a device."""
    if isinstance(state, torch.Tensor):
        return torch.zeros(state.shape, dtype=state.dtype, device=device)
    if isinstance(state, dict):
        return {key: blank_on(value, device) for key, value in state.items()}
    return [blank_on(value, device) for value in state] if isinstance(state, list) else None


@pytest.mark.parametrize("source", ["cuda", "cpu"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_every_dtype_both_ways(tmp_path: Path, source: str, target: str) -> None:
    state = every_dtype(4)
    save(on(state, source), StorageWriter(tmp_path / "ours"))
    save(on(state, source), dcp.FileSystemWriter(tmp_path / "stock"))
    for place in ("ours", "stock"):
        got = load(blank_on(state, target), StorageReader(tmp_path / place, verify=place == "ours"))
        assert same(got, state), place
    assert same(load(blank_on(state, target), dcp.FileSystemReader(tmp_path / "ours")), state)


def test_tensors_on_both_devices_share_a_save(tmp_path: Path) -> None:
    state = {"gpu": torch.arange(5000.0, device="cuda"), "host": torch.arange(7), "turned": torch.randn(30, 20, device="cuda").t(), "n": 1}
    writer = StorageWriter(tmp_path)
    save(state, writer)
    assert writer.report is not None and writer.report["copied_items"] == 1
    got = {"gpu": torch.zeros(5000), "host": torch.zeros(7, dtype=torch.int64, device="cuda"), "turned": torch.zeros(30, 20, device="cuda").t(), "n": 0}
    reader = StorageReader(tmp_path, verify=True)
    load(got, reader)
    assert torch.equal(got["gpu"], state["gpu"].cpu()) and torch.equal(got["host"].cpu(), state["host"])
    assert torch.equal(got["turned"], state["turned"]) and got["n"] == 1
    assert reader.report is not None and reader.report["items"]["buffered"] == 1


def test_queued_work_comes_first(tmp_path: Path) -> None:
    """A save sees what was queued on the current stream before it, and a load is not overwritten by earlier work."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        values = torch.zeros(1 << 22, device="cuda")
        torch.cuda._sleep(200_000_000)
        values += 3
        save({"w": values}, StorageWriter(tmp_path))
        target = torch.zeros(1 << 22, device="cuda")
        torch.cuda._sleep(200_000_000)
        target -= 1
        load({"w": target}, StorageReader(tmp_path))
        assert bool((target == 3).all())


def test_columns_of_large_tensors(tmp_path: Path) -> None:
    """A part of each row goes to the GPU without its neighbours."""
    from test_checkpoint_dcp import PartPlanner

    whole = torch.randn(512, 300, 16)
    save({"w": whole}, StorageWriter(tmp_path))
    for at, lengths in (((0, 100, 0), (512, 50, 16)), ((3, 0, 4), (500, 300, 8)), ((100, 20, 3), (7, 200, 1))):
        target = torch.zeros(lengths, device="cuda")
        reader = StorageReader(tmp_path)
        load({"w": target}, reader, planner=PartPlanner({"w": at}))
        part = tuple(slice(begin, begin + length) for begin, length in zip(at, lengths))
        assert torch.equal(target.cpu(), whole[part])
        assert reader.report is not None and reader.report["items"]["direct"] == 1


def test_safetensors_from_the_gpu(tmp_path: Path) -> None:
    state = {"w": torch.randn(64, 32, device="cuda", dtype=torch.bfloat16), "b": torch.arange(9, device="cuda")}
    save(state, StorageWriter(tmp_path, format="safetensors"))
    for reader in (StorageReader(tmp_path), dcp.HuggingFaceStorageReader(str(tmp_path))):
        got = load(blank_on(state, "cuda"), reader)
        assert same(got, state)
