# SPDX-License-Identifier: Apache-2.0
"""Renders rows as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from . import digest, stats

Data = dict[str, Any]


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Render a Markdown table. Bars inside cells are escaped."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """Print a number with its unit, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}{unit}"


def share(value: float | None) -> str:
    """Print a share as per cent, or a dash."""
    return "–" if value is None else f"{value:.1%}"


def mib(value: float | None) -> str:
    """Print bytes as MiB, or a dash."""
    return "–" if value is None else f"{value / 2**20:.0f} MiB"


def seconds(value: float | None) -> str:
    """Print a time in a suitable unit."""
    if value is None:
        return "–"
    return f"{value:.3f} s" if abs(value) >= 1 else f"{value * 1e3:.1f} ms"


def spread(value: stats.Spread | None, digits: int = 2) -> str:
    """Print median, extremes and distance between quartiles."""
    if value is None:
        return "–"
    return f"{value.median:.{digits}f} ({value.min:.{digits}f}–{value.max:.{digits}f}, IQR {value.iqr:.{digits}f})"


def title(row: Data) -> str:
    """Print a row's heading with its rounds and files."""
    files = row["files"] if "bytes" not in row["files"] else {row["files"]["name"]: row["files"]}
    held = "; ".join(f"{e.get('name', n)}: {e['bytes'] / 1e9:.2f} GB, {e['tensors']} tensors" for n, e in files.items())
    rounds = f"{row['rounds_done']} of {row['rounds_asked']} rounds"
    text = f"### {row['name']} ({row.get('device') or 'no device'})\n\n{held}. {rounds} in {row['took_s']:.0f} s "
    text += f"(estimate {row['estimate_s']:.0f} s), run {row['run'] + 1}."
    if row.get("stopped"):
        text += f" Stopped: {row['stopped']}."
    if row.get("superseded"):
        text += f" {row['superseded']} earlier result(s) of this row left out."
    notes = [f"- {name}: not run, {why}" for name, why in row.get("skipped", {}).items()]
    if row.get("failed"):
        notes.append(f"- the row failed: {row['failed']}")
    return text + ("\n\n" + "\n".join(notes) if notes else "")


def rate(row: Data) -> str:
    """Render a warm or cold row."""
    head = ("method", "time (median)", "GB/s: median (min–max, IQR)", "of ceiling", "× safetensors", "CPU s",
            "host memory", "GPU memory", "cached before → after", "bits", "invalid")
    lines = []
    for entry in digest.rate_rows(row):
        name = " ".join(filter(None, (entry["method"], entry["variant"])))
        if entry["gbps"] is None:
            lines.append((name, entry["error"] or entry["note"] or "–", *[""] * 7, entry["bits"],
                          str(entry["invalid"])))
            continue
        lines.append((
            name, seconds(entry["seconds"].median), spread(entry["gbps"]), number(entry.get("of_ceiling")),
            number(entry.get("of_safetensors")), number(entry["cpu_s"]), mib(entry["host_bytes"]),
            mib(entry["gpu_bytes"]), f"{share(entry['cached_before'])} → {share(entry['cached_after'])}",
            entry["bits"], str(entry["invalid"]),
        ))
    text = grid(head, lines)
    ceiling = digest.ceiling_median(row)
    if ceiling:
        text += f"\n\nThe ceiling is `{ceiling[0]}`, {ceiling[1]:.2f} GB/s (median)."
    sweep = row["facts"].get("raw_sweep_gbps")
    if sweep:
        text += " Raw sweep, GB/s: " + ", ".join(f"{k} {v:.2f}" for k, v in sweep.items()) + "."
    return text + report_lines(row)


def half(row: Data) -> str:
    """Render a half row."""
    head = ("method", "cached", "part cached", "time (median)", "GB/s: median (min–max, IQR)",
            "least possible", "factor", "bits", "invalid")
    lines = [
        (e["method"], e["state"], share(e["cached_before"]), seconds(e["seconds"].median if e["seconds"] else None),
         spread(e["gbps"]), seconds(e["expected_s"]), number(e["factor"]), e["bits"],
         f"{e['invalid']} {e['note']}".strip())
        for e in digest.half_rows(row)
    ]
    return grid(head, lines) + report_lines(row)


def three(row: Data) -> str:
    """Render a three row."""
    head = ("method", "first", "second", "third", "sum: median (min–max, IQR) s", "cached before each", "bits")
    lines = [
        (" ".join(filter(None, (e["method"], e["variant"]))), *(seconds(s) for s in e["loads"]),
         e["error"] or spread(e["sum"], 3), ", ".join(share(part) for part in e["cached"]), e["bits"])
        for e in digest.three_rows(row)
    ]
    return grid(head, lines) + report_lines(row)


def first(row: Data) -> str:
    """Render the row `first`."""
    lines = []
    for method in dict.fromkeys(s["method"] for s in row["samples"]):
        mine = [s for s in row["samples"] if s["method"] == method]
        good = [s["extra"] for s in mine if s.get("valid") and s.get("extra", {}).get("setup_s") is not None]
        error = next((s["error"] for s in mine if s.get("error")), "")
        lines.append((
            method, error or seconds(stats.median(e["seconds"][0] for e in good)),
            seconds(stats.median(s for e in good for s in e["seconds"][1:])),
            " / ".join(seconds(v) for v in _three(stats.spread(e["setup_s"] for e in good))),
            seconds(stats.median(e["import_s"] for e in good)),
        ))
    return grid(("method", "first load", "later loads", "set-up: median / min / max", "import"), lines)


def _three(value: stats.Spread | None) -> tuple[float | None, ...]:
    return (None,) * 3 if value is None else (value.median, value.min, value.max)


def memory(row: Data) -> str:
    """Render the row `memory`."""
    lines = []
    for sample in row["samples"]:
        extra = sample.get("extra", {})
        lines.append((
            sample.get("variant", ""), sample["method"], sample.get("error") or mib(extra.get("growth_bytes")),
            mib(extra.get("kept_bytes")), mib(extra.get("hwm_growth_bytes")), mib(extra.get("staging_bytes")),
        ))
    return grid(("model", "method", "growth, peak", "kept after", "growth with mapped files", "staging"), lines)


def four(row: Data) -> str:
    """Render the row `four`."""
    lines = []
    for method in dict.fromkeys(s["method"] for s in row["samples"]):
        mine = [s for s in row["samples"] if s["method"] == method]
        alone, both = (
            stats.spread(s["gbps"] for s in digest.valid(row, method=method, variant=v)) for v in ("alone", "at once")
        )
        error = next((s["error"] for s in mine if s.get("error")), "")
        lines.append((method, error or spread(alone), spread(both),
                      number(row["facts"].get("aggregate_ratio", {}).get(method), 3), digest.bits(mine)))
    return grid(("method", "one alone, GB/s", "four at once, GB/s together", "ratio", "bits"), lines)


def report_lines(row: Data) -> str:
    """Return the engine's statements about its last load, one line each."""
    report = row.get("last_report") or {}
    lines = [f"- {key}: `{json.dumps(report[key])[:600]}`" for key in ("routes", "limiting_stage", "stages")
             if key in report]
    return "\n\nnebulaio's report of the last load:\n" + "\n".join(lines) if lines else ""
