# SPDX-License-Identifier: Apache-2.0
"""Rows `slice-*`: one rank's eighth of every matrix, by rows and by columns, warm and cold.

Rates count only the requested bytes; other bytes that were read are in the report and in the table. Every slice is
compared with the same slice of a whole load by the reference implementation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import cache, methods
from .context import Context, Row, rotated
from .measure import REPORT_KEYS, Sample, in_words, timed
from .verify import Reference

WORLD = 8
SLICE_KEYS = (*REPORT_KEYS, "wanted_bytes", "read_bytes", "read_amplification")
CASES = (("rows", 0), ("columns", 1))


def run(context: Context, model: str) -> Row:
    """Measure slices of one model, with another rank in each round."""
    row = Row(f"slice-{model}", "slice", model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    per_round = 2 * context.seconds("nebulaio", "warm", nbytes) + 1.3 * context.seconds("nebulaio", "cold", nbytes)
    context.begin(row, context.rounds, per_round + 3, nbytes / 1e9)

    reference = Reference(context.device, path)
    matrices = {name: tensor for name, tensor in reference.tensors.items() if len(tensor.shape) == 2}
    # Warm rounds come first. After a cold round, the page cache has the file in smaller
    # pieces, and copies from it are slower.
    for state in ("warm", "cold"):
        for index in context.each_round(row):
            for name, dim in rotated(CASES, index):
                sample = _slice(context, path, matrices, (name, dim, state), index)
                row.samples.append(sample)
                context.show(sample)
    row.last_report = methods.last_report()
    del reference, matrices
    context.device.give_back()
    return row


def _slice(context: Context, path: Path, matrices: dict[str, Any], case: tuple[str, int, str], index: int) -> Sample:
    name, dim, state = case
    rank = index % WORLD
    load = context.method("nebulaio", tensors=list(matrices), shards=dict.fromkeys(matrices, (dim, rank, WORLD))).load
    cached = context.drop(path) if state == "cold" else cache.warm(path)
    right = {n: _part(t, dim, rank) for n, t in matrices.items()}
    wanted = sum(_bytes(t) for t in right.values())
    sample = Sample("nebulaio", index, wanted, variant=f"{name}, rank {rank} of {WORLD}", state=state,
                    cached_before=cached)
    context.device.collect()
    try:
        result, sample.seconds, sample.cpu_s = timed(lambda: load(path))
        report = methods.last_report()
        sample.report = {key: report[key] for key in SLICE_KEYS if key in report}
        sample.extra = {"amplification": report["read_bytes"] / wanted}
        checker = Reference.__new__(Reference)
        checker.device, checker.tensors = context.device, right
        sample.bits = checker.differs(result) or "equal"
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    result = None
    context.device.collect()
    return sample


def _part(tensor: Any, dim: int, rank: int) -> Any:
    size = tensor.shape[dim]
    low, high = size * rank // WORLD, size * (rank + 1) // WORLD
    return tensor[low:high] if dim == 0 else tensor[:, low:high]


def _bytes(tensor: Any) -> int:
    size = tensor.element_size() if hasattr(tensor, "element_size") else tensor.itemsize
    count = 1
    for extent in tensor.shape:
        count *= extent
    return int(size * count)
