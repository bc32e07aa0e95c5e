# SPDX-License-Identifier: Apache-2.0
"""Deferred tensors whose parameters are on a GPU."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda


def test_copies_arrive_on_the_gpu_and_on_the_host(tmp_path: Path) -> None:
    import torch
    from nebulaio._deferred_plan import LoadPlan
    from nebulaio.safetensors.torch import save_file

    real = torch.randn(512, 16384).bfloat16()
    save_file({"w": real, "s": torch.tensor(2.0)}, tmp_path / "a.safetensors")
    plan = LoadPlan("cuda")
    lazy = dict(plan.tensors([str(tmp_path / "a.safetensors")]))
    assert lazy["w"].device == torch.device("cuda", torch.cuda.current_device())
    columns = torch.zeros(512, 4096, dtype=torch.bfloat16, device="cuda")
    turned = torch.zeros(16384, 512, device="cuda")
    rows = torch.zeros(128, 16384, dtype=torch.bfloat16)
    before = torch.cuda.memory_allocated()
    with plan.recording():
        columns.copy_(lazy["w"].narrow(1, 4096, 4096))
        rows.copy_(lazy["w"][128:256])
        assert torch.cuda.memory_allocated() == before
        turned.copy_(lazy["w"].t())
        doubled = columns.float() * lazy["s"]
    assert torch.equal(columns.cpu(), real[:, 4096:8192]) and torch.equal(rows, real[128:256])
    assert torch.equal(turned.cpu(), real.t().float())
    assert torch.equal(doubled.cpu(), real[:, 4096:8192].float() * 2)
    report = plan.report()
    assert report["direct"]["copies"] == 3 and report["buffered"]["copies"] == 1 and report["eager"]["reads"] == 1


def test_a_plan_waits_for_the_stream_of_its_targets(tmp_path: Path) -> None:
    import torch
    from nebulaio._deferred_plan import LoadPlan
    from nebulaio.safetensors.torch import save_file

    rng = random.Random(1)
    real = {str(n): torch.randn(rng.randint(1, 300), 256) for n in range(20)}
    save_file(real, tmp_path / "a.safetensors")
    plan = LoadPlan("cuda")
    targets = {name: torch.empty_like(value, device="cuda") for name, value in real.items()}
    with torch.cuda.stream(torch.cuda.Stream()):
        for target in targets.values():
            torch.cuda._sleep(1_000_000)
            target.fill_(7)  # queued: it must not overwrite the values that are read
        with plan.recording():
            for name, tensor in plan.tensors([str(tmp_path / "a.safetensors")]):
                targets[name].copy_(tensor)
        torch.cuda.synchronize()
    for name, target in targets.items():
        assert torch.equal(target.cpu(), real[name])
