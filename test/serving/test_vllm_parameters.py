# SPDX-License-Identifier: Apache-2.0
"""vLLM's parameter classes and weight loaders with deferred tensors: each rank's part, and no byte more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from nebulaio._deferred_plan import LoadPlan
from safetensors.torch import save_file
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor import parameter as classes
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.weight_utils import (
    composed_weight_loader,
    default_weight_loader,
    row_parallel_weight_loader,
    sharded_weight_loader,
)
from vllm_models import as_rank, join_world

RANKS = [(rank, world) for world in (1, 2, 4) for rank in range(world)]


class Both:
    """Runs a loader with real tensors and with deferred ones, and compares the parameters."""

    def __init__(self, path: Path, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors
        self.file = path / "a.safetensors"
        save_file(tensors, self.file)

    def run(self, make: Any, fill: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return the parameter that deferred tensors filled, and the report. `fill` gets the parameter and the tensors."""
        real, deferred = make(), make()
        fill(real, self.tensors)
        plan = LoadPlan("cpu", cache="keep", gap=1)
        with plan.recording():
            fill(deferred, dict(plan.tensors([str(self.file)])))
        mine, theirs = (one.weight if isinstance(one, torch.nn.Module) else one for one in (deferred, real))
        assert torch.equal(mine.data.view(torch.uint8), theirs.data.view(torch.uint8))
        return mine, plan.report()


@pytest.fixture(autouse=True)
def in_a_world() -> Any:
    join_world()
    with set_current_vllm_config(VllmConfig()):
        yield


def weight(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.mark.parametrize(("rank", "world"), RANKS)
def test_model_weights(tmp_path: Path, rank: int, world: int) -> None:
    both = Both(tmp_path, {"q": weight(64, 32), "k": weight(16, 32, seed=1), "v": weight(16, 32, seed=2),
                           "row": weight(32, 64)})

    def exact(made: tuple[torch.Tensor, dict[str, Any]], size: int) -> None:
        report = made[1]
        assert report["bytes"] == report["read_bytes"] == size
        assert report["eager"]["reads"] == report["buffered"]["copies"] == 0

    with as_rank(rank, world):
        kind = {"input_dim": 1, "output_dim": 0, "weight_loader": None}

        def make(*shape: int) -> Any:
            return lambda: classes.ModelWeightParameter(data=zeros(*shape), **kind)

        exact(both.run(make(64 // world, 32), lambda p, t: p.load_column_parallel_weight(t["q"])), 64 * 32 * 4 // world)
        exact(both.run(make(32, 64 // world), lambda p, t: p.load_row_parallel_weight(t["row"])), 64 * 32 * 4 // world)

        def merged(parameter: Any, tensors: Any) -> None:
            for number, name in enumerate("kv"):
                size = 16 // world
                parameter.load_merged_column_weight(tensors[name], shard_offset=number * size, shard_size=size)

        exact(both.run(make(32 // world, 32), merged), 32 * 32 * 4 // world)

        def qkv(parameter: Any, tensors: Any) -> None:
            at = 0
            for name in "qkv":
                size = tensors[name].shape[0] // world
                parameter.load_qkv_weight(tensors[name], shard_offset=at, shard_size=size, shard_id=name, num_heads=1)
                at += size

        exact(both.run(make(96 // world, 32), qkv), 96 * 32 * 4 // world)


@pytest.mark.parametrize(("rank", "world"), RANKS)
def test_packed_and_scale_parameters(tmp_path: Path, rank: int, world: int) -> None:
    packed = torch.randint(-(2**31), 2**31 - 1, (64, 16), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    both = Both(tmp_path, {"packed": packed, "scale": torch.tensor(2.5), "one": torch.tensor([3.5]),
                           "group": weight(8, 64)})
    with as_rank(rank, world):

        def columns() -> Any:  # the packed columns of two merged layers beside each other
            data = torch.zeros(64, 32 // world, dtype=torch.int32)
            return classes.PackedvLLMParameter(data=data, packed_factor=8, packed_dim=1, input_dim=0, output_dim=1,
                                               weight_loader=None)

        def merged(parameter: Any, tensors: Any) -> None:
            for number in range(2):
                size = 128 // world
                parameter.load_merged_column_weight(tensors["packed"], shard_offset=number * size, shard_size=size)

        _, report = both.run(columns, merged)
        assert report["bytes"] == 2 * packed.nbytes // world and report["eager"]["reads"] == 0 and not report[
            "flushes"].get("overlap")

        def scales(parameter: Any, tensors: Any) -> None:
            parameter.load_qkv_weight(tensors["scale"], shard_id="q")
            parameter.load_qkv_weight(tensors["one"], shard_id="v")

        _, report = both.run(lambda: classes.PerTensorScaleParameter(data=zeros(3), weight_loader=None), scales)
        assert report["bytes"] == 8 and report["direct"]["copies"] == 2
        both.run(
            lambda: classes.GroupQuantScaleParameter(data=zeros(8, 64 // world), input_dim=0, output_dim=1,
                                                     weight_loader=None),
            lambda p, t: p.load_column_parallel_weight(t["group"]),
        )
        both.run(
            lambda: classes.RowvLLMParameter(data=zeros(8 // world, 64), input_dim=0, weight_loader=None),
            lambda p, t: p.load_row_parallel_weight(t["group"]),
        )
        both.run(
            lambda: classes.ChannelQuantScaleParameter(data=zeros(8 // world, 64), output_dim=0, weight_loader=None),
            lambda p, t: p.load_column_parallel_weight(t["group"]),
        )


@pytest.mark.parametrize(("rank", "world"), RANKS)
def test_linear_layers_and_embeddings(tmp_path: Path, rank: int, world: int) -> None:
    both = Both(tmp_path, {"w": weight(64, 64), "kv": weight(16, 64, seed=1), "words": weight(100, 64)})
    with as_rank(rank, world):

        def filled(layer: Any, tensors: Any) -> None:
            layer.weight.weight_loader(layer.weight, tensors["w"])

        for kind in (ColumnParallelLinear, RowParallelLinear, ReplicatedLinear):
            _, report = both.run(lambda kind=kind: empty(kind(64, 64, bias=False)), filled)
            assert report["bytes"] == 64 * 64 * 4 // (1 if kind is ReplicatedLinear else world)

        def merged(layer: Any, tensors: Any) -> None:
            for number in range(2):
                layer.weight.weight_loader(layer.weight, tensors["w"], number)

        both.run(lambda: empty(MergedColumnParallelLinear(64, [64, 64], bias=False)), merged)

        def qkv(layer: Any, tensors: Any) -> None:
            for shard, name in (("q", "w"), ("k", "kv"), ("v", "kv")):
                layer.weight.weight_loader(layer.weight, tensors[name], shard)

        both.run(lambda: empty(QKVParallelLinear(64, 8, 8, 2, bias=False)), qkv)  # with 4 ranks, two share a head

        def words(layer: Any, tensors: Any) -> None:
            layer.weight.weight_loader(layer.weight, tensors["words"])

        for table in (VocabParallelEmbedding, ParallelLMHead):
            _, report = both.run(lambda table=table: empty(table(100, 64)), words)
            assert report["read_bytes"] <= 100 * 64 * 4 and report["eager"]["reads"] == 0


def test_loaders_that_need_values(tmp_path: Path) -> None:
    both = Both(tmp_path, {"a": weight(8, 4), "s": torch.tensor([2.0])})
    with as_rank(1, 2):
        half = lambda: torch.nn.Parameter(zeros(4, 4), requires_grad=False)  # noqa: E731
        composed = composed_weight_loader(sharded_weight_loader(0), lambda one: -torch.exp(one.float()))
        _, report = both.run(half, lambda p, t: composed(p, t["a"]))
        assert report["flushes"] == {"aten.exp.default": 1} and report["bytes"] == 64
        both.run(half, lambda p, t: row_parallel_weight_loader(p, t["a"]))
        _, report = both.run(half, lambda p, t: default_weight_loader(p, t["a"][:4] * 2 + t["s"].item()))
        assert report["eager"]["reads"] == 2 and report["eager"]["bytes"] == 64 + 4
        both.run(lambda: torch.nn.Parameter(zeros(1, 1), requires_grad=False),
                 lambda p, t: default_weight_loader(p, t["s"]))


def empty(layer: torch.nn.Module) -> torch.nn.Module:
    """The layer with the same values in each run."""
    for one in layer.parameters():
        one.data.fill_(7)
    return layer
