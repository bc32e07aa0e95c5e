# SPDX-License-Identifier: Apache-2.0
"""The end of a process, and of an interpreter inside it, with handles, streams, jobs and threads still there."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import serving
from support import random_entry, run_python, write, write_sparse

PREPARE = """
import builtins, gc, os, sys, threading
first = sys.argv[2]
if first != 'none':
    module = __import__(first)
import nebulaio, numpy
from nebulaio.safetensors import safe_open, stream, load_file
path, big = sys.argv[1], sys.argv[3]
framework = 'pt' if first == 'torch' else 'numpy'
kept = builtins if first == 'none' else module  # goes later than this package's modules
"""

ENDS = {
    "an open file": "kept.file = safe_open(path, framework); kept.file.get_tensor('a')",
    "an open file in a cycle": """
class Cycle: pass
one = Cycle(); one.self, one.file = one, safe_open(path, framework)
gc.disable(); del one
""",
    "a stream that was left": "kept.stream = stream([path, big], 'cpu', framework=framework); next(kept.stream)",
    "a stream that runs": "kept.stream = stream(big, 'cpu', framework=framework)",
    "a file with a running read": """
kept.file = nebulaio.CuFile(big); kept.future = kept.file.pread(numpy.empty(64 << 20, 'u1'))
""",
    "a file with a running write": """
kept.file = nebulaio.CuFile(path + '.new', 'w'); kept.future = kept.file.pwrite(numpy.ones(64 << 20, 'u1'))
""",
    "a thread in the middle of a load": """
began = threading.Event()
def load():
    load_file(big, 'cpu', framework=framework, progress=lambda done, total: began.set())
threading.Thread(target=load, daemon=True).start(); began.wait()
""",
    "a generator that was not closed": """
def tensors():
    with safe_open(path, framework) as file:
        for name in file.keys():
            yield file.get_tensor(name)
kept.tensors = tensors(); next(kept.tensors)
""",
    "os._exit": "kept.file = safe_open(path, framework); sys.stdout.flush(); os._exit(0)",
    "a forked child with its parent's files": """
kept.file = safe_open(path, framework); kept.stream = stream(path, 'cpu', framework=framework)
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    sys.exit(0)
""",
    "a forked child that loads": """
kept.file = safe_open(path, framework)
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    kept.other = safe_open(path, framework); kept.other.get_tensor('a'); sys.exit(0)
""",
    "an exception": "kept.file = safe_open(path, framework); sys.exit('')",
}


@pytest.mark.parametrize("first", ["none", "numpy", pytest.param("torch", marks=pytest.mark.torch)])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_is_silent(tmp_path: Path, first: str, end: str) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "F32", [100]), "b": random_entry(2, "F32", [10])})
    big = write_sparse(tmp_path / "big.safetensors", 1 << 30)
    done = run_python(PREPARE + ENDS[end], path, first, big)
    assert done.stderr.strip() == ""
    assert done.returncode == (1 if end == "an exception" else 0)
    if "write" in end:
        assert (tmp_path / "t.safetensors.new").read_bytes() == b"\1" * (64 << 20)


FUTURES = """
import sys
import nebulaio
client = nebulaio.GPUDirectClient(sys.argv[1], sys.argv[2], sys.argv[3], door='off')
client.write_from_gpu('bucket', 'exit', b'1' * 1000)
futures = [client.async_read('bucket', 'exit', bytearray(1000)) for _ in range(20)]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving.serving(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.mark.parametrize("rest", ["", "futures[0].result()", "[f.result() for f in futures]"])
def test_futures_at_the_end(server: serving.Server, rest: str) -> None:
    done = run_python(FUTURES + rest, server.endpoint, *server.keys.values())
    assert (done.returncode, done.stderr) == (0, "")


INTERPRETER = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
for _ in range(2):
    if sys.version_info < (3, 13):
        made = interpreters.create(isolated=ISOLATED)
    else:
        made = interpreters.create('isolated' if ISOLATED else 'legacy')
    interpreters.run_string(made, 'import sys; sys.argv = ' + repr(sys.argv) + '; sys.path = ' + repr(sys.path) + CODE)
    interpreters.destroy(made)
import nebulaio
nebulaio.devices()
print('still here')
"""


IN_INTERPRETER = """
import sys
import nebulaio
from nebulaio.errors import UnsupportedError
client = nebulaio.GPUDirectClient(sys.argv[1], sys.argv[2], sys.argv[3], door='off')
client.write_from_gpu('bucket', 'inner', b'1' * 1000)
buffer = bytearray(1000)
try:
    client.async_read('bucket', 'inner', buffer)
except UnsupportedError as error:
    assert 'sub-interpreter' in str(error) and buffer == bytes(1000)
else:
    raise AssertionError('a future was started')
client.read_to_gpu('bucket', 'inner', buffer)
assert buffer == b'1' * 1000
"""


@pytest.mark.parametrize("isolated", [False, True])
def test_an_interpreter_refuses_futures_and_ends(server: serving.Server, isolated: bool) -> None:
    if isolated and sys.version_info >= (3, 12):
        pytest.skip("Python's own ctypes refuses to be loaded there")
    code = f"CODE = {chr(10) + IN_INTERPRETER!r}\nISOLATED = {isolated}\n" + INTERPRETER
    done = run_python(code, server.endpoint, *server.keys.values())
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr
    assert "Traceback" not in done.stderr  # Python 3.11 itself warns of a module that is made a second time


LIMITS = """
import resource, subprocess, sys, os
def limits():
    child = 'import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))'
    return subprocess.run([sys.executable, '-c', child], capture_output=True, text=True, check=True).stdout.split()
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
before = limits()
import nebulaio
imported = limits()
nebulaio.devices()
used = limits()
child = os.fork()
if child == 0:
    nebulaio.devices()  # a private copy of the library, with a runtime of its own
    os._exit(0 if limits() == before else 1)
print(before == imported == used == list(map(str, resource.getrlimit(resource.RLIMIT_NOFILE))), before[0])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_children_have_the_limit_on_open_files_that_was_there() -> None:
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)
    for soft in (300, hard):
        done = run_python(LIMITS, soft, hard)
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["True", str(soft)], ""), sys.version
