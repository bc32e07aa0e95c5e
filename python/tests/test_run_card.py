# SPDX-License-Identifier: Apache-2.0
"""The run of all tests on a GPU machine, and the scripts of the native programs, with programs that only take notes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import PACKAGE, PATIENCE, ROOT

# The scripts are in the checkout, or in the bundle for a GPU machine.
NATIVE = next((place for place in (ROOT / "test" / "native", ROOT / "native") if (place / "run.sh").exists()), ROOT)
PROGRAMS = [f"{name}_{language}" for language in ("c", "cpp")
            for name in ("load", "save", "gather", "file", "data", "objects")]
PROGRAMS += ["example_load", "example_save", "example_file_async", "gpudirect_cpp", "handles_cpp"]

# BROKEN names the programs that fail.
NOTING = """#!/bin/sh
name=${0##*/}
echo "$name" >>"$NOTES"
echo "$name: first line"
echo "$name: last line"
case " $BROKEN " in *" $name "*) %s ;; esac
"""
TESTS = """
import os, pytest
def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(word + "\\n")
def test_small():
    note("small")
@pytest.mark.whole_card
def test_whole():
    note("whole")
"""
GO = "=== RUN   TestGood\\n--- PASS: TestGood (0.10s)\\n"


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def native(tmp_path: Path) -> Path:
    folder = tmp_path / "native"
    folder.mkdir()
    for name in PROGRAMS:
        program(folder / name, NOTING % "kill -ABRT $$")
    (folder / "libcufile.so.0").write_text("fake_fail")  # a function that only our stand-in has
    return folder


def run(script: str, native: Path, **more: str) -> tuple[int, list[str], list[str]]:
    """Run a script of the native programs. Return its exit code, what it says and the programs that ran."""
    environment = {**os.environ, "NOTES": str(native / "notes"), "BROKEN": "", "DEVICE": "host", "CUFILE": "",
                   "SERVER_DATA": str(native), **more}
    done = subprocess.run(["bash", str(NATIVE / script), str(native), "model"], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
    return done.returncode, done.stdout.splitlines(), (native / "notes").read_text().split()


def words(said: list[str], first: str) -> list[str]:
    """Return the lines that begin with a word, without the seconds in them."""
    return [" ".join(word for word in line.split() if not word[0].isdigit()) for line in said if line.startswith(first)]


def test_native_programs_run_whatever_fails(native: Path) -> None:
    code, said, ran = run("run.sh", native)
    assert code == 0 and len(ran) == 15 and len(words(said, "passed ")) == 15, said
    assert "data_cpp: first line" in said and "example_load: first line" not in said
    (native / "notes").unlink()
    code, said, ran = run("run.sh", native, BROKEN="save_c gather_c example_load")
    assert code == 1 and len(ran) == 14
    assert words(said, "FAILED ") == [f"FAILED {name} in s: ended by SIGABRT"
                                      for name in ("save_c", "gather_c", "example_load")]
    assert words(said, "skipped ") == ["skipped load_saved_c: save_c failed"]
    assert "example_load: first line" in said and said[-1] == "failed: save_c gather_c example_load"


def test_a_native_program_that_hangs_is_ended(native: Path) -> None:
    program(native / "file_c", NOTING % "exec sleep 1000")
    code, said, ran = run("run.sh", native, BROKEN="file_c", STEP_LIMIT="1")
    assert code == 1 and "FAILED file_c" in "\n".join(said) and len(ran) >= 15
    assert [line.partition(": ")[2] for line in said if line.startswith("FAILED file_c")] == ["did not end within 1 s"]


@pytest.mark.parametrize("device", ["host", "cuda:0"])
def test_programs_that_call_a_libcufile_of_ours_need_no_udev(native: Path, device: str) -> None:
    where = {"DEVICE": device, "CUFILE": str(native), "UDEV_DATA": "/none"}
    code, said, ran = run("objects.sh", native, **where, BROKEN="objects_c")
    assert code == 1 and ran == ["objects_c", "objects_cpp", "gpudirect_cpp", "handles_cpp"]
    assert said[-1] == "failed: objects_c"


def test_programs_that_call_libcufile_are_skipped_without_udev(native: Path) -> None:
    entries, device = native / "udev" / "data", native.stat().st_dev
    entries.mkdir(parents=True)
    entry = entries / f"b{os.major(device)}:{os.minor(device)}"
    for content in (None, "E:ID_FS_TYPE=ext4\n", "E:ID_FS_USAGE=filesystem\n"):
        if content:
            entry.write_text(content)
        code, said, ran = run("objects.sh", native, DEVICE="cuda:0", UDEV_DATA=str(entries))
        assert code == 0 and ran[-2:] == ["objects_c", "objects_cpp"], said
        skipped = [line for line in said if line.startswith("skipped ")]
        assert [line.split()[1] for line in skipped] == ["gpudirect_cpp:", "handles_cpp:"]
        if os.major(device) == 0:
            assert all("which is not on a local disk" in line for line in skipped)
            return
        assert all(f"(error 5027): {entry} is not there or names no file system" in line for line in skipped)
        assert all(f"touch {native}/udev/control" in line and f">{entry})" in line for line in skipped)
    # The fix makes the entry. handles.cpp has a file of its own in /var/tmp.
    fix = skipped[0].partition("as root ")[2].rstrip(")")
    other = Path("/var/tmp").stat().st_dev
    subprocess.run(["sh", "-c", fix.replace("/udev/data/", "/again/data/").replace("/udev", "/again")], check=True)
    entry.write_bytes((native / "again" / "data" / entry.name).read_bytes())
    (entries / f"b{os.major(other)}:{os.minor(other)}").write_bytes(entry.read_bytes())
    code, said, ran = run("objects.sh", native, DEVICE="cuda:0", UDEV_DATA=str(entries))
    assert code == 0 and (ran[-2:] == ["gpudirect_cpp", "handles_cpp"]) == (os.major(other) != 0), said


def test_the_whole_run_on_a_card(native: Path) -> None:
    """A native program fails, and everything else runs. The test that takes the whole card is the last of all."""
    bundle, notes = native.parent, native / "notes"
    tests = bundle / "python" / "tests"
    tests.mkdir(parents=True)
    (bundle / "python" / "pyproject.toml").write_text((PACKAGE / "pyproject.toml").read_text())
    (tests / "test_one.py").write_text(TESTS)
    (tests / "serving.py").write_text("import os, sys\nos.execvp(sys.argv[1], sys.argv[1:])\n")
    for script in ("run.sh", "objects.sh", "steps.sh"):
        (native / script).write_bytes((NATIVE / script).read_bytes())
    program(bundle / "nebulaio", '#!/bin/sh\necho "nebulaio $1"\n')
    program(bundle / "gpu.test", f'#!/bin/sh\nprintf "{GO}"\necho go >>"$NOTES"\n')
    own = {name: value for name, value in os.environ.items() if not name.startswith("TEST_")}
    environment = {**own, "NOTES": str(notes), "BROKEN": "load_c", "SERVER_DATA": str(bundle), "CUFILE": str(native),
                   "TMPDIR": str(bundle)}
    done = subprocess.run([sys.executable, str(PACKAGE / "tests" / "run_card.py"), str(bundle)], env=environment,
                          capture_output=True, text=True, timeout=PATIENCE)
    out = done.stdout
    assert done.returncode == 1, out + done.stderr
    ran = notes.read_text().split()
    assert ran[-1] == "whole" and {"go", "small", "handles_cpp", "example_load"} <= set(ran) and len(ran) == 22
    assert "nebulaio devices\n" in out and "\n  load_c: ended by SIGABRT\n" in out
    rows = {line.split("  ")[0]: line.split()[-4:] for line in out[out.index("\npart ") :].splitlines()}
    assert rows["go"][1:] == ["1", "0", "0"] and rows["objects"][1:] == ["4", "0", "0"]
    assert rows["native"] == ["13", "2", "0", "FAILED"] and "all" in rows
    assert rows["Python, beside"][1:] == rows["Python, alone"][1:] == ["1", "0", "0"]
    assert out.rstrip().endswith("20 tests passed, 2 failed, 0 were skipped; 1 of 8 programs failed"), out
