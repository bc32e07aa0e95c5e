# SPDX-License-Identifier: Apache-2.0
"""Turns rows into figures for the tables, the plot and the checks.

The functions work on the plain data of a results file. Invalid samples are counted and left out. A ratio compares two
runs of the same round, and its median is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import stats

Data = dict[str, Any]


def valid(row: Data, **wanted: Any) -> list[Data]:
    """Return the valid samples of a row that have the wanted fields."""
    return [
        s for s in row["samples"]
        if s.get("valid") and s.get("seconds") and all(s.get(key, "") == value for key, value in wanted.items())
    ]


def binding(row: Data) -> dict[int, tuple[str, float]]:
    """Return name and rate of the binding ceiling, by round.

    Each ceiling is the best of its settings in that round. The slowest ceiling binds, because a load passes through
    all of them.
    """
    best: dict[int, dict[str, float]] = {}
    for sample in valid(row):
        if sample["method"].startswith("ceiling"):
            rates = best.setdefault(sample["round"], {})
            rates[sample["method"]] = max(sample["gbps"], rates.get(sample["method"], 0.0))
    found: dict[int, tuple[str, float]] = {}
    for index, rates in best.items():
        if row["kind"] == "cold" and "ceiling_raw" not in rates:
            continue  # the bus does not bind a cold load, and the disk was not measured
        name = min(rates, key=lambda method: rates[method])
        found[index] = (name, rates[name])
    return found


def paired(row: Data, method: str, base: Callable[[int], float | None]) -> float | None:
    """Return the median over rounds of a method's rate, divided by a base rate of the same round."""
    pairs = [(sample["gbps"], base(sample["round"])) for sample in valid(row, method=method)]
    return stats.median(rate / other for rate, other in pairs if other)


def rates_by_round(row: Data, method: str) -> dict[int, float]:
    """Return a method's best rate in each round."""
    found: dict[int, float] = {}
    for sample in valid(row, method=method):
        found[sample["round"]] = max(sample["gbps"], found.get(sample["round"], 0.0))
    return found


def rate_rows(row: Data) -> list[Data]:
    """Return one entry per method and setting of a warm or cold row, methods first."""
    ceiling = binding(row)
    plain = rates_by_round(row, "safetensors")
    entries: list[Data] = []
    keys = list(dict.fromkeys((s["method"], s.get("variant", "")) for s in row["samples"]))
    for method, variant in sorted(keys, key=lambda key: (key[0].startswith("ceiling"), key[0] != "nebulaio", key)):
        mine = [s for s in row["samples"] if s["method"] == method and s.get("variant", "") == variant]
        good = valid(row, method=method, variant=variant)
        entry: Data = {
            "method": method,
            "variant": variant,
            "seconds": stats.spread(s["seconds"] for s in good),
            "gbps": stats.spread(s["gbps"] for s in good),
            "cpu_s": stats.median(s["cpu_s"] for s in good if "cpu_s" in s),
            "gpu_bytes": stats.median(s["gpu_bytes"] for s in good if "gpu_bytes" in s),
            "host_bytes": row["memory"].get(method, {}).get("host_growth_bytes"),
            "cached_before": stats.median(s["cached_before"] for s in good if "cached_before" in s),
            "cached_after": stats.median(s["cached_after"] for s in good if "cached_after" in s),
            "bits": bits(mine),
            "invalid": sum(not s.get("valid") and not s.get("error") for s in mine),
            "error": next((s["error"] for s in mine if s.get("error")), ""),
            "note": next((s["note"] for s in mine if s.get("note")), ""),
        }
        if not method.startswith("ceiling"):
            entry["of_ceiling"] = paired(row, method, lambda index: ceiling.get(index, ("", 0.0))[1])
            entry["of_safetensors"] = paired(row, method, lambda index: plain.get(index))
        entries.append(entry)
    return entries


def bits(samples: list[Data]) -> str:
    """Return "equal" if every compared result was equal, "" if none was compared, else the first difference."""
    seen = [s["bits"] for s in samples if s.get("bits")]
    return next((text for text in seen if text != "equal"), "equal" if seen else "")


def ceiling_median(row: Data) -> tuple[str, float] | None:
    """Return name and median rate of the binding ceiling."""
    found = list(binding(row).values())
    middle = stats.median(rate for _, rate in found)
    return None if middle is None else (found[0][0], middle)


def half_rows(row: Data) -> list[Data]:
    """Return one entry per method and state of a half row, with the median factor."""
    entries = []
    for method, state in dict.fromkeys((s["method"], s["state"]) for s in row["samples"]):
        good = valid(row, method=method, state=state)
        mine = [s for s in row["samples"] if (s["method"], s["state"]) == (method, state)]
        entries.append({
            "method": method,
            "state": state,
            "seconds": stats.spread(s["seconds"] for s in good),
            "gbps": stats.spread(s["gbps"] for s in good),
            "expected_s": stats.median(s["extra"]["expected_s"] for s in good if "expected_s" in s.get("extra", {})),
            "factor": stats.median(s["extra"]["factor"] for s in good if "factor" in s.get("extra", {})),
            "cached_before": stats.median(s["cached_before"] for s in good if "cached_before" in s),
            "bits": bits(mine),
            "invalid": sum(not s.get("valid") for s in mine),
            "note": next((s.get("error") or s.get("note", "") for s in mine if not s.get("valid")), ""),
        })
    return sorted(entries, key=lambda e: (e["method"] != "nebulaio", e["method"]))


def three_rows(row: Data) -> list[Data]:
    """Return one entry per method and policy of a three row: each load, and the sum."""
    entries = []
    for method, variant in dict.fromkeys((s["method"], s.get("variant", "")) for s in row["samples"]):
        mine = [s for s in row["samples"] if (s["method"], s.get("variant", "")) == (method, variant)]
        rounds: dict[int, list[Data]] = {}
        for sample in mine:
            rounds.setdefault(sample["round"], []).append(sample)
        whole = [r for r in rounds.values() if len(r) == 3 and all(s.get("valid") and s.get("seconds") for s in r)]
        entries.append({
            "method": method,
            "variant": variant,
            "loads": [stats.median(r[i]["seconds"] for r in whole) for i in range(3)],
            "cached": [stats.median(r[i]["cached_before"] for r in whole) for i in range(3)],
            "sum": stats.spread(sum(s["seconds"] for s in r) for r in whole),
            "bits": bits(mine),
            "error": next((s.get("error") or s.get("note", "") for s in mine if not s.get("valid")), ""),
        })
    return entries
