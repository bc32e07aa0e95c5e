# SPDX-License-Identifier: Apache-2.0
"""Row `save`: a save of the state from the memory of the device to durable files, by one process."""

from __future__ import annotations

import importlib
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from nbench import writing
from nbench.ceilings import Setting

from . import loads, states
from .bench import Bench
from .references import WRITE_SWEEP
from .rounds import Clock, Step, measure

THREADS = (1, 4)  # of FileSystemWriter; after the first round, only the faster number takes part
REPORT = ("bytes", "items", "files", "seconds", "write_seconds", "commit_seconds", "gbps", "notes", "jobs")


def save(state: Any, writer: Any) -> None:
    """Save a state in this process alone."""
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that one process saves alone
        dcp.save(state, storage_writer=writer, no_dist=True)


def writer(kind: str, path: Path, threads: int = 1) -> Any:
    """Return the writer of a kind, "ours" or "stock", that makes its files durable."""
    if kind == "ours":
        from nebulaio.torch import StorageWriter

        return StorageWriter(path)
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")

    return dcp.FileSystemWriter(path, sync_files=True, thread_count=threads)


class Stock:
    """FileSystemWriter with several numbers of threads, of which the fastest stays in the row."""

    def __init__(self) -> None:
        self.first: dict[int, float] = {}

    def step(self, bench: Bench, threads: int, number: int) -> dict[str, Any] | None:
        """Save with a number of threads, if that number takes part in the round."""
        if number > 0 and self.first and threads != min(self.first, key=lambda one: self.first[one]):
            return None
        found = _save(bench, "stock", threads, number)
        self.first.setdefault(threads, found["seconds"])
        return found


def run(bench: Bench, clock: Clock) -> dict[str, Any]:
    """Measure durable saves beside plain writes of as many bytes."""
    bench.state()
    bench.files.room(bench.spec.bytes)
    target = bench.files.scratch
    stock = Stock()
    few = {"model": dict([*bench.state()["model"].items()][:9])}
    for kind in ("ours", "stock"):
        bench.first(f"save, {kind}", partial(lambda kind: save(few, writer(kind, target)), kind))
        bench.files.clear_scratch()
    steps: dict[str, Step] = {"ours": partial(_save, bench, "ours", 1)}
    steps |= {f"FileSystemWriter, thread_count {threads}": partial(stock.step, bench, threads) for threads in THREADS}
    ceiling = writing.WriteCeiling(target, sweep_bytes=min(1 << 30, bench.spec.bytes), settings=WRITE_SWEEP)
    bench.say("  O_DIRECT sweep, GB/s: " + ", ".join(f"{s} {rate:.2f}" for s, rate in ceiling.sweep))
    best = ceiling.best[0]
    steps[f"O_DIRECT {best}"] = partial(_raw, bench, ceiling, best)
    try:
        found = measure(steps, bench.rounds, bench.spec.bytes, clock, bench.say)
    finally:
        ceiling.close()
        bench.files.clear_scratch()
    sweep = {str(setting): rate for setting, rate in ceiling.sweep}
    return {"bytes": bench.spec.bytes, "sweep_gbps": sweep, "contenders": found}


def _save(bench: Bench, kind: str, threads: int, number: int) -> dict[str, Any]:
    """Time one save. In the first round, the other side's reader loads it, and the bits are compared."""
    bench.files.clear_scratch()
    path = bench.files.scratch
    used = writer(kind, path, threads)
    bench.device.collect()
    start = time.perf_counter()
    save(bench.state(), used)
    found: dict[str, Any] = {"seconds": time.perf_counter() - start}
    if kind == "ours":
        found["report"] = {key: value for key, value in (used.report or {}).items() if key in REPORT}
    if number == 0:
        states.clear(bench.target())
        bench.target()["step"] = 0
        loads.load("stock" if kind == "ours" else "ours", path, bench.target())
        found["bits"] = states.bits(bench.target(), bench.state())
    bench.files.clear_scratch()
    return found


def _raw(bench: Bench, ceiling: writing.WriteCeiling, setting: Setting, _: int) -> dict[str, Any]:
    bench.files.clear_scratch()
    start = time.perf_counter()
    ceiling.run(setting, bench.spec.bytes)
    seconds = time.perf_counter() - start
    bench.files.clear_scratch()
    return {"seconds": seconds}
