#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares loads of model files by NebulaIO with the loaders of other projects.

    python3 bench/peers.py --models 0.6b,7b,moe --rounds 3 --out build/bench-peers

Every round starts a new process for each loader. Before anything is timed, the process has imported its loader and
made its CUDA context. The loaders then take turns: each loads the warm file three times. `first` is the first load of
the process and `steady` the third. With --cold, each loader also loads the file once, in the process that has loaded
it before, after the page cache was dropped. The sums of all tensors are compared once per loader and model.

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
SETTINGS = (ceilings.Setting(16, 1 << 20), ceilings.Setting(8, 4 << 20), ceilings.Setting(16, 4 << 20))
Cells = dict[str, dict[str, list[float]]]  # seconds by phase and loader


class Worker:
    """One loader in a process of its own, at the parent's side."""

    def __init__(self, name: str, path: Path, device: str) -> None:
        self.name = name
        command = [sys.executable, __file__, "--child", name, "--path", str(path), "--device", device]
        # Loaders print progress: results come through a pipe of their own.
        read, write = os.pipe()
        self.process = subprocess.Popen([*command, "--results", str(write)], stdin=subprocess.PIPE, pass_fds=(write,),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
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


def child(name: str, path: Path, device_name: str, results: int) -> int:
    """Carry out the orders of a parent: prepare, load, cold and sum."""
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
                sums = {key: int(t.view(device.torch.uint8).to(device.torch.int64).sum()) for key, t in kept.items()}
                say({"tensors": len(sums), "sum": sum(sums.values())})
            elif name == RAW:
                say({"seconds": raw(path)})
            else:
                kept = None
                device.collect()
                start = time.perf_counter()
                kept = load(path)
                say({"seconds": time.perf_counter() - start})
        except Exception as problem:  # noqa: BLE001
            say({"error": in_words(problem)})
    return 0


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
              problems: dict[str, str]) -> tuple[Cells, dict[str, Any]]:  # fmt: skip
    """Let every loader have its turn in a new process; returns seconds, and the sums if asked for."""
    workers = [Worker(name, path, given.device) for name in names if name not in problems]
    cells: Cells = {"first": {}, "steady": {}, "cold": {}}
    sums: dict[str, Any] = {}
    for worker in workers:
        ready = worker.answer()
        if "error" in ready:
            problems[worker.name] = ready["error"]
    for worker in workers:
        orders = [] if worker.name in problems else ["load"] * 3
        if orders and not given.fresh:
            worker.ask("prepare")
        took = []
        for order in orders if worker.name != RAW else []:
            cache.warm(path)
            found = worker.ask(order)
            if "error" in found:
                problems[worker.name] = found["error"]
                break
            took.append(found["seconds"])
        if len(took) == 3:
            cells["first"][worker.name], cells["steady"][worker.name] = [took[0]], [took[2]]
            if check and worker.name != CEILING:
                sums[worker.name] = worker.ask("sum")
        if cold and worker.name not in problems and worker.name != CEILING:
            cache.drop(path, everything=given.drop == "all")
            found = worker.ask("load")
            if "error" in found:
                problems[worker.name] = found["error"]
            else:
                cells["cold"][worker.name] = [found["seconds"]]
        worker.end()
        print(f"  {worker.name}: {problems.get(worker.name) or ', '.join(f'{t:.3f}' for t in took)} s"
              + "".join(f", cold {t:.3f} s" for t in cells["cold"].get(worker.name, [])), flush=True)  # fmt: skip
    return cells, sums


def measure(model: str, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure all loaders at one model."""
    cold = model in given.cold.split(",")
    names = [CEILING, *([RAW] if cold else []), *given.methods.split(",")]
    problems: dict[str, str] = {}
    cells: Cells = {}
    sums: dict[str, Any] = {}
    for number in range(given.rounds):
        if time.monotonic() > given.until:
            break
        print(f"{model}, round {number + 1}", flush=True)
        shift = number * len(names) // given.rounds
        found, some = one_round(names[shift:] + names[:shift], path, given, cold, number == 0, problems)
        sums.update(some)
        for phase, row in found.items():
            for name, seconds in row.items():
                cells.setdefault(phase, {}).setdefault(name, []).extend(seconds)
    wrong = {name: got for name, got in sums.items() if got != sums.get("nebulaio", got)}
    return {"model": model, "bytes": path.stat().st_size, "cells": cells, "problems": problems, "wrong": wrong}


def table(found: dict[str, Any]) -> str:
    """Return one table in Markdown per phase of a model."""
    out = []
    for phase, row in found["cells"].items():
        best = row.get("nebulaio", [])
        limit = row.get(RAW if phase == "cold" else CEILING, [])
        out += [f"\n## {found['model']}, {phase}\n", "| loader | seconds | rounds | GB/s | of the ceiling | NebulaIO is faster by |",
                "|---|---|---|---|---|---|"]  # fmt: skip
        for name, took in sorted(row.items(), key=lambda item: statistics.median(item[1])):
            share = statistics.median(a / b for a, b in zip(limit, took)) if limit else 0.0
            ahead = sorted(b / a for a, b in zip(best, took))
            middle = statistics.median(ahead) if ahead else 0.0
            spread = f"{middle:.2f} ({ahead[0]:.2f} to {ahead[-1]:.2f})" if ahead else ""
            out.append(f"| {name} | {statistics.median(took):.3f} ({min(took):.3f} to {max(took):.3f}) | {len(took)} | "
                       f"{stats.rate(found['bytes'], statistics.median(took)):.1f} | {share:.2f} | {spread} |")  # fmt: skip
    out += [f"\n{name} did not run: {why}" for name, why in found["problems"].items()]
    out += [f"\n{name} loaded other bytes: {got}" for name, got in found["wrong"].items()]
    return "\n".join(out)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print tables, and write them below --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="0.6b,7b,moe", help=f"models: {', '.join(MODELS)}")
    parser.add_argument("--methods", default=",".join(peermethods.MAKERS), help="loaders")
    parser.add_argument("--cold", default="", help="models that are also loaded with a cold page cache")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--fresh", action="store_true", help="first loads also take memory from the driver")
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
        return child(given.child, given.path, given.device, given.results)
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
