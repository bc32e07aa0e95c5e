# SPDX-License-Identifier: Apache-2.0
"""The jobs of child processes: describe the device, make a model, load it or a part of it, compare logits."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import version
from . import cache, files, memory, process, rankload
from .fit import made_by
from .imports import prepare
from .loaders import LOADERS, architecture
from .parts import Rank

TOKENS = 32
"""Number of random tokens from which logits are computed."""


def probe(device: str) -> dict[str, Any]:
    """Describe the device: its names in NebulaIO and torch, its free memory, the rate of a plain copy to it."""
    torch: Any = importlib.import_module("torch")
    wanted = device
    if device == "auto":
        wanted = "cuda:0" if torch.cuda.is_available() else "cpu"
    if wanted in ("cpu", "host"):
        found: dict[str, Any] = {"device": "host", "torch": "cpu", "name": "host memory (no GPU)", "free": None}
    else:
        wanted = "cuda:0" if wanted == "cuda" else wanted
        torch.cuda.set_device(wanted)
        free, total = torch.cuda.mem_get_info()
        found = {"device": wanted, "torch": wanted, "name": torch.cuda.get_device_name(), "free": free, "total": total}
    found["ceiling_gbps"] = _ceiling(torch, found["torch"])
    found["nebulaio"] = version()
    return found


def _ceiling(torch: Any, device: str) -> float:
    """Return the best rate of plain copies from host memory (pinned for a GPU) to the device, in GB/s."""
    size = 256 << 20
    source = torch.ones(size, dtype=torch.uint8, pin_memory=device != "cpu")
    target = torch.zeros(size, dtype=torch.uint8, device=device)
    best = 0.0
    for _ in range(8):
        sync(torch, device)
        start = time.perf_counter()
        target.copy_(source, non_blocking=True)
        sync(torch, device)
        best = max(best, size / (time.perf_counter() - start) / 1e9)
    return best


def sync(torch: Any, device: str) -> None:
    """Wait until everything queued on the device is done."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def _device_memory(torch: Any, device: str) -> dict[str, int]:
    if device == "cpu":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    return {"allocated": allocated, "reserved": reserved, "used": total - free}


def measure(
    loader: str, folder: str, device: str, state: str, repeats: int, logits: str | None, watch: bool
) -> dict[str, Any]:
    """Load once in a fresh process, then `repeats` times more. Returns time and memory of each load.

    state: "warm" or "cold"; the files are brought into it before each load, and the
        result says how far they were. logits: where to keep logits of the first load.
    watch: sample memory during the loads, which disturbs times.
    """
    prepare([architecture(Path(folder))], [loader])
    torch = _started(device)
    loads = []
    for number in range(1 + repeats):
        found, model = _once(torch, lambda: LOADERS[loader](Path(folder), device), Path(folder), device, state, watch)
        found["fresh"] = number == 0
        if logits is not None and number == 0:
            found.update(_forward(torch, model, device, Path(logits)))
        loads.append(found)
        del model
        gc.collect()
    return {"loads": loads}


def measure_rank(
    loader: str, folder: str, device: str, state: str, repeats: int, rank: dict[str, int], watch: bool
) -> dict[str, Any]:
    """Load the part of one rank; all else is as in `measure`. The first load has a digest of the tensors."""
    torch = _started(device)
    rankload.prepare()
    loads = []
    for number in range(1 + repeats):
        found, tensors = _once(
            torch, lambda: rankload.LOADERS[loader](Path(folder), device, Rank(**rank)), Path(folder), device, state,
            watch, without_holes=True,
        )
        found["fresh"] = number == 0
        if number == 0 and not watch:
            found["digest"] = rankload.digest(torch, tensors)
            found["tensors"] = len(tensors)
            found["bytes"] = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        loads.append(found)
        del tensors
        gc.collect()
    return {"loads": loads}


def _started(device: str) -> Any:
    """Return torch, with a context on the device."""
    torch: Any = importlib.import_module("torch")
    if device != "cpu":
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
        sync(torch, device)
    return torch


def _once(
    torch: Any, load: Callable[[], tuple[Any, dict[str, Any]]], folder: Path, device: str, state: str, watch: bool,
    without_holes: bool = False,
) -> tuple[dict[str, Any], Any]:
    paths = files.weights_of(folder)
    how = ""
    if state == "cold":
        how = cache.make_cold(paths)
    elif state == "warm":
        cache.make_warm(paths, without_holes=without_holes)
    found: dict[str, Any] = {"state": state, "made_cold_by": how, "cached_before": cache.resident(paths, without_holes)}
    gpu = _device_memory(torch, device)
    fresh_peak = memory.reset_peak()
    before = memory.resident()
    seen = memory.Watch()
    start = time.perf_counter()
    if watch:
        with seen:
            model, profile = load()
            sync(torch, device)
        found["anonymous_peak"], found["machine_peak"] = seen.anonymous, seen.machine
    else:
        model, profile = load()
        sync(torch, device)
        found["seconds"] = time.perf_counter() - start
    after = memory.resident()
    found["rss_growth"] = after["rss"] - before["rss"]
    found["anonymous_growth"] = after["anonymous"] - before["anonymous"]
    found["rss_peak"] = after["peak"] - before["rss"] if fresh_peak else None
    found["device"] = {key: value - gpu[key] for key, value in _device_memory(torch, device).items()}
    found["profile"] = profile
    found["cached_after"] = cache.resident(paths, without_holes)
    return found, model


def _forward(torch: Any, model: Any, device: str, keep: Path) -> dict[str, Any]:
    """Logits of random tokens: seconds of this first pass, a digest, and the file that they are kept in."""
    chosen = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, model.config.vocab_size, (1, TOKENS), generator=chosen).to(device)
    start = time.perf_counter()
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits.float().cpu().contiguous()
    seconds = time.perf_counter() - start
    raw = ctypes.string_at(logits.data_ptr(), logits.numel() * logits.element_size())
    torch.save(logits, keep)
    return {"forward_seconds": seconds, "logits": hashlib.sha256(raw).hexdigest()}


def compare_logits(first: str, second: str) -> dict[str, Any]:
    """Compare the logits in two files."""
    torch: Any = importlib.import_module("torch")
    a, b = torch.load(first, weights_only=True), torch.load(second, weights_only=True)
    same_shape = a.shape == b.shape
    return {
        "equal": bool(torch.equal(a, b)),
        "max_abs_diff": float((a - b).abs().max()) if same_shape else None,
        "finite": bool(a.isfinite().all() and b.isfinite().all()),
        "spread": float(a.std()),
    }


def make(folder: str, seed: int, recipe: dict[str, Any]) -> float:
    """Make a model directory. Returns the time in seconds."""
    began = time.perf_counter()
    files.make(Path(folder), made_by(**recipe), seed)
    return time.perf_counter() - began


JOBS: dict[str, Callable[..., Any]] = {
    "probe": probe,
    "make": make,
    "measure": measure,
    "measure_rank": measure_rank,
    "compare_logits": compare_logits,
}
"""The jobs by name."""


def run(name: str, arguments: dict[str, Any], timeout: float, spawn: bool) -> Any:
    """Run a job in a process of its own; see `process.run`."""
    again = ["nebulaio.compare.child", name, json.dumps(arguments)]
    return process.run(lambda: JOBS[name](**arguments), again, timeout, spawn)


if __name__ == "__main__":
    process.answer(lambda: JOBS[sys.argv[1]](**json.loads(sys.argv[2])), int(sys.argv[3]))
