# SPDX-License-Identifier: Apache-2.0
"""Row `analysis`: the time of a load, per tensor and per byte.

A study of GPUDirect Storage loaders (Mini-GDS) found them slower than the plain loader on a small model and faster on
a large one. Every tensor cost a registration, a wait and a clean-up. This row measures the same for the methods here:
the cost per tensor and per byte from loads of two models, the engine's stages from its report, and the Python side
from a profile.
"""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path
from typing import Any

from . import cache, methods, stats
from .context import Context, Row, rotated
from .measure import Sample, run_method

METHODS = ("nebulaio", "safetensors", "safetensors_pread", "torch_mmap")

# Seconds as published: (standard Hugging Face loader, NIXL GDS loader), and its cost per tensor.
MINI_GDS = {
    "0.6b": {"hf_s": 1.23, "nixl_gds_s": 3.03, "tensors": 311},
    "7b": {"hf_s": 8.12, "nixl_gds_s": 5.70, "tensors": 339},
    "per_tensor_ms": {"register": 0.6, "wait": 1.8, "cleanup": 0.3},
}


def run(context: Context, models: list[str]) -> Row:
    """Measure warm loads of every model by every method, with reports and a profile."""
    row = Row("analysis", "analysis", ",".join(models))
    files = {model: context.library.file(model) for model in models}
    row.files = {model: context.describe(path) for model, path in files.items()}
    largest = max(entry["bytes"] for entry in row.files.values())
    loaders = context.usable(row, METHODS)
    each = sum(context.seconds(m.name, "warm", row.files[model]["bytes"]) for m in loaders for model in models)
    context.begin(row, context.rounds, each * 1.2, largest / 1e9 * 2 + each)

    context.device.prepare(largest)
    jobs = [
        (model, method, context.library.pickled(path) if method.pickled else path)
        for model, path in files.items()
        for method in loaders
    ]
    working = {m.name for m in context.warm_up(row, [(method, path) for _, method, path in jobs])}
    jobs = [job for job in jobs if job[1].name in working]
    loaders = [method for method in loaders if method.name in working]
    for index in context.each_round(row):
        for model, method, path in rotated(jobs, index):
            cache.warm(path)
            sample = Sample(method.name, index, row.files[model]["bytes"], variant=model, state="warm")
            row.samples.append(run_method(context.device, method, path, sample, None))
            context.show(sample)
    row.facts["mini_gds"] = MINI_GDS
    row.facts["cost"] = {m.name: _cost(row, m.name) for m in loaders}
    row.facts["profile"] = {
        model: profile(context, method, path) for model, method, path in jobs if method.name == "nebulaio"
    }
    row.last_report = methods.last_report()
    context.device.give_back()
    context.library.trim()
    return row


def _cost(row: Row, method: str) -> dict[str, Any]:
    """Fit a method's medians: time = per tensor * tensors + per byte * bytes."""
    points = []
    for model, entry in row.files.items():
        middle = stats.median(
            s.seconds for s in row.samples if s.method == method and s.variant == model and s.valid and s.seconds
        )
        if middle is not None:
            points.append((entry["tensors"], entry["bytes"], middle))
    cost = stats.fit_cost(points)
    if cost is None:
        return {"why": "two models with different tensor sizes are needed"}
    return {"per_tensor_s": cost.per_tensor, "per_byte_s": cost.per_byte, "gbps": cost.gbps}


def profile(context: Context, method: methods.Method, path: Path, top: int = 14) -> list[dict[str, Any]]:
    """Return where the Python side of one load spends its time, longest first. The load is not timed otherwise."""
    cache.warm(path)
    watch = cProfile.Profile()
    context.device.collect()
    try:
        watch.enable()
        result = method.load(path)
    finally:
        watch.disable()
    del result
    context.device.collect()
    rows = []
    for (file, _, name), (_, calls, own, total, _) in pstats.Stats(watch).stats.items():  # type: ignore[attr-defined]
        where = f"{Path(file).parent.name}/{Path(file).name}:{name}" if file != "~" else name
        rows.append({"function": where, "calls": calls, "own_s": own, "total_s": total})
    return sorted(rows, key=lambda entry: -entry["total_s"])[:top]
