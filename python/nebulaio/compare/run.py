# SPDX-License-Identifier: Apache-2.0
"""Runs the comparisons: one model by all loaders in interleaved rounds, and many processes at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import cache, child, crowd, files, fit, memory
from .figures import of_loader
from .process import ChildFailed
from .shapes import SPECS, shards
from .stats import bytes_text, rotated, seconds_text

_SLOWEST = 2e8  # lowest expected rate of a load in bytes per second, for time limits


@dataclass
class Setup:
    """The settings of all runs: directory, device, numbers of rounds, loaders and log."""

    folder: Path
    device: dict[str, Any]
    rounds: int
    repeats: int
    loaders: list[str]
    cold: str | None  # "also" or "only"; None measures warm loads alone
    sparse: bool
    watch: bool
    spawn: bool
    log: Callable[[str], None]
    made: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def job(self, name: str, nbytes: int = 0, **arguments: Any) -> Any:
        """Run a job in a process of its own, with a time limit in proportion to the bytes."""
        return child.run(name, arguments, 180 + nbytes / _SLOWEST, self.spawn)

    def room(self) -> fit.Room:
        """Return the free space now. Models of earlier runs count as free, because they can be used again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = sum(path.stat().st_blocks * 512 for path in self.folder.glob("*/*.safetensors"))
        return fit.Room(shutil.disk_usage(self.folder).free + kept, memory.available(), self.device["free"])

    def model(self, plan: fit.Plan, seed: int) -> Path:
        """Return the directory of a model, and make it if it does not exist."""
        folder = self.folder / plan.name(seed)
        if not files.ready(folder, plan, seed):
            self.log(f"making {folder.name}: {bytes_text(plan.spec.nbytes())}, {bytes_text(plan.written())} written")
            self.made.append(folder)
            took = self.job("make", plan.written(), folder=str(folder), seed=seed, recipe=plan.recipe())
            self.log(f"  made in {seconds_text(took)}")
        return folder

    def clean(self) -> None:
        """Remove the models that this run made."""
        for folder in self.made:
            shutil.rmtree(folder, ignore_errors=True)
        self.made.clear()
        if self.folder.is_dir() and not os.listdir(self.folder):
            self.folder.rmdir()


def compare(setup: Setup, name: str) -> dict[str, Any]:
    """Load one model by all loaders, warm and, if requested, cold. Returns samples and figures."""
    room = setup.room()
    plan = fit.plan(SPECS[name], room, sparse=setup.sparse)
    spec = plan.spec
    folder = setup.model(plan, seed=1)
    states, notes = cache_states(setup, spec.nbytes(), folder, room)
    found: dict[str, Any] = {
        "name": name,
        "like": spec.like,
        "tensors": len(spec.tensors()),
        "bytes": spec.nbytes(),
        "files": len(shards(spec.tensors())),
        "parameters": spec.nbytes() // 2,
        "holes": 1 - plan.written() / spec.nbytes(),
        "notes": plan.notes + notes,
        "states": {},
    }
    watched = {loader: _watch(setup, loader, folder, states[0], spec.nbytes()) for loader in setup.loaders}
    for state in states:
        found["states"][state] = _rounds(setup, folder, state, found, watched)
    return found


def cache_states(setup: Setup, nbytes: int, folder: Path, room: fit.Room) -> tuple[list[str], list[str]]:
    """Return the cache states that can be measured of files of this size, and notes about those that cannot."""
    states, notes = [], []
    if fit.can_be_warm(nbytes, room.memory):
        states.append("warm")
    else:
        notes.append(f"measured cold only: {bytes_text(room.memory)} of memory cannot keep the files cached")
    if setup.cold or not states:
        if cache.in_memory(str(folder)):
            notes.append("the files lie in memory (tmpfs) and are never cold")
            states = states or ["warm"]
        else:
            states = ["cold"] if setup.cold == "only" else [*states, "cold"]
    return states, notes


def _watch(setup: Setup, loader: str, folder: Path, state: str, nbytes: int) -> dict[str, Any] | None:
    """Measure the peak of memory by an untimed load. Returns None if the load is left out or failed."""
    if not setup.watch:
        return None
    try:
        found = setup.job(
            "measure", nbytes, loader=loader, folder=str(folder), device=setup.device["torch"], state=state,
            repeats=0, logits=None, watch=True,
        )
    except ChildFailed as problem:
        setup.problems.append(f"{loader} {state}: {problem}")
        setup.log(f"  {loader}: FAILED: {problem}")
        return None
    return dict(found["loads"][0])


def _rounds(
    setup: Setup, folder: Path, state: str, model: dict[str, Any], watched: dict[str, Any]
) -> dict[str, Any]:
    """Measure interleaved rounds in one state: every loader once per round, each round with another loader first."""
    nbytes = model["bytes"]
    samples: dict[str, list[dict[str, Any]]] = {loader: [] for loader in setup.loaders}
    kept = {loader: setup.folder / f".logits-{os.getpid()}-{loader}.pt" for loader in setup.loaders}
    try:
        for index in range(setup.rounds):
            for loader in rotated(setup.loaders, index):
                try:
                    loads = setup.job(
                        "measure", nbytes, loader=loader, folder=str(folder), device=setup.device["torch"], state=state,
                        repeats=setup.repeats if state == "warm" else 0, logits=str(kept[loader]), watch=False,
                    )["loads"]
                except ChildFailed as problem:
                    setup.problems.append(f"{model['name']} {state} {loader}: {problem}")
                    setup.log(f"  {state} round {index + 1} {loader}: FAILED: {problem}")
                    continue
                samples[loader] += loads
                times = ", ".join(seconds_text(load["seconds"]) for load in loads)
                setup.log(f"  {state} round {index + 1} {loader}: {times}")
        logits = _logits(setup, samples, kept, f"{model['name']} {state}")
    finally:
        for path in kept.values():
            path.unlink(missing_ok=True)
    ceiling = setup.device["ceiling_gbps"]
    figures = {
        loader: of_loader(loads, watched[loader], nbytes, model["tensors"], ceiling)
        for loader, loads in samples.items()
    }
    return {"figures": figures, "samples": samples, "logits": logits}


def _logits(setup: Setup, samples: dict[str, Any], kept: dict[str, Path], name: str) -> dict[str, Any]:
    """Compare the logits of all loads with those of the first loader that has logits."""
    digests = {load["logits"] for loads in samples.values() for load in loads if "logits" in load}
    have = [loader for loader in kept if kept[loader].exists()]
    found: dict[str, Any] = {"loads": sum("logits" in load for loads in samples.values() for load in loads)}
    found["digests"], found["against"] = len(digests), {}
    for other in have[1:]:
        found["against"][f"{have[0]} and {other}"] = setup.job(
            "compare_logits", first=str(kept[have[0]]), second=str(kept[other])
        )
    wrong = [pair for pair, one in found["against"].items() if not one["equal"] or not one["finite"]]
    if wrong or len(digests) > 1:
        setup.problems.append(f"{name}: logits differ ({', '.join(wrong) or 'between rounds'})")
    return found


def crowded(setup: Setup, name: str, models: int, processes: int) -> dict[str, Any]:
    """Compare many processes that load several models at once with one process alone."""
    plan = fit.plan(SPECS[name], setup.room(), sparse=setup.sparse, copies=processes, models=models)
    folders = [setup.model(plan, seed) for seed in range(1, models + 1)]
    timeout = 180 + plan.spec.nbytes() * processes / _SLOWEST
    state = "warm"
    found = crowd.measure(folders, processes, setup.device["torch"], setup.rounds, state, timeout, setup.spawn)
    found.update(name=name, like=plan.spec.like, bytes=plan.spec.nbytes(), notes=plan.notes)
    for failure in found["failures"]:
        setup.problems.append(f"process {failure['process']} ({failure['model']}): {failure['why']}")
    return found
