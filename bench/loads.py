#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds at loading models to a device and saving them.

    python3 bench/loads.py --new DIR --before DIR --device cuda:0 --rounds 9 --out results.json

Each DIR contains one build: nebulaio, libnebulaio.so and python/ (`make gpu-versions BEFORE=COMMIT` collects both).
A round starts three processes: the new build once and the older build twice. For each row, the processes work one
after the other, in rotating order. The difference between the two processes of the older build is the noise of the
machine. With --out, earlier rounds are kept and new ones are added.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIRST = "first load of a process, warm"
# The rows with their numbers of repeats in one process, of which the median counts.
ROWS = {FIRST: 1, "load, warm": 5, "load with verify, warm": 3, "a quarter by rows, warm": 3,
        "a quarter by columns, warm": 3, "load, cold": 2, "save, durable": 2}
LARGE = 4 << 30  # a model from this size on is loaded twice for a warm row and once for any other
WORLD = 4  # the number of parts in the rows of slices


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


def divisible(shape: list[int], dtype: str, dim: int) -> bool:
    """Return whether a tensor is a matrix whose parts along a dimension are equal and made of whole bytes."""
    return len(shape) == 2 and shape[dim] > 0 and shape[dim] % WORLD == 0 and not dtype.startswith(("F4", "F6"))


class Child:
    """The measurements of one build, in the process that imports it."""

    def __init__(self, device: str) -> None:
        import nebulaio.safetensors as ours
        from nbench import cache

        self.ours, self.cache, self.device = ours, cache, device
        self.options: dict[str, Any] = {}
        self.facts = {"device": "host"}
        self.wait: Callable[[], None] = lambda: None
        if device == "host":
            self.options = {"framework": "numpy", "unsupported": "bytes"}
        else:
            import torch

            self.facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
            self.wait = torch.cuda.synchronize

    def load(self, model: str, **more: Any) -> Any:
        out = self.ours.load_file(model, self.device, **self.options, **more)
        self.wait()
        return out

    def warm(self, model: str) -> None:
        if self.cache.warm(model) < self.cache.WARM_LIMIT:
            raise SystemExit(f"{model} does not stay in the page cache")

    def cold(self, model: str) -> None:
        if self.cache.drop(model, everything=False) > self.cache.COLD_LIMIT:
            raise SystemExit(f"{model} stays in the page cache")

    def slices(self, model: str, dim: int) -> dict[str, Any]:
        """Return the options of load_file for one part of every matrix, cut along a dimension."""
        names = [t["name"] for t in self.ours.inspect(model)["tensors"] if divisible(t["shape"], t["dtype"], dim)]
        return {"tensors": names, "shards": dict.fromkeys(names, (dim, 1, WORLD))}

    def row(self, name: str, model: str) -> float:
        """Return the seconds of one row."""
        n = ROWS[name]
        if os.path.getsize(model) > LARGE:
            n = min(n, 2 if name.endswith("warm") else 1)
        if name == "save, durable":
            return self.save(model, n)
        more: dict[str, Any] = {}
        if name == "load with verify, warm":
            more = {"verify": True}
        elif name.startswith("a quarter"):
            more = self.slices(model, 0 if "rows" in name else 1)
        prepare = self.cold if name.endswith("cold") else self.warm
        return timed(n, lambda: prepare(model), lambda: self.load(model, **more))

    def save(self, model: str, n: int) -> float:
        tensors = self.load(model)
        with tempfile.TemporaryDirectory(dir=Path(model).parent) as folder:
            out = Path(folder) / "saved.safetensors"
            return timed(n, lambda: out.unlink(missing_ok=True), lambda: self.ours.save_file(tensors, str(out)))

    def serve(self) -> None:
        """Measure the rows that the lines of stdin ask for, and print one line of JSON for each."""
        print(json.dumps(self.facts), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(self.row(asked["row"], asked["model"])), flush=True)


@contextlib.contextmanager
def process(build: Path, device: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process of one build, and end it."""
    env = {**os.environ, "NEBULAIO_LIBRARY": str(build / "libnebulaio.so"),
           "PYTHONPATH": os.pathsep.join([str(build / "python"), str(HERE)])}
    with subprocess.Popen([sys.executable, __file__, "--child", device], env=env, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        try:
            yield p
            p.stdin.close()
            if p.wait() != 0:
                raise SystemExit(f"a process of {build} ended with {p.returncode}")
        finally:
            p.kill()


def answer(p: subprocess.Popen[str]) -> Any:
    """Return the next answer of a process."""
    line = p.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended with {p.wait()} instead of an answer: see above")
    return json.loads(line)


Seconds = dict[str, dict[str, float]]


def measure(order: list[tuple[str, Path]], device: str, models: dict[str, Path]) -> tuple[Seconds, dict[str, Any]]:
    """Return the seconds of one round by run and row, and facts about the machine."""
    with contextlib.ExitStack() as stack:
        runs = [(name, stack.enter_context(process(build, device))) for name, build in order]
        facts = [answer(p) for _, p in runs][0]
        found: Seconds = {name: {} for name, _ in order}
        for i, (label, model) in enumerate(models.items()):
            for row in ROWS:
                if row == FIRST and i > 0:
                    continue  # the process has loaded a model already
                for name, p in runs:
                    p.stdin.write(json.dumps({"row": row, "model": str(model)}) + "\n")
                    p.stdin.flush()
                    found[name][f"{label}: {row}"] = answer(p)
    return found, facts


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--new", type=Path, required=True)
    p.add_argument("--before", type=Path, required=True)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--shapes", default="qwen3-0.6b", help="models of `nebulaio generate`, separated by commas")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--out", type=Path)
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    a = p.parse_args()
    sys.path.insert(0, str(HERE / "door"))
    import versions

    with tempfile.TemporaryDirectory(dir=a.workdir) as folder:
        models = {shapes: Path(folder) / f"{shapes}.safetensors" for shapes in a.shapes.split(",")}
        for shapes, model in models.items():
            for words in (["generate", "--shapes", shapes, "--out", model], ["inspect", model, "--checksum"]):
                # The older build writes them, so that both builds can read them.
                subprocess.run([a.before.resolve() / "nebulaio", *words], check=True, stdout=subprocess.DEVNULL)
        os.sync()  # what is still dirty cannot be made cold
        rounds = versions.interleave(a.new, a.before, a.rounds, a.out, lambda order: measure(order, a.device, models))
        print(versions.table(rounds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        Child(sys.argv[2]).serve()
    else:
        main()
