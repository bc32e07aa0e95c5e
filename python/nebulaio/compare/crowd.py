# SPDX-License-Identifier: Apache-2.0
"""Compares the total rate of many processes that load at once with the rate of one process.

Every worker first makes a device context and one load that is not counted. Then it waits
for a command, so that all loads start together and only loads are timed. A worker keeps
its tensors until all workers have loaded, so all tensors must fit at the same time.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from .. import last_report, safetensors
from . import cache
from .child import sync
from .files import weights_of
from .process import in_words, start
from .stats import rate, rotated, spread


class Worker:
    """A forked process that loads one model on command."""

    def __init__(self, number: int, folder: Path, device: str, spawn: bool, others: list[Worker]) -> None:
        self.number = number
        self.folder = folder
        self.failed = ""
        inward, self._commands = os.pipe()
        self._answers, outward = os.pipe()
        # A pipe that another worker inherits too would never signal its end.
        kept = tuple(fd for one in (self, *others) for fd in (one._commands, one._answers))
        again = ["nebulaio.compare.crowd", str(folder), device, str(inward), str(outward)]
        self.pid = start(lambda: _life(folder, device, inward, outward), again, (inward, outward), spawn, close=kept)
        os.close(inward)
        os.close(outward)
        self._rest = b""

    def tell(self, word: str) -> None:
        """Send a command. A worker that has ended is marked as failed."""
        if not self.failed:
            try:
                os.write(self._commands, f"{word}\n".encode())
            except OSError as problem:
                self.failed = f"gone: {problem}"

    def hear(self, deadline: float) -> dict[str, Any]:
        """Return the answer to the last command, or {} if the worker failed; `failed` has the reason."""
        while not self.failed and b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                self.failed = "no answer in time"
                break
            part = os.read(self._answers, 1 << 16)
            if not part:
                self.failed = "died"
            self._rest += part
        if self.failed:
            return {}
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self.failed = answer["error"]
            return {}
        return answer

    def end(self) -> None:
        """End the process. A process that does not end is killed."""
        os.close(self._commands)
        until = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until or self.failed:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            select.select([], [], [], 0.01)
        os.close(self._answers)


def _life(folder: Path, device: str, inward: int, outward: int) -> None:
    """Run a worker: set up, then carry out commands until the end of input or an error."""

    def say(answer: dict[str, Any]) -> None:
        os.write(outward, json.dumps(answer).encode() + b"\n")

    held: dict[str, Any] = {}
    try:
        torch: Any = importlib.import_module("torch")
        if device != "cpu":
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)
        held = safetensors.load_model(folder, device)
        wrong = _differs(torch, held, folder)
        held = {}
        if wrong:
            raise RuntimeError(f"{wrong} differs from its file")
        say({"ready": True})
        with os.fdopen(inward) as commands:
            for word in commands:
                if word.strip() == "load":
                    start = time.monotonic()
                    held = safetensors.load_model(folder, device)
                    sync(torch, device)
                    end = time.monotonic()
                    report = last_report() or {}
                    routes = {route["route"]: route["bytes"] for route in report["routes"]}
                    say({"start": start, "end": end, "bytes": report["bytes"], "routes": routes})
                else:
                    held = {}
                    gc.collect()
                    say({"dropped": True})
    except BaseException as problem:  # noqa: BLE001 - told to the parent, which counts failures
        say({"error": in_words(problem)})


def _differs(torch: Any, tensors: dict[str, Any], folder: Path) -> str:
    """Return the name of a tensor that differs from its file, or "". The file is read without a loader."""
    for path in weights_of(folder):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
            names = sorted(name for name in header if name != "__metadata__")
            for name in {names[0], names[len(names) // 2], names[-1]}:
                first, last = header[name]["data_offsets"]
                length = min(last - first, 1 << 20)
                file.seek(8 + size + first)
                part = tensors[name].flatten().view(torch.uint8)[:length].cpu().contiguous()
                if ctypes.string_at(part.data_ptr(), length) != file.read(length):
                    return str(name)
    return ""


def measure(
    folders: list[Path], processes: int, device: str, rounds: int, state: str, timeout: float, spawn: bool
) -> dict[str, Any]:
    """Load with one worker alone and with all workers at once, in turn.

    Returns the rates, their ratio and the failures. The models are spread over the workers.
    `ratio` is the median rate of all workers divided by that of one worker, or None if
    nothing could be compared.
    """
    workers: list[Worker] = []
    for number in range(processes):
        workers.append(Worker(number, folders[number % len(folders)], device, spawn, workers))
    found: dict[str, Any] = {"processes": processes, "models": len(folders), "state": state, "rounds": []}
    files = sorted({path for folder in folders for path in weights_of(folder)})
    try:
        deadline = time.monotonic() + timeout
        for worker in workers:
            worker.hear(deadline)
        for index in range(rounds):
            if any(worker.failed for worker in workers):
                break
            alone = _together([rotated(workers, index)[0]], files, state, timeout)
            everyone = _together(workers, files, state, timeout)
            found["rounds"].append({"alone": alone, "together": everyone})
    finally:
        for worker in workers:
            worker.end()
    found["failures"] = [
        {"process": worker.number, "model": worker.folder.name, "why": worker.failed}
        for worker in workers
        if worker.failed
    ]
    whole = [one for one in found["rounds"] if "gbps" in one["alone"] and "gbps" in one["together"]]
    alone_rate = spread(one["alone"]["gbps"] for one in whole)
    total_rate = spread(one["together"]["gbps"] for one in whole)
    found["alone_gbps"], found["together_gbps"] = alone_rate, total_rate
    found["ratio"] = total_rate["median"] / alone_rate["median"] if alone_rate and total_rate else None
    return found


def _together(workers: list[Worker], files: list[str], state: str, timeout: float) -> dict[str, Any]:
    """Make each worker load once at the same time, and return the figures."""
    if state == "cold":
        cache.make_cold(files)
    else:
        cache.make_warm(files)
    before = cache.resident(files)
    deadline = time.monotonic() + timeout
    for worker in workers:
        worker.tell("load")
    loads = [(worker, worker.hear(deadline)) for worker in workers]
    for worker in workers:
        worker.tell("drop")
    for worker in workers:
        worker.hear(deadline)
    return {"cached_before": before, **summary([(w.number, w.folder.name, load) for w, load in loads if load])}


def summary(loads: list[tuple[int, str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the figures of a round: each process, and all bytes over the time from first start to last end."""
    each = [
        {
            "process": number,
            "model": model,
            "seconds": load["end"] - load["start"],
            "gbps": rate(load["bytes"], load["end"] - load["start"]),
            "routes": load["routes"],
        }
        for number, model, load in loads
    ]
    if not loads:
        return {"processes": each}
    first, last = min(load["start"] for _, _, load in loads), max(load["end"] for _, _, load in loads)
    total = sum(load["bytes"] for _, _, load in loads)
    starts = max(load["start"] for _, _, load in loads) - first
    result = {"processes": each, "bytes": total, "seconds": last - first, "start_spread": starts}
    return {**result, "gbps": rate(total, last - first)}


if __name__ == "__main__":
    _life(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
