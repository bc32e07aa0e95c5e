# SPDX-License-Identifier: Apache-2.0
"""From figures to a verdict. The native library judges, as it does for every command of NebulaIO."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import _abi, _process
from ._profile_result import Variant
from ._profile_run import Measurement
from ._profile_split import Split


@dataclass(frozen=True)
class Judgement:
    """What the library says about a loop: the verdict, why, what to try next, and the share of rounds that agree."""

    verdict: str
    sentence: str
    advice: tuple[str, ...]
    agree: float


def judge(
    alone: Measurement,
    together: Measurement,
    loading: Split,
    tolerated_idle: float,
    variants: Sequence[Variant],
    figures: dict[str, Any],
) -> Judgement:
    """Return the library's judgement of a loop. The first of the variants is the loop as configured."""
    loop = {
        "rounds": [
            {"batches": each.batches, "wait": each.wait, "copy": each.copy, "step": each.step}
            for each in together.rounds
        ],
        "loader_alone": _known(alone.per_batch()) if alone.lanes else None,
        "in_process": _known(loading.total),
        "decode": _known(loading.decode),
        "read": _known(loading.read),
        "tolerated_idle": tolerated_idle,
        "variants": [
            {
                "name": each.name,
                "alone": _known(each.alone),
                **{part: _known(getattr(each, part)) or 0.0 for part in ("together", "wait", "copy", "step")},
            }
            for each in variants
        ],
        **{name: _known(figures.get(name)) for name in ("step_alone", "copy_alone", "copy_pinned", "copy_pageable")},
    }
    functions = _process.current().load().functions
    said = json.loads(_abi.text(functions.nebulaio_judge_loop, json.dumps(loop).encode()))
    return Judgement(said["bound"], f"{said['bound']}: {said['why']}.", tuple(said["next"]), said["agree"])


def _known(value: float | None) -> float | None:
    """Return a time, or None if it was not measured."""
    return value if value is not None and math.isfinite(value) else None
