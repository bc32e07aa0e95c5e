# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as safetensors files: Hugging Face models, and the shards of torch's HuggingFaceStorageWriter."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from checkpoint_support import blank, in_world, load, random_tensor, refused, same, save  # noqa: E402
from nebulaio.torch import StorageReader, StorageWriter  # noqa: E402
from support import encode, write_sharded  # noqa: E402

# The dtypes that the safetensors package and stock torch both know.
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
          torch.int32, torch.int64, torch.bool]


def model(seed: int) -> dict[str, Any]:
    generator = random.Random(seed)
    shapes = [(), (4,), (3, 5), (2, 3, 4), (300,)]
    return {f"{number}.{str(dtype)[6:]}": random_tensor(generator, dtype, shape) for dtype in DTYPES
            for number, shape in enumerate(shapes)}


def test_stock_reads_our_model_and_we_read_its(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter

    state = model(1)
    save(state, StorageWriter(tmp_path / "ours", format="safetensors"))
    save(state, HuggingFaceStorageWriter(str(tmp_path / "stock")))
    for place in ("ours", "stock"):
        for reader in (StorageReader(tmp_path / place), HuggingFaceStorageReader(str(tmp_path / place))):
            assert same(load(blank(state), reader), state), (place, reader)
    assert same(load(blank(state), StorageReader(tmp_path / "ours", verify=True)), state)
    names = {path.name for path in (tmp_path / "ours").iterdir()}
    assert {"model-00001-of-00001.safetensors", "model-00001-of-00001.safetensors.crc64nvme",
            "model.safetensors.index.json"} < names
    assert len(names) == 5  # and the manifest with its checksums
    index = json.loads((tmp_path / "ours/model.safetensors.index.json").read_bytes())
    assert index["metadata"]["total_size"] == sum(value.numel() * value.itemsize for value in state.values())
    assert set(index["weight_map"]) == set(state)


def test_transformers_style_models_without_sharding_information(tmp_path: Path) -> None:
    from support import random_entry

    entries = {"a.w": random_entry(1, "F32", [4, 6]), "a.b": random_entry(2, "BF16", [6]),
               "c": random_entry(3, "I64", [2, 2])}
    write_sharded(tmp_path / "m", {"model-00001-of-00002.safetensors": {"a.w": entries["a.w"]},
                                   "model-00002-of-00002.safetensors": {"a.b": entries["a.b"], "c": entries["c"]}})
    (tmp_path / "m/other.safetensors").write_bytes(b"not of this model")
    got = load({"a.w": torch.zeros(4, 6), "c": torch.zeros(2, 2, dtype=torch.int64)}, StorageReader(tmp_path / "m"))
    assert bytes(got["a.w"].view(torch.uint8).numpy()) == entries["a.w"][2]
    assert bytes(got["c"].view(torch.uint8).numpy()) == entries["c"][2]
    (tmp_path / "m/model-00002-of-00002.safetensors").unlink()
    with refused("NotFoundError.*00002-of-00002|00002-of-00002.*no such file"):
        load({"c": torch.zeros(2, 2, dtype=torch.int64)}, StorageReader(tmp_path / "m"))


def shards(rank: int, world: int, folder: str) -> None:
    """Sharded tensors as safetensors files, by both writers."""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    state = {
        "rows": distribute_tensor(torch.arange(35.0).reshape(7, 5), mesh, [Shard(0)]),
        "columns": distribute_tensor(torch.arange(24.0).reshape(4, 6), mesh, [Shard(1)]),
        "whole": torch.arange(9.0),
    }
    dcp.save(state, storage_writer=StorageWriter(f"{folder}/ours", format="safetensors"))
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(f"{folder}/stock", save_distributed=True))


def test_shards_of_ranks(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    in_world(2, shards, str(tmp_path))
    expected = {"rows": torch.arange(35.0).reshape(7, 5), "columns": torch.arange(24.0).reshape(4, 6),
                "whole": torch.arange(9.0)}
    names = {path.name for path in (tmp_path / "ours").glob("*.safetensors")}
    assert names == {"shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"}
    for place in ("ours", "stock"):
        for reader in (StorageReader(tmp_path / place), HuggingFaceStorageReader(str(tmp_path / place))):
            assert same(load(blank(expected), reader), expected), (place, reader)
    for place in ("ours", "stock"):
        (tmp_path / place / "shard-00002-model-00001-of-00001.safetensors").unlink()
        with refused("shard-00002|parts of tensor|Size mismatch"):
            load(blank(expected), StorageReader(tmp_path / place))


def test_data_files_of_safetensors_items(tmp_path: Path) -> None:
    """FileSystemWriter with SerializationFormat.SAFETENSORS: stock torch cannot read what it wrote, and we can."""
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    state = {"w": torch.randn(8, 3), "tiny": torch.tensor([1, 2], dtype=torch.int8), "step": 4}
    save(state, dcp.FileSystemWriter(tmp_path, serialization_format=SerializationFormat.SAFETENSORS))
    assert same(load(blank(state), StorageReader(tmp_path)), state)


def test_what_safetensors_cannot_hold(tmp_path: Path) -> None:
    with refused("'step'.*only tensors"):
        save({"w": torch.ones(2), "step": 3}, StorageWriter(tmp_path / "a", format="safetensors"))
    assert not list((tmp_path / "a").glob("*.safetensors"))
    # the mark of the failed one is no obstacle
    save({"w": torch.ones(2)}, StorageWriter(tmp_path / "a", format="safetensors"))
    with refused("has 'model-00001-of-00001.safetensors' already"):
        save({"w": torch.ones(2)}, StorageWriter(tmp_path / "a", format="safetensors"))
    assert torch.equal(load({"w": torch.zeros(2)}, StorageReader(tmp_path / "a"))["w"], torch.ones(2))


@pytest.mark.parametrize(
    "header",
    [
        "[]", "{", '{"w": 3}', '{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        '{"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}',
        '{"w": {"dtype": "XX", "shape": [2], "data_offsets": [0, 8]}}',
        '{"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}',
        '{"__metadata__": {"DCP_SHARDING_INFO": "{}"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
        '{"__metadata__": {"DCP_SHARDING_INFO": "{\\"w\\": {\\"saved_offsets\\": [0, 0]}}"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
        '{"__metadata__": {"DCP_SHARDING_INFO": "{\\"w\\": {\\"saved_offsets\\": [7]}}"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}',
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(encode(header, bytes(8)))
    with refused("model.safetensors|parts of tensor"):
        StorageReader(tmp_path).read_metadata()


def test_cut_files_are_refused(tmp_path: Path) -> None:
    data = encode({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8))
    for size in range(len(data)):
        (tmp_path / "model.safetensors").write_bytes(data[:size])
        with refused("model.safetensors"):
            StorageReader(tmp_path).read_metadata()
