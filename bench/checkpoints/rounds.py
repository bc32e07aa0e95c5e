# SPDX-License-Identifier: Apache-2.0
"""Measures contenders in alternating rounds, within the time of a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from nbench import stats
from nbench.measure import in_words

Step = Callable[[int], "dict[str, Any] | None"]
"""Runs a contender in a round, and returns its seconds with facts. None means that it takes no part in the round."""


PARTS = ("locate_seconds", "read_seconds", "write_seconds", "commit_seconds")
"""Parts of a load or save in our reports."""


class Clock:
    """The time that a row may take, from now on."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left; negative if the time is over."""
        return self.end - time.monotonic()


def measure(
    steps: Mapping[str, Step], rounds: int, nbytes: int, clock: Clock, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run each contender once in each round, in rotating order, and return their results by name.

    The first round is always run. Later, a contender is left out if its last run took longer than the time that is
    left. A contender that failed is not run again. `seconds` has one entry for each round; 0 is a round without one.
    """
    found: dict[str, dict[str, Any]] = {name: {"seconds": [], "failed": []} for name in steps}
    took = dict.fromkeys(steps, 0.0)
    for number in range(rounds):
        turn = number % max(1, len(steps))
        names = [*steps][turn:] + [*steps][:turn]
        for name in names:
            entry, seconds = found[name], 0.0
            if not entry["failed"] and (number == 0 or took[name] <= clock.left()):
                start = time.monotonic()
                seconds = _run(name, steps[name], number, entry, nbytes, say)
                took[name] = time.monotonic() - start
            entry["seconds"].append(seconds)
    return found


def _run(name: str, step: Step, number: int, entry: dict[str, Any], nbytes: int, say: Callable[[str], None]) -> float:
    try:
        got = step(number)
    except Exception as problem:  # noqa: BLE001  recorded as the result
        entry["failed"].append(f"round {number + 1}: {in_words(problem)}")
        say(f"  {name} failed in round {number + 1}: {in_words(problem)}")
        return 0.0
    if got is None:
        return 0.0
    seconds = float(got.pop("seconds"))
    if report := got.pop("report", None):
        entry.setdefault("reports", []).append(report)
    entry.update(got)
    if entry.get("bits", "equal") != "equal":
        entry["failed"].append(f"round {number + 1}: {entry['bits']}")
    more = [f"{key.partition('_')[0]} {report[key]:.3f} s" for key in PARTS if key in (report or {})]
    more += [f"bits {entry['bits']}"] if "bits" in got else []
    say(
        "  "
        + ", ".join([f"round {number + 1}: {name} {seconds:.3f} s", f"{stats.rate(nbytes, seconds):.2f} GB/s", *more])
    )
    return seconds
