# SPDX-License-Identifier: Apache-2.0
"""Rows `three-*`: the same file loaded three times in a row, the first time cold.

The sum of the three is what a user notices. A loader that bypasses the page cache is fast once, but reads from the
disk again. A loader that fills the page cache is slower at first and faster afterwards.
"""

from __future__ import annotations

from . import methods
from .context import Context, Row, rotated
from .measure import Sample, run_method
from .verify import Reference

POLICIES = ("auto", "keep", "bypass")
REPEATS = 3


def run(context: Context, model: str) -> Row:
    """Measure three loads from cold, by cache policy and with safetensors."""
    row = Row(f"three-{model}", "three", model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    variants: list[tuple[str, methods.Method]] = []
    for policy in POLICIES:
        variants += [(policy, method) for method in context.usable(row, ("nebulaio",), cache=policy)]
    variants += [("", method) for method in context.usable(row, ("safetensors",))]
    per_round = sum(
        context.seconds("safetensors" if variant != "bypass" else method.name, "cold", nbytes)
        + 2 * context.seconds(method.name, "cold" if variant == "bypass" else "warm", nbytes)
        + 1.5
        for variant, method in variants
    )
    context.begin(row, context.rounds, per_round, nbytes / 1e9)

    reference = Reference(context.device, path)
    context.device.prepare(nbytes)
    working = context.warm_up(row, [(method, path) for _, method in variants])
    variants = [(variant, method) for variant, method in variants if method in working]
    for index in context.each_round(row):
        for variant, method in rotated(variants, index):
            context.drop(path)
            for repeat in range(1, REPEATS + 1):
                state = "cold" if repeat == 1 else ""
                sample = Sample(method.name, index, nbytes, variant=variant, state=state, repeat=repeat)
                run_method(context.device, method, path, sample, reference)
                row.samples.append(sample)
                context.show(sample)
    row.last_report = methods.last_report()
    del reference
    context.device.give_back()
    return row
