# SPDX-License-Identifier: Apache-2.0
"""Row `four`: four loads at once, compared with the same loads one after the other.

Four threads of one process load four distinct, cached files. A loader that shares its staging memory and its workers
keeps the whole rate; another loader becomes slower.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from . import cache, methods, stats
from .context import Context, Row, rotated
from .measure import Sample, in_words, timed
from .verify import Reference

COUNT = 4


def run(context: Context, model: str) -> Row:
    """Measure four loads at once and one by one."""
    row = Row("four", "four", model)
    paths = [context.library.file(model, seed) for seed in range(1, COUNT + 1)]
    row.files = {path.name: context.describe(path) for path in paths}
    total = sum(entry["bytes"] for entry in row.files.values())
    loaders = context.usable(row, ("nebulaio", "safetensors"))
    each = sum(2.5 * context.seconds(m.name, "warm", total) for m in loaders)
    context.begin(row, context.rounds, each, total / 1e9 * 3)

    device = context.device
    references = {path: Reference(device, path) for path in paths}
    device.prepare(total)
    loaders = context.warm_up(row, [(method, paths[0]) for method in loaders])
    for method in loaders:  # and once all at the same time
        _together(method, paths)
        device.collect()
    for index in context.each_round(row):
        for method in rotated(loaders, index):
            for step in rotated((_alone, _at_once), index):
                sample = step(context, method, paths, index, total, references)
                row.samples.append(sample)
                context.show(sample)
    row.facts["aggregate_ratio"] = {m.name: ratio(row.samples, m.name) for m in loaders}
    row.last_report = methods.last_report()
    del references
    device.give_back()
    return row


def ratio(samples: list[Sample], method: str) -> float | None:
    """Return the median over rounds of the rate of four at once, divided by the rate of one alone."""
    rates = {(s.round, s.variant): s.gbps for s in samples if s.method == method and s.valid and s.gbps}
    pairs = [(rates.get((index, "at once")), rates.get((index, "alone"))) for index in {index for index, _ in rates}]
    return stats.median(both / one for both, one in pairs if both and one)


def _alone(context: Context, method: methods.Method, paths: list[Path], index: int, total: int,
           references: dict[Path, Reference]) -> Sample:
    """Load the four files one after the other; seconds and CPU are sums."""
    sample = Sample(method.name, index, total, variant="alone", state="warm")
    sample.cached_before = min(cache.warm(path) for path in paths)
    bits, wall, cpu = [], 0.0, 0.0
    try:
        for path in paths:
            context.device.collect()
            result, took, used = timed(partial(method.load, path))
            wall, cpu = wall + took, cpu + used
            bits.append(references[path].differs(result))
            result = None
        sample.seconds, sample.cpu_s = wall, cpu
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    sample.bits = next(filter(None, bits), "equal")
    context.device.collect()
    return sample


def _at_once(context: Context, method: methods.Method, paths: list[Path], index: int, total: int,
             references: dict[Path, Reference]) -> Sample:
    sample = Sample(method.name, index, total, variant="at once", state="warm")
    sample.cached_before = min(cache.warm(path) for path in paths)
    context.device.collect()
    try:
        results, sample.seconds, sample.cpu_s = timed(lambda: _together(method, paths))
        sample.bits = next((d for p, r in results.items() if (d := references[p].differs(r))), "equal")
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    results = None
    context.device.collect()
    return sample


def _together(method: methods.Method, paths: list[Path]) -> dict[Path, Any]:
    """Load all files at the same time, one thread each."""
    with ThreadPoolExecutor(len(paths)) as threads:
        return dict(zip(paths, threads.map(method.load, paths)))
