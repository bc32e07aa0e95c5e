# SPDX-License-Identifier: Apache-2.0
"""Measures cold loads of one model by many processes at once, beside one process alone.

    make bench-many ARGS="--processes 8 --gigabytes 15 --device cuda:0 --rounds 3"

Each process has imported torch and NebulaIO, and has made its CUDA context, before the first round. In each round the
file is dropped from the page cache, and one process alone loads it; then the same for all processes together. The
figure of a round is the time from the start until the last process has the whole model. The disk's own counter shows
how often the disk delivered the file. The first round also pins the staging memory of each process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import struct
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TENSOR = 128 << 20  # bytes of one tensor


def make(path: Path, size: int) -> Path:
    """Write a file of BF16 tensors, about `size` bytes, that is on the disk and not in the page cache."""
    count = max(1, size // TENSOR)
    header = {
        f"layers.{n}.weight": {"dtype": "BF16", "shape": [TENSOR // 2], "data_offsets": [n * TENSOR, (n + 1) * TENSOR]}
        for n in range(count)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 4096)
    block = bytearray(os.urandom(TENSOR))
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for n in range(count):
            block[:8] = struct.pack("<Q", n)
            if file.write(block) != len(block):
                raise OSError(f"{path}: the disk is full")
        os.fsync(file.fileno())
    return path


def drop(path: Path) -> None:
    """Drop the file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def delivered(path: Path) -> int | None:
    """Return the bytes that the disk of a file has delivered so far, or None if the kernel does not count them."""
    number = os.stat(path).st_dev
    for line in Path("/proc/diskstats").read_text().splitlines():
        part = line.split()
        if (int(part[0]), int(part[1])) == (os.major(number), os.minor(number)):
            return int(part[5]) * 512
    return None


def work(path: str, device: str, orders: Connection) -> None:
    """Load the model once for each order, and answer with the time of the end and the report."""
    import nebulaio
    import nebulaio.safetensors
    import torch

    if device != "cpu":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
    nebulaio.version()
    orders.send("ready")
    while orders.recv() == "load":
        tensors = nebulaio.safetensors.load_file(path, device=device)
        if device != "cpu":
            torch.cuda.synchronize(device)
        ended = time.monotonic()
        heads = [int(tensor[:4].view(torch.int64)[0]) for tensor in tensors.values()]
        del tensors
        orders.send((ended, nebulaio.last_report(), heads == list(range(len(heads)))))


def one_round(path: Path, crew: list[Connection]) -> dict[str, Any]:
    """Let all processes of `crew` load the cold file at once."""
    drop(path)
    before = delivered(path)
    began = time.monotonic()
    for orders in crew:
        orders.send("load")
    results = [orders.recv() for orders in crew]
    after = delivered(path)
    if not all(right for _, _, right in results):
        raise RuntimeError(f"{path}: a process loaded other bytes")
    reports = [report for _, report, _ in results]
    shared = [report["files"][0].get("shared") or {} for report in reports]
    routes: dict[str, int] = {}
    for report in reports:
        for route in report["routes"]:
            routes[route["route"]] = routes.get(route["route"], 0) + route["bytes"]
    size = path.stat().st_size
    return {
        "processes": len(crew),
        "seconds": round(max(ended for ended, _, _ in results) - began, 4),
        "first_seconds": round(min(ended for ended, _, _ in results) - began, 4),
        "disk_times": None if before is None or after is None else round((after - before) / size, 4),
        "said_times": round(sum(n for name, n in routes.items() if name.startswith(("direct", "buffered"))) / size, 4),
        "routes": routes,
        "met": [len(share.get("processes", [])) for share in shared],
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one line per round, and a summary; all as JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--gigabytes", type=float, default=15.0, help="size of the model")
    parser.add_argument("--device", default="cuda:0", help="cpu, or cuda:N for all processes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workdir", default="/var/tmp/nebulaio-bench", help="folder on the disk to measure")
    parser.add_argument("--json", help="file for the figures")
    asked = parser.parse_args(arguments)
    folder = Path(asked.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "many.safetensors"
    context = multiprocessing.get_context("spawn")
    workers = []
    try:
        began = time.monotonic()
        crew = []
        for _ in range(asked.processes):
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=work, args=(str(path), asked.device, theirs), daemon=True))
            workers[-1].start()
            theirs.close()
            crew.append(ours)
        make(path, int(asked.gigabytes * 1e9))
        for orders in crew:
            orders.recv()
        print(f"{path}: {path.stat().st_size / 1e9:.2f} GB, ready after {time.monotonic() - began:.1f} s", flush=True)
        rounds = []
        for number in range(asked.rounds):
            for some in ([crew[number % len(crew)]], crew):
                found = one_round(path, some)
                rounds.append(found)
                print(f"round {number}: {json.dumps(found)}", flush=True)
        for orders in crew:
            orders.send("end")
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.kill()
        path.unlink(missing_ok=True)
    alone = statistics.median(r["seconds"] for r in rounds if r["processes"] == 1)
    many = statistics.median(r["seconds"] for r in rounds if r["processes"] == len(crew))
    disk = max((r["disk_times"] or 0.0 for r in rounds if r["processes"] == len(crew)), default=0.0)
    summary = {"alone_seconds": alone, "many_seconds": many, "ratio": round(many / alone, 3), "disk_times": disk}
    print(f"summary {json.dumps(summary)}")
    if asked.json:
        Path(asked.json).write_text(json.dumps({"summary": summary, "rounds": rounds}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
