# SPDX-License-Identifier: Apache-2.0
"""The comparison of two builds at loads and saves runs to the end and prints its table."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_build_is_compared_with_itself(tmp_path: Path):
    build = tmp_path / "build"
    build.mkdir()
    (build / "nebulaio").symlink_to(os.environ.get("NEBULAIO_CLI", ROOT / "bin/nebulaio"))
    (build / "libnebulaio.so").symlink_to(os.environ.get("NEBULAIO_LIBRARY", ROOT / "build/libnebulaio.so"))
    (build / "python").symlink_to(ROOT / "python")
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "bench/loads.py"), "--new", str(build), "--before", str(build), "--device",
               "host",
               "--shapes", "tiny", "--rounds", "1", "--out", str(out), "--workdir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = ["first load of a process, warm", "load, warm", "load with verify, warm", "a quarter by rows, warm",
            "a quarter by columns, warm", "load, cold", "save, durable"]
    rows = [f"tiny: {row}" for row in rows]
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]] == rows
    kept = json.loads(out.read_text())
    assert kept["machine"] == {"device": "host"}
    assert all(seconds > 0 for runs in kept["rounds"][0].values() for seconds in runs.values())
