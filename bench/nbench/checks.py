# SPDX-License-Identifier: Apache-2.0
"""Compares the project's goals with the measured figures.

Each line has figures and a verdict; nothing here raises or decides an exit status. If the row of a line was not run,
the line says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import digest, stats, table

Data = dict[str, Any]

PASS, FAIL, NOT_RUN = "pass", "FAIL", "not run"

RATE_TARGETS = {  # row: (least part of the ceiling, least multiple of safetensors)
    "warm-7b": (0.94, 7.0),
    "warm-0.6b": (0.86, 6.0),
    "cold-7b": (0.95, 1.5),
    "cold-0.6b": (0.95, 1.5),
}
HALF_FACTOR = 1.15
FIRST_S = 0.015
STAGING_BYTES = 128 << 20
GROWTH_BYTES = 256 << 20
FOUR_RATIO = 0.95
MODELS = ("0.6b", "7b")


@dataclass(frozen=True)
class Check:
    """One line: the goal, the measured figure and the verdict."""

    row: str
    asked: str
    found: str
    verdict: str


def at_least(row: str, what: str, value: float | None, target: float, unit: str = "") -> Check:
    """Return a check that a figure is not below its target."""
    verdict = NOT_RUN if value is None else PASS if value >= target else FAIL
    return Check(row, f"{what} ≥ {target:g}{unit}", table.number(value, 3, unit), verdict)


def at_most(row: str, what: str, value: float | None, target: float, unit: str = "", *, below: bool = False) -> Check:
    """Return a check that a figure is not above its target, or is below it."""
    good = value is not None and (value < target if below else value <= target)
    verdict = NOT_RUN if value is None else PASS if good else FAIL
    return Check(row, f"{what} {'<' if below else '≤'} {target:g}{unit}", table.number(value, 3, unit), verdict)


def every(rows: list[Data]) -> list[Check]:
    """Return all checks of merged rows."""
    named = {row["name"]: row for row in rows}
    return [*_rates(named), *_half(named), *_three(named), *_process(named), *_bits(rows)]


def _rates(named: dict[str, Data]) -> Iterator[Check]:
    for name, (part, multiple) in RATE_TARGETS.items():
        entry: Data = {}
        ceiling = "ceiling_pinned" if name.startswith("warm") else "ceiling_raw"
        if name in named:
            entry = next((e for e in digest.rate_rows(named[name]) if e["method"] == "nebulaio"), {})
            ceiling = (digest.ceiling_median(named[name]) or (ceiling,))[0]
        yield at_least(name, f"of {ceiling}", entry.get("of_ceiling"), part)
        yield at_least(name, "× safetensors", entry.get("of_safetensors"), multiple)


def _half(named: dict[str, Data]) -> Iterator[Check]:
    for model in MODELS:
        row = named.get(f"half-{model}")
        entries = digest.half_rows(row) if row else []
        for pattern in ("first-half", "alternate-2MiB"):
            found = [e["factor"] for e in entries if e["method"] == "nebulaio" and e["state"] == pattern]
            yield at_most(f"half-{model}", f"factor, {pattern}", found[0] if found else None, HALF_FACTOR)


def _three(named: dict[str, Data]) -> Iterator[Check]:
    for model in MODELS:
        name = f"three-{model}"
        entries = {(e["method"], e["variant"]): e for e in digest.three_rows(named[name])} if name in named else {}
        sums = {key: entry["sum"].median for key, entry in entries.items() if entry["sum"]}
        auto, plain = sums.get(("nebulaio", "auto")), sums.get(("safetensors", ""))
        if auto is None or plain is None:
            yield Check(name, "sum, auto < safetensors", "–", NOT_RUN)
        else:
            yield Check(name, "sum, auto < safetensors", f"{auto:.3f} s against {plain:.3f} s", PASS if auto < plain
                        else FAIL)
        keep = entries.get(("nebulaio", "keep"), {}).get("cached", [None] * 3)[1:]
        least = min(keep) if None not in keep else None
        yield at_least(name, "keep: cached before the 2nd and 3rd", least, 0.99)


def _process(named: dict[str, Data]) -> Iterator[Check]:
    first = named.get("first")
    setups = [s["extra"]["setup_s"] for s in digest.valid(first, method="nebulaio")] if first else []
    setup = stats.median(setups)
    yield at_most("first", "set-up", None if setup is None else setup * 1e3, FIRST_S * 1e3, " ms")
    memory = named.get("memory")
    for model in MODELS:
        found = [
            s.get("extra", {}) for s in (memory["samples"] if memory else [])
            if s["method"] == "nebulaio" and s.get("variant") == model and s.get("valid")
        ]
        extra = found[-1] if found else {}
        staging, growth = extra.get("staging_bytes"), extra.get("growth_bytes")
        yield at_most(f"memory {model}", "staging", _mib(staging), STAGING_BYTES / 2**20, " MiB")
        yield at_most(f"memory {model}", "growth", _mib(growth), GROWTH_BYTES / 2**20, " MiB", below=True)
    four = named.get("four")
    ratio = four["facts"].get("aggregate_ratio", {}).get("nebulaio") if four else None
    yield at_least("four", "rate of four at once to one alone", ratio, FOUR_RATIO)


def _mib(value: float | None) -> float | None:
    return None if value is None else value / 2**20


def _bits(rows: list[Data]) -> Iterator[Check]:
    compared = [s for row in rows for s in row["samples"] if s["method"] == "nebulaio" and s.get("bits")]
    wrong = [s for s in compared if s["bits"] != "equal"]
    verdict = NOT_RUN if not compared else FAIL if wrong else PASS
    found = f"{len(compared) - len(wrong)} of {len(compared)} loads" + (f"; {wrong[0]['bits']}" if wrong else "")
    yield Check("all rows", "every bit as the reference", found if compared else "–", verdict)


def as_markdown(checks: list[Check]) -> str:
    """Render the checks as a table, with their count."""
    lines = [(c.row, c.asked, c.found, f"**{c.verdict}**" if c.verdict == FAIL else c.verdict) for c in checks]
    count = {v: sum(c.verdict == v for c in checks) for v in (PASS, FAIL, NOT_RUN)}
    text = table.grid(("row", "must show", "measured", ""), lines)
    return f"{text}\n\n{count[PASS]} pass, {count[FAIL]} fail, {count[NOT_RUN]} not run."
