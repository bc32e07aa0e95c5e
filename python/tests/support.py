# SPDX-License-Identifier: Apache-2.0
"""What several tests share: a raw safetensors writer, and Python in a process of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent

# Every dtype of safetensors 0.8 and its bits.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}

Entry = tuple[str, list[int], bytes]

PATIENCE = 300.0
"""Seconds after which a process hangs. On a busy machine with a cold disk, the import of torch alone takes half a minute."""


def size_of(dtype: str, shape: list[int]) -> int:
    """Bytes of a tensor."""
    count = 1
    for extent in shape:
        count *= extent
    return count * BITS[dtype] // 8


def random_entry(seed: int, dtype: str, shape: list[int]) -> Entry:
    """A tensor of random bytes that are valid values of its dtype."""
    data = random.Random(seed).randbytes(size_of(dtype, shape))
    if dtype == "BOOL":
        data = bytes(b & 1 for b in data)
    return dtype, shape, data


def odd_entries(dtypes: Iterable[str], seed: int, longest: int) -> dict[str, Entry]:
    """A tensor of each dtype in random order. Before each stand 1 to `longest` bytes, so that it is misaligned."""
    names = list(dtypes)
    random.Random(seed).shuffle(names)
    entries = {}
    for number, dtype in enumerate(names):
        entries[f"odd{number}"] = random_entry(number, "U8", [number % longest + 1])
        entries[dtype] = random_entry(100 + number, dtype, [number + 1, 3])
    return entries


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Call work(0) to work(count - 1) at the same time, and raise the first error."""
    with ThreadPoolExecutor(count) as threads:
        for _ in threads.map(work, range(count)):
            pass


def until(reached: Callable[[], bool], seconds: float = 60) -> bool:
    """Wait until something is so, and return True. Return False if it is not so after some seconds."""
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def is_in(thread: threading.Thread, *names: str) -> bool:
    """Return whether a thread runs the first of these functions, called by the second, and so on."""
    frame = sys._current_frames().get(thread.ident or 0)
    for name in names:
        if frame is None or frame.f_code.co_name != name:
            return False
        frame = frame.f_back
    return True


def interrupt_when(reached: Callable[[], bool]) -> threading.Thread:
    """Send this process a Ctrl-C as soon as `reached` is true. If it never is, the Ctrl-C comes after a minute.

    A Ctrl-C after a fixed time could come before the main thread is where the test wants it.
    """

    def send() -> None:
        until(reached)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    return sender


def encode(header: Any, data: bytes = b"", pad: int = 8) -> bytes:
    """The bytes of a file with this header (text, bytes or an object) and data."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header, separators=(",", ":"))
    if isinstance(header, str):
        header = header.encode()
    header += b" " * (-len(header) % pad)
    return len(header).to_bytes(8, "little") + header + data


def write(path: Path, entries: dict[str, Entry], metadata: dict[str, str] | None = None, pad: int = 8) -> Path:
    """A safetensors file of these tensors, in this order, with no padding between them."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape, data) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    path.write_bytes(encode(header, b"".join(entry[2] for entry in entries.values()), pad))
    return path


def write_sparse(path: Path, size: int) -> Path:
    """A file with one U8 tensor "big" of that many zero bytes that take no room on disk."""
    head = encode({"big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


def write_sharded(folder: Path, shards: dict[str, dict[str, Entry]]) -> Path:
    """A model directory as Hugging Face lays it out; returns the index."""
    folder.mkdir(exist_ok=True)
    weights = {}
    total = 0
    for name, entries in shards.items():
        write(folder / name, entries)
        weights.update(dict.fromkeys(entries, name))
        total += sum(len(entry[2]) for entry in entries.values())
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weights}))
    return index


NO_MEMORY = """
import re, resource, sys, nebulaio
from nebulaio.errors import OutOfMemoryError
from nebulaio.safetensors import load_file
module = __import__({'pt': 'torch'}.get(sys.argv[2], sys.argv[2]))
nebulaio.devices()
used = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
try:
    load_file(sys.argv[1], 'cpu', framework=sys.argv[2])
except OutOfMemoryError as error:
    print(error)
"""
"""Loads a file of 4 GiB into a process that may have 1 GiB more."""


def python(code: str, *arguments: object, env: dict[str, str] | None = None, timeout: float = PATIENCE) -> str:
    """Run code in a new Python process with the package on its path; returns its output.

    Fails the test when the process fails or takes longer than timeout.
    """
    done = run_python(code, *arguments, env=env, timeout=timeout)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_python(
    code: str, *arguments: object, env: dict[str, str] | None = None, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python process and return what came of it."""
    path = os.pathsep.join([str(PACKAGE), str(PACKAGE / "tests")])
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        # From 3.12 on Python warns of each fork of a process with threads.
        env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore::DeprecationWarning", **(env or {})},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=timeout,
    )
