# SPDX-License-Identifier: Apache-2.0
"""Small models of SGLang on the CPU, by any of its loaders and as any rank of a tensor-parallel group."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import parallel_state
from sglang.srt.model_loader.loader import get_model_loader
from sglang.srt.runtime_context import get_parallel
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler


@contextmanager
def as_rank(rank: int, world: int, path: Path) -> Iterator[None]:
    """Let SGLang see this process as one rank of a tensor-parallel group. No collective is called while loading."""
    mine = {"tp_rank": rank, "attn_tp_rank": rank, "moe_tp_rank": rank}
    sizes = {"tp_size": world, "attn_tp_size": world, "moe_tp_size": world}
    others = {"pp_rank": 0, "pp_size": 1, "moe_ep_rank": 0, "moe_ep_size": 1, "attn_dp_rank": 0, "attn_dp_size": 1}
    join_world(path)
    group = copy.copy(get_parallel().tp_group)
    group.rank_in_group, group.world_size = rank, world
    groups = {"tp_group": group, "attn_tp_group": group, "moe_tp_group": group}
    with get_parallel().override(**mine, **sizes, **others, **groups):
        yield


def publish(path: Path) -> ServerArgs:
    """Make the arguments of a server for a model known to SGLang."""
    arguments = ServerArgs(
        model_path=str(path), tokenizer_path=str(path), device="cpu", skip_tokenizer_init=True, dtype="bfloat16",
        attention_backend="torch_native", disable_cuda_graph=True,
    )
    set_global_server_args_for_scheduler(arguments)
    return arguments


def join_world(path: Path) -> None:
    """Make this process a world of one rank on gloo. A second call does nothing."""
    if not torch.distributed.is_initialized():
        publish(path)
        meeting = Path(tempfile.mkdtemp()) / "here"
        parallel_state.init_distributed_environment(1, 0, f"file://{meeting}", 0, "gloo")
        parallel_state.initialize_model_parallel(backend="gloo")


def load(path: Path, load_format: str, extra: dict[str, Any] | None = None) -> tuple[torch.nn.Module, Any]:
    """Load a model; returns model and loader."""
    arguments = publish(path)
    config = ModelConfig.from_server_args(arguments)
    loader = get_model_loader(LoadConfig(load_format=load_format, model_loader_extra_config=extra or {}), config)
    return loader.load_model(model_config=config, device_config=DeviceConfig("cpu")), loader


def assert_equal(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Fail if two models differ in a bit of a parameter or buffer."""
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        assert torch.equal(*(side.detach().contiguous().reshape(-1).view(torch.uint8)
                             for side in (value, theirs[name]))), name


def share(model: torch.nn.Module) -> int:
    """The bytes of a model's parameters."""
    return sum(one.nbytes for one in model.parameters())
