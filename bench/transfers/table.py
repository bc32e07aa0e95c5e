# SPDX-License-Identifier: Apache-2.0
"""Writes the results of the benchmark of transfers as a table, and compares nebulaio with the others round by round."""

from __future__ import annotations

from typing import Any

from nbench import stats

OURS = "nebulaio"


def figures(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each contender its spread of seconds, its CPU seconds per GB and its ratios to ours in the same round."""
    out: dict[str, dict[str, Any]] = {}
    ours = row["contenders"][OURS]["runs"]
    for name, contender in row["contenders"].items():
        runs = contender["runs"]
        good = [r for r in runs if not r["error"]]
        pairs = [(a, b) for a, b in zip(ours, runs) if not a["error"] and not b["error"]]
        out[name] = {
            "failed": len(runs) - len(good),
            "seconds": stats.spread(r["seconds"] for r in good),
            "cpu_per_gb": stats.spread(r["cpu"] / (row["bytes"] / 1e9) for r in good),
            "time_ratio": stats.spread(b["seconds"] / a["seconds"] for a, b in pairs),
            "cpu_ratio": stats.spread(b["cpu"] / a["cpu"] for a, b in pairs),
        }
    return out


def _cell(s: stats.Spread | None, digits: int = 2) -> str:
    return "" if s is None else f"{s.median:.{digits}f} [{s.min:.{digits}f}..{s.max:.{digits}f}]"


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines: list[str] = []
    for name, row in results["rows"].items():
        lines += [f"### {name}: {row['what']}", "",
                  "| client | seconds | MB/s | CPU s/GB | time, times ours | CPU, times ours | runs, failed |",
                  "|---|---|---|---|---|---|---|"]
        for client, f in figures(row).items():
            rate = f"{row['bytes'] / 1e6 / f['seconds'].median:.0f}" if f["seconds"] else ""
            lines.append(f"| {client} | {_cell(f['seconds'])} | {rate} | {_cell(f['cpu_per_gb'])} | "
                         f"{_cell(f['time_ratio'])} | {_cell(f['cpu_ratio'])} | "
                         f"{len(row['contenders'][client]['runs'])}, {f['failed']} |")
        lines.append("")
    lines += ["| client | version | settings |", "|---|---|---|"]
    for name, about in results["clients"].items():
        lines.append(f"| {name} | {about['version']} | {about['settings']} |")
    for name, why in results["missing"].items():
        lines.append(f"| {name} | not measured | {why} |")
    return "\n".join(lines) + "\n"
