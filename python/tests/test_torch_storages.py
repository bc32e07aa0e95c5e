# SPDX-License-Identifier: Apache-2.0
"""Torch tensors of one file have storages of their own: what was loaded is saved whole by other packages, and by ours."""

from __future__ import annotations

import gc
import importlib
import io
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio.safetensors import load_file, safe_open, save_model, stream
from support import random_entry, write

pytestmark = pytest.mark.torch

ENTRIES = {f"{n}.weight": random_entry(n, "F32" if n % 2 else "BF16", [n + 1, 240]) for n in range(8)}


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "model.safetensors", {**ENTRIES, "empty": ("F32", [0, 3], b""),
                                                  "scalar": random_entry(9, "F64", [])})


def raw(tensor: Any) -> bytes:
    return bytes(bytearray(tensor.flatten().view(importlib.import_module("torch").uint8).tolist()))


def loads(path: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    def prefetched() -> dict[str, Any]:
        with safe_open(path, "pt", route="buffered") as file, file.prefetch() as loader:
            return dict(loader)

    def opened() -> dict[str, Any]:
        with safe_open(path, "pt", route="buffered") as file:
            return file.get_tensors()

    return {"load_file": lambda: load_file(path, "cpu"), "prefetch": prefetched, "get_tensors": opened,
            "stream": lambda: dict(stream(path, "cpu"))}


@pytest.mark.parametrize("way", ["load_file", "prefetch", "get_tensors", "stream"])
def test_a_storage_is_the_tensor(torch: Any, path: Path, way: str) -> None:
    found = loads(path)[way]()
    assert found.keys() == {*ENTRIES, "empty", "scalar"}
    for name, tensor in found.items():
        storage = tensor.untyped_storage()
        assert (storage.nbytes(), tensor.storage_offset()) == (tensor.numel() * tensor.element_size(), 0), name
    # A write to one tensor is no write to another one, for autograd too.
    before = found["2.weight"]._version
    found["1.weight"].add_(1)
    assert found["2.weight"]._version == before
    kept = found.pop("3.weight")
    del found
    gc.collect()
    junk = [torch.ones(1 << 16) for _ in range(8)]
    assert raw(kept) == ENTRIES["3.weight"][2] and junk


def test_torch_saves_one_tensor_alone(torch: Any, path: Path) -> None:
    saved = io.BytesIO()
    torch.save(load_file(path, "cpu")["7.weight"], saved)
    one = len(ENTRIES["7.weight"][2])
    assert one < len(saved.getvalue()) < one + 4096 < sum(len(entry[2]) for entry in ENTRIES.values())


def _return(inbox: Any, outbox: Any) -> None:
    outbox.put(raw(inbox.get()))


def test_other_processes_receive_a_tensor(torch: Any, path: Path) -> None:
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=_return, args=(inbox, outbox))
    child.start()
    found = load_file(path, "cpu")
    inbox.put(found["5.weight"])
    received = outbox.get(timeout=300)
    child.join(300)
    assert received == raw(found["5.weight"]) == ENTRIES["5.weight"][2]
    assert multiprocessing.active_children() == []


@pytest.fixture
def model(torch: Any) -> Any:
    pytest.importorskip("transformers")
    import transformers

    torch.manual_seed(3)
    config = transformers.Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                                      tie_word_embeddings=True)
    return transformers.Qwen3ForCausalLM(config).eval()


def saved_names(folder: Path) -> set[str]:
    import safetensors

    found: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            found.update(file.keys())
    return found


def test_every_weight_is_saved(torch: Any, model: Any, tmp_path: Path) -> None:
    """accelerate, transformers and safetensors save one tensor of each storage."""
    accelerate = pytest.importorskip("accelerate")
    import safetensors.torch
    from nebulaio.huggingface import load_pretrained

    model.save_pretrained(tmp_path / "theirs")
    expected = saved_names(tmp_path / "theirs")
    assert len(expected) > 20
    loaded = load_pretrained(tmp_path / "theirs", "cpu")
    accelerate.Accelerator().save_model(loaded, tmp_path / "accelerate")
    assert saved_names(tmp_path / "accelerate") == expected
    loaded.save_pretrained(tmp_path / "transformers", max_shard_size="8KB")
    assert saved_names(tmp_path / "transformers") == expected
    assert len(list((tmp_path / "transformers").glob("*.safetensors"))) > 2
    for save in (safetensors.torch.save_model, save_model):
        (tmp_path / "one").mkdir(exist_ok=True)
        save(loaded, str(tmp_path / "one" / "model.safetensors"))
        tied = {"lm_head.weight", "model.embed_tokens.weight"}
        found = saved_names(tmp_path / "one")
        assert found - tied == expected - tied and len(found & tied) == 1
    again = load_pretrained(tmp_path / "transformers", "cpu")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_every_weight_of_a_patched_load_is_saved(torch: Any, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(4)
    unet = diffusers.UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
                                 block_out_channels=(8, 8), norm_num_groups=4, down_block_types=("DownBlock2D",) * 2,
                                 up_block_types=("UpBlock2D",) * 2)
    unet.save_pretrained(tmp_path / "theirs")
    expected = saved_names(tmp_path / "theirs")
    with nebulaio.patch():
        loaded = diffusers.UNet2DModel.from_pretrained(tmp_path / "theirs")
    accelerate.Accelerator().save_model(loaded, tmp_path / "accelerate")
    assert saved_names(tmp_path / "accelerate") == expected
    loaded.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert saved_names(tmp_path / "parts") == expected and len(list((tmp_path / "parts").glob("*.safetensors"))) > 2
