# SPDX-License-Identifier: Apache-2.0
"""Runs jobs that need a fresh process: first loads and memory.

Run as `python -m nbench.child JOB …`; the last printed line is the result as JSON. The CUDA context exists and the
allocator holds its memory before anything is timed, so that only the loader's own set-up is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from . import cache, methods, stats
from .device import Device
from .measure import MemoryWatch, host_memory, in_words, timed


def first(device: Device, method: methods.Method, path: Path, loads: int) -> dict[str, Any]:
    """Time several equal loads of a warm file. The first one is the first of the process."""
    cached = cache.warm(path)
    device.prepare(path.stat().st_size)
    seconds = []
    for _ in range(loads):
        result, took, _ = timed(lambda: method.load(path))
        seconds.append(took)
        result = None  # freed before the next load
        device.collect()
    del result
    return {"seconds": seconds, "setup_s": stats.setup_cost(seconds), "cached_before": cached}


def memory(device: Device, method: methods.Method, path: Path, loads: int) -> dict[str, Any]:
    """Measure the host memory that loads of a file add: the peak, and what stays afterwards."""
    cache.warm(path)
    device.prepare(path.stat().st_size)
    before = host_memory()
    with MemoryWatch() as watch:
        for _ in range(loads):
            method.load(path)
            device.collect()
    after = host_memory()
    return {
        "growth_bytes": watch.growth,
        "peak": watch.peak,
        "before": before,
        "after": after,
        "kept_bytes": after["RssAnon"] + after["RssShmem"] - before["RssAnon"] - before["RssShmem"],
        "hwm_growth_bytes": after["VmHWM"] - sum(before[key] for key in ("RssAnon", "RssFile", "RssShmem")),
        "staging_bytes": staging(methods.last_report()) if method.name == "nebulaio" else None,
        "report": methods.last_report() if method.name == "nebulaio" else {},
    }


def staging(report: Any) -> int | None:
    """Return the staging memory in a report, under any key that names it.

    Only whole numbers of at least 64 KiB count, so that times and counts with the same name are not taken for sizes.
    """
    if not isinstance(report, dict):
        return None
    for key, value in report.items():
        if "staging" in key.lower() or "buffer_pool" in key.lower():
            sizes = value.values() if isinstance(value, dict) else (value,)
            likely = [size for size in sizes if type(size) is int and size >= 1 << 16]
            if likely:
                return max(likely)
    return next((found for value in report.values() if (found := staging(value)) is not None), None)


JOBS = {"first": first, "memory": memory}


def main(arguments: list[str] | None = None) -> int:
    """Run one job and print its result."""
    parser = argparse.ArgumentParser(prog="nbench.child")
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--method", required=True)
    parser.add_argument("--path", required=True, type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--loads", type=int, default=6)
    parser.add_argument("--route")
    parser.add_argument("--no-torch", action="store_true")
    given = parser.parse_args(arguments)
    try:
        device = Device(given.device, use_torch=not given.no_torch)
        start = time.perf_counter()
        options = {"route": given.route} if given.method == "nebulaio" else {}
        method = methods.build(device, given.method, **options)
        imported = time.perf_counter() - start
        if method.unavailable:
            raise RuntimeError(method.unavailable)
        result = {**JOBS[given.job](device, method, given.path, given.loads), "import_s": imported}
    except Exception as problem:  # noqa: BLE001  handed to the parent as data
        result = {"error": in_words(problem)}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
