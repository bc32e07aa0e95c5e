# SPDX-License-Identifier: Apache-2.0
"""Rows `first` and `memory`: the cost of a loader in a fresh process.

`first` is the set-up cost of the first load once the CUDA context exists: the time of the first of several equal
loads, compared with the median of the later ones. `memory` is the host memory that a load adds, and the staging
memory that the load reports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .context import Context, Row, rotated
from .measure import Sample

_START = 8.0  # seconds until a fresh process has torch and a context, for estimates


def first(context: Context, model: str) -> Row:
    """Measure the set-up cost of the first load, in one fresh process per round and method."""
    row = Row("first", "first", model)
    path = context.library.file(model)
    row.files = context.describe(path)
    nbytes = row.files["bytes"]
    names = [m.name for m in context.usable(row, ("nebulaio", "safetensors"))]
    loads = 7
    each = sum(_START + loads * context.seconds(name, "warm", nbytes) for name in names)
    context.begin(row, context.rounds, each, nbytes / 1e9)
    for index in context.each_round(row):
        for name in rotated(names, index):
            found = spawn(context, "first", name, path, loads)
            sample = Sample(name, index, nbytes, state="warm", error=found.pop("error", ""), extra=found)
            sample.valid = not sample.error
            if found.get("seconds"):
                sample.seconds = found["seconds"][0]
                sample.cached_before = found.get("cached_before")
                context.log(f"  {index + 1}: {name}: set-up {found['setup_s'] * 1e3:.1f} ms, "
                            f"loads {', '.join(f'{s * 1e3:.1f}' for s in found['seconds'])} ms")
            else:
                context.log(f"  {index + 1}: {name}: {sample.error}")
            row.samples.append(sample)
    return row


def memory(context: Context, models: list[str]) -> Row:
    """Measure host memory by model and method, each in a fresh process."""
    row = Row("memory", "memory", ",".join(models))
    files = {model: context.library.file(model) for model in models}
    row.files = {model: context.describe(path) for model, path in files.items()}
    names = [m.name for m in context.usable(row, ("nebulaio", "safetensors"))]
    total = sum(row.files[model]["bytes"] for model in models)
    each = sum(_START * len(models) + 2 * context.seconds(name, "warm", total) for name in names)
    context.begin(row, 1, each, total / 1e9)
    for index in context.each_round(row):
        for model, path in files.items():
            for name in names:
                found = spawn(context, "memory", name, path, 2)
                sample = Sample(name, index, row.files[model]["bytes"], variant=model, error=found.pop("error", ""))
                sample.extra, sample.valid = found, not sample.error
                row.last_report = found.pop("report", {}) or row.last_report
                row.samples.append(sample)
                text = sample.error or f"host memory grew by {found['growth_bytes'] / 2**20:.1f} MiB"
                context.log(f"  {model} {name}: {text}, staging {found.get('staging_bytes')}")
    return row


def spawn(context: Context, job: str, method: str, path: Path, loads: int) -> dict[str, Any]:
    """Run a job in a fresh Python process and return its output."""
    command = [sys.executable, "-m", "nbench.child", job, "--method", method, "--path", str(path),
               "--device", context.device.name, "--loads", str(loads)]
    if context.route and method == "nebulaio":
        command += ["--route", context.route]
    if context.device.torch is None:
        command.append("--no-torch")
    here = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False,
                              timeout=max(30.0, context.clock.left()))
    except subprocess.TimeoutExpired:
        return {"error": "the process did not end in time"}
    lines = done.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        return {"error": f"exit status {done.returncode}: {' '.join(done.stderr.split())[-300:]}"}
