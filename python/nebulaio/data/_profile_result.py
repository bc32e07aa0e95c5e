# SPDX-License-Identifier: Apache-2.0
"""The answer of `profile`: a verdict, the sentence that explains it, and the figures behind it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from ._profile_text import duration, number, table


@dataclass(frozen=True)
class Variant:
    """One setting of the loader, measured alone and in the loop. All times are seconds per batch."""

    name: str  # such as "as configured" or "num_workers=0"
    settings: dict[str, Any]  # what the loader says of itself
    alone: float  # the loader alone
    start: float  # seconds until the first batch, with the start of workers; not per batch
    together: float  # the loop with loader, copy and step
    wait: float  # of `together`: waiting for the loader
    copy: float  # of `together`: copying to the device
    step: float  # of `together`: the step
    samples_per_second: float  # of the loop
    rounds: int  # of the loop

    @property
    def busy(self) -> float:
        """The share of the loop's time that steps take."""
        return self.step / self.together if self.together > 0 else math.nan


@dataclass(frozen=True)
class Profile:
    """What limits a training loop.

    `verdict` is "storage-bound", "cpu-bound", "copy-bound", "compute-bound" or "no clear verdict".
    A loader that mostly waits makes a loop storage-bound, and one that mostly decodes cpu-bound.
    `sentence` explains the verdict with its figures. `figures` has all figures by name, in seconds
    per batch unless the name says otherwise; a figure that was not measured is None. `variants` are
    the settings that were measured; the first is the loader as configured. `notes` say what was not
    measured and why, and `advice` what to try next. `str()` gives all of it as text.
    """

    verdict: str
    sentence: str
    figures: dict[str, Any]
    variants: tuple[Variant, ...]
    notes: tuple[str, ...]
    advice: tuple[str, ...]

    def to_json(self) -> str:
        """Return all fields as a JSON object. A figure that was not measured is null."""
        return json.dumps(plain(asdict(self)), ensure_ascii=False)

    def __str__(self) -> str:
        head = ["setting", "loader alone", "loop", "wait", "copy", "step", "busy", "samples/s"]
        rows = [
            [each.name]
            + [_time(value) for value in (each.alone, each.together, each.wait, each.copy, each.step)]
            + ["-" if math.isnan(each.busy) else f"{each.busy * 100:.0f} %", _rate(each.samples_per_second)]
            for each in self.variants
        ]
        lines = [self.sentence, "", table(head, rows), ""]
        for label, name in _LINES:
            if self.figures.get(name) is not None:
                lines.append(f"{label:30} {_time(self.figures[name])}")
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"next: {each}" for each in self.advice]
        return "\n".join(lines)


# Figures that are not in the table of settings, with their text.
_LINES = (
    ("step alone", "step_alone"),
    ("copy alone", "copy_alone"),
    ("copy alone, pageable memory", "copy_pageable"),
    ("copy alone, pinned memory", "copy_pinned"),
    ("one process: whole batch", "in_process"),
    ("one process: decode", "decode"),
    ("one process: read and wait", "read"),
)


def _time(value: float) -> str:
    return "-" if math.isnan(value) else duration(value)


def _rate(value: float) -> str:
    return "-" if math.isnan(value) else number(value)


def plain(value: Any) -> Any:
    """Return value with None for NaN, which JSON does not have, and text for what JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
