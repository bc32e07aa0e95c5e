# SPDX-License-Identifier: Apache-2.0
"""Measures limits of the machine: pinned copies to the device, and random reads past the page cache."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from .samples import Samples, data_offset

CHUNK = 64 << 20  # bytes of one pinned copy


def pinned_copy(device: str, nbytes: int) -> float:
    """Return the seconds in which torch copies nbytes from pinned host memory to the device, in chunks of 64 MiB."""
    import torch

    chunk = min(CHUNK, nbytes)
    sources = [torch.ones(chunk, dtype=torch.uint8).pin_memory() for _ in range(2)]
    targets = [torch.empty(chunk, dtype=torch.uint8, device=device) for _ in range(2)]
    for source, target in zip(sources, targets):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    start = time.perf_counter()
    times = max(1, nbytes // chunk)
    for n in range(times):
        targets[n % 2].copy_(sources[n % 2], non_blocking=True)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * nbytes / (times * chunk)


def build_random(folder: Path) -> Path:
    """Compile random.c and return the program."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler for the reference of random reads (fix: install gcc)")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "random-reads"
    source = Path(__file__).with_name("random.c")
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(source), "-lpthread"], check=True)
    return program


def random_reads(program: Path, samples: Samples, depth: int, seed: int) -> float:
    """Return the seconds in which threads read all samples past the page cache, in random order."""
    path = samples.path("one.safetensors")
    numbers = (data_offset(path), samples.size, samples.count, depth, seed)
    done = subprocess.run([str(program), str(path), *map(str, numbers)], check=True, capture_output=True, text=True)
    return float(done.stdout)
