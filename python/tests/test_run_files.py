# SPDX-License-Identifier: Apache-2.0
"""The runner of test files: everything runs, and a failure, a hang and a process that stays behind are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from outcomes import Outcome, read_go, read_steps
from run_files import LONGEST
from support import PACKAGE, PATIENCE, python, until

SCRIPT = ["bash", str(PACKAGE / "tests" / "run_files.sh")]

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
LEAVES = TESTS + """
def test_leaves():
    import subprocess
    note(str(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid))
"""
ENDS = TESTS + """
def test_ends():
    os.kill(os.getpid(), 9)
"""
FAILS = TESTS + """
def test_fails():
    assert "one" == "two", "in other words"
"""
LACKS = TESTS + """
@pytest.mark.parametrize("number", range(6))
def test_lacks(number):
    pytest.importorskip("no_such_package.part")
"""
LACKS_WHOLE = """
import pytest
pytest.importorskip("no_such_package")
"""
HANGS = TESTS + """
def test_hangs():
    import threading
    note("hangs")
    threading.Event().wait()
"""


def write(folder: Path, **files: str) -> dict[str, str]:
    """Write files of tests. Return the environment of their run."""
    (folder / "pyproject.toml").write_text((PACKAGE / "pyproject.toml").read_text())
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    own = {name: value for name, value in os.environ.items() if not name.startswith("TEST_")}
    return {**own, "NOTES": str(folder / "notes"), "TEST_JOBS": "4"}


def run_files(folder: Path, environment: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SCRIPT, str(folder), *more], env=environment, capture_output=True, text=True,
                          timeout=PATIENCE)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended. One that nobody has waited for counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.parametrize("passes", [True, False])
def test_the_whole_card_is_taken_alone(tmp_path: Path, passes: bool) -> None:
    files = {f"test_{number}": TESTS for number in range(3)}
    done = run_files(tmp_path, write(tmp_path, **files, test_a_whole=WHOLE.format(passes=passes)))
    assert (done.returncode == 0) == passes, done.stdout + done.stderr
    said = (tmp_path / "notes").read_text().split()
    assert said[-1] == "whole" and said.count("end") == 4 and len(said) == 9
    assert "test_a_whole (alone)" in done.stdout and "test_0 (beside)" in done.stdout
    assert "test_0 (alone)" not in done.stdout


def test_everything_runs_whatever_fails(tmp_path: Path) -> None:
    environment = write(tmp_path, test_ends=ENDS, test_fails=FAILS, test_good=TESTS, test_lacks=LACKS,
                        test_lacks_whole=LACKS_WHOLE, test_broken="import no_such_package")
    done = run_files(tmp_path, {**environment, "TEST_JOBS": "1", "TEST_LOGS": str(tmp_path / "logs")})
    assert done.returncode == 1, done.stdout + done.stderr
    assert (tmp_path / "notes").read_text().split().count("end") == 4
    _, _, end = done.stdout.partition("took longest:")
    assert "\n  test_fails::test_fails: AssertionError: in other words\n" in end
    told = "ended by signal 9", "pytest has written no report, while it ran test_ends.py::test_ends"
    assert f"FAILED test_ends (beside)\n  {told[0]}\n  {told[1]}\n" in end
    assert "test_broken: collection failure" in end
    last = sorted(line.partition(" in ")[0] for line in end.rstrip().splitlines()[-4:])
    assert last == [
        "4 tests passed, 2 failed, 7 were skipped; 3 of 6 programs failed", "FAILED test_broken (beside): 1 failed",
        f"FAILED test_ends (beside): 1 passed; {'; '.join(told)}", "FAILED test_fails (beside): 1 passed, 1 failed",
    ]
    skips = "    7  could not import 'no_such_package'\n       to run them: pip install no_such_package\n"
    assert skips + "       test_lacks (6), test_lacks_whole (1)\n" in end
    assert "test_good.py::test_small PASSED" in (tmp_path / "logs" / "test_good-beside.log").read_text()


def test_a_process_that_stays_behind_is_a_failure(tmp_path: Path) -> None:
    done = run_files(tmp_path, {**write(tmp_path, test_leaves=LEAVES), "TEST_GRACE": "0.01"})
    assert done.returncode == 1, done.stdout + done.stderr
    told = "leaves a process: sleep 1000, started by test_leaves.py::test_leaves (call)"
    assert f"FAILED test_leaves (beside): 2 passed; {told} in " in done.stdout
    assert is_gone(int((tmp_path / "notes").read_text().split()[-1]))


def test_a_hang_is_ended(tmp_path: Path) -> None:
    """The limit may come before pytest has begun. Then it ends pytest."""
    done = run_files(tmp_path, {**write(tmp_path, test_hangs=HANGS), "TEST_LIMIT": "2"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED test_hangs (beside): " in done.stdout and "; did not end within 2 s; " in done.stdout


def test_a_signal_stops_the_run(tmp_path: Path) -> None:
    environment = {**write(tmp_path, test_good=TESTS, test_hangs=HANGS), "TEST_JOBS": "1"}
    notes = tmp_path / "notes"
    with subprocess.Popen([*SCRIPT, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert until(lambda: notes.exists() and "hangs" in notes.read_text(), PATIENCE)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "; was stopped by a signal; pytest has written no report" in out
    assert "stopped by a signal before all files had run" in out and "test_good (beside)" not in out


BOUNDED = """
import json, pathlib, sys
from bounded import Command, run
folder, at_once, commands = pathlib.Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
whole = run([Command(name, words, folder / name, limit) for name, limit, words in commands], at_once,
            lambda command, ended: print(json.dumps([command.name, vars(ended)])))
assert whole
"""


def bounded(folder: Path, at_once: int, *commands: tuple[str, float, list[str]]) -> dict[str, Any]:
    """Run commands, each with a name and a limit. Return how they ended."""
    said = python(BOUNDED, folder, at_once, json.dumps(commands)).splitlines()
    return {name: SimpleNamespace(**ended) for name, ended in map(json.loads, said)}


def ended_by(folder: Path, *words: str) -> tuple[Any, str]:
    """Run one command. Return how it ended, and its output."""
    return bounded(folder, 1, ("one", PATIENCE, list(words)))["one"], (folder / "one").read_text()


def test_commands_end_as_they_do(tmp_path: Path) -> None:
    ended, said = ended_by(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (ended.code, ended.late, ended.left, said) == (3, False, [], "out\nerr\n")
    ended, said = ended_by(tmp_path, "sh", "-c", "kill -9 $$")
    assert (ended.code, said) == (-signal.SIGKILL, "")
    ended, said = ended_by(tmp_path, "no-such-program")
    assert ended.code == 127 and "no-such-program: No such file" in said
    code = "import os, signal; print(os.getsid(0) == os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert ended_by(tmp_path, sys.executable, "-c", code)[1] == "True set()\n"


def test_helpers_may_end_after_their_command(tmp_path: Path) -> None:
    """The helper reads a pipe until its command has ended, as the resource tracker of multiprocessing does."""
    helper = f"mkfifo {tmp_path}/pipe; {{ read line; echo the helper ends; }} <{tmp_path}/pipe & exec 3>{tmp_path}/pipe"
    ended, said = ended_by(tmp_path, "sh", "-c", helper)
    assert ended.code == 0 and ended.left == [] and said == "the helper ends\n"


def test_a_command_that_takes_too_long_is_ended_and_the_others_run(tmp_path: Path) -> None:
    """SIGABRT comes first: Python and Go print where they are."""
    slow = ["sh", "-c", "setsid sleep 1000 & echo $!; sleep 1000"]
    found = bounded(tmp_path, 2, ("slow", 1, slow), *((str(number), PATIENCE, ["true"]) for number in range(20)))
    assert found["slow"].late and found["slow"].code == -signal.SIGABRT and not found["slow"].left
    assert all(is_gone(int(pid)) for pid in (tmp_path / "slow").read_text().split())
    assert all(found[str(number)].code == 0 for number in range(20))


GO = """=== RUN   TestGood
    a_test.go:1: a figure
--- PASS: TestGood (1.50s)
=== RUN   TestSkipped
    direct_test.go:77: === RUN   TestSkipped
            b_test.go:2: cuFile registers no file here: (5027)
        --- SKIP: TestSkipped (0.10s)
    direct_test.go:95: cuFile registers no file here: (5027)
--- SKIP: TestSkipped (0.20s)
=== RUN   TestBad
=== RUN   TestBad/part
    c_test.go:3: other bytes
    --- FAIL: TestBad/part (0.00s)
--- FAIL: TestBad (0.30s)
FAIL
"""


def test_outcomes_of_go_and_of_native_programs() -> None:
    go = Outcome("go", 2, GO)
    read_go(go)
    assert (go.passed, go.failed) == (1, ["TestBad: other bytes"])
    assert go.skipped == [("TestSkipped", "cuFile registers no file here: (5027)")]
    assert [seconds for seconds, _ in go.tests] == [1.5, 0.2, 0.3] and not go.good
    native = Outcome("native", 2, "C: words\npassed load_c in 1.2 s\nFAILED load_cpp in 0.1 s: exit code 1\n"
                                  "skipped handles_cpp: libcufile (error 5027)\n")
    read_steps(native)
    assert (native.passed, native.failed) == (1, ["load_cpp: exit code 1"])
    assert native.skipped == [("handles_cpp", "libcufile (error 5027)")]


def test_the_longest_files_are_there() -> None:
    assert {f"{name}.py" for name in LONGEST} <= {file.name for file in (PACKAGE / "tests").glob("test_*.py")}


def test_jax_does_not_take_the_card_for_itself() -> None:
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
