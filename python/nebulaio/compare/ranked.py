# SPDX-License-Identifier: Apache-2.0
"""Compares loads of the part of a model that one rank of a tensor-parallel group has."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from . import fit, parts, rankload
from .figures import of_loader
from .process import ChildFailed
from .run import Setup, cache_states
from .shapes import SPECS, shards
from .stats import rotated, seconds_text


def compare(setup: Setup, name: str, rank: parts.Rank) -> dict[str, Any]:
    """Load the rank's part of one model by all loaders in interleaved rounds. Returns samples and figures."""
    room = setup.room()
    plan = fit.plan_rank(SPECS[name], room, rank, sparse=setup.sparse)
    spec = plan.spec
    folder = setup.model(plan, seed=1)
    states, notes = cache_states(setup, plan.written(), folder, room)
    found: dict[str, Any] = {
        "name": name, "like": spec.like, "rank": asdict(rank), "tensors": len(spec.tensors()),
        "bytes": parts.share(spec, rank), "model_bytes": spec.nbytes(), "files": len(shards(spec.tensors())),
        "notes": plan.notes + notes, "states": {},
    }
    job = {"folder": str(folder), "device": setup.device["torch"], "rank": asdict(rank)}
    for state in states:
        watched = {loader: _watched(setup, loader, {**job, "state": state}, found) for loader in rankload.LOADERS}
        samples = _rounds(setup, {**job, "state": state}, found)
        found["states"][state] = {
            "samples": samples, "digests": _digests(setup, samples, found), "read": _read(samples),
            "figures": {
                loader: of_loader(loads, watched[loader], found["bytes"], found["tensors"],
                                  setup.device["ceiling_gbps"])
                for loader, loads in samples.items()
            },
        }
    return found


def _watched(setup: Setup, loader: str, job: dict[str, Any], model: dict[str, Any]) -> dict[str, Any] | None:
    """Measure the peak of memory by an untimed load. Returns None if the load is left out or failed."""
    if not setup.watch:
        return None
    loads = _measured(setup, loader, model, **job, repeats=0, watch=True)
    return loads[0] if loads else None


def _rounds(setup: Setup, job: dict[str, Any], model: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Run every loader once per round, each round with another loader first."""
    samples: dict[str, list[dict[str, Any]]] = {loader: [] for loader in rankload.LOADERS}
    repeats = setup.repeats if job["state"] == "warm" else 0
    for index in range(setup.rounds):
        for loader in rotated(list(rankload.LOADERS), index):
            loads = _measured(setup, loader, model, **job, repeats=repeats, watch=False)
            samples[loader] += loads
            if loads:
                times = ", ".join(seconds_text(load["seconds"]) for load in loads)
                setup.log(f"  {job['state']} round {index + 1} {loader}: {times}")
    return samples


def _measured(setup: Setup, loader: str, model: dict[str, Any], **job: Any) -> list[dict[str, Any]]:
    """Load in a process of its own. A failure becomes a problem of the run."""
    try:
        return list(setup.job("measure_rank", model["bytes"], loader=loader, **job)["loads"])
    except ChildFailed as problem:
        setup.problems.append(f"{model['name']} {job['state']} {loader}: {problem}")
        setup.log(f"  {job['state']} {loader}: FAILED: {problem}")
        return []


def _digests(setup: Setup, samples: dict[str, list[dict[str, Any]]], model: dict[str, Any]) -> dict[str, Any]:
    """Compare what all loads have loaded. A difference becomes a problem of the run."""
    loads = [load for each in samples.values() for load in each if "digest" in load]
    digests = {load["digest"] for load in loads}
    if len(digests) > 1:
        setup.problems.append(f"{model['name']}: the loaders have loaded different values")
    for load in loads:
        if (load["tensors"], load["bytes"]) != (model["tensors"], model["bytes"]):
            setup.problems.append(f"{model['name']}: a load has {load['tensors']} tensors of {load['bytes']} bytes, "
                                  f"expected {model['tensors']} of {model['bytes']}")
            break
    return {"loads": len(loads), "digests": len(digests), "loaders": sum(any("digest" in load for load in each)
                                                                         for each in samples.values())}


def _read(samples: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return, for each loader with reports, the bytes that were read in relation to the bytes that it wanted."""
    found = {}
    for loader, loads in samples.items():
        reports = [report for load in loads for report in load["profile"]["reports"]]
        wanted = sum(report["wanted_bytes"] for report in reports)
        if wanted:
            found[loader] = sum(report["read_bytes"] for report in reports) / wanted
    return found
