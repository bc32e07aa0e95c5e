# SPDX-License-Identifier: Apache-2.0
"""The models: their configurations, tensors and sizes. Pure data and arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

SHARD = 4_000_000_000
"""Largest shard in bytes. Models of up to this size are one file."""

BYTES = 2  # of a BF16 value


@dataclass(frozen=True)
class Spec:
    """A decoder model of Hugging Face with `layers` of its `published` number of layers."""

    name: str
    like: str  # the published model with these shapes
    config_class: str  # in transformers
    layers: int
    hidden: int
    inner: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    published: int
    tied: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    rope_theta: float = 1e6
    positions: int = 32768
    extra: dict[str, Any] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """Keyword arguments of the configuration class."""
        return {
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.positions,
            "rms_norm_eps": 1e-6,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
            **self.extra,
        }

    def architecture(self) -> str:
        """The name of the model's class in transformers."""
        return self.config_class.removesuffix("Config") + "ForCausalLM"

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes by Hugging Face name, in the order of the layers.

        A tied model's lm_head is there too: published files hold it as a copy.
        """
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            base = f"model.layers.{layer}."
            found[base + "input_layernorm.weight"] = (self.hidden,)
            for part, width in (("q", q), ("k", kv), ("v", kv)):
                found[f"{base}self_attn.{part}_proj.weight"] = (width, self.hidden)
                if self.qkv_bias:
                    found[f"{base}self_attn.{part}_proj.bias"] = (width,)
                if self.qk_norm and part != "v":
                    found[f"{base}self_attn.{part}_norm.weight"] = (self.head_dim,)
            found[base + "self_attn.o_proj.weight"] = (self.hidden, q)
            found[base + "post_attention_layernorm.weight"] = (self.hidden,)
            for part in ("gate", "up"):
                found[f"{base}mlp.{part}_proj.weight"] = (self.inner, self.hidden)
            found[base + "mlp.down_proj.weight"] = (self.hidden, self.inner)
        found["model.norm.weight"] = (self.hidden,)
        found["lm_head.weight"] = (self.vocab, self.hidden)
        return found

    def nbytes(self) -> int:
        """Bytes of all tensors in the files."""
        return sum(size_of(shape) for shape in self.tensors().values())

    def with_layers(self, layers: int) -> Spec:
        """The same model with another number of layers."""
        return replace(self, layers=layers)


def size_of(shape: tuple[int, ...]) -> int:
    """Bytes of a BF16 tensor."""
    return math.prod(shape) * BYTES


def shards(tensors: dict[str, tuple[int, ...]], limit: int = SHARD) -> list[dict[str, tuple[int, ...]]]:
    """Split tensors in their order into files of at most limit bytes; a larger tensor gets its own.

    Within a file they are sorted by name, as the reference writes them.
    """
    files: list[dict[str, tuple[int, ...]]] = [{}]
    used = 0
    for name, shape in tensors.items():
        size = size_of(shape)
        if files[-1] and used + size > limit:
            files.append({})
            used = 0
        files[-1][name] = shape
        used += size
    return [dict(sorted(part.items())) for part in files]


def shard_name(index: int, count: int) -> str:
    """The name of a shard, counted from 0."""
    return "model.safetensors" if count == 1 else f"model-{index + 1:05d}-of-{count:05d}.safetensors"


_LLAMA = {"rms_norm_eps": 1e-5}

SPECS = {
    "tiny": Spec("tiny", "a small Qwen3", "Qwen3Config", 4, 256, 768, 8192, 4, 2, 64, 4, tied=True, qk_norm=True),
    "0.6b": Spec(
        "0.6b", "Qwen3-0.6B", "Qwen3Config", 28, 1024, 3072, 151936, 16, 8, 128, 28, tied=True, qk_norm=True
    ),
    "7b": Spec("7b", "Qwen2.5-7B", "Qwen2Config", 28, 3584, 18944, 152064, 28, 4, 128, 28, qkv_bias=True),
    "70b": Spec(
        "70b", "Llama-3-70B", "LlamaConfig", 80, 8192, 28672, 128256, 64, 8, 128, 80, rope_theta=5e5, extra=_LLAMA
    ),
}
"""The models by the name that the command line has for them."""
