#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds at loading a model to a device and saving it.

    python3 bench/loads.py --new DIR --before DIR --device cuda:0 --rounds 9 --out results.json

Each DIR contains one build: nebulaio, libnebulaio.so and python/ (`make gpu-versions BEFORE=COMMIT` collects both).
A round runs the new build once and the older build twice, each in its own process, in rotating order.
The difference between the two runs of the older build is the noise of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WARM, COLD, SAVES = 7, 2, 2  # loads and saves of one process, of which the median counts


def timed(n: int, before: Callable[[], None], work: Callable[[], Any]) -> float:
    """Return the median time of n runs of work; before prepares each run and is not timed."""
    took = []
    for _ in range(n):
        before()
        start = time.perf_counter()
        kept = work()
        took.append(time.perf_counter() - start)
        del kept
    return statistics.median(took)


def child(model: str, device: str) -> None:
    """Measure the build that this process imports, and print seconds by row."""
    from nbench import cache

    if device == "host":
        from nebulaio.safetensors import load_file, save_file

        facts = {"device": "host"}

        def load() -> Any:
            return load_file(model, "host", framework="numpy", unsupported="bytes")
    else:
        import torch
        from nebulaio.safetensors import load_file, save_file

        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

        def load() -> Any:
            out = load_file(model, device)
            torch.cuda.synchronize()
            return out

    def warm() -> None:
        if cache.warm(model) < cache.WARM_LIMIT:
            raise SystemExit(f"{model} does not stay in the page cache")

    def cold() -> None:
        if cache.drop(model) > cache.COLD_LIMIT:
            raise SystemExit(f"{model} stays in the page cache")

    warm()
    start = time.perf_counter()
    tensors = load()
    seconds = {"first load of a process, warm": time.perf_counter() - start}
    del tensors
    seconds["load, warm"] = timed(WARM, warm, load)
    seconds["load, cold"] = timed(COLD, cold, load)
    tensors = load()
    with tempfile.TemporaryDirectory(dir=Path(model).parent) as folder:
        out = Path(folder) / "saved.safetensors"
        seconds["save, durable"] = timed(SAVES, lambda: out.unlink(missing_ok=True), lambda: save_file(tensors, str(out)))
    json.dump({"seconds": seconds, "machine": facts}, sys.stdout)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--new", type=Path, required=True)
    p.add_argument("--before", type=Path, required=True)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--shapes", default="qwen3-0.6b", help="the model's shapes, as `nebulaio generate` names them")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--out", type=Path)
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    a = p.parse_args()
    sys.path.insert(0, str(HERE / "door"))
    import versions

    with tempfile.TemporaryDirectory(dir=a.workdir) as folder:
        model = Path(folder) / "model.safetensors"
        tool = a.new.resolve() / "nebulaio"
        subprocess.run([tool, "generate", "--shapes", a.shapes, "--out", model], check=True, stdout=subprocess.DEVNULL)
        os.sync()  # what is still dirty cannot be made cold

        def run(build: Path) -> tuple[dict[str, float], dict]:
            env = {**os.environ, "NEBULAIO_LIBRARY": str(build / "libnebulaio.so"),
                   "PYTHONPATH": os.pathsep.join([str(build / "python"), str(HERE)])}
            command = [sys.executable, __file__, "--child", str(model), a.device]
            done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
            found = json.loads(done.stdout)
            return found["seconds"], found["machine"]

        print(versions.table(versions.interleave(a.new, a.before, a.rounds, a.out, run)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
