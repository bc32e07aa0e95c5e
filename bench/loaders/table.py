# SPDX-License-Identifier: Apache-2.0
"""Prints medians, spreads and ratios of measured rounds."""

from __future__ import annotations

import statistics
from typing import Any

from nbench import stats

Row = dict[str, Any]


def ratios(row: Row, contender: str, reference: str) -> list[float]:
    """Return how many times as fast as a reference a contender is, round by round. Rounds that failed are left out."""
    ours, theirs = (row["contenders"].get(name, {}).get("seconds", []) for name in (contender, reference))
    return [b / a for a, b in zip(ours, theirs) if a and b]


def line(name: str, found: dict[str, Any], row: Row) -> str:
    """Return the line of a contender."""
    if "error" in found:
        return f"| {name} | not measured: {found['error']} |" + " |" * 4
    seconds = [s for s in found["seconds"] if s]
    if not seconds:
        return f"| {name} | every round failed: {found['failed'][-1]} |" + " |" * 4
    spread = stats.spread(seconds)
    rates = (row["count"] / spread.median, row["count"] / spread.max, row["count"] / spread.min)
    setting = ", ".join(f"{key} {value}" for key, value in found.get("setting", {}).items())
    each = [(o, ratios(row, o, name)) for o in row["contenders"] if o.startswith("ours") and o != name]
    compared = "; ".join(f"{o} **{statistics.median(r):.2f}** ({min(r):.2f} to {max(r):.2f})" for o, r in each if r)
    return (f"| {name} | {setting} | {rates[0]:,.0f} | {rates[1]:,.0f} to {rates[2]:,.0f} | "
            f"{stats.rate(row['bytes'], spread.median):.2f} | {compared} |")


def table(results: dict[str, Any]) -> str:
    """Return all rows as tables in Markdown."""
    m, s = results["machine"], results["samples"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items() if version)
    out = [
        f"{m['date']}, {m['cores']} cores of {m['cpu']}, {m['ram_bytes'] / 2**30:.0f} GiB, Linux {m['kernel']}, {m['file_system']}",
        *([f"GPU: {m['gpu']}"] if m["gpu"] else []),
        versions,
        f"{s['count']:,} samples of {s['size']:,} bytes, batches of {results['batch']}, device {results['device']}",
    ]
    for name, row in results["rows"].items():
        out += ["", f"## {name}: {row['what']}", ""]
        out += ["| contender | setting | samples/s | slowest to fastest round | GB/s | ours divided by this contender, median (rounds) |",
                "|---|---|---|---|---|---|"]
        out += [line(contender, found, row) for contender, found in row["contenders"].items()]
    return "\n".join(out) + "\n"
