# SPDX-License-Identifier: Apache-2.0
"""Figures, tables and checks of the rows that compare methods with each other: save, verify, cufile, slice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import digest, stats, table
from .checks import FAIL, NOT_RUN, PASS, Check, at_least, at_most

Data = dict[str, Any]

SAVE_CEILING, SAVE_MULTIPLE = 0.90, 1.5
VERIFIED = 0.85
AUTO_MULTIPLE = 2.0
ROW_AMPLIFICATION = 1.5


def entries(row: Data) -> list[Data]:
    """Return one entry per method, variant and state, in the order of their first run."""
    found = []
    for key in dict.fromkeys(_key(s) for s in row["samples"]):
        mine = [s for s in row["samples"] if _key(s) == key]
        good = [s for s in mine if s.get("valid") and s.get("seconds")]
        found.append({
            "method": key[0], "variant": key[1], "state": key[2],
            "seconds": stats.spread(s["seconds"] for s in good),
            "gbps": stats.spread(s["gbps"] for s in good),
            "cpu_s": stats.median(s["cpu_s"] for s in good if "cpu_s" in s),
            "amplification": stats.spread(s["extra"]["amplification"] for s in good
                                          if "amplification" in s.get("extra", {})),
            "routes": sorted({r["route"] for s in good for r in s.get("report", {}).get("routes", [])}),
            "bits": digest.bits(mine),
            "error": next((s["error"] for s in mine if s.get("error")), ""),
        })
    return found


def _key(sample: Data) -> tuple[str, str, str]:
    variant = sample.get("variant", "")
    return sample["method"], variant.partition(", rank")[0], sample.get("state", "")


def ratio(row: Data, over: tuple[str, str], under: tuple[str, str]) -> stats.Spread | None:
    """Divide a method's rate by another's, round by round; of several settings the best counts."""
    rates: dict[tuple[str, str], dict[int, float]] = {over: {}, under: {}}
    for sample in digest.valid(row):
        for key, by_round in rates.items():
            if sample["method"] == key[0] and key[1] in ("*", sample.get("variant", "")):
                by_round[sample["round"]] = max(sample["gbps"], by_round.get(sample["round"], 0.0))
    shared = rates[over].keys() & rates[under].keys()
    return stats.spread(rates[over][index] / rates[under][index] for index in shared)


def markdown(row: Data) -> str:
    """Render the row as a table, with its ratios."""
    head = ("method", "state", "time (median)", "GB/s: median (min–max, IQR)", "read / wanted", "CPU s", "routes taken",
            "bits")
    lines = []
    for e in entries(row):
        name = " ".join(filter(None, (e["method"], e["variant"])))
        lines.append((
            name, e["state"], e["error"] or table.seconds(e["seconds"].median if e["seconds"] else None),
            table.spread(e["gbps"]), table.spread(e["amplification"]), table.number(e["cpu_s"]), ", ".join(e["routes"]),
            e["bits"],
        ))
    text = table.grid(head, lines)
    named = [(words, ratio(row, over, under)) for words, over, under in _RATIOS.get(row["kind"], ())]
    shown = [f"- {words}: {table.spread(value, 3)}" for words, value in named if value is not None]
    if shown:
        text += "\n\nRatios of the same round:\n\n" + "\n".join(shown)
    sweep = row["facts"].get("write_sweep_gbps")
    if sweep:
        text += "\n\nWrite sweep, GB/s: " + ", ".join(f"{k} {v:.2f}" for k, v in sweep.items()) + "."
    counters = next((s["report"]["cufile"] for s in row["samples"] if s.get("report", {}).get("cufile")), None)
    if counters:
        text += f"\n\ncuFile's own counters of one load: `{json.dumps(counters)[:600]}`"
    return text + table.report_lines(row)


_RATIOS = {
    "save": (
        ("nebulaio to the write ceiling", ("nebulaio", ""), ("ceiling_write", "*")),
        ("nebulaio to safetensors and fsync", ("nebulaio", ""), ("safetensors_fsync", "")),
    ),
    "verify": (("verified to plain", ("nebulaio", "verified"), ("nebulaio", "plain")),),
    "cufile": tuple(
        (f"auto to cuFile {words}", ("nebulaio", "auto"), ("nebulaio", variant))
        for words, variant in (
            ("sync", "cufile sync"), ("async", "cufile async"), ("batch", "cufile batch"),
            ("on a buffered descriptor", "bench, cufile, buffered descriptor"),
        )
    ),
}


def checks(named: dict[str, Data]) -> Iterator[Check]:
    """Return the checks of these rows."""
    for kind, model in (("save", "7b"), ("verify", "7b"), ("cufile", "0.6b"), ("cufile", "7b"), ("slice", "7b")):
        row = named.get(f"{kind}-{model}")
        yield from {"save": _save, "verify": _verify, "cufile": _cufile, "slice": _slice}[kind](f"{kind}-{model}", row)


def _median(row: Data | None, kind: str, index: int) -> float | None:
    if row is None:
        return None
    _, over, under = _RATIOS[kind][index]
    found = ratio(row, over, under)
    return None if found is None else found.median


def _save(name: str, row: Data | None) -> Iterator[Check]:
    yield at_least(name, "of the write ceiling", _median(row, "save", 0), SAVE_CEILING)
    yield at_least(name, "× safetensors and fsync", _median(row, "save", 1), SAVE_MULTIPLE)


def _verify(name: str, row: Data | None) -> Iterator[Check]:
    yield at_least(name, "verified, of the plain rate", _median(row, "verify", 0), VERIFIED)


def _cufile(name: str, row: Data | None) -> Iterator[Check]:
    for index, (words, _, _) in enumerate(_RATIOS["cufile"]):
        value = _median(row, "cufile", index)
        if row is None or value is not None:  # a large file is not read by every interface
            yield at_least(name, f"{words}, warm", value, AUTO_MULTIPLE)
    by_cufile = [e for e in entries(row) if e["variant"].startswith("cufile")] if row else []
    routes = sorted({route for e in by_cufile for route in e["routes"]})
    failed = [e["error"] for e in by_cufile if e["error"]]
    verdict = NOT_RUN if not by_cufile else PASS if routes and not failed else FAIL
    yield Check(name, "each interface runs, its route from the counters", ", ".join(routes + failed) or "–", verdict)


def _slice(name: str, row: Data | None) -> Iterator[Check]:
    found = {(e["variant"], e["state"]): e["amplification"] for e in entries(row) if e["amplification"]} if row else {}
    for state in ("warm", "cold"):
        rows = found.get(("rows", state))
        yield at_most(name, f"read / wanted, rows, {state}", rows.max if rows else None, ROW_AMPLIFICATION)
