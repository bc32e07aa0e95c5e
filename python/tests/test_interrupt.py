# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a load of the real library: prompt, and the process can go on."""

from __future__ import annotations

from pathlib import Path

from support import python, random_entry, run_python, write, write_sparse

INTERRUPT = """
import os, signal, sys, time
import numpy
from nebulaio.safetensors import load_file
import nebulaio

sent = []
def progress(done, total):
    if not sent and done < total:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_is_prompt_and_the_process_goes_on(tmp_path: Path) -> None:
    big = write_sparse(tmp_path / "big.safetensors", 6 << 30)
    small = write(tmp_path / "small.safetensors", {"a": random_entry(1, "U8", [1000])})
    code = INTERRUPT + """
for _ in range(3):
    sent.clear()
    try:
        load_file(sys.argv[1], "cpu", framework="numpy", progress=progress)
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
    else:
        sys.exit("not interrupted")
    assert took < 5, took
    assert nebulaio.last_report() is not None
    assert load_file(sys.argv[2], "cpu", framework="numpy")["a"].size == 1000
print("went on")
"""
    assert python(code, big, small) == "went on\n"


def test_uncaught_ctrl_c_ends_the_process(tmp_path: Path) -> None:
    big = write_sparse(tmp_path / "big.safetensors", 6 << 30)
    code = INTERRUPT + 'load_file(sys.argv[1], "cpu", framework="numpy", progress=progress)\n'
    done = run_python(code, big)
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr
    assert "Fatal" not in done.stderr and "panic" not in done.stderr


def test_signal_that_arrives_inside_the_library(tmp_path: Path) -> None:
    """The signal comes from another process while this one waits inside a call."""
    big = write_sparse(tmp_path / "big.safetensors", 6 << 30)
    code = INTERRUPT + """
import subprocess
killer = subprocess.Popen(["sh", "-c", f"read go && kill -INT {os.getpid()}"], stdin=subprocess.PIPE)
def progress(done, total):
    if not sent and done < total:
        sent.append(True)
        os.write(killer.stdin.fileno(), b"go\\n")
    if sent and done > total // 2:
        killer.wait()  # the other process had no processor: the load would end first
try:
    load_file(sys.argv[1], "cpu", framework="numpy", progress=progress)
except KeyboardInterrupt:
    killer.wait()
    print("interrupted")
"""
    assert python(code, big) == "interrupted\n"
