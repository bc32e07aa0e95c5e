# SPDX-License-Identifier: Apache-2.0
"""A load of more than the machine has is an error, and not the end of the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE

PROGRAM = """
import sys
import nebulaio.safetensors
try:
    nebulaio.safetensors.load_file(sys.argv[1], device="cpu", framework="numpy")
except MemoryError as error:
    print(type(error).__name__, error)
"""


def test_a_model_larger_than_memory_is_a_memory_error(tmp_path: Path) -> None:
    size = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split()[:2]
        if name in ("MemTotal:", "SwapTotal:"):
            size += int(value) * 1024
    # NumPy gets the addresses: the pages would end the process. The kernel and this process alone have more than 64
    # MiB, so that the file stays too large, whatever other processes free.
    size -= 64 << 20
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "large.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    try:
        os.truncate(path, 8 + len(header) + size)
    except OSError as error:
        pytest.skip(f"no sparse file of {size} bytes: {error}")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OutOfMemoryError"), done.stdout
