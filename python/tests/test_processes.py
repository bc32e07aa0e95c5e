# SPDX-License-Identifier: Apache-2.0
"""Threads, fork and spawn with the real library: always the right bytes or a clear error, never a hang."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio import _process
from nebulaio.errors import ForkError
from nebulaio.safetensors import load_file
from support import PATIENCE, python, random_entry, write

ENTRIES = {f"t{n}": random_entry(n, "F32", [100 + n, 7]) for n in range(20)}


def verify(path: str) -> bool:
    """Load on the host and compare every byte; runs in workers of all kinds."""
    out = load_file(path, "cpu", framework="numpy")
    assert sorted(out) == sorted(ENTRIES)
    for name, (_, _, data) in ENTRIES.items():
        got = out[name].tobytes()
        at = next((i for i, (a, b) in enumerate(zip(got, data, strict=True)) if a != b), None)
        assert at is None, f"{name}: {got[at:at + 8]!r} at byte {at}, expected {data[at:at + 8]!r}"
    return True


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(write(tmp_path / "t.safetensors", ENTRIES))


def test_threads(path: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(verify, [path] * 40))


def test_first_use_by_many_threads_at_once(path: str) -> None:
    code = """
import sys, threading
from test_processes import verify
gate = threading.Barrier(8)
results = []
def work():
    gate.wait()
    results.append(verify(sys.argv[1]))
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert results == [True] * 8
maps = {line.split()[0] for line in open('/proc/self/maps') if 'libnebulaio' in line and ' r-xp ' in line}
assert len(maps) == 1, maps
"""
    python(code, path)


WATCHED_FORK = """
import os, signal, sys, time
from test_processes import verify

def forked(work, seconds=120):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 3
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 'hang'
        time.sleep(0.002)

path = sys.argv[1]
"""


def test_fork_after_use_works_100_of_100(path: str) -> None:
    code = WATCHED_FORK + """
assert verify(path)
results = [forked(lambda: verify(path)) for _ in range(100)]
assert results == [0] * 100, results
assert verify(path)
"""
    python(code, path)


def test_what_was_open_before_fork_says_so_in_the_child(path: str) -> None:
    code = WATCHED_FORK + """
from nebulaio.errors import ClosedError
from nebulaio.safetensors import safe_open, stream
file = safe_open(path, 'numpy', 'cpu')
name = file.keys()[0]
running = stream(path, device='cpu', framework='numpy')
next(running)
by_file = stream(path, device='cpu', framework='numpy', lookahead=0)
next(by_file)
def refused(call):
    def work():
        try:
            call()
        except ClosedError as error:
            return 'fork' in str(error)
    return work
for call in (lambda: file.get_tensor(name), lambda: file.get_slice(name)[0:1], file.get_tensors,
             lambda: list(running), lambda: list(by_file)):
    assert forked(refused(call)) == 0, call
assert forked(lambda: verify(path)) == 0
assert len(list(running)) == len(list(by_file)) == 19
assert len(file.get_tensors()) == 20
"""
    python(code, path)


def test_fork_while_threads_load(path: str) -> None:
    code = WATCHED_FORK + """
import threading
import numpy  # Python itself hangs in a child forked while another thread imports a module
stop = threading.Event()
def work():
    while not stop.is_set():
        assert verify(path)
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
try:
    results = [forked(lambda: verify(path)) for _ in range(15)]
finally:
    stop.set()
    [t.join() for t in threads]
assert results == [0] * 15, results
"""
    python(code, path)


def test_callbacks_at_the_end_still_load(path: str) -> None:
    """A program that saves or loads at its end has registered that before its first use."""
    code = """
import atexit, sys
def too_late():
    try:
        nebulaio.safetensors.load_file(sys.argv[1], 'cpu', framework='numpy')
    except nebulaio.errors.ClosedError as error:
        print(error)
atexit.register(too_late)
import nebulaio
def load():
    print(len(nebulaio.safetensors.load_file(sys.argv[1], 'cpu', framework='numpy')))
atexit.register(load)
load()
"""
    shown = python(code, path).splitlines()
    assert shown[:2] == ["20", "20"] and "this process is ending" in shown[2], shown


def test_fork_before_use_and_grandchildren(path: str) -> None:
    code = WATCHED_FORK + """
assert forked(lambda: verify(path)) == 0
def family():
    return verify(path) and forked(lambda: verify(path) and forked(lambda: verify(path)) == 0) == 0
assert forked(family) == 0
assert verify(path)
assert forked(family) == 0
"""
    python(code, path)


def test_child_knows_only_its_own_library(path: str) -> None:
    code = WATCHED_FORK + """
import nebulaio
from nebulaio import _process
assert verify(path)
parent = _process.current()
def look():
    child = _process.current()
    assert child is not parent and child.system is None and nebulaio.last_report() is None
    assert verify(path)
    assert child.load().private and child.load().path == parent.load().path
    assert child.generation == parent.generation + 1
    return True
assert forked(look) == 0
"""
    python(code, path)


def test_fork_behind_pythons_back(path: str) -> None:
    """C code may fork without Python's hooks; the child still takes its own copy."""
    code = WATCHED_FORK + """
import ctypes
from nebulaio import _process
assert verify(path)
parent = _process.current()
libc = ctypes.PyDLL(None)
child = libc.fork()
if child == 0:
    code = 1
    try:
        code = 0 if verify(path) and _process.current() is not parent and not parent.system.usable() else 3
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    python(code, path)


def test_options_are_inherited(path: str) -> None:
    code = WATCHED_FORK + """
import nebulaio
from nebulaio import _process
nebulaio.configure(workers=1)
assert verify(path)
def work():
    assert _process.current().options == {'workers': 1}
    nebulaio.configure(queue_depth=2)
    return verify(path)
assert forked(work) == 0
"""
    python(code, path)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(path: str, method: str) -> None:
    assert verify(path)
    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map_async(verify, [path] * 4).get(timeout=PATIENCE) == [True] * 4


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "auto", 0])
def test_cuda_in_a_forked_child_names_spawn(path: str, device: Any, fresh_process: _process.Holder) -> None:
    """The parent's state is set by hand, since there may be no GPU here."""
    fresh_process.open().cuda_used = True
    child = _process.Holder(fresh_process)
    assert child.cuda_is_lost()
    _process._holder = child  # put back by the fixture
    with pytest.raises(ForkError, match="spawn"):
        load_file(path, device)
    with pytest.raises(ForkError, match="spawn"):
        load_file(path, device, framework="cupy")
    grandchild = _process.Holder(child)
    assert grandchild.cuda_is_lost()


def test_host_in_a_forked_child_of_a_cuda_parent(path: str) -> None:
    code = WATCHED_FORK + """
import nebulaio
from nebulaio import _process
from nebulaio.errors import ForkError
from nebulaio.safetensors import load_file
assert verify(path)
_process.current().system.cuda_used = True
def work():
    try:
        load_file(path, 'cuda')
    except ForkError as error:
        assert 'spawn' in str(error)
    else:
        return False
    assert verify(path)
    assert 'off' in str(nebulaio.devices())
    return True
assert forked(work) == 0
"""
    python(code, path)


def test_cuda_in_an_unspoilt_child_is_the_librarys_matter(fresh_process: _process.Holder) -> None:
    fresh_process.open()
    assert not _process.Holder(fresh_process).cuda_is_lost()


def test_open_cuda_is_seen_by_its_descriptor(tmp_path: Path) -> None:
    device = tmp_path / "nvidia-uvm"
    device.touch()
    assert not _process._holds_cuda(device=str(device))
    with open(device):
        assert _process._holds_cuda(device=str(device))
    assert not _process._holds_cuda(device="/dev/no-such-device")
    assert not _process._holds_cuda(descriptors="/no/such", device=str(device))


def test_fork_waits_for_a_first_use_in_progress(fresh_process: _process.Holder) -> None:
    """The lock is free in parent and child after fork, even when other threads want it."""
    child = os.fork()
    if child == 0:
        os._exit(0 if _process.current().lock.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert fresh_process.lock.acquire(timeout=5)
    fresh_process.lock.release()
    assert nebulaio.last_report() is None
