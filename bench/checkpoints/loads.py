# SPDX-License-Identifier: Apache-2.0
"""Measures loads into one process.

Rows `warm` and `cold` load a checkpoint that a world of processes saved. Row `pt` loads a file of torch.save.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nbench.ceilings import CopyCeiling, Setting

from . import files, states
from .bench import Bench
from .references import RawReads
from .rounds import Clock, Step, measure

REPORT = ("bytes", "wanted_bytes", "items", "seconds", "read_seconds", "locate_seconds", "gbps", "notes", "jobs")


def reader(kind: str, path: Path) -> Any:
    """Return the reader of a kind: "ours" or "stock"."""
    if kind == "ours":
        from nebulaio.torch import StorageReader

        return StorageReader(path)
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")

    return dcp.FileSystemReader(path)


def load(kind: str, path: Path, state: Any) -> Any:
    """Load a checkpoint into the tensors of a state, and return the reader."""
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")

    used = reader(kind, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that one process loads alone
        dcp.load(state, storage_reader=used, no_dist=True)
    return used


def _load(bench: Bench, kind: str, name: str, ready: Callable[[], object], number: int) -> dict[str, Any]:
    """Time one load of a checkpoint. In the first round, compare the bits."""
    target = bench.target()
    states.clear(target)
    target["step"] = 0
    ready()
    bench.device.collect()
    start = time.perf_counter()
    used = load(kind, bench.files.path(name), target)
    bench.device.sync()
    found: dict[str, Any] = {"seconds": time.perf_counter() - start}
    if kind == "ours":
        found["report"] = {key: value for key, value in (used.report or {}).items() if key in REPORT}
    if number == 0:
        found["bits"] = states.bits(target, bench.state())
    return found


def _once(step: Step, number: int) -> dict[str, Any] | None:
    return step(number) if number == 0 else None


def _again(step: Step, number: int) -> dict[str, Any] | None:
    """Time the second of two loads in a row. The first one bears what the contender before it has left behind."""
    if (first := step(number)) is None:
        return None
    return {**first, **(step(number + 1) or {})}


def _copy(bench: Bench, ceiling: CopyCeiling, _: int) -> dict[str, Any]:
    bench.device.collect()
    start = time.perf_counter()
    target = ceiling.run()
    seconds = time.perf_counter() - start
    del target
    return {"seconds": seconds}


def copies(bench: Bench) -> Step:
    """Return the step of the reference for warm loads: as many bytes from pinned memory to the device."""
    ceiling = CopyCeiling(bench.device, bench.spec.bytes)
    _copy(bench, ceiling, 0)  # the allocator then has the memory
    return partial(_copy, bench, ceiling)


def warm(bench: Bench, clock: Clock) -> dict[str, Any]:
    """Measure loads from the page cache: ours and torch's, of checkpoints by us and by torch."""
    made = bench.files.checkpoints(("stock", "ours"), bench.timeout)
    bench.state(), bench.target()

    def ready(name: str) -> Callable[[], object]:
        return partial(files.require_warm, bench.files.data(name))

    steps: dict[str, Step] = {
        "ours": partial(_load, bench, "ours", "ours", ready("ours")),
        "ours, files of stock": partial(_load, bench, "ours", "stock", ready("stock")),
        "FileSystemReader": partial(_load, bench, "stock", "stock", ready("stock")),
        "FileSystemReader, files of ours": partial(_once, partial(_load, bench, "stock", "ours", ready("ours"))),
        "pinned copy": copies(bench),
    }
    for name in ("ours", "ours, files of stock"):
        steps[f"{name}, again"] = partial(_again, steps[name])
    for name in ("ours", "ours, files of stock"):
        bench.first(f"load, {name}", partial(steps[name], 1))
    found = measure(steps, bench.rounds, bench.spec.bytes, clock, bench.say)
    return {"bytes": bench.spec.bytes, "made_s": made, "contenders": found}


def cold(bench: Bench, clock: Clock) -> dict[str, Any]:
    """Measure loads from storage beside plain reads of the same files past the page cache."""
    made = bench.files.checkpoints(("stock", "ours"), bench.timeout)
    bench.state(), bench.target()
    data = {name: bench.files.data(name) for name in ("stock", "ours")}
    everything = bench.given.drop == "all"
    steps: dict[str, Step] = {
        "ours": partial(_load, bench, "ours", "ours", partial(files.drop, data["ours"], everything)),
        "ours, files of stock": partial(_load, bench, "ours", "stock", partial(files.drop, data["stock"], everything)),
    }
    bench.first("load, ours", partial(steps["ours"], 1))
    files.drop(data["ours"], everything)
    raw = RawReads(data["ours"], min(1 << 30, bench.spec.bytes // 4))
    bench.say("  O_DIRECT sweep, GB/s: " + ", ".join(f"{s} {rate:.2f}" for s, rate in raw.sweep))

    def read(setting: Setting, _: int) -> dict[str, Any]:
        files.drop(data["ours"], everything)
        start = time.perf_counter()
        raw.run(setting)
        return {"seconds": time.perf_counter() - start}

    steps |= {f"O_DIRECT {setting}": partial(read, setting) for setting in raw.best}
    try:
        found = measure(steps, bench.rounds, bench.spec.bytes, clock, bench.say)
    finally:
        raw.close()
    sweep = {str(setting): rate for setting, rate in raw.sweep}
    return {"bytes": bench.spec.bytes, "made_s": made, "sweep_gbps": sweep, "contenders": found}


def pt(bench: Bench, clock: Clock) -> dict[str, Any]:
    """Measure loads of a file of torch.save from the page cache."""
    import torch

    state = bench.state()

    def write(path: Path) -> None:
        bench.say(f"torch.save writes {bench.spec.bytes / 1e9:.2f} GB")
        torch.save(state, path)

    bench.free_target()
    bench.files.file(write)
    path, device = bench.files.path("pt"), bench.device.torch_name

    def ours() -> Any:
        from nebulaio.torch import load as load_file

        return load_file(path, map_location=device)

    def one(call: Callable[[], Any], number: int) -> dict[str, Any]:
        files.require_warm([path])
        bench.device.collect()
        start = time.perf_counter()
        found = call()
        bench.device.sync()
        result: dict[str, Any] = {"seconds": time.perf_counter() - start}
        if number == 0:
            result["bits"] = states.bits(found, state)
        return result

    steps: dict[str, Step] = {
        "ours": partial(one, ours),
        "torch.load, mmap": partial(one, lambda: torch.load(path, mmap=True, map_location=device)),
        "torch.load": partial(one, lambda: torch.load(path, map_location=device)),
        "pinned copy": copies(bench),
    }
    bench.first("load of a .pt file", partial(steps["ours"], 1))
    found = measure(steps, bench.rounds, bench.spec.bytes, clock, bench.say)
    return {"bytes": bench.spec.bytes, "contenders": found}
