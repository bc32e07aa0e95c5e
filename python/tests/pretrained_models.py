# SPDX-License-Identifier: Apache-2.0
"""Tiny transformers models for tests, and the comparison of ours with transformers' loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from nebulaio.huggingface import from_pretrained

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}

_EXPERTS = {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2}

MODELS: dict[str, Any] = {
    "llama": lambda t: t.LlamaForCausalLM(t.LlamaConfig(**SMALL)),
    "qwen2": lambda t: t.Qwen2ForCausalLM(t.Qwen2Config(**SMALL)),
    "mixtral": lambda t: t.MixtralForCausalLM(t.MixtralConfig(**SMALL, num_local_experts=4)),
    "qwen3_moe": lambda t: t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**SMALL, **_EXPERTS)),
    "gemma": lambda t: t.GemmaForCausalLM(t.GemmaConfig(**SMALL, head_dim=8)),
    "gpt2": lambda t: t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    ),
}
"""Dense models, mixtures of experts that transformers merges, and models with tied embeddings."""


def make(name: str, folder: Path, dtype: Any = torch.float32, **options: Any) -> Path:
    """Save a model with random weights."""
    torch.manual_seed(1)
    MODELS[name](transformers).to(dtype).save_pretrained(folder, **options)
    return folder


HEADERS: dict[str, Any] = {
    "whitespace in front": lambda text: b"\n" + text,
    "whitespace behind": lambda text: text.rstrip() + b"\n",
    "a further field": lambda text: text.replace(b'"dtype":', b'"note":[1,{}],"dtype":', 1),
}
"""Changes of a header that transformers accepts."""


def with_header(path: Path, change: Any) -> None:
    """Change the header of a safetensors file."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    text = change(content[8:end])
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])


def logits(model: Any) -> Any:
    tokens = torch.arange(8).reshape(1, 8).to(next(model.parameters()).device)
    with torch.no_grad():
        return model(tokens, use_cache=False).logits


def same(ours: Any, theirs: Any) -> None:
    """Both models have the same class, configuration, weights and logits."""
    assert type(ours) is type(theirs)
    assert ours.training is theirs.training
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    for name, value in other.items():
        assert mine[name].dtype is value.dtype and mine[name].device == value.device, name
        assert torch.equal(mine[name], value), name
    ties = [[id(tensor) for _, tensor in model.named_parameters(remove_duplicate=False)] for model in (ours, theirs)]
    assert [one.index(part) for one in ties[:1] for part in one] == [one.index(part) for one in ties[1:]
                                                                     for part in one]
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        assert mine.requires_grad is other.requires_grad
    assert ours.config.to_dict() == theirs.config.to_dict()
    assert ours.name_or_path == theirs.name_or_path
    if ours.can_generate():
        assert ours.generation_config.to_dict() == theirs.generation_config.to_dict()
    assert torch.equal(logits(ours), logits(theirs))


def both(folder: Path, cls: Any = None, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Load by ours and by transformers, and compare. Returns our model and its report."""
    profile: dict[str, Any] = {}
    ours = from_pretrained(folder, cls=cls, profile=profile, **options)
    same(ours, (cls or transformers.AutoModelForCausalLM).from_pretrained(folder, **options))
    return ours, profile["report"]
