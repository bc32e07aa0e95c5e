# SPDX-License-Identifier: Apache-2.0
"""The runner of test files: tests that take the whole card run alone, and a failure is a failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import PACKAGE, PATIENCE

TESTS = """
import os, pytest

def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(word + "\\n")

def test_small():
    note("begin")
    note("end")
"""
WHOLE = TESTS + """
@pytest.mark.whole_card
def test_whole():
    note("whole")
    assert {passes}
"""


@pytest.mark.parametrize("passes", [True, False])
def test_the_whole_card_is_taken_alone(tmp_path: Path, passes: bool) -> None:
    (tmp_path / "pyproject.toml").write_text((PACKAGE / "pyproject.toml").read_text())
    for number in range(3):
        (tmp_path / f"test_{number}.py").write_text(TESTS)
    (tmp_path / "test_a_whole.py").write_text(WHOLE.format(passes=passes))
    notes = tmp_path / "notes"
    done = subprocess.run(
        ["bash", str(PACKAGE / "tests" / "run_files.sh"), str(tmp_path)],
        env={**os.environ, "NOTES": str(notes), "TEST_JOBS": "4"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode == 0) == passes, done.stdout + done.stderr
    said = notes.read_text().split()
    assert said[-1] == "whole" and said.count("end") == 4 and len(said) == 9
    assert "test_a_whole (alone)" in done.stdout and "test_0 (beside)" in done.stdout and "test_0 (alone)" not in done.stdout


def test_jax_does_not_take_the_card_for_itself() -> None:
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
