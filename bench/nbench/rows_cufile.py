# SPDX-License-Identifier: Apache-2.0
"""Rows `cufile-*`: the same warm file by our own route and by each of cuFile's interfaces.

Each load is a process of the command line, which gives cuFile its own configuration. The rates come from the reports,
without process start. The routes that cuFile took come from its own counters. cuFile is fastest for a cached file
with large calls on a buffered descriptor, in a process whose memory is ready; `nebulaio bench read` measures this
case too. One load per round runs in this process, where bits are compared. For files over 4 GB, only our own route
and cuFile's fastest case are measured: the others wait for the disk, and a smaller file shows them as well.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from . import cache, methods
from .context import Context, Row, rotated
from .measure import Sample, in_words, run_method
from .verify import Reference

WAYS = (
    ("auto", ("--route", "auto")),
    ("cufile sync", ("--route", "cufile", "--cufile", "sync")),
    ("cufile async", ("--route", "cufile", "--cufile", "async")),
    ("cufile batch", ("--route", "cufile", "--cufile", "batch")),
)
LARGE = 4_000_000_000
KEPT = ("seconds", "gbps", "routes", "cufile", "limiting_stage", "refusals", "notes", "error")


def run(context: Context, model: str) -> Row:
    """Measure one model by every route in turn."""
    row = Row(f"cufile-{model}", "cufile", model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    if context.library.cli is None:
        raise RuntimeError("the nebulaio program is needed (give --nebulaio PATH)")
    if not context.device.is_cuda:
        raise RuntimeError("cuFile moves bytes to GPUs alone (this device is host)")
    ways = WAYS if nbytes < LARGE else WAYS[:1]
    context.begin(row, context.rounds, 4 + 2 * nbytes / 20e9 + len(ways) * (1 + min(nbytes, LARGE) / 4e9), nbytes / 1e9)

    reference = Reference(context.device, path) if nbytes < LARGE else None
    inside = context.method("nebulaio", route="cufile")
    for index in context.each_round(row):
        for variant, flags in rotated(ways, index):
            sample = _by_command(context, path, nbytes, variant, flags, index)
            row.samples.append(sample)
            context.show(sample)
        sample = _buffered(context, path, index)
        row.samples.append(sample)
        context.show(sample)
        if reference is None:
            continue
        cache.warm(path)
        sample = Sample("nebulaio", index, nbytes, variant="cufile sync, in Python", state="warm")
        run_method(context.device, inside, path, sample, reference)
        sample.report.update({key: value for key, value in methods.last_report().items() if key in KEPT})
        row.samples.append(sample)
        context.show(sample)
    del reference
    context.device.give_back()
    return row


def _by_command(context: Context, path: Path, nbytes: int, variant: str, flags: tuple[str, ...], index: int) -> Sample:
    sample = Sample("nebulaio", index, nbytes, variant=variant, state="warm", cached_before=cache.warm(path))
    command = [str(context.library.cli), "load", str(path), "--device", context.device.name, "--json", *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        report = _report(json.loads(done.stdout))
        sample.seconds = report["seconds"]
        sample.report = {key: report[key] for key in KEPT if key in report}
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    return sample


def _buffered(context: Context, path: Path, index: int) -> Sample:
    """Measure cuFile's fastest case for a cached file: large calls on a descriptor without O_DIRECT."""
    sample = Sample("nebulaio", index, 0, variant="bench, cufile, buffered descriptor", state="warm",
                    cached_before=cache.warm(path))
    command = [str(context.library.cli), "bench", "read", str(path), "--to", "cufile", "--route", "buffered",
               "--device", context.device.name,
               "--block-size", "256MiB", "--workers", "4", "--passes", "2", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        found = json.loads(done.stdout)["runs"][0]
        sample.nbytes, sample.seconds = found["bytes"], found["seconds"]
        sample.report = {"routes": found.get("routes", [])}
    except Exception as problem:  # noqa: BLE001  recorded as the result
        sample.error, sample.valid, sample.seconds = in_words(problem), False, None
    return sample


def _report(printed: Any) -> dict[str, Any]:
    """Return the report of the one load in the command's output."""
    while not (isinstance(printed, dict) and "gbps" in printed):
        printed = printed[0] if isinstance(printed, list) else printed["loads"]
    return dict(printed)
