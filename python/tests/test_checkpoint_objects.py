# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in buckets of a running server: through the door, over HTTP, and with a server that vanishes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import serving
from nebulaio.gpudirect import GPUDirectClient

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import blank, every_dtype, in_world, load, refused, same, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter  # noqa: E402


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[serving.Server]:
    with serving.serving(tmp_path / "server", buckets=("runs",)) as made:
        monkeypatch.setenv("NEBULAIO_ENDPOINT", made.endpoint)
        monkeypatch.setenv("NEBULAIO_ACCESS_KEY", made.keys["access_key"])
        monkeypatch.setenv("NEBULAIO_SECRET_KEY", made.keys["secret_key"])
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()


def names(client: Any, prefix: str) -> set[str]:
    return {one.key.removeprefix(prefix) for one in client.list("runs", prefix)}


@pytest.mark.parametrize("door", ["auto", "off"])
def test_save_and_load(server: serving.Server, tmp_path: Path, door: str) -> None:
    client = GPUDirectClient(server.endpoint, **server.keys, door=door)
    state = every_dtype(3)
    writer = StorageWriter("s3://runs/a/step-1", client=client)
    save(state, writer)
    first = names(client, "a/step-1/")
    assert len(first) == 5 and ".metadata" in first, first
    reader = StorageReader("s3://runs/a/step-1/", client=client, verify=True)
    assert same(load(blank(state), reader), state)
    assert reader.report is not None
    assert all(job["via"] == ("http" if door == "off" else "door") for job in reader.report["jobs"])
    # The objects are those of a checkpoint that stock torch reads.
    for name in first:
        (tmp_path / name).write_bytes(server.get("runs", f"a/step-1/{name}"))
    assert same(load(blank(state), dcp.FileSystemReader(tmp_path)), state)
    # A second save replaces the first, and removes its objects.
    other = {"w": torch.ones(5)}
    save(other, StorageWriter("s3://runs/a/step-1", client=client))
    second = names(client, "a/step-1/")
    assert len(second) == 5 and second & first == {".metadata"}
    assert same(load(blank(other), StorageReader("s3://runs/a/step-1", client=client)), other)


def test_stock_checkpoints_and_models_in_a_bucket(server: serving.Server, tmp_path: Path) -> None:
    state = {"w": torch.randn(40, 7), "turned": torch.randn(3, 5).t(), "step": 3}
    save(state, dcp.FileSystemWriter(tmp_path / "stock"))
    tensors = {"w": state["w"], "b": torch.arange(6)}
    save(tensors, StorageWriter(tmp_path / "hf", format="safetensors"))
    for place in ("stock", "hf"):
        for path in (tmp_path / place).iterdir():
            server.put("runs", f"{place}/{path.name}", path.read_bytes())
    assert same(load(blank(state), StorageReader("s3://runs/stock")), state)
    assert same(load(blank(tensors), StorageReader("s3://runs/hf")), tensors)
    save(tensors, StorageWriter("s3://runs/out", format="safetensors"))
    assert same(load(blank(tensors), StorageReader("s3://runs/out")), tensors)


def ranks(rank: int, world: int, url: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(70.0).reshape(7, 10)
    dcp.save({"w": distribute_tensor(whole, mesh, [Shard(0)])}, storage_writer=StorageWriter(url))
    for placement in (Shard(1), Replicate()):
        target = {"w": distribute_tensor(torch.zeros_like(whole), mesh, [placement])}
        dcp.load(target, storage_reader=StorageReader(url, verify=True))
        assert torch.equal(target["w"].full_tensor(), whole)


def test_ranks_save_to_a_bucket(server: serving.Server) -> None:
    in_world(2, ranks, "s3://runs/ranks")


def test_what_is_missing_is_named(server: serving.Server) -> None:
    with refused("NotFoundError.*s3://runs/none/.metadata|s3://runs/none/.metadata.*no such"):
        load({"w": torch.zeros(2)}, StorageReader("s3://runs/none"))
    with refused("nobucket"):
        save({"w": torch.zeros(2)}, StorageWriter("s3://nobucket/x"))


def test_a_server_that_vanishes_leaves_the_old_checkpoint(server: serving.Server, tmp_path: Path) -> None:
    client = GPUDirectClient(server.endpoint, **server.keys, door="off", timeout=60, retries=0)
    old = {"w": torch.ones(1000)}
    save(old, StorageWriter("s3://runs/c", client=client))

    class Vanishing(dcp.DefaultSavePlanner):
        """The server dies when the values of the second save are asked for."""

        def resolve_data(self, item: Any) -> Any:
            server.kill()
            return super().resolve_data(item)

    new = {"w": torch.zeros(1000)}
    with refused("s3://runs/c"):
        save(new, StorageWriter("s3://runs/c", client=client), planner=Vanishing())
    with refused("s3://runs/c"):
        load(blank(old), StorageReader("s3://runs/c", client=client))
    with serving.serving(tmp_path / "server", buckets=()) as again:
        client = GPUDirectClient(again.endpoint, **again.keys)
        assert same(load(blank(old), StorageReader("s3://runs/c", client=client, verify=True)), old)
        save(new, StorageWriter("s3://runs/c", client=client))
        assert same(load(blank(old), StorageReader("s3://runs/c", client=client, verify=True)), new)
        assert len(names(client, "c/")) == 5
