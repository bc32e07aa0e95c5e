# SPDX-License-Identifier: Apache-2.0
"""Compares transfer clients in alternating rounds.

    make bench-transfers ARGS="--rounds 5 --out docs/benchmarks/DATE-transfers"

Each client copies one object of 1 GiB (cp) and 10,000 objects of 64 KiB (sync) from MinIO on loopback to files. Every
round runs each client once, in rotating order. After each run, all bytes are compared with the source. The CPU time is
that of the client's processes, not the server's. A ratio compares two clients of one round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbench import machine

from . import contenders, measure
from .table import table

ROOT = Path(__file__).resolve().parents[2]
ONE, MANY = "one/object", "many"


def say(text: str) -> None:
    """Tell progress."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def minio(work: Path) -> Iterator[contenders.Server]:
    """Run MinIO, which test/upstreams/serve builds and starts."""
    command = [str(ROOT / "build" / "serve"), "-dir", str(work / "minio"), "minio"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdin is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)} ended with {process.wait()}")
        about = json.loads(line)
        yield contenders.Server(about["endpoint"], about["access_key"], about["secret_key"], about["region"])
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def rclone() -> str | None:
    """Build rclone once and return its path, or None if it cannot be built."""
    done = subprocess.run([str(ROOT / "build" / "serve"), "-build", "rclone"], stdout=subprocess.PIPE, text=True)
    return str(json.loads(done.stdout)["path"]) if done.returncode == 0 else None


def make_source(folder: Path, size: int, count: int, each: int) -> None:
    """Write the files that are uploaded, of bytes without a pattern."""
    drawn = random.Random(20261116)
    block = drawn.randbytes(16 << 20)
    (folder / MANY).mkdir(parents=True)
    (folder / "one").mkdir(parents=True)
    with open(folder / ONE, "wb") as out:
        left = size
        while left > 0:
            cut = drawn.randrange(1, len(block))
            piece = (block[cut:] + block[:cut])[:left]
            out.write(piece)
            left -= len(piece)
    for number in range(count):
        cut = drawn.randrange(0, len(block) - each)
        (folder / MANY / f"{number:06d}.bin").write_bytes(block[cut : cut + each])


def fill(server: contenders.Server, source: Path) -> None:
    """Make the bucket and upload the files."""
    import boto3
    import obstore
    from obstore.store import S3Store

    keys = {"aws_access_key_id": server.access, "aws_secret_access_key": server.secret}
    client = boto3.client("s3", endpoint_url=server.endpoint, region_name=server.region, **keys)
    client.create_bucket(Bucket=server.bucket)
    client.upload_file(str(source / ONE), server.bucket, ONE)
    store = S3Store(server.bucket, endpoint=server.endpoint, region=server.region, client_options={"allow_http": True},
                    access_key_id=server.access, secret_access_key=server.secret)

    async def every() -> None:
        gate = asyncio.Semaphore(32)

        async def one(path: Path) -> None:
            async with gate:
                await obstore.put_async(store, f"{MANY}/{path.name}", path.read_bytes())

        await asyncio.gather(*(one(path) for path in sorted((source / MANY).iterdir())))

    asyncio.run(every())


class Bench:
    """One run of the benchmark."""

    def __init__(self, given: argparse.Namespace, server: contenders.Server, found: list[contenders.Contender]) -> None:
        self.given, self.server, self.found = given, server, found
        self.work: Path = given.workdir
        self.home = self.work / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "aws-config").write_text(contenders.AWS_CONFIG)

    def one(self, row: str, contender: contenders.Contender) -> measure.Run:
        """Run a client once and compare what arrived."""
        name = ONE if row == "cp" else MANY
        target = self.work / "target" / name
        shutil.rmtree(self.work / "target", ignore_errors=True)
        target.parent.mkdir(parents=True)
        os.sync()
        command = contender.command(row, self.server, name, target)
        got = measure.run(command, contender.environment(self.server, self.home), self.work / "log", self.given.timeout)
        if not got.error and (what := measure.differs(self.work / "source" / name, target)):
            got = measure.Run(got.seconds, got.cpu, what)
        shutil.rmtree(self.work / "target", ignore_errors=True)
        return got

    def row(self, row: str, what: str, size: int) -> dict[str, Any]:
        """Measure a row in all its rounds, after one run of each client that is not counted."""
        say(f"{row}: {what}")
        runs: dict[str, list[dict[str, Any]]] = {c.name: [] for c in self.found}
        for number in range(-1, self.given.rounds):
            turn = number % len(self.found)
            for contender in self.found[turn:] + self.found[:turn]:
                got = self.one(row, contender)
                say(f"  round {number + 1}, {contender.name}: {got.seconds:.2f} s, CPU {got.cpu:.2f} s {got.error}")
                if number >= 0:
                    runs[contender.name].append(got.as_dict())
        return {"what": what, "bytes": size, "contenders": {name: {"runs": r} for name, r in runs.items()}}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the given arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="cp,sync", help="rows to measure: cp, sync")
    parser.add_argument("--clients", default="", help="clients to measure beside nebulaio; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the one object")
    parser.add_argument("--count", type=int, default=10_000, help="number of the small objects")
    parser.add_argument("--each", type=int, default=64 << 10, help="bytes of a small object")
    parser.add_argument("--workdir", type=Path, default=Path("build/bench-transfers"),
                        help="folder for 6 GiB, removed at the end")
    parser.add_argument("--cli", default=os.environ.get("NEBULAIO_CLI", str(ROOT / "bin" / "nebulaio")),
                        help="the program nebulaio")
    parser.add_argument("--timeout", type=float, default=120, help="most seconds of one run")
    parser.add_argument("--out", type=Path, help="write results.json and table.md into this folder")
    given = parser.parse_args(arguments)
    given.workdir = (given.workdir / "work").resolve()
    unknown = set(given.rows.split(",")) - {"cp", "sync"}
    if unknown or given.rounds < 1:
        parser.error(f"--rows {given.rows} --rounds {given.rounds}: expected rows of cp and sync, and at least 1 round")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark, print the table, and write the results."""
    given = parse(arguments)
    found, missing = contenders.all_of(given.cli, rclone())
    if given.clients:
        found = [c for c in found if c.name in ("nebulaio", *given.clients.split(","))]
    shutil.rmtree(given.workdir, ignore_errors=True)
    (given.workdir / "source").mkdir(parents=True)
    try:
        make_source(given.workdir / "source", given.size, given.count, given.each)
        with minio(given.workdir) as server:
            fill(server, given.workdir / "source")
            bench = Bench(given, server, found)
            rows = {}
            if "cp" in given.rows.split(","):
                rows["cp"] = bench.row("cp", f"one object of {given.size} bytes", given.size)
            if "sync" in given.rows.split(","):
                rows["sync"] = bench.row("sync", f"{given.count} objects of {given.each} bytes",
                                         given.count * given.each)
    finally:
        shutil.rmtree(given.workdir, ignore_errors=True)
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": "make bench-transfers ARGS=" + json.dumps(" ".join(arguments or sys.argv[1:])),
        "machine": machine.facts(given.workdir.parent, given.cli),
        "clients": {c.name: {"version": c.version, "settings": c.settings} for c in found},
        "missing": missing,
        "rows": rows,
    }
    text = table(results)
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (given.out / "table.md").write_text(text)
    failed = [n for row in rows.values() for n, c in row["contenders"].items() if any(r["error"] for r in c["runs"])]
    return 1 if "nebulaio" in failed else 0
