# SPDX-License-Identifier: Apache-2.0
"""The benchmark of objects runs from end to end on host memory; no speed is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1] / "door"


@pytest.mark.skipif("NEBULAIO_CLI" not in os.environ, reason="NEBULAIO_CLI names no server")
def test_every_section(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "python")}
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "--device", "host", "--size", "5MiB", "--objects", "40", "--rounds", "2",
         "--cpu-bytes", "10MiB",
         "--workdir", str(tmp_path), "--out", str(out), "warm", "cold", "write", "batch", "http", "peers", "cpu"],
        env=env, capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["machine"]["device"] == "host"
    for row in ("read, warm", "read, cold", "write, durable", "batch of 40 x 1 MiB, warm",
                "read over loopback HTTP, 16 connections"):
        ceilings = [m for m in found["seconds"][row] if m.startswith("ceiling")]
        assert ceilings and all(len(rounds) == 2 for rounds in found["seconds"][row].values()), row
    assert found["notes"]["warm report"]["via"] == "door" and found["notes"]["http report"]["via"] == "http"
    assert found["notes"]["server CPU"]["bytes"] >= 10 << 20
    assert "**" in done.stdout and "read, warm" in done.stdout


@pytest.mark.skipif("NEBULAIO_CLI" not in os.environ, reason="NEBULAIO_CLI names no server")
def test_directory_buckets(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "python")}
    done = subprocess.run(
        [sys.executable, str(HERE / "express.py"), "--device", "host", "--size", "5MiB", "--rounds", "2", "--workdir",
         str(tmp_path), "--json", str(out)],
        env=env, capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["compared"] == 8 and "8 reads compared, all bytes equal" in done.stdout
    for row in ("warm", "cold"):
        assert len(found["ratios"][row]) == 2
        assert all(len(rounds) == 2 for rounds in found["seconds"][row].values()) and len(found["seconds"][row]) == 2
    for report in found["reports"].values():
        assert report["via"] == "door"
