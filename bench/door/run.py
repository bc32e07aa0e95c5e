#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures transfers of objects to GPU memory and back, beside the limits of the machine.

    python3 bench/door/run.py --out results.json [--device cuda:0] [--size 1GiB] [--rounds 5] [SECTION ...]

Every round runs each method once, in turn, so that a drift of the machine affects all methods. Each ratio compares
two methods of one round; the table shows the median and the spread.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import machine  # noqa: E402
import peers  # noqa: E402

BUCKET = "bench"


def size(text: str) -> int:
    for unit, n in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * n)
    return int(text)


class Results:
    """Seconds by row and method, one entry per round."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, list[float]]] = {}
        self.bytes: dict[str, int] = {}
        self.notes: dict[str, object] = {}

    def add(self, row: str, method: str, seconds: float, n: int) -> None:
        self.rows.setdefault(row, {}).setdefault(method, []).append(seconds)
        self.bytes[row] = n

    def ratios(self, row: str, method: str, ceiling: str) -> list[float]:
        """Return the speed relative to the ceiling, round by round."""
        r = self.rows[row]
        return [c / m for c, m in zip(r[ceiling], r[method])]

    def table(self) -> str:
        out = ["| row | method | median | GB/s | of the ceiling (each round) |", "|---|---|---|---|---|"]
        for row, methods in self.rows.items():
            ceilings = [m for m in methods if m.startswith("ceiling")]
            for method, seconds in methods.items():
                mid = statistics.median(seconds)
                shares = []
                for c in ceilings:
                    if method in ceilings:
                        continue
                    each = self.ratios(row, method, c)
                    shares.append(f"{c[8:] or 'ceiling'}: **{statistics.median(each):.3f}** ({', '.join(f'{x:.3f}' for x in each)})")
                n = self.bytes[row]
                out.append(f"| {row} | {method} | {mid * 1e3:.2f} ms | {n / mid / 1e9:.2f} | {'; '.join(shares)} |")
        return "\n".join(out)


def timed(fn) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def best(fn, n: int) -> float:
    return min(timed(fn) for _ in range(n))


class Bench:
    def __init__(self, args: argparse.Namespace, server: machine.Server, device: machine.Device) -> None:
        self.a, self.server, self.dev, self.r = args, server, device, Results()
        self.bare = machine.build_bare(HERE, args.workdir)
        from nebulaio import GPUDirectClient

        keys = {"access_key": server.user, "secret_key": server.password}
        self.door = GPUDirectClient(server.endpoint, door="require", device=device.name, **keys)
        self.http = GPUDirectClient(server.endpoint, door="off", device=device.name, connections=16, **keys)
        self.big = args.size
        self.content = machine.pattern(self.big)
        self.buffer = device.empty(self.big)
        self.pinned = device.pinned(self.big)

    def close(self) -> None:
        self.door.close()
        self.http.close()

    def check(self, what: str, buffer, want) -> None:
        got = self.dev.digest(buffer)
        if got != want:
            raise SystemExit(f"{what}: the bytes on the device are not those of the object")

    def put_big(self) -> None:
        self.dev.fill(self.buffer, self.content)
        report = self.door.write_from_gpu(BUCKET, "big", self.buffer)
        self.r.notes["write report"] = machine.plain(report)
        self.want = hashlib.blake2b(self.content).hexdigest()
        self.dev.zero(self.buffer)
        self.door.read_to_gpu(BUCKET, "big", self.buffer)
        self.check("first read", self.buffer, self.want)
        self.file = self.server.largest_file(self.big)

    # Sections. Each is one round.

    def warm(self) -> None:
        row = "read, warm"
        machine.warm(self.file)
        self.r.add(row, "ceiling pinned copy", best(lambda: self.dev.copy_in(self.buffer, self.pinned), 3), self.big)
        self.dev.zero(self.buffer)
        last = {}
        self.r.add(row, "nebulaio door", best(lambda: last.update(r=self.door.read_to_gpu(BUCKET, "big", self.buffer)),
                                              3), self.big)
        self.check(row, self.buffer, self.want)
        self.r.notes["warm report"] = machine.plain(last["r"])

    def cold(self) -> None:
        row = "read, cold"
        machine.drop_caches(self.file)
        raw = min(self.bare_seconds("read", self.file, 16, 512 << 10), self.bare_seconds("read", self.file, 8, 1 << 20))
        self.r.add(row, "ceiling O_DIRECT", raw, self.big)
        took = []
        for _ in range(2):
            machine.drop_caches(self.file)
            took.append(timed(lambda: self.r.notes.update(
                {"cold report": machine.plain(self.door.read_to_gpu(BUCKET, "big", self.buffer))})))
        self.r.add(row, "nebulaio door", min(took), self.big)
        self.check(row, self.buffer, self.want)

    def write(self) -> None:
        row = "write, durable"
        raw = []
        for shape in ((16, 1 << 20), (8, 2 << 20)):
            name = self.server.data.parent / "raw.tmp"
            raw.append(self.bare_seconds("write", name, self.big, *shape))
            name.unlink()
        self.r.add(row, "ceiling O_DIRECT", min(raw), self.big)
        self.dev.fill(self.buffer, self.content)
        took = []
        for i in range(2):
            took.append(timed(lambda: self.r.notes.update(
                {"write report": machine.plain(self.door.write_from_gpu(BUCKET, f"written-{i}", self.buffer))})))
        self.r.add(row, "nebulaio door", min(took), self.big)

    def batch(self) -> None:
        n, each = self.a.objects, 1 << 20
        row = f"batch of {n} x 1 MiB, warm"
        total = n * each
        if not hasattr(self, "many"):
            self.many = self.dev.empty(total)
            part = machine.pattern(total)
            self.dev.fill(self.many, part)
            self.many_want = hashlib.blake2b(part).hexdigest()
            for i in range(n):
                self.door.write_from_gpu(BUCKET, f"many/{i:05d}", self.many[i * each : (i + 1) * each])
            self.items = [(BUCKET, f"many/{i:05d}", self.many[i * each : (i + 1) * each]) for i in range(n)]
            self.many_pinned = self.dev.pinned(total)
        self.server.warm_all()
        self.r.add(row, "ceiling pinned copy", best(lambda: self.dev.copy_in(self.many, self.many_pinned), 3), total)
        self.dev.zero(self.many)
        last = {}
        self.r.add(row, "nebulaio door", best(lambda: last.update(r=self.door.read_many(self.items)), 3), total)
        self.check(row, self.many, self.many_want)
        self.r.notes["batch report"] = machine.plain(last["r"])
        if self.a.objects_program:
            self.r.add(row, "nebulaio door, from Go",
                       self.from_go("-n", "0", "-prefix", "many/")["batch_seconds"]["nebulaio door"], total)

    def network(self) -> None:
        row = "read over loopback HTTP, 16 connections"
        machine.warm(self.file)
        self.r.add(row, "ceiling bare TCP (sendfile)", min(self.bare_seconds("tcp", self.file, 16) for _ in range(3)),
                   self.big)
        self.r.add(row, "ceiling bare TCP (memory)", min(self.bare_seconds("tcpmem", self.big, 16) for _ in range(3)),
                   self.big)
        self.dev.zero(self.buffer)
        last = {}
        self.r.add(row, "nebulaio http", best(lambda: last.update(r=self.http.read_to_gpu(BUCKET, "big", self.buffer)),
                                              3), self.big)
        self.check(row, self.buffer, self.want)
        self.r.notes["http report"] = machine.plain(last["r"])

    def others(self) -> None:
        row = "read, warm, against others"
        machine.warm(self.file)
        self.r.add(row, "nebulaio door", best(lambda: self.door.read_to_gpu(BUCKET, "big", self.buffer), 2), self.big)
        self.r.add(row, "nebulaio http", best(lambda: self.http.read_to_gpu(BUCKET, "big", self.buffer), 2), self.big)
        for name, fetch in peers.readers(self.server, BUCKET, "big", self.big, self.dev, self.pinned,
                                         self.r.notes).items():
            self.dev.zero(self.buffer)
            took = timed(lambda fetch=fetch: fetch(self.buffer))
            self.check(name, self.buffer, self.want)
            self.r.add(row, name, took, self.big)

    def small(self) -> None:
        if not self.a.objects_program:
            self.r.notes["small"] = "not measured: --objects-program names no program"
            return
        found = self.from_go("-n", str(self.a.small_reads))
        for name, seconds in found["p50_seconds"].items():
            self.r.add("open + read of a 4 KiB object, p50, from Go", name, seconds, 4096)
        self.r.notes.setdefault("small p99", []).append(found["p99_seconds"])

    def from_go(self, *args: str) -> dict:
        out = subprocess.run([self.a.objects_program, "-endpoint", self.server.endpoint, "-device", self.dev.name,
                              "-bucket", BUCKET, *args],
                             env={**os.environ, "NEBULAIO_ACCESS_KEY": self.server.user,
                                  "NEBULAIO_SECRET_KEY": self.server.password},
                             check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(out)

    def cpu(self) -> None:
        if "server CPU" in self.r.notes:
            return  # once is enough
        machine.warm(self.file)
        before, start, moved = self.server.cpu(), time.perf_counter(), 0
        while moved < self.a.cpu_bytes:
            self.door.read_to_gpu(BUCKET, "big", self.buffer)
            moved += self.big
        self.r.notes["server CPU"] = {"seconds": self.server.cpu() - before, "bytes": moved,
                                      "wall": time.perf_counter() - start}

    def bare_seconds(self, *args) -> float:
        out = subprocess.run([self.bare, *map(str, args)], check=True, capture_output=True, text=True).stdout
        return float(out.split()[0])


SECTIONS = {"warm": Bench.warm, "cold": Bench.cold, "write": Bench.write, "batch": Bench.batch, "http": Bench.network,
            "peers": Bench.others, "small": Bench.small, "cpu": Bench.cpu}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sections", nargs="*", choices=[[], *SECTIONS], help="sections to measure; default all")
    p.add_argument("--out", type=Path, help="JSON file for all figures")
    p.add_argument("--device", default="auto")
    p.add_argument("--size", type=size, default=1 << 30)
    p.add_argument("--objects", type=int, default=1000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--cpu-bytes", type=size, default=100 << 30)
    p.add_argument("--objects-program", help="path of the program bench/door/objects, which measures from Go")
    p.add_argument("--small-reads", type=int, default=3000)
    p.add_argument("--binary", default=os.environ.get("NEBULAIO_CLI", "nebulaio"))
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    args = p.parse_args()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.workdir)))
        server = stack.enter_context(machine.Server(args.binary, work / "data"))
        server.make_bucket(BUCKET)
        device = machine.device(args.device)
        b = Bench(args, server, device)
        stack.callback(b.close)
        b.put_big()
        for i in range(args.rounds):
            for name in args.sections or SECTIONS:
                print(f"round {i + 1} of {args.rounds}: {name}", file=sys.stderr, flush=True)
                SECTIONS[name](b)
        print(b.r.table())
        if "server CPU" in b.r.notes:
            c = b.r.notes["server CPU"]
            print(f"\nserver CPU while {c['bytes'] / (1 << 30):.0f} GiB went through the door: {c['seconds']:.2f} s (in {c['wall']:.1f} s)")
        if args.out:
            args.out.write_text(json.dumps({
                "machine": machine.describe(device), "size": args.size, "rounds": args.rounds,
                "command": " ".join(sys.argv[1:]),
                "seconds": b.r.rows, "bytes": b.r.bytes, "notes": b.r.notes,
            }, indent=1, default=str))


if __name__ == "__main__":
    main()
