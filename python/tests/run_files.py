# SPDX-License-Identifier: Apache-2.0
"""Runs the files of Python tests, several at a time: run_files.py FOLDER [pytest arguments]

Each file is a process of its own, because the start of Python and torch takes most of the time. Tests marked whole_card
take most of a GPU's memory. They run last, one process at a time, with nothing beside them. All files run, whatever
fails. A file that takes too long or leaves a process behind has failed.

    TEST_JOBS   number of files that run at a time, by default that of the processors, but at most 12
    TEST_LIMIT  seconds that a file may take, by default 300
    TEST_GRACE  seconds in which processes of a file may end after it, by default 5
    TEST_LOGS   folder that keeps the output of each file, by default none
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bounded import Command, Ended, run
from outcomes import Outcome, details, final, outcome, read_pytest

# Files that take longest on a machine with an H200. They begin first. Others follow, the largest file first.
LONGEST = (
    "test_profile_torch", "test_from_pretrained", "test_save_torch", "test_torch_async", "test_from_pretrained_objects",
    "test_checkpoint_worlds", "test_huggingface_cuda", "test_cuda", "test_torch_async_cuda", "test_lightning",
    "test_jax", "test_pytorch_cuda", "test_profile_cuda", "test_checkpoint_power", "test_checkpoint_faults",
    "test_torch_rotation", "test_data_torch", "test_data_profile", "test_patch", "test_read_ahead",
    "test_compare_ranks", "test_processes",
)
_FAILED = (1, 2)  # pytest's exit codes if a test has failed, or the import of a file
_NONE = 5  # and if a file has no such test


def jobs() -> int:
    """Return how many files run at a time."""
    return int(os.environ.get("TEST_JOBS") or min(12, len(os.sched_getaffinity(0))))


@contextmanager
def logs() -> Iterator[Path]:
    """Give a folder for the output of the programs."""
    if kept := os.environ.get("TEST_LOGS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="nebulaio-tests-") as folder:
        yield Path(folder)


def commands(folder: Path, alone: bool, logs: Path, more: Sequence[str]) -> list[Command]:
    """Return a command for each file of tests: for the tests that take the whole card, or for the others."""
    found = []
    for file in folder.glob("test_*.py"):
        text = file.read_text()
        if alone and "whole_card" not in text:
            continue
        rank = LONGEST.index(file.stem) if file.stem in LONGEST else len(LONGEST)
        found.append(((rank, -len(text), file.stem), file))
    chosen, word = ("whole_card", "alone") if alone else ("(cuda or not cuda) and not whole_card", "beside")
    # Each process would start a thread for every core.
    environment = {"OMP_NUM_THREADS": "2", **os.environ}
    made = []
    for _, file in sorted(found):
        name = f"{file.stem}-{word}"
        words = [sys.executable, "-u", "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", chosen, "--tb=short",
                 f"--junit-xml={logs / name}.xml", str(file), *more]
        (logs / f"{name}.xml").unlink(missing_ok=True)  # of an earlier run
        made.append(Command(f"{file.stem} ({word})", words, logs / f"{name}.log",
                            float(os.environ.get("TEST_LIMIT") or 300), environment))
    return made


def read(command: Command, ended: Ended) -> Outcome | None:
    """Return what a file of tests did, or None if it has no such test."""
    found = outcome(command, ended, (0, *_FAILED, _NONE))
    read_pytest(found, command.log.with_suffix(".xml"))
    if ended.code in _FAILED and found.good:
        found.problems.append(f"exit code {ended.code}")
    return None if ended.code == _NONE and not found.tests and found.good else found


def tell(found: Outcome) -> None:
    """Print what a program did, and of a failure all that it said."""
    print(found.line(), flush=True)
    if not found.good:
        print(details(found), flush=True)


def main(folder: str, *more: str) -> int:
    outcomes: list[Outcome] = []

    def ended(command: Command, how: Ended) -> None:
        if (found := read(command, how)) is not None:
            outcomes.append(found)
            tell(found)

    with logs() as place:
        whole = (run(commands(Path(folder), False, place, more), jobs(), ended)
                 and run(commands(Path(folder), True, place, more), 1, ended))
    print(final(outcomes))
    if not whole:
        print("the run was stopped by a signal before all files had run")
    return 0 if whole and all(found.good for found in outcomes) else 1


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: run_files.sh FOLDER [pytest arguments]")
    sys.exit(main(*sys.argv[1:]))
