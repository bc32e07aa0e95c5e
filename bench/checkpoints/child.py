# SPDX-License-Identifier: Apache-2.0
"""Runs rows in a process of its own.

Run as `python -m checkpoints.child TASK`, with the task in JSON. Each line on the standard output is an event in JSON:
a line of progress, the begin of a row, or the result of a row. A row that raises an error has the error as its result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from nbench.measure import in_words

from . import loads, saves, training
from .bench import Bench
from .rounds import Clock

ROWS: dict[str, Callable[[Bench, Clock], dict[str, Any]]] = {
    "warm": loads.warm,
    "cold": loads.cold,
    "save": saves.run,
    "pt": loads.pt,
    "async": training.run,
}
WEIGHTS = {"warm": 110.0, "cold": 45.0, "save": 110.0, "pt": 45.0, "async": 65.0}
"""The share of each row in the time of a run. `warm` makes the checkpoints."""


class Events:
    """Writes events to what was the standard output, and sends all other output to the standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, kind: str, **more: Any) -> None:
        """Write one event."""
        print(json.dumps({"event": kind, **more}, default=str), file=self._out, flush=True)

    def say(self, text: str) -> None:
        """Tell progress."""
        self.send("say", text=text)


def share(row: str, rows: list[str], left: float) -> float:
    """Return the seconds of a row, of those that are left for it and the rows behind it."""
    return max(0.0, left) * WEIGHTS[row] / sum(WEIGHTS[one] for one in rows[rows.index(row) :])


def work(task: dict[str, Any], events: Events) -> None:
    """Measure the rows of a task. `all` has the rows of this and of later processes."""
    clock = Clock(task["budget"])
    bench = Bench(argparse.Namespace(**task["given"]), events.say)
    for row in task["rows"]:
        events.send("begin", row=row)
        try:
            result = ROWS[row](bench, Clock(share(row, task["all"], clock.left())))
        except Exception as problem:  # noqa: BLE001  handed to the parent as data
            result = {"error": in_words(problem)}
        events.send("row", row=row, result=result, left=clock.left())
        bench.device.give_back()


def main(arguments: list[str]) -> int:
    """Run a task and tell its events."""
    warnings.simplefilter("ignore")
    events = Events()
    try:
        work(json.loads(arguments[0]), events)
    except Exception as problem:  # noqa: BLE001  handed to the parent as data
        events.send("end", error=in_words(problem))
        return 1
    events.send("end")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
