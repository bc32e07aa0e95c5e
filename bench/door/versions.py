#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two builds at moving objects to device memory and back.

    python3 bench/door/versions.py --new DIR --before DIR --rounds 9 --out results.json [-- run.py's arguments]

Each DIR contains one build: nebulaio, libnebulaio.so, objects, python/ and bench/door/. A round runs the new build
once and the older build twice, each with its own server and client, in rotating order. The difference between the
two runs of the older build is the noise of the machine. With --out, earlier rounds are kept and new ones are added.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

RUNS = ("new", "before", "before again")
SECTIONS = ("warm", "cold", "write", "small")


def measure(build: Path, arguments: list[str], workdir: Path) -> dict:
    """Runs one round of run.py with one build and returns its results."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        env = {**os.environ, "NEBULAIO_LIBRARY": str(build / "libnebulaio.so"), "NEBULAIO_CLI": str(build / "nebulaio"),
               "PYTHONPATH": os.pathsep.join(filter(None, [str(build / "python"), os.environ.get("PYTHONPATH", "")]))}
        subprocess.run([sys.executable, str(build / "bench/door/run.py"), "--rounds", "1", "--out", out.name,
                        "--workdir", str(workdir),
                        "--objects-program", str(build / "objects"), *arguments], env=env, check=True,
                        stdout=subprocess.DEVNULL)
        return json.loads(Path(out.name).read_text())


def ours(result: dict) -> dict[str, float]:
    """Return the seconds by row of our own methods."""
    return {f"{row}: {method}": seconds[0] for row, methods in result["seconds"].items()
            for method, seconds in methods.items()
            if method.startswith("nebulaio")}


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} [{min(values):.3f}..{max(values):.3f}]"


def table(rounds: list[dict[str, dict[str, float]]]) -> str:
    """Render the times of the new build and of the older build's second run, relative to the older build's first."""
    out = ["| row | new | before | new / before | before again / before | inside the spread, or better |",
           "|---|---|---|---|---|---|"]
    for row in rounds[0]["new"]:
        now = [r["new"][row] / r["before"][row] for r in rounds]
        again = [r["before again"][row] / r["before"][row] for r in rounds]
        # Which of the two runs is called "again" is arbitrary, so the spread applies in both directions.
        limit = max(max(again), 1 / min(again))
        verdict = "yes" if statistics.median(now) <= limit else "**no**"
        times = [f"{statistics.median(r[name][row] for r in rounds) * 1e3:.3f} ms" for name in ("new", "before")]
        out.append(f"| {row} | {times[0]} | {times[1]} | {spread(now)} | {spread(again)} | {verdict} |")
    return "\n".join(out)


Round = Callable[[list[tuple[str, Path]]], tuple[dict[str, dict[str, float]], dict]]


def interleave(new: Path, before: Path, rounds: int, out: Path | None, one: Round) -> list[dict]:
    """Run both builds in rounds and return all rounds, including those that `out` already had.

    `one` measures one round. It gets the runs and their builds in the order of that round. It returns seconds by run
    and row, and facts about the machine.
    """
    builds = {"new": new.resolve(), "before": before.resolve(), "before again": before.resolve()}
    kept = json.loads(out.read_text()) if out and out.exists() else {"rounds": []}
    for i in range(rounds):
        order = [RUNS[(i + j) % len(RUNS)] for j in range(len(RUNS))]
        print(f"round {i + 1} of {rounds}: {', '.join(order)}", file=sys.stderr, flush=True)
        found, kept["machine"] = one([(name, builds[name]) for name in order])
        kept["rounds"].append(found)
        if out:
            out.write_text(json.dumps(kept, indent=1))
    return kept["rounds"]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--new", type=Path, required=True)
    p.add_argument("--before", type=Path, required=True)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--out", type=Path)
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    p.add_argument("arguments", nargs="*", help=f"run.py's own arguments; default {' '.join(SECTIONS)}")
    a = p.parse_args()
    arguments = a.arguments or list(SECTIONS)

    def one(order: list[tuple[str, Path]]) -> tuple[dict[str, dict[str, float]], dict]:
        results = {name: measure(build, arguments, a.workdir) for name, build in order}
        return {name: ours(result) for name, result in results.items()}, results["new"]["machine"]

    print(table(interleave(a.new, a.before, a.rounds, a.out, one)))


if __name__ == "__main__":
    main()
