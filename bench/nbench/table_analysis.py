# SPDX-License-Identifier: Apache-2.0
"""Renders the analysis row as Markdown: cost per tensor and byte, stages, profile, published figures."""

from __future__ import annotations

from typing import Any

from . import stats, table

Data = dict[str, Any]


def analysis(row: Data) -> str:
    """Render the whole row."""
    parts = [_loads(row), _cost(row), _published(row), _stages(row), _profile(row)]
    return "\n\n".join(part for part in parts if part)


def middle(row: Data, method: str, model: str) -> float | None:
    """Return a method's median seconds on a model."""
    return stats.median(
        s["seconds"] for s in row["samples"]
        if s["method"] == method and s.get("variant") == model and s.get("valid") and s.get("seconds")
    )


def _methods(row: Data) -> list[str]:
    return list(dict.fromkeys(s["method"] for s in row["samples"]))


def _loads(row: Data) -> str:
    lines = []
    for method in _methods(row):
        for model, file in row["files"].items():
            took = middle(row, method, model)
            if took is not None:
                lines.append((method, model, table.seconds(took), f"{took / file['tensors'] * 1e6:.0f} µs",
                              f"{took / file['bytes'] * 1e12:.0f} ps",
                              table.number(stats.rate(file["bytes"], took))))
    return table.grid(("method (warm)", "model", "time", "time / tensors", "time / bytes", "GB/s"), lines)


def _cost(row: Data) -> str:
    lines = []
    small = min(row["files"].values(), key=lambda file: file["bytes"], default={"tensors": 0, "bytes": 0})
    for method, cost in row["facts"].get("cost", {}).items():
        if "per_tensor_s" not in cost:
            lines.append((method, cost.get("why", "–"), "–", "–"))
            continue
        fixed = cost["per_tensor_s"] * small["tensors"]
        whole = fixed + cost["per_byte_s"] * small["bytes"]
        lines.append((method, f"{cost['per_tensor_s'] * 1e6:.1f} µs", table.number(cost["gbps"]),
                      table.share(fixed / whole if whole > 0 else None)))
    if not lines:
        return ""
    note = ("A fit of the medians to `time = a * tensors + b * bytes`. Set-up that a load pays once, whatever its "
            "size, is counted into the cost per tensor, which it makes larger; a value below zero is noise.")
    return table.grid(("method", "cost per tensor", "GB/s of the bytes alone", "tensors' part, smallest model"),
                      lines) + "\n\n" + note


def _published(row: Data) -> str:
    published = row["facts"].get("mini_gds", {})
    lines = []
    for model in row["files"]:
        if model in published:
            theirs = published[model]
            lines.append((model, f"{theirs['hf_s']:.2f} s", f"{theirs['nixl_gds_s']:.2f} s",
                          table.seconds(middle(row, "safetensors", model)),
                          table.seconds(middle(row, "nebulaio", model))))
    if not lines:
        return ""
    cost = published["per_tensor_ms"]
    note = ("Mini-GDS figures as published, from another machine (its GDS ran in compatibility mode): they show the "
            "shape of the problem, not a contest. It gives the cost per tensor as "
            + " + ".join(f"{value} ms {name}" for name, value in cost.items()) + ".")
    return table.grid(("model", "Mini-GDS: HF", "Mini-GDS: NIXL GDS", "here: safetensors (warm)",
                       "here: nebulaio (warm)"), lines) + "\n\n" + note


def flatten(value: Any, prefix: str = "") -> list[tuple[str, float]]:
    """Return the numbers inside nested data, with their paths."""
    if isinstance(value, bool):
        return []
    if isinstance(value, (int, float)):
        return [(prefix, float(value))]
    if isinstance(value, dict):
        named = [(str(entry), inner) for entry, inner in value.items()]
    elif isinstance(value, list):
        named = [(_label(entry, index), entry) for index, entry in enumerate(value)]
    else:
        named = []
    return [found for key, inner in named for found in flatten(inner, f"{prefix}.{key}" if prefix else key)]


def _label(entry: Any, index: int) -> str:
    """Return the name of a list entry, or its position."""
    names = [entry[key] for key in ("stage", "route", "name") if key in entry] if isinstance(entry, dict) else []
    return str(names[0]) if names else str(index)


def _stages(row: Data) -> str:
    """Render the stages of the report as medians over rounds, small model beside large model."""
    models = list(row["files"])
    figures: dict[str, dict[str, list[float]]] = {}
    for sample in row["samples"]:
        if sample["method"] == "nebulaio" and sample.get("valid"):
            for key in ("seconds", "stages", "python", "timing"):
                for path, value in flatten(sample.get("report", {}).get(key), key):
                    figures.setdefault(path, {}).setdefault(sample["variant"], []).append(value)
    lines = [
        (path, *(f"{found:.6g}" if (found := stats.median(by.get(model, []))) is not None else "–" for model in models))
        for path, by in figures.items()
    ]
    return table.grid(("nebulaio's report, median", *models), lines) if lines else ""


def _profile(row: Data) -> str:
    parts = []
    for model, entries in row["facts"].get("profile", {}).items():
        lines = [(e["function"], str(e["calls"]), table.seconds(e["own_s"]), table.seconds(e["total_s"]))
                 for e in entries]
        parts.append(f"Python side of one load of {model}, under the profiler (which makes it slower):\n\n"
                     + table.grid(("function", "calls", "own", "with callees"), lines))
    return "\n\n".join(parts)
