# SPDX-License-Identifier: Apache-2.0
"""The ways to load one rank's part of a model directory, and a digest of the loaded values.

Every loader takes a directory, a torch device name and a rank, and returns the rank's
tensors by name and a profile, as the loaders of whole models do.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import last_report
from .. import safetensors as ours
from .files import weights_of
from .parts import BY_COLUMNS, BY_ROWS, Rank, part

Loaded = tuple[dict[str, Any], dict[str, Any]]

_AT_ONCE = 1 << 24  # values that are digested at once


def prepare() -> None:
    """Import what the loaders need. torch imports torch._dynamo at the first use of a dispatch mode."""
    for name in ("safetensors", "torch._dynamo", "nebulaio._deferred_plan"):
        importlib.import_module(name)


def nebulaio(folder: Path, device: str, rank: Rank) -> Loaded:
    """Ours: `nebulaio.safetensors.load_model` with the rank's part of each tensor, as one job."""
    began = time.perf_counter()
    shards = {f"*{kind}.*": (dimension, rank.index, rank.world)
              for dimension, kinds in enumerate((BY_ROWS, BY_COLUMNS)) for kind in kinds}
    tensors = ours.load_model(str(folder), device, framework="pt", shards=shards)
    seconds = {"total": time.perf_counter() - began}
    how = "nebulaio.safetensors.load_model(shards=...)"
    return tensors, {"seconds": seconds, "how": how, "reports": [last_report()]}


def serving(folder: Path, device: str, rank: Rank) -> Loaded:
    """Ours behind vLLM and SGLang: deferred tensors, narrowed and copied to the parameters of the rank."""
    torch: Any = importlib.import_module("torch")
    deferred = importlib.import_module("nebulaio._deferred_plan")  # it imports torch
    began = time.perf_counter()
    tensors: dict[str, Any] = {}
    plan = deferred.LoadPlan(device)
    given = dict(plan.tensors(weights_of(folder)))
    for name, whole in given.items():
        given[name] = whole[part(name, tuple(whole.shape), rank)]
        tensors[name] = torch.empty(given[name].shape, dtype=whole.dtype, device=device)
    with plan.recording():
        for name, narrow in given.items():
            tensors[name].copy_(narrow)
    seconds = {"total": time.perf_counter() - began}
    how = "the load format `nebulaio` of vLLM and SGLang, without them"
    return tensors, {"seconds": seconds, "how": how, "reports": plan.reports()}


def get_slice(folder: Path, device: str, rank: Rank) -> Loaded:
    """Load with the package safetensors: `get_slice` of each tensor, from mapped files."""
    safe_open = importlib.import_module("safetensors").safe_open
    began = time.perf_counter()
    tensors: dict[str, Any] = {}
    for path in weights_of(folder):
        with safe_open(path, framework="pt", device=device) as file:
            for name in file.keys():
                whole = file.get_slice(name)
                tensors[name] = whole[part(name, tuple(whole.get_shape()), rank)]
    seconds = {"total": time.perf_counter() - began}
    return tensors, {"seconds": seconds, "how": f"safetensors.safe_open(device={device!r}).get_slice", "reports": []}


LOADERS: dict[str, Callable[[Path, str, Rank], Loaded]] = {
    "nebulaio": nebulaio,
    "serving": serving,
    "get_slice": get_slice,
}
"""The loaders by name."""


def digest(torch: Any, tensors: dict[str, Any]) -> str:
    """Return a digest of names, shapes and values. Values at other places give another digest."""
    found = hashlib.sha256()
    weights: dict[Any, Any] = {}
    for name in sorted(tensors):
        flat = tensors[name].contiguous().view(torch.int16).flatten()
        if flat.device not in weights:
            # Odd numbers: each value of 16 bits counts with all its bits at each place.
            weights[flat.device] = torch.arange(1, 2 * _AT_ONCE, 2, device=flat.device)
        sums = [
            int((flat[at : at + _AT_ONCE].to(torch.int64) * weights[flat.device][: flat.numel() - at]).sum())
            for at in range(0, flat.numel(), _AT_ONCE)
        ]
        found.update(f"{name} {list(tensors[name].shape)} {sums}".encode())
    return found.hexdigest()
