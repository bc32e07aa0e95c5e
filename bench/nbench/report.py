# SPDX-License-Identifier: Apache-2.0
"""Renders results files as one Markdown page and one plot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import checks, digest, ratios, results, svg, table, table_analysis

Data = dict[str, Any]

ORDER = ("warm", "cold", "half", "three", "first", "memory", "four", "analysis", "save", "verify", "cufile", "slice")
_TABLES = {
    "warm": table.rate, "cold": table.rate, "half": table.half, "three": table.three, "first": table.first,
    "memory": table.memory, "four": table.four, "analysis": table_analysis.analysis,
    "save": ratios.markdown, "verify": ratios.markdown, "cufile": ratios.markdown, "slice": ratios.markdown,
}


def every(rows: list[Data]) -> list[checks.Check]:
    """Return the checks of the rows that were run, or all checks if no row was run."""
    named = {row["name"]: row for row in rows}
    found = [*checks.every(rows), *ratios.checks(named)]
    ran = [c for c in found if c.verdict != checks.NOT_RUN]
    return ran or found


def markdown(rows: list[Data], runs: list[Data]) -> str:
    """Render the page: machines, checks, then every row."""
    rows = sorted(rows, key=lambda row: (ORDER.index(row["kind"]), _size(row), row["name"]))
    parts = ["# Benchmark results", *(_machine(index, run) for index, run in enumerate(runs))]
    cuda = [row for row in rows if row.get("device", "").startswith("cuda")]
    if cuda:
        parts += ["## Must show", checks.as_markdown(every(cuda))]
    parts.append("## Rows")
    for row in rows:
        body = _TABLES[row["kind"]](row) if row["samples"] else "No samples."
        parts.append(f"{table.title(row)}\n\n{body}")
    return "\n\n".join(parts) + "\n"


def _size(row: Data) -> float:
    return float(row["files"].get("bytes", 0)) if isinstance(row["files"], dict) else 0.0


def _machine(index: int, run: Data) -> str:
    lines = []
    for key, value in run["machine"].items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        if key == "ram_bytes":
            key, shown = "ram", f"{value / 2**30:.1f} GiB"
        lines.append((key, str(shown) if shown not in ("", None) else "–"))
    return f"## Run {index + 1}\n\n`{run['command']}`\n\n" + table.grid(("machine", ""), lines)


def plot(rows: list[Data], runs: list[Data]) -> str:
    """Draw the chart of the warm and cold rows: those of a GPU if there are any, else those of the host."""
    rated = [row for row in rows if row["kind"] in ("warm", "cold") and row["samples"]]
    cuda = [row for row in rated if row.get("device", "").startswith("cuda")]
    panels = []
    for kind, text in (("warm", "Warm: the file is in the page cache"), ("cold", "Cold: the file is on disk alone")):
        groups = []
        for row in sorted((row for row in cuda or rated if row["kind"] == kind), key=_size):
            bars = [
                svg.Bar(entry["method"], entry["gbps"].median, entry["gbps"].min, entry["gbps"].max)
                for entry in digest.rate_rows(row)
                if entry["gbps"] is not None and not entry["method"].startswith("ceiling")
            ]
            ceiling = digest.ceiling_median(row)
            groups.append(svg.Group(f"{row['name']} ({row['files']['bytes'] / 1e9:.1f} GB)", bars,
                                    ceiling[1] if ceiling else None, ceiling[0] if ceiling else ""))
        panels.append(svg.Panel(text, groups))
    machine = runs[-1]["machine"] if runs else {}
    what = machine.get("gpu", {}).get("name") if cuda else machine.get("cpu")
    return svg.draw(panels, f"Medians, with extremes. {what or ''}, Linux {machine.get('kernel', '')}.")


def write(files: list[Data], out: Path) -> None:
    """Write results.md and plot.svg."""
    rows, runs = results.merge(files)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.md").write_text(markdown(rows, runs))
    (out / "plot.svg").write_text(plot(rows, runs))


def main(arguments: list[str] | None = None) -> int:
    """Command line of bench/report.py."""
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json")
    parser.add_argument("--out", type=Path,
                        help="folder for results.md and plot.svg; that of the first file if not given")
    given = parser.parse_args(arguments)
    files = [results.load(path) for path in given.results]
    out = given.out or given.results[0].parent
    write(files, out)
    rows, _ = results.merge(files)
    print(checks.as_markdown(every([r for r in rows if r.get("device", "").startswith("cuda")])))
    print(f"wrote {out / 'results.md'} and {out / 'plot.svg'}")
    return 0
