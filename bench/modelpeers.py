#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares loads of model files by NebulaIO with the loaders of other projects.

    python3 bench/modelpeers.py --models 0.6b,7b,moe --rounds 3 --out build/bench-peers

Every round starts a new process for each loader. Before anything is timed, the process has imported its loader and
made its CUDA context. The loaders of NebulaIO have also loaded NebulaIO's library, which its import does not load.
What another loader does only at its first use is part of `first`. The loaders then take turns: each loads the warm
file three times. `first` is the first load of the process and `steady` the third. With --cold, rounds with a cold page
cache follow, one load in each new process; --only-cold skips the warm rounds. With --drop file, only the model leaves
the page cache. With --drop all, so do the programs and libraries that the processes have yet to use. The sums of all
tensors are compared once per loader and model. A loader that takes more than --slow times as long as NebulaIO has one
round only.

The first two reads of a cached page are slower than later ones, because the kernel then moves the page between its
lists. So the file is read three times before the warm rounds. After the end of a process, the next one waits for
--settle seconds: copies are slower while the driver clears the freed memory.

--idle lets the machine rest before each load: the first milliseconds after a rest are slower. Settings of NebulaIO are
compared as loaders of their own, such as --methods nebulaio,nebulaio:workers=12,nebulaio:workers=14.

--fresh leaves torch's allocator empty, so that the first load also takes memory from the driver. Otherwise memory for
the model is in torch's allocator before the first load, for every loader.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from nbench import cache, ceilings, peermethods, stats
from nbench.device import Device
from nbench.measure import in_words
from nbench.models import MODELS, Library

CEILING, RAW = "ceiling_pinned", "ceiling_raw"
SETTINGS = (ceilings.Setting(16, 512 << 10), ceilings.Setting(16, 1 << 20), ceilings.Setting(8, 4 << 20))
PIECE = 4 << 20  # bytes of a read that warms a file
Cells = dict[str, dict[str, list[float]]]  # seconds by phase and loader


class Worker:
    """One loader in a process of its own, at the parent's side."""

    def __init__(self, name: str, path: Path, given: argparse.Namespace) -> None:
        self.name = name
        command = [sys.executable, __file__, "--child", name, "--path", str(path), "--device", given.device,
                   "--idle", str(given.idle)]
        # Loaders print progress: results come through a pipe of their own.
        read, write = os.pipe()
        self.process = subprocess.Popen([*command, "--results", str(write)], stdin=subprocess.PIPE, pass_fds=(write,),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        self.answers = os.fdopen(read)

    def answer(self) -> Any:
        """Return the next result. A process that died gives a result with its exit code."""
        line = self.answers.readline()
        return json.loads(line) if line else {"error": f"the process ended with code {self.process.wait()}"}

    def ask(self, what: str) -> Any:
        """Give one order and return its result."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(what.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the missing answer says so
        return self.answer()

    def end(self) -> None:
        """End the process, which gives its memory back."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.answers.close()


def child(name: str, path: Path, device_name: str, idle: float, results: int) -> int:
    """Carry out the orders of a parent: prepare, load, cold and sum. A load begins `idle` seconds after its order."""
    out = os.fdopen(results, "w", buffering=1)

    def say(result: Any) -> None:
        out.write(json.dumps(result) + "\n")

    try:
        device = Device(device_name)
        size = path.stat().st_size
        if name == CEILING:
            ceiling = ceilings.CopyCeiling(device, size)
            load: Any = lambda _: ceiling.run()  # noqa: E731
        elif name == RAW:
            load = None
        else:
            method = peermethods.build(device, name)
            if method.unavailable:
                raise RuntimeError(method.unavailable)
            load = method.load
        say({})
    except Exception as problem:  # noqa: BLE001  handed to the parent as data
        say({"error": in_words(problem)})
        return 1
    kept: Any = None
    for order in map(str.strip, sys.stdin):
        try:
            if order == "prepare":
                device.prepare(size)
                say({})
            elif order == "sum":
                say({"tensors": len(kept), "sum": sum(bytes_of(device, tensor) for tensor in kept.values())})
            elif name == RAW:
                say({"seconds": raw(path)})
            else:
                kept = None
                device.collect()
                time.sleep(idle)
                start = time.perf_counter()
                kept = load(path)
                say({"seconds": time.perf_counter() - start})
        except Exception as problem:  # noqa: BLE001
            say({"error": in_words(problem)})
    return 0


def bytes_of(device: Device, tensor: Any) -> int:
    """Return the sum of the bytes of a tensor."""
    if device.torch is None:
        return int(tensor.view("uint8").sum(dtype="int64"))
    return int(tensor.view(device.torch.uint8).sum(dtype=device.torch.int64))


def raw(path: Path) -> float:
    """Return the shortest time in which one of a few settings reads the file with O_DIRECT."""
    best = float("inf")
    for setting in SETTINGS:
        slots = ceilings.Slots(setting.threads, setting.block)
        start = time.perf_counter()
        ceilings.direct_read(path, setting, slots)
        best = min(best, time.perf_counter() - start)
        slots.close()
    return best


def one_round(names: list[str], path: Path, given: argparse.Namespace, cold: bool, check: bool,
              problems: dict[str, str]) -> tuple[Cells, dict[str, Any]]:
    """Let every loader have its turn in a new process; returns seconds, and the sums if asked for."""
    workers = [Worker(name, path, given) for name in names if name not in problems]
    cells: Cells = {"first": {}, "steady": {}, "cold": {}}
    sums: dict[str, Any] = {}
    for worker in workers:
        ready = worker.answer()
        if "error" in ready:
            problems[worker.name] = ready["error"]
    for worker in workers:
        name, took = worker.name, []
        if name not in problems and not given.fresh:
            worker.ask("prepare")
        for _ in range(0 if name in problems else 1 if cold else 3):
            if cold:
                cache.drop(path, everything=given.drop == "all")
            found = worker.ask("load")
            if "error" in found:
                problems[name] = found["error"]
                break
            took.append(found["seconds"])
        if name not in problems:
            for phase, seconds in [("cold", took[0])] if cold else [("first", took[0]), ("steady", took[-1])]:
                cells[phase][name] = [seconds]
            if check and name not in (CEILING, RAW):
                sums[name] = worker.ask("sum")
        worker.end()
        time.sleep(given.settle)
        print(f"  {name}: {problems.get(name) or ', '.join(f'{t:.4f}' for t in took)} s", flush=True)
    return cells, sums


def measure(model: str, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure all loaders at one model."""
    methods = given.methods.split(",")
    problems: dict[str, str] = {}
    cells: Cells = {}
    sums: dict[str, Any] = {}
    phases = [False, True] if model in given.cold.split(",") else [False]
    for cold in phases[given.only_cold:]:
        names, limit = [RAW if cold else CEILING, *methods], "cold" if cold else "steady"
        if not cold:
            cache.warm(path)
            for _ in range(2):
                size = path.stat().st_size
                cache.read_ranges(path, [(at, min(at + PIECE, size)) for at in range(0, size, PIECE)])
        for number in range(given.rounds):
            if time.monotonic() > given.until:
                break
            row = cells.get(limit, {})
            most = given.slow * statistics.median(row["nebulaio"]) if "nebulaio" in row else float("inf")
            turn = [name for name in names if name not in row or row[name][0] <= most]
            shift = number * len(turn) // given.rounds
            print(f"{model}, {'cold' if cold else 'warm'}, round {number + 1}", flush=True)
            check = not number and cold == phases[given.only_cold]
            found, some = one_round(turn[shift:] + turn[:shift], path, given, cold, check, problems)
            sums.update(some)
            for phase, values in found.items():
                for name, seconds in values.items():
                    cells.setdefault(phase, {}).setdefault(name, []).extend(seconds)
    wrong = {name: got for name, got in sums.items() if got != sums.get("nebulaio", got)}
    return {"model": model, "bytes": path.stat().st_size, "cells": cells, "problems": problems, "wrong": wrong,
            "sums": len(sums)}


def table(found: dict[str, Any]) -> str:
    """Return one table in Markdown per phase of a model."""
    out = []
    for phase, row in found["cells"].items():
        best = row.get("nebulaio", [])
        limit = row.get(RAW if phase == "cold" else CEILING, [])
        out += [f"\n## {found['model']}, {phase}\n",
                "| loader | seconds | rounds | GB/s | of the ceiling | NebulaIO is faster by |",
                "|---|---|---|---|---|---|"]
        for name, took in sorted(row.items(), key=lambda item: statistics.median(item[1])):
            share = statistics.median(a / b for a, b in zip(limit, took)) if limit else 0.0
            ahead = sorted(b / a for a, b in zip(best, took))
            middle = statistics.median(ahead) if ahead else 0.0
            spread = f"{middle:.2f} ({ahead[0]:.2f} to {ahead[-1]:.2f})" if ahead else ""
            out.append(f"| {name} | {statistics.median(took):.3f} ({min(took):.3f} to {max(took):.3f}) | {len(took)} | "
                       f"{stats.rate(found['bytes'], statistics.median(took)):.1f} | {share:.2f} | {spread} |")
    out += [f"\n{name} did not run: {why}" for name, why in found["problems"].items()]
    out += [f"\n{name} loaded other bytes: {got}" for name, got in found["wrong"].items()]
    return "\n".join(out)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print tables, and write them below --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="0.6b,7b,moe", help=f"models: {', '.join(MODELS)}")
    parser.add_argument("--methods", default=",".join(peermethods.MAKERS), help="loaders; ours may have settings, see above")
    parser.add_argument("--cold", default="", help="models that are also loaded with a cold page cache")
    parser.add_argument("--only-cold", action="store_true", help="models of --cold are not loaded warm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--fresh", action="store_true", help="first loads also take memory from the driver")
    parser.add_argument("--slow", type=float, default=5, help="loaders slower than this, by NebulaIO, have one round")
    parser.add_argument("--settle", type=float, default=1.5, help="seconds between two processes")
    parser.add_argument("--idle", type=float, default=0, help="seconds of rest before each load")
    parser.add_argument("--drop", choices=("all", "file"), default="all", help="how a file is made cold")
    parser.add_argument("--budget", type=float, default=540, help="seconds after which no round is started")
    parser.add_argument("--workdir", type=Path, default=Path("/var/tmp/nebulaio-bench"))
    parser.add_argument("--nebulaio", default=os.environ.get("NEBULAIO_CLI"), help="the program, for `generate`")
    parser.add_argument("--out", type=Path, help="folder for peers.json and peers.md")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        return child(given.child, given.path, given.device, given.idle, given.results)
    given.until = time.monotonic() + given.budget
    library = Library(given.workdir, Device("host"), given.nebulaio, print)
    results = []
    for model in given.models.split(","):
        found = measure(model, library.file(model), given)
        results.append(found)
        print(table(found), flush=True)
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / "peers.json").write_text(json.dumps(results, indent=1) + "\n")
            (given.out / "peers.md").write_text("\n".join(map(table, results)) + "\n")
    return 1 if any(found["wrong"] for found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
