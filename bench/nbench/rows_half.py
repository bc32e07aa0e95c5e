# SPDX-License-Identifier: Apache-2.0
"""Rows `half-*`: loads with one half of the pages cached, in three patterns.

A loader that reads the cached half from memory while the disk delivers the other half needs max(cold bytes / cold
rate, cached bytes / warm rate). Both rates are measured in the same round. The factor is the measured time divided by
that minimum.
"""

from __future__ import annotations

from pathlib import Path

from . import cache, methods, stats
from .context import Context, Row, rotated
from .measure import Sample, in_words, run_method
from .verify import Reference

LARGE = 4 << 30  # making half of such a file resident page by page takes minutes
METHODS = ("nebulaio", "safetensors")


def run(context: Context, model: str) -> Row:
    """Measure half-cached loads of a model beside a cold and a warm one."""
    row = Row(f"half-{model}", "half", model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    large = nbytes > LARGE
    loaders = context.usable(row, METHODS)
    if large and len(loaders) > 1:
        loaders = loaders[:1]
        row.skipped["safetensors"] = "left out on a large file to save time"
    patterns = cache.PATTERNS[:2] if large else cache.PATTERNS
    if large:
        row.skipped[cache.PATTERNS[2]] = "left out on a large file: single pages become resident too slowly"
    states = ["cold", "warm", *patterns]
    make = nbytes / 1e9 * (0.5 + 0.3 * len(patterns)) + 1.5 * len(states)
    one = sum(context.seconds(m.name, "cold", nbytes) * (1 + 0.6 * len(patterns)) for m in loaders)
    context.begin(row, context.rounds, one + make * len(loaders), nbytes / 1e9)

    reference = Reference(context.device, path)
    context.device.prepare(nbytes)
    loaders = context.warm_up(row, [(method, path) for method in loaders])
    for index in context.each_round(row):
        for state in rotated(states, index):
            for method in rotated(loaders, index):
                sample = _load(context, method, path, state, index, nbytes, reference)
                row.samples.append(sample)
                context.show(sample)
        for sample in row.samples:
            if sample.round == index:
                add_factor(sample, row.samples)
    row.last_report = methods.last_report()
    del reference
    context.device.give_back()
    return row


def _load(context: Context, method: methods.Method, path: Path, state: str, index: int, nbytes: int,
          reference: Reference) -> Sample:
    sample = Sample(method.name, index, nbytes, state=state)
    try:
        if state == "cold":
            context.drop(path)
        elif state == "warm":
            cache.warm(path)
        else:
            made = cache.make_pattern(path, state, everything=context.drop_everything)
            sample.extra = {"cached_bytes": made.cached_bytes, "wrong": made.wrong}
            if not made.valid:
                sample.valid = False
                sample.note = f"{made.cached_bytes / made.size:.1%} cached, {made.wrong:.1%} not as meant"
    except (OSError, cache.CacheError) as problem:
        sample.error, sample.valid = in_words(problem), False
        return sample
    return run_method(context.device, method, path, sample, reference)


def add_factor(sample: Sample, others: list[Sample]) -> None:
    """Add the least possible time, and the factor to it, to a half-cached sample."""
    if sample.state in ("cold", "warm") or sample.seconds is None or "cached_bytes" not in sample.extra:
        return
    rates = {
        other.state: other.gbps
        for other in others
        if other.method == sample.method and other.round == sample.round and other.valid and other.gbps
    }
    if rates.get("cold") and rates.get("warm"):
        cached = sample.extra["cached_bytes"]
        expected = stats.half_expected(sample.nbytes - cached, rates["cold"], cached, rates["warm"])
        sample.extra["expected_s"] = expected
        sample.extra["factor"] = sample.seconds / expected
