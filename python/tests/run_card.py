# SPDX-License-Identifier: Apache-2.0
"""Runs all tests on a machine with a GPU, from what `make gpu-bundle` collected: run_card.py BUNDLE [pytest arguments]

The Go tests, the native programs and the files of Python tests run beside each other. Tests marked whole_card run last,
one file at a time, when nothing else uses the GPU. Everything runs, whatever fails. The variables of run_files.py hold
here too, with a TEST_LIMIT of 180 by default.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import run_files
from bounded import Command, Ended, run
from outcomes import Outcome, counts, final, outcome, read_go, read_steps

_READERS = {"go": read_go, "native": read_steps, "objects": read_steps}
_SHOWN = ("version", "devices")  # parts whose output is printed if they succeed, too
_LIMIT = "180"  # seconds that a file of tests may take: the run takes four minutes although one hangs
_LAST = 200.0  # seconds that the Go tests and the native programs may take


def sections(bundle: Path, model: Path, logs: Path) -> tuple[list[Command], list[Command]]:
    """Return the commands that come first, and those that run beside the Python tests."""
    tests = bundle / "python" / "tests"
    environment = {**os.environ, "DEVICE": "cuda:0"}

    def command(name: str, limit: float, *words: object) -> Command:
        return Command(name, [str(word) for word in words], logs / f"{name}.log", limit, environment)

    program, native = bundle / "nebulaio", bundle / "native"
    first = [
        command("version", 60, program, "version"),
        command("devices", 60, program, "devices"),
        command("model", 60, program, "generate", "--shapes", "qwen3-0.6b", "--out", model),
    ]
    beside = [
        command("go", _LAST, bundle / "gpu.test", "-test.v", f"-test.timeout={_LAST - 10:.0f}s"),
        command("native", _LAST, "bash", native / "run.sh", native, model),
        command("objects", _LAST, sys.executable, tests / "serving.py", "bash", native / "objects.sh", native, model),
    ]
    return first, beside


class Report:
    """Prints each outcome, and at the end a row for each part of the tests."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._parts: dict[str, list[tuple[float, Outcome]]] = {}  # with the time at which each ended

    @property
    def outcomes(self) -> list[Outcome]:
        return [one for part in self._parts.values() for _, one in part]

    def ended(self, command: Command, how: Ended) -> None:
        """Take in how a command ended."""
        if "pytest" in command.words:
            found, part = run_files.read(command, how), f"Python, {command.name.rpartition('(')[2][:-1]}"
            if found is None:
                return
        else:
            reader, part = _READERS.get(command.name), command.name
            found = outcome(command, how, (0, 1) if reader else (0,))
            if reader:
                reader(found)
                if how.code == 1 and found.good:
                    found.problems.append("exit code 1")
        now = time.monotonic() - self._begin
        self._parts.setdefault(part, []).append((now, found))
        print(f"{now:6.1f} s: ", end="")
        run_files.tell(found)
        if part in _SHOWN and found.good:
            print(found.output.rstrip(), flush=True)

    def table(self) -> str:
        """Return the rows: seconds, tests, and whether something failed."""
        lines = [f"{'part':20}{'seconds':>9}{'passed':>9}{'failed':>9}{'skipped':>9}"]
        for name, part in self._parts.items():
            taken = max(end for end, _ in part) - min(end - one.seconds for end, one in part)
            row = "".join(f"{count:9}" for count in counts([one for _, one in part]))
            lines.append(f"{name:20}{taken:9.1f}{row}{'' if all(one.good for _, one in part) else '  FAILED'}")
        return "\n".join([*lines, f"{'all':20}{time.monotonic() - self._begin:9.1f}"])


def main(bundle: Path, *more: str) -> int:
    os.environ.setdefault("TEST_LIMIT", _LIMIT)
    os.chdir(bundle / "python")
    report, tests = Report(), Path("tests")
    # Not in memory: there is no way past the page cache for files there.
    with run_files.logs() as logs, tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as work:
        first, beside = sections(bundle, Path(work) / "native.safetensors", logs)
        beside += run_files.commands(tests, False, logs, more)
        whole = (run(first, len(first), report.ended) and run(beside, run_files.jobs(), report.ended)
                 and run(run_files.commands(tests, True, logs, more), 1, report.ended))
    print(final(report.outcomes, report.table()))
    if not whole:
        print("the run was stopped by a signal before everything had run")
    return 0 if whole and all(one.good for one in report.outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
