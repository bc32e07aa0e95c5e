# SPDX-License-Identifier: Apache-2.0
"""Measures checkpoints of torch in alternating rounds: NebulaIO beside torch's own readers and writers.

    python3 bench/checkpoint.py --device cuda:0 --out results
    python3 bench/checkpoint.py --device host --size 200MB --async-size 50MB --rows load,pt

    warm   load of a checkpoint that 4 processes saved into one, from the page cache; reference: pinned copies
    cold   the same from storage; reference: O_DIRECT reads of the same files
    load   both
    save   durable save from the memory of the device; reference: O_DIRECT writes into reserved space
    async  saves while a loop of matrix products and Adam steps goes on; reference: the same loop without a save
    pt     load of a file of torch.save, from the page cache

Each row compares the bits of every contender once. The result of a row is printed as soon as the row ends, and written
to --out. A row that fails does not end the others. Times are compared within a round. Row cold drops
the page cache of the machine, if the user may do so.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbench import machine

from . import table
from .child import ROWS

BENCH = Path(__file__).resolve().parents[1]
PACKAGES = ("nebulaio", "torch", "numpy")
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "GB": 10**9, "MB": 10**6, "kB": 1000}


def size(text: str) -> int:
    """Return the bytes of a text such as 15GB or 64MiB."""
    for unit, n in UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * n)
    return int(text)


def row_names(text: str) -> list[str]:
    """Return the rows of a text such as load,save, in the order in which they run."""
    asked = text.replace("load", "warm,cold").split(",")
    if unknown := sorted(set(asked) - set(ROWS)):
        raise argparse.ArgumentTypeError(f"unknown rows {', '.join(unknown)}; expected load, {', '.join(ROWS)}")
    return [row for row in ROWS if row in asked]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the given arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=row_names, default=[*ROWS], help=f"rows to measure: load, {', '.join(ROWS)}; default: all"
    )
    parser.add_argument("--device", default="cuda:0", help="host or cuda:N")
    parser.add_argument("--size", type=size, default=size("15GB"), help="bytes of the state, such as 15GB")
    parser.add_argument(
        "--ranks", type=int, default=4, help="processes that save the checkpoint of the rows warm and cold"
    )
    parser.add_argument(
        "--async-size", type=size, default=size("6GB"), help="bytes of parameters and optimizer in row async"
    )
    parser.add_argument(
        "--async-memory", type=size, default=0, help="memory= of our savers; default: 1.05 of the state"
    )
    parser.add_argument(
        "--tokens", type=int, default=0, help="rows of the input of row async; default: 8192, and 16 on host"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--budget", type=float, default=330, help="seconds of the run; slow contenders then do fewer rounds"
    )
    parser.add_argument("--timeout", type=float, default=180, help="most seconds of one row, which is then given up")
    parser.add_argument(
        "--limit", type=size, default=size("45GB"), help="most bytes of the benchmark's files on the disk"
    )
    drop = "row cold: drop the page cache of the machine, if this user may, or only the files of the benchmark"
    parser.add_argument("--drop", choices=["all", "file"], default="all", help=drop)
    parser.add_argument("--workdir", type=Path, default=Path("build/bench-checkpoint"), help="folder for the files")
    parser.add_argument("--keep", action="store_true", help="leave the files in --workdir for a later run")
    parser.add_argument(
        "--cli", default=os.environ.get("NEBULAIO_CLI", "nebulaio"), help="the program nebulaio, for its version"
    )
    parser.add_argument("--out", type=Path, help="write results.json and table.md into this folder")
    given = parser.parse_args(arguments)
    if given.device != "host" and not given.device.startswith("cuda:"):
        parser.error(f"--device {given.device}: expected host or cuda:N")
    if min(given.size, given.async_size) < 1 << 20:
        parser.error(f"--size {given.size}, --async-size {given.async_size}: both are at least 1 MiB")
    if min(given.ranks, given.rounds) < 1 or given.tokens < 0:
        parser.error("--ranks and --rounds are at least 1, and --tokens is not negative")
    given.tokens = given.tokens or (16 if given.device == "host" else 8192)
    given.workdir = given.workdir.resolve()
    return given


def say(text: str, since: float) -> None:
    """Tell progress, with the seconds since a time."""
    print(f"[{time.monotonic() - since:5.1f} s] {text}", file=sys.stderr, flush=True)


class Run:
    """The rows of one call of the program."""

    def __init__(self, given: argparse.Namespace, note: Callable[[str, dict[str, Any]], None]) -> None:
        self.given, self.note = given, note
        self.begin = time.monotonic()
        self.end = self.begin + given.budget

    def rows(self) -> None:
        """Measure all rows. Rows that hold the large state share a process, until one ends it."""
        left: list[str] = list(self.given.rows)
        while left:
            mine = [left[0]] if left[0] == "async" else [row for row in left if row != "async"]
            done = self.child(mine, left)
            left = [row for row in left if row not in done]

    def child(self, rows: list[str], every: list[str]) -> list[str]:
        """Measure rows in a process of their own, and return the rows that have a result. It is at least one."""
        settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(self.given).items()}
        task = {"rows": rows, "all": every, "budget": self.end - time.monotonic(), "given": settings}
        paths = [str(BENCH), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen([sys.executable, "-m", "checkpoints.child", json.dumps(task)],
                                   env=os.environ | {"PYTHONPATH": ":".join(paths)}, stdout=subprocess.PIPE, text=True,
                                   start_new_session=True)
        done: list[str] = []
        problem = ""
        try:
            for event in _events(process, self.given.timeout):
                if event["event"] == "say":
                    say(event["text"], self.begin)
                elif event["event"] == "begin":
                    say(f"{event['row']}: {table.WHAT[event['row']]}", self.begin)
                elif event["event"] == "row":
                    done.append(event["row"])
                    self.note(event["row"], event["result"])
                elif event["event"] == "end":
                    problem = event.get("error", "")
        except queue.Empty:
            problem = f"no result after {self.given.timeout:.0f} s"
        finally:
            _end(process)
        if len(done) < len(rows):
            lost = rows[len(done)]
            self.note(lost, {"error": problem or f"the process ended with exit code {process.returncode}"})
            done.append(lost)
        return done


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with the processes that it has started. It leads a group of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of them have ended
    process.wait()


def _events(process: subprocess.Popen[str], timeout: float) -> Iterator[dict[str, Any]]:
    """Yield the events of a process. Raises queue.Empty if a row takes longer than the timeout."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    end = time.monotonic() + timeout
    while (line := lines.get(timeout=max(end - time.monotonic(), 0.001))) is not None:
        event = json.loads(line)
        if event["event"] != "say":
            end = time.monotonic() + timeout
        yield event
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its id stays taken until _end


def main(arguments: list[str] | None = None) -> int:
    """Measure the rows, print the tables, and write the results. The exit code is 1 if something was not measured."""
    given = parse(arguments)
    given.workdir.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "command": shlex.join(["bench/checkpoint.py", *(sys.argv[1:] if arguments is None else arguments)]),
        "machine": machine.facts(given.workdir, given.cli),
        "versions": {name: machine.version(name) for name in PACKAGES},
        "device": given.device, "size": given.size, "ranks": given.ranks, "rounds": given.rounds, "rows": {},
    }

    def note(row: str, result: dict[str, Any]) -> None:
        results["rows"][row] = result
        print(table.row(row, result), flush=True)
        write(given.out, results)

    started = time.monotonic()
    print(table.head(results), flush=True)
    try:
        Run(given, note).rows()
    finally:
        if not given.keep:
            clean(given.workdir)
    results["seconds"] = time.monotonic() - started
    print(table.wanted(results))
    write(given.out, results)
    say("done", started)
    return 1 if any(table.missed(result) for result in results["rows"].values()) else 0


def write(out: Path | None, results: dict[str, Any]) -> None:
    """Write what was measured so far."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (out / "table.md").write_text(table.whole(results))


def clean(workdir: Path) -> None:
    """Remove the files of the benchmark, and the folder if nothing else is in it."""
    from .files import remove_all

    remove_all(workdir)
