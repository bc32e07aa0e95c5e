#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures reads of a cached object of an upstream bucket to GPU memory, beside an object of a plain bucket.

    python3 bench/door/cached.py --out results.json [--device cuda:0] [--size 1GiB] [--rounds 9]

Two servers run on this machine. The second one has a plain bucket, and a bucket that the first one keeps. Every round
reads both objects through the door, in changing order: from the page cache, and then from the disk. The first read of the
upstream object, before the rounds, is a miss.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import machine  # noqa: E402
from run import best, size, timed  # noqa: E402

PLAIN, UPSTREAM = "plain", "models"


def node_file(path: Path, upstream: machine.Server) -> None:
    """Write the configuration of the node in front of the upstream server."""
    path.write_text(
        f"upstream:\n  {UPSTREAM}:\n    endpoint: {upstream.endpoint}\n    access_key_env: UPSTREAM_ACCESS_KEY\n"
        "    secret_key_env: UPSTREAM_SECRET_KEY\n"
    )
    os.environ["UPSTREAM_ACCESS_KEY"], os.environ["UPSTREAM_SECRET_KEY"] = upstream.user, upstream.password


class Rounds:
    """Reads of both objects, by row and bucket."""

    def __init__(self, door, device, n: int, files: dict[str, Path], want: str) -> None:
        self.door, self.device, self.n, self.files, self.want = door, device, n, files, want
        self.buffer = device.empty(n)
        self.seconds: dict[str, dict[str, list[float]]] = {"warm": {}, "cold": {}}
        self.reports: dict[str, object] = {}

    def read(self, bucket: str) -> None:
        self.reports[bucket] = machine.plain(self.door.read_to_gpu(bucket, "big", self.buffer))

    def run(self, number: int) -> None:
        for bucket in (PLAIN, UPSTREAM) if number % 2 else (UPSTREAM, PLAIN):
            machine.warm(self.files[bucket])
            self.device.zero(self.buffer)
            self.add("warm", bucket, best(lambda bucket=bucket: self.read(bucket), 3))
            self.check(bucket)
        for bucket in (PLAIN, UPSTREAM) if number % 2 else (UPSTREAM, PLAIN):
            machine.drop_caches(self.files[bucket])
            self.device.zero(self.buffer)
            self.add("cold", bucket, timed(lambda bucket=bucket: self.read(bucket)))
            self.check(bucket)

    def add(self, row: str, bucket: str, seconds: float) -> None:
        self.seconds[row].setdefault(bucket, []).append(seconds)

    def check(self, bucket: str) -> None:
        if self.device.digest(self.buffer) != self.want:
            raise SystemExit(f"{bucket}: the bytes on the device are not those of the object")

    def table(self) -> str:
        out = ["| row | bucket | median | fastest to slowest | GB/s | rate divided by the plain bucket's, each round |",
               "|---|---|---|---|---|---|"]
        for row, buckets in self.seconds.items():
            for bucket, each in buckets.items():
                mid = statistics.median(each)
                ratios = [a / b for a, b in zip(buckets[PLAIN], each)]
                shares = "" if bucket == PLAIN else f"**{statistics.median(ratios):.3f}** ({', '.join(f'{x:.3f}' for x in ratios)})"
                out.append(f"| {row} | {bucket} | {mid * 1e3:.2f} ms | {min(each) * 1e3:.2f} to {max(each) * 1e3:.2f} ms | {self.n / mid / 1e9:.2f} | {shares} |")
        return "\n".join(out)


def file_of(folder: Path, n: int) -> Path:
    """Return the file of the cached object, which has the size of the object or of its blocks."""
    found = [p for p in folder.rglob("*") if p.is_file() and n <= p.stat().st_size < n + (1 << 20)]
    if not found:
        raise SystemExit(f"no file of {n} bytes below {folder}")
    return found[0]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, help="JSON file for all figures")
    p.add_argument("--device", default="auto")
    p.add_argument("--size", type=size, default=1 << 30)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--binary", default=os.environ.get("NEBULAIO_CLI", "nebulaio"))
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    args = p.parse_args()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.workdir)))
        upstream = stack.enter_context(machine.Server(args.binary, work / "upstream"))
        upstream.make_bucket(UPSTREAM)
        node_file(work / "node.yaml", upstream)
        node = stack.enter_context(machine.Server(args.binary, work / "node", "--config", str(work / "node.yaml")))
        node.make_bucket(PLAIN)
        device = machine.device(args.device)
        from nebulaio import GPUDirectClient

        keys = {"access_key": node.user, "secret_key": node.password, "device": device.name}
        content = machine.pattern(args.size)
        want = hashlib.blake2b(content).hexdigest()
        buffer = device.empty(args.size)
        device.fill(buffer, content)
        first = stack.enter_context(GPUDirectClient(upstream.endpoint, door="require", **keys))
        first.write_from_gpu(UPSTREAM, "big", buffer)
        door = stack.enter_context(GPUDirectClient(node.endpoint, **keys))
        door.write_from_gpu(PLAIN, "big", buffer)
        misses = {}
        for name, client in (("upstream itself, its door", first), ("node, a miss", door),
                             ("node, the read after it", door)):
            device.zero(buffer)
            report = {}
            seconds = timed(lambda client=client, report=report: report.update(
                machine.plain(client.read_to_gpu(UPSTREAM, "big", buffer))))
            if device.digest(buffer) != want:
                raise SystemExit(f"{name}: the bytes on the device are not those of the object")
            misses[name] = {"seconds": seconds, "report": report}
            print(f"{name}: {seconds:.3f} s, {args.size / seconds / 1e9:.2f} GB/s")
        files = {PLAIN: node.largest_file(args.size), UPSTREAM: file_of(work / "node" / "cache", args.size)}
        rounds = Rounds(door, device, args.size, files, want)
        for number in range(args.rounds):
            rounds.run(number)
        print(rounds.table())
        if args.out:
            args.out.write_text(json.dumps({
                "machine": machine.describe(device), "size": args.size, "rounds": args.rounds,
                "command": " ".join(sys.argv[1:]),
                "seconds": rounds.seconds, "first reads": misses, "reports": rounds.reports,
            }, indent=1, default=str))


if __name__ == "__main__":
    main()
