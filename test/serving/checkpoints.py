# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of small models with random weights, as the hub has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig, Qwen2Config, Qwen2MoeConfig

# Rows of the parts that a rank takes out of o_proj and down_proj are at least a page apart, as in real models.
WIDE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 16384,
    "num_hidden_layers": 2,
    "num_attention_heads": 128,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 1024,
    "max_position_embeddings": 64,
}
SMALL: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 250,
    "max_position_embeddings": 64,
}


def save(folder: Path, config: Any, shard: str = "400KB") -> Path:
    """Save a model with random weights, unless the folder has one; returns the folder."""
    if not folder.exists():
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        for one in model.parameters():
            torch.nn.init.normal_(one)
        model.save_pretrained(folder, max_shard_size=shard)
    return folder


def wide_llama(folder: Path) -> Path:
    return save(folder / "wide-llama", LlamaConfig(architectures=["LlamaForCausalLM"], **WIDE), "4MB")


def llama(folder: Path) -> Path:
    return save(folder / "llama", LlamaConfig(architectures=["LlamaForCausalLM"], **SMALL))


def tied_qwen2(folder: Path) -> Path:
    return save(folder / "qwen2", Qwen2Config(architectures=["Qwen2ForCausalLM"], tie_word_embeddings=True, **SMALL))


def mixtral(folder: Path) -> Path:
    return save(folder / "mixtral", MixtralConfig(architectures=["MixtralForCausalLM"], num_local_experts=4, **SMALL))


def qwen2_moe(folder: Path) -> Path:
    config = Qwen2MoeConfig(
        architectures=["Qwen2MoeForCausalLM"], num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64,
        shared_expert_intermediate_size=128, **SMALL,
    )
    return save(folder / "qwen2-moe", config)


def edited(source: Path, folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]],
           config: dict[str, Any] | None = None) -> Path:
    """A copy of a checkpoint in one file, with other tensors and further entries of the config."""
    folder.mkdir()
    tensors: dict[str, Any] = {}
    for file in sorted(source.glob("*.safetensors")):
        tensors.update(load_file(file))
    save_file(change(tensors), folder / "model.safetensors")
    known = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**known, **(config or {})}))
    return folder


def linears(tensors: dict[str, Any]) -> list[str]:
    """The names of the linear layers that a quantiser packs."""
    return [name.removesuffix(".weight") for name in tensors if name.endswith("_proj.weight")]


def fp8(source: Path, folder: Path) -> Path:
    """The checkpoint in FP8 with one scale for each layer."""

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        for number, name in enumerate(linears(tensors)):
            tensors[name + ".weight"] = tensors[name + ".weight"].to(torch.float8_e4m3fn)
            tensors[name + ".weight_scale"] = torch.tensor(0.5 + number)
        return tensors

    return edited(source, folder, change, {"quantization_config": {"quant_method": "fp8",
                                                                   "activation_scheme": "dynamic"}})


def awq(source: Path, folder: Path) -> Path:
    """The checkpoint with the packed tensors of AWQ, which hold random values."""

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(2)
        for name in linears(tensors):
            out, into = tensors.pop(name + ".weight").shape
            tensors[name + ".qweight"] = torch.randint(-(2**31), 2**31 - 1, (into, out // 8), dtype=torch.int32,
                                                       generator=generator)
            tensors[name + ".qzeros"] = torch.randint(-(2**31), 2**31 - 1, (into // 32, out // 8), dtype=torch.int32,
                                                      generator=generator)
            tensors[name + ".scales"] = torch.rand((into // 32, out), generator=generator).half()
        return tensors

    packing = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
    return edited(source, folder, change, {"quantization_config": packing})


def gptq(source: Path, folder: Path) -> Path:
    """The checkpoint with the packed tensors of GPTQ, which hold random values."""

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(3)
        for name in linears(tensors):
            out, into = tensors.pop(name + ".weight").shape
            tensors[name + ".qweight"] = torch.randint(-(2**31), 2**31 - 1, (into // 8, out), dtype=torch.int32,
                                                       generator=generator)
            tensors[name + ".qzeros"] = torch.full((into // 32, out // 8), 0x77777777, dtype=torch.int32)
            tensors[name + ".scales"] = torch.rand((into // 32, out), generator=generator).half()
            tensors[name + ".g_idx"] = torch.arange(into, dtype=torch.int32) // 32
        return tensors

    packing = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
    return edited(source, folder, change, {"quantization_config": packing})
