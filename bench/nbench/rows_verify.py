# SPDX-License-Identifier: Apache-2.0
"""Rows `verify-*`: warm loads that verify every block, compared with loads that do not."""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import cache, methods
from .context import Context, Row, rotated
from .measure import Sample, run_method
from .verify import Reference


def run(context: Context, model: str) -> Row:
    """Measure plain and verified loads of one model in turn."""
    row = Row(f"verify-{model}", "verify", model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    variants = [(name, context.method("nebulaio", verify=on)) for name, on in (("plain", None), ("verified", True))]
    context.begin(row, context.rounds, 2 * context.seconds("nebulaio", "warm", nbytes) + 0.5, nbytes / 1e9)

    checksums(context, path)
    reference = Reference(context.device, path)
    context.device.prepare(nbytes)
    for _, method in variants:
        method.load(path)
        context.device.collect()
    for index in context.each_round(row):
        for variant, method in rotated(variants, index):
            cache.warm(path)
            sample = Sample(method.name, index, nbytes, variant=variant, state="warm")
            run_method(context.device, method, path, sample, reference)
            if variant == "verified":
                row.last_report = methods.last_report()
            row.samples.append(sample)
            context.show(sample)
    del reference
    context.device.give_back()
    return row


def checksums(context: Context, path: Path) -> None:
    """Write the file's checksums, once."""
    if Path(f"{path}.crc64nvme").exists():
        return
    if context.library.cli is None:
        raise RuntimeError("the nebulaio program is needed to make checksums (give --nebulaio PATH)")
    subprocess.run([context.library.cli, "inspect", str(path), "--checksum"], check=True, capture_output=True)
