# SPDX-License-Identifier: Apache-2.0
"""Rows `save-*`: saves of tensors from the device to a durable file.

The row compares our save, safetensors' save_file followed by fsync of file and directory, and plain writes to the
disk. Every save creates a new file, after the previous file was removed and the disk became quiet. In the first
round, the reference implementation reads the file back and compares it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from . import methods, writing
from .ceilings import Setting
from .context import Context, Row, rotated
from .measure import REPORT_KEYS, Sample, in_words, timed
from .verify import Reference

SLOW_ROUNDS = 3  # of the reference implementation, which takes several times as long as all others
SAVE_KEYS = (*REPORT_KEYS, "durable", "refusals")


def run(context: Context, model: str) -> Row:
    """Measure saves of one model."""
    row = Row(f"save-{model}", "save", model)
    source = context.library.file(model)
    row.files = context.describe(source)
    nbytes = row.files["bytes"]
    target = source.with_name(f"saved-{model}.safetensors")
    usable = []
    for saver in writing.savers(context.device):
        if saver.unavailable or not context.has(saver.method):
            row.skipped[saver.name] = saver.unavailable or "not asked for"
        else:
            usable.append(saver)
    slowest = nbytes / 1e9 / (1.2 if context.device.is_cuda else 0.5)
    context.begin(row, context.rounds, slowest * (len(usable) + 1.5), slowest)

    writing.remove(target)
    context.library.trim(2 * nbytes)
    reference = Reference(context.device, source)
    try:
        ceiling = writing.WriteCeiling(target, sweep_bytes=min(context.sweep_bytes, nbytes))
    except OSError as problem:  # a file system without O_DIRECT
        row.skipped["ceiling_write"] = in_words(problem)
        ceiling = None
    steps: list[Callable[[int], Sample]] = [partial(_save, context, s, reference, target, nbytes) for s in usable]
    slow = next((step for step, s in zip(steps, usable) if s.name == "safetensors_fsync"), None)
    if ceiling is not None:
        row.facts["write_sweep_gbps"] = {str(setting): round(rate, 3) for setting, rate in ceiling.sweep}
        context.log("  write sweep GB/s: " + ", ".join(f"{s} {r:.2f}" for s, r in ceiling.sweep))
        steps += [partial(_ceiling, ceiling, setting, nbytes) for setting in ceiling.best]
    try:
        for index in context.each_round(row):
            for step in rotated(steps, index):
                if step is slow and index >= SLOW_ROUNDS:
                    continue
                sample = step(index)
                row.samples.append(sample)
                context.show(sample)
                if sample.method == "nebulaio" and not sample.error:
                    row.last_report = methods.last_report()
    finally:
        if ceiling is not None:
            ceiling.close()
        writing.remove(target)
    del reference, steps
    context.device.give_back()
    return row


def _save(context: Context, saver: writing.Saver, reference: Reference, target: Path, nbytes: int,
          index: int) -> Sample:
    writing.remove(target)
    context.device.collect()
    sample = Sample(saver.name, index, nbytes, state="save")
    try:
        _, sample.seconds, sample.cpu_s = timed(lambda: saver.save(reference.tensors, target))
        if saver.name == "nebulaio":
            report = methods.last_report()
            sample.report = {key: report[key] for key in SAVE_KEYS if key in report}
        if index == 0:
            sample.bits = reference.differs(_read_back(context, target)) or "equal"
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    writing.remove(target)
    context.device.collect()
    return sample


def _read_back(context: Context, target: Path) -> dict[str, Any]:
    """Return what the reference implementation reads from the file."""
    return Reference(context.device, target).tensors


def _ceiling(ceiling: writing.WriteCeiling, setting: Setting, nbytes: int, index: int) -> Sample:
    writing.remove(ceiling.path)
    sample = Sample("ceiling_write", index, nbytes, variant=str(setting), state="save")
    try:
        _, sample.seconds, sample.cpu_s = timed(lambda: ceiling.run(setting, nbytes))
    except OSError as problem:
        sample.error, sample.valid = in_words(problem), False
    writing.remove(ceiling.path)
    return sample
