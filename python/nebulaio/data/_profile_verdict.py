# SPDX-License-Identifier: Apache-2.0
"""From figures to a verdict, one sentence and advice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ._profile_result import Variant
from ._profile_run import Measurement, Round
from ._profile_split import Split
from ._profile_text import duration, number

LOADER, DECODE, COPY, COMPUTE, UNCLEAR = "loader-bound", "decode-bound", "copy-bound", "compute-bound", "no clear verdict"


# A loader that alone needs less than this share of a step has workers enough: a short wait is not its fault.
_FAST = 0.5
# Share of the time that steps take at least in a compute-bound loop with such a loader.
_MOSTLY = 0.75


def judge(alone: Measurement, together: Measurement, loading: Split, tolerated_idle: float) -> tuple[str, float]:
    """Return the verdict of most rounds, and the share of rounds that gave it.

    If the device waits less than the tolerated share of the time, the loop is compute-bound. So it is if
    steps take most of the time, and workers alone are twice as fast as the steps. Otherwise the longer of
    the two waits decides: for the copy, or for the loader. A loader that mostly decodes is decode-bound.
    """
    workers = alone.per_batch() if alone.lanes else math.inf
    votes = Counter(_judge(each, workers, loading, tolerated_idle) for each in together.rounds)
    verdict, count = votes.most_common(1)[0]
    share = count / votes.total()
    return (verdict, share) if share >= 0.5 else (UNCLEAR, share)


def _judge(each: Round, workers: float, loading: Split, tolerated_idle: float) -> str:
    waits = each.wait + each.copy
    total = waits + each.step
    if waits <= tolerated_idle * total:
        return COMPUTE
    if each.copy > each.wait:
        return COPY
    if workers * each.batches <= _FAST * each.step and each.step >= _MOSTLY * total:
        return COMPUTE
    return DECODE if loading.decodes else LOADER


def explain(verdict: str, first: Variant, loading: Split, figures: dict[str, Any]) -> str:
    """Return the verdict as one sentence with the figures behind it."""
    loop = f"of {duration(first.together)} per batch, the step takes {duration(first.step)} ({first.busy * 100:.0f} %)"
    if figures.get("copy_alone") is None:
        loop += f" and the wait for the loader {duration(first.wait)}"
    else:
        loop += f", the wait for the loader {duration(first.wait)} and the copy {duration(first.copy)}"
    parts = f"a batch takes {duration(loading.total)} in one process, {duration(loading.decode)} of it decode and {duration(loading.read)} read and wait"
    if math.isnan(loading.total):
        parts = "the loader alone was not measured"
    if verdict == COMPUTE:
        return f"{verdict}: {loop}, so the data keeps up with the step."
    if verdict == COPY:
        return f"{verdict}: {loop}, while the loader alone needs {duration(first.alone)}."
    if verdict in (LOADER, DECODE):
        return f"{verdict}: {loop}; {parts}."
    return f"{verdict}: {loop}, and the rounds of the measurement differ in what takes longest."


def advise(verdict: str, variants: Sequence[Variant], figures: dict[str, Any]) -> tuple[str, ...]:
    """Return what to try next, most promising first. Only measured differences are promised."""
    first, advice = variants[0], []
    better = [each for each in variants[1:] if each.together < 0.9 * first.together]
    for each in sorted(better, key=lambda one: one.together):
        gain = first.together / each.together
        advice.append(f"{each.name}: the loop takes {duration(each.together)} per batch, {number(gain)} times as fast")
    if verdict in (LOADER, DECODE):
        advice.append("nebulaio.data.autotune finds the number of workers beyond which more do not help")
    if verdict == DECODE:
        advice.append("decode on the device or ahead of time, or use a faster decoder: processors are the limit, not storage")
    if verdict == LOADER:
        advice.append("read larger pieces, pack small files, or use faster storage: processors wait, and do not compute")
    if verdict == COPY:
        pinned, pageable = figures.get("copy_pinned"), figures.get("copy_pageable")
        if pinned and pageable and pinned < 0.9 * pageable:
            advice.append(f"pin_memory=True: the copy takes {duration(pinned)} from pinned memory, {duration(pageable)} from pageable")
        advice.append("copy the next batch on a stream of its own during the step, and send fewer bytes")
    if verdict == COMPUTE:
        advice.append("leave the loader as it is: only a faster step makes this loop faster")
    slowed = figures.get("step_alone")
    if slowed and first.step > 1.3 * slowed:
        advice.append(
            f"the step takes {duration(first.step)} in the loop and {duration(slowed)} alone: loader and step compete, "
            "so try fewer workers or threads"
        )
    return tuple(advice)
