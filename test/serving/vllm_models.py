# SPDX-License-Identifier: Apache-2.0
"""Small models of vLLM on the CPU, by any of its loaders and as any rank of a tensor-parallel group."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import vllm.distributed.parallel_state as parallel_state
import vllm.model_executor.layers.utils as layer_utils
import vllm.model_executor.models.registry as registry
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    ParallelConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

# vLLM looks at a model's class in a process of its own, to keep CUDA out of this one. That takes half a minute each.
registry._run_in_subprocess = lambda look: look()
# On the CPU, vLLM packs the weights after a load by an operation of its compiled part, which is not here.
layer_utils.dispatch_cpu_unquantized_gemm = lambda layer, remove_weight: None


def join_world() -> None:
    """Make this process a world of one rank on gloo. A second call does nothing."""
    if parallel_state._TP is None:
        meeting = Path(tempfile.mkdtemp()) / "here"
        with set_current_vllm_config(VllmConfig()):
            parallel_state.init_distributed_environment(1, 0, f"file://{meeting}", 0, "gloo")
            parallel_state.initialize_model_parallel(1, 1, backend="gloo")


@contextlib.contextmanager
def as_rank(rank: int, world: int) -> Iterator[None]:
    """Let vLLM see this process as one rank of a tensor-parallel group. No collective is called while loading."""
    join_world()
    group = parallel_state._TP
    assert group is not None
    group.rank_in_group, group.world_size = rank, world
    try:
        yield
    finally:
        group.rank_in_group, group.world_size = 0, 1


def config_of(path: Path, load_format: str, extra: dict[str, Any] | None = None, **options: Any) -> VllmConfig:
    """The configuration of a load of the model at a path. `parallel` holds options of ParallelConfig."""
    parallel = ParallelConfig(**options.pop("parallel", {}))
    join_world()
    return VllmConfig(
        model_config=ModelConfig(
            model=str(path), tokenizer=str(path), skip_tokenizer_init=True, seed=0, enforce_eager=True,
            max_model_len=64,
            **{"dtype": "bfloat16", **options},
        ),
        load_config=LoadConfig(load_format=load_format, model_loader_extra_config=extra or {}, use_tqdm_on_load=False),
        parallel_config=parallel,
        cache_config=CacheConfig(block_size=16),
        device_config=DeviceConfig("cpu"),
    )


def create(config: VllmConfig) -> torch.nn.Module:
    """An empty model, as vLLM's loaders make it. Its parameters hold a value that no checkpoint has."""
    with set_default_torch_dtype(config.model_config.dtype), torch.device("cpu"):
        model = initialize_model(vllm_config=config, model_config=config.model_config)
    for one in model.parameters():
        if not one.is_meta:
            one.data.view(torch.uint8).fill_(0x5A) if one.dim() else one.data.fill_(7)
    return model


def load(config: VllmConfig) -> tuple[torch.nn.Module, Any]:
    """Load the weights of a model, without what vLLM does with them afterwards; returns model and loader."""
    loader = get_model_loader(config.load_config)
    with set_current_vllm_config(config):
        model = create(config)
        with set_default_torch_dtype(config.model_config.dtype):
            loader.load_weights(model, config.model_config)
    return model, loader


def assert_equal(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Fail if two models differ in a bit of a parameter or buffer."""
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert type(value) is type(theirs[name]) and value.dtype is theirs[name].dtype, name
        assert torch.equal(bits(value), bits(theirs[name])), name


def bits(value: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor."""
    return value.detach().contiguous().reshape(-1).view(torch.uint8)


def share(model: torch.nn.Module) -> int:
    """The bytes of a model's parameters. Parameters that are shared count once."""
    return sum(one.nbytes for one in model.parameters())
