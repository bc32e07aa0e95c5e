# SPDX-License-Identifier: Apache-2.0
"""Measures the time per call of safe_open's get_tensor, for NebulaIO and the safetensors package in one run.

    make bench-safe-open ARGS="--tensors 10,1000,100000 --frameworks np,pt"

The files contain small tensors, are in the page cache and are read into host memory. Both readers take turns on the
same file. The figure of a reader is its best round. The ratio is our time divided by the time of safetensors.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FRAMEWORKS = {"np": "numpy", "pt": "torch"}


def make(path: Path, tensors: int, size: int) -> Path:
    """Write a file with this number of F32 tensors of `size` bytes."""
    header = {
        f"t{n:06d}": {"dtype": "F32", "shape": [size // 4], "data_offsets": [n * size, (n + 1) * size]}
        for n in range(tensors)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.write(bytes(size) * tensors)
    return path


def per_call(opener: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Return the seconds to open the file, and the seconds per get_tensor over at least this many calls."""
    began = time.perf_counter()
    file = opener()
    opened = time.perf_counter() - began
    names = file.keys()
    times = max(1, calls // len(names))
    began = time.perf_counter()
    for _ in range(times):
        for name in names:
            file.get_tensor(name)
    return opened, (time.perf_counter() - began) / (times * len(names))


def measure(path: Path, framework: str, rounds: int, calls: int) -> dict[str, Any]:
    """Return the best round of both readers, which take turns."""
    import nebulaio.safetensors
    import safetensors

    sides = {
        "ours": lambda: nebulaio.safetensors.safe_open(path, framework),
        "reference": lambda: safetensors.safe_open(path, framework),
    }
    best: dict[str, list[float]] = {side: [float("inf"), float("inf")] for side in sides}
    for number in range(rounds):
        for side in sorted(sides, reverse=number % 2 == 1):
            found = per_call(sides[side], calls)
            best[side] = [min(pair) for pair in zip(best[side], found)]
    return {
        "open_ms": {side: round(pair[0] * 1e3, 3) for side, pair in best.items()},
        "call_us": {side: round(pair[1] * 1e6, 2) for side, pair in best.items()},
        "ratio": round(best["ours"][1] / best["reference"][1], 2),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one line per case, and all as JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", default="10,1000,100000", help="tensors per file; commas separate several values")
    parser.add_argument("--size", type=int, default=1024, help="bytes per tensor, a multiple of 4")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS),
                        help="frameworks: np and pt; one that is not installed is left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20_000, help="least number of calls per round")
    parser.add_argument("--json", help="file for the figures")
    asked = parser.parse_args(arguments)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for tensors in map(int, asked.tensors.split(",")):
            path = make(Path(folder) / f"{tensors}.safetensors", tensors, asked.size)
            for framework in asked.frameworks.split(","):
                if importlib.util.find_spec(FRAMEWORKS[framework]) is None:
                    print(f"{FRAMEWORKS[framework]} is not installed: {framework} is left out")
                    continue
                found = {"tensors": tensors, "framework": framework,
                         **measure(path, framework, asked.rounds, asked.calls)}
                results.append(found)
                print(
                    f"{tensors:>7} tensors, {framework}: {found['call_us']['ours']:.2f} us per get_tensor, reference "
                    f"{found['call_us']['reference']:.2f} us, ratio {found['ratio']:.2f}; open {found['open_ms']['ours']:.1f} ms, "
                    f"reference {found['open_ms']['reference']:.1f} ms",
                    flush=True,
                )
            path.unlink()
    if asked.json:
        Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
