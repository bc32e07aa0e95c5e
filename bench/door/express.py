#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures reads of an object of a directory bucket to GPU memory, beside an object of an ordinary bucket.

    python3 bench/door/express.py [--json results.json] [--device cuda:0] [--size 1GiB] [--rounds 9]

One server runs on this machine. Both buckets have an object with the same bytes, which the client wrote from the device.
Every round reads both objects through the door, in changing order: from the page cache, and then from the disk. All
bytes of each read are compared on the device.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import machine  # noqa: E402
from run import best, size, timed  # noqa: E402

ORDINARY, DIRECTORY = "plain", "big--bench1--x-s3"
WARM_READS = 3  # of a round; the fastest one counts


class Rounds:
    """Reads of both objects, by row and bucket."""

    def __init__(self, door, device, content: bytes) -> None:
        self.door, self.device, self.n = door, device, len(content)
        self.want, self.buffer = device.empty(self.n), device.empty(self.n)
        device.fill(self.want, content)
        self.seconds: dict[str, dict[str, list[float]]] = {"warm": {}, "cold": {}}
        self.reports: dict[str, object] = {}
        self.files: dict[str, Path] = {}
        self.compared = 0

    def write(self, server: machine.Server) -> None:
        """Write both objects, and find the file of each."""
        for bucket in (ORDINARY, DIRECTORY):
            self.door.write_from_gpu(bucket, "big", self.want)
            self.files[bucket] = new_file(server, self.n, set(self.files.values()))

    def read(self, bucket: str) -> None:
        self.reports[bucket] = machine.plain(self.door.read_to_gpu(bucket, "big", self.buffer))

    def run(self, number: int) -> None:
        order = (ORDINARY, DIRECTORY) if number % 2 else (DIRECTORY, ORDINARY)
        for bucket in order:
            machine.warm(self.files[bucket])
            self.measure("warm", bucket, lambda bucket=bucket: best(lambda: self.read(bucket), WARM_READS))
        for bucket in order:
            machine.drop_caches(self.files[bucket])
            self.measure("cold", bucket, lambda bucket=bucket: timed(lambda: self.read(bucket)))

    def measure(self, row: str, bucket: str, seconds) -> None:
        self.device.zero(self.buffer)
        self.seconds[row].setdefault(bucket, []).append(seconds())
        if not self.device.same(self.buffer, self.want):
            raise SystemExit(f"{row}, {bucket}: the bytes on the device are not those of the object")
        self.compared += 1

    def ratios(self, row: str) -> list[float]:
        """Return the rate of the directory bucket divided by that of the ordinary bucket, round by round."""
        each = self.seconds[row]
        return [a / b for a, b in zip(each[ORDINARY], each[DIRECTORY])]

    def table(self) -> str:
        out = [
            "| row | bucket | median | fastest to slowest | GB/s | rate divided by the ordinary bucket's, each round |",
            "|---|---|---|---|---|---|"]
        for row, buckets in self.seconds.items():
            for bucket in (ORDINARY, DIRECTORY):
                each = buckets[bucket]
                mid = statistics.median(each)
                ratios = self.ratios(row)
                shares = "" if bucket == ORDINARY else f"**{statistics.median(ratios):.3f}** ({', '.join(f'{x:.3f}' for x in ratios)})"
                out.append(f"| {row} | {bucket} | {mid * 1e3:.2f} ms | {min(each) * 1e3:.2f} to {max(each) * 1e3:.2f} ms | {self.n / mid / 1e9:.2f} | {shares} |")
        return "\n".join(out)


def new_file(server: machine.Server, n: int, known: set[Path]) -> Path:
    """Return the file of an object of n bytes at its final path, to which the server moves it after the reply."""
    for _ in range(600):
        for p in (server.data / "data").rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # it may just be moving to its place
                if p not in known and p.is_file() and p.stat().st_size == n:
                    return p
        time.sleep(0.05)
    raise SystemExit(f"no new file of {n} bytes in {server.data}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", type=Path, help="JSON file for all figures")
    p.add_argument("--device", default="auto")
    p.add_argument("--size", type=size, default=1 << 30)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--binary", default=os.environ.get("NEBULAIO_CLI", "nebulaio"))
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    args = p.parse_args()
    if args.rounds < 1 or args.size < 1:
        p.error(f"--rounds {args.rounds} and --size {args.size}: expected at least 1")
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.workdir)))
        server = stack.enter_context(machine.Server(args.binary, work / "server", "--s3-express-enabled=true"))
        for bucket in (ORDINARY, DIRECTORY):
            server.make_bucket(bucket)
        device = machine.device(args.device)
        from nebulaio import GPUDirectClient

        door = stack.enter_context(
            GPUDirectClient(server.endpoint, door="require", device=device.name, access_key=server.user,
                            secret_key=server.password)
        )
        rounds = Rounds(door, device, machine.pattern(args.size))
        rounds.write(server)
        for number in range(args.rounds):
            rounds.run(number)
        print(rounds.table())
        print(f"{rounds.compared} reads compared, all bytes equal")
        if args.json:
            args.json.write_text(json.dumps({
                "machine": machine.describe(device), "size": args.size, "rounds": args.rounds,
                "command": " ".join(sys.argv[1:]),
                "seconds": rounds.seconds, "ratios": {row: rounds.ratios(row) for row in rounds.seconds},
                "compared": rounds.compared, "reports": rounds.reports,
            }, indent=1, default=str))


if __name__ == "__main__":
    main()
