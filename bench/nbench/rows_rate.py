# SPDX-License-Identifier: Apache-2.0
"""Rows `warm-*` and `cold-*`: every method on one file, fully cached or not cached at all.

The binding ceiling is measured in the same round as the methods: the bus for a warm file, the disk for a cold one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import cache, ceilings, methods
from .context import Context, Row, rotated
from .measure import Sample, in_words, run_method, timed
from .verify import Reference


def run(context: Context, state: str, model: str) -> Row:
    """Measure every method on a model in the state "warm" or "cold"."""
    row = Row(f"{state}-{model}", state, model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    loaders = context.usable(row, context.wanted)
    names = [method.name for method in loaders] + [name for name in _ceilings(state) if context.has(name)]
    per_round = sum(context.seconds(name, state, nbytes) * (2 if name == "ceiling_raw" else 1) for name in names)
    per_round += (1.5 if state == "cold" else 0.1) * len(names)
    setup = sum(context.seconds(m.name, "warm", nbytes) for m in loaders) + nbytes / 1e9 * 1.5
    context.begin(row, context.rounds, per_round, setup)

    files = {m.name: context.library.pickled(path) if m.pickled else path for m in loaders}
    reference = Reference(context.device, path)
    context.device.prepare(nbytes)
    loaders = context.warm_up(row, [(method, files[method.name]) for method in loaders])
    copy = ceilings.CopyCeiling(context.device, nbytes) if context.has("ceiling_pinned") else None
    raw = context.raw_ceiling(row, path) if state == "cold" else None
    try:
        _rounds(context, row, state, path, loaders, files, reference, copy, raw)
    finally:
        if raw is not None:
            raw.close()
    row.last_report = methods.last_report()
    del reference, copy
    context.device.give_back()
    context.library.trim()
    return row


def _ceilings(state: str) -> tuple[str, ...]:
    return ("ceiling_pinned", "ceiling_raw") if state == "cold" else ("ceiling_pinned",)


def _rounds(context: Context, row: Row, state: str, path: Path, loaders: list[methods.Method],
            files: dict[str, Path], reference: Reference, copy: ceilings.CopyCeiling | None,
            raw: ceilings.RawCeiling | None) -> None:
    nbytes = row.files["bytes"]

    def load(method: methods.Method, index: int) -> Sample:
        file = files[method.name]
        context.drop(file) if state == "cold" else cache.warm(file)
        sample = Sample(method.name, index, nbytes, state=state)
        return run_method(context.device, method, file, sample, reference)

    steps: list[Callable[[int], Sample]] = [partial(load, method) for method in loaders]
    if copy is not None:
        steps.append(partial(_bus, context, copy, nbytes, state))
    if raw is not None:
        steps += [partial(_disk, context, raw, setting, path, nbytes) for setting in raw.best]
    for index in context.each_round(row):
        for step in rotated(steps, index):
            sample = step(index)
            row.samples.append(sample)
            context.show(sample)


def _bus(context: Context, copy: ceilings.CopyCeiling, nbytes: int, state: str, index: int) -> Sample:
    context.device.collect()
    sample = Sample("ceiling_pinned", index, nbytes, state=state)
    target, sample.seconds, sample.cpu_s = timed(copy.run)
    del target
    context.device.collect()
    return sample


def _disk(context: Context, raw: ceilings.RawCeiling, setting: ceilings.Setting, path: Path,
          nbytes: int, index: int) -> Sample:
    sample = Sample("ceiling_raw", index, nbytes, variant=str(setting), state="cold")
    sample.cached_before = context.drop(path)
    try:
        _, sample.seconds, sample.cpu_s = timed(lambda: raw.run(setting))
    except OSError as problem:
        sample.error, sample.valid = in_words(problem), False
    return sample
