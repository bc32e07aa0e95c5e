# SPDX-License-Identifier: Apache-2.0
"""`nebulaio.data.profile` and `autotune` on a real GPU: copies and steps are timed by CUDA events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nebulaio.data import autotune, profile

pytestmark = [pytest.mark.torch, pytest.mark.cuda]


def multiply(milliseconds: float) -> Callable[[Any], None]:
    """Return a step that keeps the GPU busy for about some milliseconds, and returns before it has ended."""
    import torch

    matrix = torch.randn(4096, 4096, device="cuda")
    torch.mm(matrix, matrix)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        torch.mm(matrix, matrix)
    end.record()
    end.synchronize()
    count = max(1, round(milliseconds * 20 / begin.elapsed_time(end)))

    def step(batch: Any) -> None:
        for _ in range(count):
            torch.mm(matrix, matrix)

    return step


def test_a_slow_decode_is_found() -> None:
    from data_loops import Samples, maker

    found = profile(maker(Samples(decode=0.01, burns=True), workers=1), multiply(0.5), seconds=0.3)
    assert found.verdict == "cpu-bound", str(found)
    assert found.figures["timing"] == "CUDA events"
    assert [each.name for each in found.variants] == ["as configured", "num_workers=0", "pin_memory=True"]


def test_a_slow_copy_is_found() -> None:
    import torch
    from data_loops import Samples, maker

    ballast = torch.empty(1 << 28, dtype=torch.uint8)  # 256 MiB of pageable memory go along with each batch

    def copy(batch: Any) -> Any:
        ballast.to("cuda", non_blocking=True)
        return batch.to("cuda", non_blocking=True)

    found = profile(maker(Samples()), multiply(0.5), copy=copy, seconds=0.3)
    assert found.verdict == "copy-bound", str(found)
    assert found.figures["copy_alone"] > 0.001


def test_a_slow_step_is_found_although_it_returns_at_once() -> None:
    from data_loops import Samples, maker

    found = profile(maker(Samples(), workers=1), multiply(60), seconds=0.3)
    assert found.verdict == "compute-bound", str(found)
    assert found.figures["step_alone"] > 0.03
    assert found.figures["copy_pinned"] > 0 and found.figures["copy_pageable"] > 0


def test_autotune_compares_pinned_memory() -> None:
    from data_loops import Samples, maker

    found = autotune(maker(Samples(decode=0.02, useful=2)), multiply(20), max_seconds=40, max_workers=8)
    assert abs(found.settings["num_workers"] - 2) <= 1, str(found)
    assert "faster by more than" in found.reasons["pin_memory"]
