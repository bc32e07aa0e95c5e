# SPDX-License-Identifier: Apache-2.0
"""Computes the printed figures from samples: medians by loader, stages, routes."""

from __future__ import annotations

from typing import Any

from .cache import COLD_LIMIT, WARM_LIMIT
from .stats import Spread, overhead_per_tensor, overhead_share, rate, spread

Figures = dict[str, Any]
"""Figures of one loader in one state; see `of_loader`."""


def valid(load: dict[str, Any]) -> bool:
    """Return whether the files were as cold or as warm as the load's state says, as far as the kernel tells."""
    cached = load.get("cached_before")
    if cached is None or load["state"] not in ("cold", "warm"):
        return True
    return bool(cached < COLD_LIMIT) if load["state"] == "cold" else bool(cached > WARM_LIMIT)


def of_loader(
    loads: list[dict[str, Any]], watched: dict[str, Any] | None, nbytes: int, tensors: int, ceiling: float
) -> Figures:
    """Figures of one loader from its loads; nbytes are those of the model's files, for every loader.

    "first" are loads in a fresh process, "again" later ones in the same process,
    "ready" first load and first forward pass together.
    """
    fresh = [load for load in loads if load["fresh"]]
    later = [load for load in loads if not load["fresh"]]
    first = spread(load["seconds"] for load in fresh)
    again = spread(load["seconds"] for load in later)
    ready = spread(load["seconds"] + load["forward_seconds"] for load in fresh if "forward_seconds" in load)
    best = again or first
    median = best["median"] if best else 0.0
    return {
        "how": fresh[0]["profile"]["how"] if fresh else "",
        "first": first,
        "again": again,
        "ready": ready,
        "gbps": rate(nbytes, median),
        "rss_growth": spread(load["rss_growth"] for load in fresh),
        "rss_peak": spread(load["rss_peak"] for load in fresh),
        "anonymous_growth": spread(load["anonymous_growth"] for load in fresh),
        "anonymous_peak": None if watched is None else watched["anonymous_peak"],
        "machine_peak": None if watched is None else watched["machine_peak"],
        "device": {
            key: spread(load["device"].get(key) for load in fresh) for key in ("allocated", "reserved", "used")
        },
        "stages": stages(fresh),
        "stages_again": stages(later),
        "routes": routes(loads),
        "refusals": refusals(loads),
        "overhead_per_tensor": overhead_per_tensor(median, nbytes, ceiling, tensors),
        "overhead_share": overhead_share(median, nbytes, ceiling),
        "invalid": sum(not valid(load) for load in loads),
        "loads": len(loads),
    }


def stages(loads: list[dict[str, Any]]) -> dict[str, Spread]:
    """Return the seconds of each stage of a loader's profile, and of the library's report, over some loads."""
    samples: dict[str, list[float]] = {}
    for load in loads:
        for stage, seconds in load["profile"]["seconds"].items():
            samples.setdefault(stage, []).append(seconds)
        for stage, seconds in _library_stages(load["profile"]["reports"]).items():
            samples.setdefault(stage, []).append(seconds)
    found = {stage: spread(values) for stage, values in samples.items()}
    return {stage: value for stage, value in found.items() if value is not None}


def _library_stages(reports: list[dict[str, Any]]) -> dict[str, float]:
    """Elapsed seconds inside the library: of the reports of one load, which follow each other, the sum."""
    found: dict[str, float] = {}
    for report in reports:
        parts = {"open": report.get("open_seconds", 0.0), "alloc": report.get("alloc_seconds", 0.0)}
        parts["transfer"] = report.get("seconds", 0.0)
        for stage in report.get("stages") or ():
            parts[stage["stage"]] = stage.get("span_seconds") or stage.get("busy_seconds", 0.0)
        for stage, seconds in parts.items():
            found[f"library: {stage}"] = found.get(f"library: {stage}", 0.0) + seconds
    return found


def routes(loads: list[dict[str, Any]]) -> dict[str, float]:
    """Return the share of bytes by route, over all reports of the loads."""
    taken: dict[str, int] = {}
    for load in loads:
        for report in load["profile"]["reports"]:
            for route in report.get("routes") or ():
                taken[route["route"]] = taken.get(route["route"], 0) + route["bytes"]
    total = sum(taken.values())
    return {name: nbytes / total for name, nbytes in sorted(taken.items(), key=lambda item: -item[1])} if total else {}


def refusals(loads: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the refused routes, each once, with reason and fix."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for load in loads:
        for report in load["profile"]["reports"]:
            for refusal in report.get("refusals") or ():
                found.setdefault((refusal["what"], refusal["reason"]), refusal)
    return list(found.values())
