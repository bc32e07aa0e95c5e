# SPDX-License-Identifier: Apache-2.0
"""Compares loaders of training data in alternating rounds.

    make bench-data ARGS="--rounds 5"
    python3 bench/data.py --device cuda:0 --sample 256KiB --count 10000 --rows shuffled,cold,objects

Each measurement has a process of its own, and every round runs each contender once, in rotating order. Before the rounds,
each contender is measured once with each of its settings; its fastest setting takes part in the rounds. That setting is
verified once: the digest of the samples must be that of the data set. A ratio compares two contenders of one round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbench import machine

from . import references, store
from .child import CONTENDERS
from .samples import Samples, as_dict, digest
from .table import table

HERE = Path(__file__).resolve().parents[1]
ROWS = {
    "stored": "in stored order, from the page cache",
    "shuffled": "shuffled, from the page cache",
    "cold": "shuffled, from storage; the reference reads past the page cache at random",
    "objects": "shuffled, one object for each sample, from our server through the door",
}
PACKAGES = ("nebulaio", "torch", "webdataset", "mosaicml-streaming", "litdata", "numpy")


def size(text: str) -> int:
    """Return the bytes of a text such as 64KiB."""
    for unit, n in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(text[: -len(unit)]) * n
    return int(text)


class Bench:
    """One run of the benchmark."""

    def __init__(self, given: argparse.Namespace, samples: Samples) -> None:
        self.given, self.samples = given, samples
        self.digest = digest(samples.contents())
        self.source = ""

    def child(self, job: str, row: str = "", **more: Any) -> dict[str, Any]:
        """Run a job in a process of its own and return its result."""
        asked = {"job": job, "samples": as_dict(self.samples), "batch": self.given.batch, "device": self.given.device,
                 "shuffle": row != "stored", "cold": row == "cold", "source": self.source,
                 "epochs": 1 if row == "cold" else self.given.epochs, **more}
        command = [sys.executable, "-m", "loaders.child", json.dumps(asked)]
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = os.environ | {"PYTHONPATH": ":".join(paths), "TOKENIZERS_PARALLELISM": "false"}
        try:
            done = subprocess.run(command, env=env, cwd=self.samples.folder, capture_output=True, text=True,
                                  timeout=self.given.timeout)
        except subprocess.TimeoutExpired:
            return {"error": f"no result after {self.given.timeout} s"}
        lines = done.stdout.strip().splitlines()
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError):
            return {"error": f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"}

    def contenders(self, row: str) -> list[str]:
        """Return the contenders of a row, the reference first."""
        if self.given.contenders:
            return self.given.contenders.split(",")
        host = ["engine", "ours", "ours-mds", "webdataset", "streaming", "litdata", "torch", "torch-mmap",
                "webdataset-list",
                "streaming-list", "litdata-list", "torch-list", "plain"]
        card = ["engine", "ours", "torch", "torch-mmap"]
        few = {"cold": ["ours"], "objects": ["ours", "ours-files", "ours-objects"]}
        return few.get(row, host if self.given.device == "host" else card)

    def choose(self, row: str, name: str) -> dict[str, Any]:
        """Make the form that a contender reads, find its fastest setting, and verify that setting."""
        more: dict[str, Any] = {"contender": name}
        if form := CONTENDERS[name].form:
            if "error" in (made := self.child("make", form=form)):
                return {"error": f"the form {form}: {made['error']}"}
        if name != "ours-objects":
            more["source"] = ""
        workers = [0] if name.endswith("-list") else self.given.workers  # lists of bytes are slow between processes
        asked = self.child("settings", row, workers=workers, **more)
        if "error" in asked:
            return asked
        tried = []
        for setting in asked["settings"]:
            if len(asked["settings"]) == 1:  # there is no choice: the rounds measure it
                tried.append({"setting": setting, "seconds": 0.0})
                break
            found = self.child("measure", row, setting=setting, **more)
            tried.append({"setting": setting, **{key: found[key] for key in ("seconds", "error") if key in found}})
            say(f"  {name} {setting}: {found.get('error') or format(found['seconds'], '.2f') + ' s'}")
        working = [t for t in tried if "seconds" in t]
        if not working:
            return {"error": tried[-1]["error"], "tried": tried}
        best = min(working, key=lambda t: t["seconds"])["setting"]
        checked = self.child("verify", row, setting=best, **more)
        if checked.get("digest") != self.digest:
            return {"error": checked.get("error") or f"the samples differ: {checked['digest']}, not {self.digest}",
                    "tried": tried}
        return {"setting": best, "tried": tried, "verified": checked["digest"], "seconds": [], "failed": [],
                "reports": []}

    def row(self, name: str) -> dict[str, Any]:
        """Measure a row in all its rounds."""
        say(f"{name}: {ROWS[name]}")
        found = {contender: self.choose(name, contender) for contender in self.contenders(name)}
        for contender, chosen in found.items():
            if "error" in chosen:
                say(f"  {contender} is not measured: {chosen['error']}")
        running = [contender for contender, chosen in found.items() if "error" not in chosen]
        result = {"what": ROWS[name], "count": self.samples.count, "bytes": self.samples.bytes, "contenders": found}
        reference = self.references(name, found)
        for number in range(self.given.rounds):
            turn = number % max(1, len(running))
            for contender in running[turn:] + running[:turn]:
                source = {} if contender == "ours-objects" else {"source": ""}
                got = self.child("measure", name, contender=contender, setting=found[contender]["setting"], **source)
                found[contender]["seconds"].append(got.get("seconds", 0.0))
                if "error" in got:
                    found[contender]["failed"].append(f"round {number}: {got['error']}")
                    say(f"  {contender} failed in round {number}: {got['error']}")
                elif got["report"]:
                    found[contender]["reports"].append(got["report"])
            reference(number)
            say(f"  round {number + 1} of {self.given.rounds}")
        return result

    def references(self, row: str, found: dict[str, Any]) -> Any:
        """Return a function that measures the limits of the machine for a row, once for each round."""
        measured: dict[str, Any] = {}
        if row == "cold":
            self.child("make", form="one.safetensors")
            program = references.build_random(self.samples.folder)
            for depth in self.given.depths:
                measured[f"O_DIRECT, depth {depth}"] = lambda n, d=depth: references.random_reads(program, self.samples,
                                                                                                  d, n)
        if self.given.device != "host":
            measured["pinned copy"] = lambda n: self.child("pinned").get("seconds", 0.0)
        for name in measured:
            found[name] = {"seconds": [], "failed": []}

        def each(number: int) -> None:
            for name, measure in measured.items():
                found[name]["seconds"].append(measure(number))
                if not found[name]["seconds"][-1]:
                    found[name]["failed"].append(f"round {number}")

        return each

    @contextlib.contextmanager
    def serving(self, rows: list[str]) -> Iterator[None]:
        """Run a server with the samples as objects if a row needs one."""
        if "objects" not in rows or "ours-objects" not in self.contenders("objects"):
            yield
            return
        with tempfile.TemporaryDirectory(dir=self.samples.folder) as folder:
            with store.objects(self.samples, self.given.cli, Path(folder)) as self.source:
                yield


def say(text: str) -> None:
    """Tell progress."""
    print(text, file=sys.stderr, flush=True)


def numbers(text: str) -> list[int]:
    """Return the numbers of a text such as 0,1,2."""
    return [int(part) for part in text.split(",")]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the given arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="stored,shuffled", help=f"rows to measure: {', '.join(ROWS)}")
    parser.add_argument("--contenders",
                        help=f"contenders to measure: {', '.join(CONTENDERS)}; default: those of the row")
    parser.add_argument("--device", default="host", help="host or cuda:N")
    parser.add_argument("--sample", type=size, default=64 << 10, help="bytes of a sample, such as 64KiB")
    parser.add_argument("--count", type=int, default=16384, help="number of samples")
    parser.add_argument("--batch", type=int, default=256, help="samples of a batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1,
                        help="epochs that are measured together; those of storage are one")
    parser.add_argument("--workers", type=numbers, default=numbers("0,1,2,4,8"),
                        help="numbers of worker processes to try")
    parser.add_argument("--depths", type=numbers, default=numbers("16,32,64,128"),
                        help="reads in flight of the cold reference")
    parser.add_argument("--workdir", type=Path, default=Path("build/bench-data"),
                        help="folder for the samples; kept for later runs")
    parser.add_argument("--cli", default=os.environ.get("NEBULAIO_CLI", "nebulaio"),
                        help="the program nebulaio, for a server")
    parser.add_argument("--timeout", type=int, default=300, help="most seconds of one measurement")
    parser.add_argument("--out", type=Path, help="write results.json and table.md into this folder")
    given = parser.parse_args(arguments)
    if unknown := set(given.rows.split(",")) - set(ROWS):
        parser.error(f"unknown rows {', '.join(sorted(unknown))}; expected {', '.join(ROWS)}")
    if unknown := set((given.contenders or "ours").split(",")) - set(CONTENDERS):
        parser.error(f"unknown contenders {', '.join(sorted(unknown))}; expected {', '.join(CONTENDERS)}")
    if given.sample < 8 or given.count < 1 or given.batch < 1 or given.rounds < 1:
        parser.error("a sample has at least 8 bytes; count, batch and rounds are at least 1")
    if "cold" in given.rows.split(",") and given.sample % 4096:
        parser.error(f"--sample {given.sample} is no multiple of 4096, which the cold reference needs")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Measure the rows, print the table, and write the results. The exit code is 1 if a contender was not measured."""
    given = parse(arguments)
    samples = Samples(given.workdir.resolve() / f"{given.count}x{given.sample}", given.count, given.sample)
    samples.folder.mkdir(parents=True, exist_ok=True)
    bench, rows = Bench(given, samples), given.rows.split(",")
    results: dict[str, Any] = {
        "machine": machine.facts(samples.folder, given.cli),
        "versions": {name: machine.version(name) for name in PACKAGES},
        "samples": as_dict(samples), "digest": bench.digest, "batch": given.batch, "device": given.device,
        "rounds": given.rounds,
        "rows": {},
    }
    with bench.serving(rows):
        for row in rows:
            results["rows"][row] = bench.row(row)
    text = table(results)
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (given.out / "table.md").write_text(text)
    missed = [c for row in results["rows"].values() for c in row["contenders"].values() if "error" in c
              or c.get("failed")]
    return 1 if missed else 0
