# SPDX-License-Identifier: Apache-2.0
"""Tests of the comparison with the loaders of other projects, in host memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import modelpeers as peers
import pytest
from nbench import peermethods, stfile
from nbench.device import Device
from nbench.models import MODELS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory whose file of the model 0.6b is small."""
    stfile.write(tmp_path / "0.6b-1.safetensors", [(f"t{n}", (64, 64)) for n in range(8)], seed=1, dtype="F16")
    return tmp_path


def test_our_loader_is_measured_and_others_say_why_not(folder: Path) -> None:
    """Loads of new processes are timed in every phase, and a loader that is not installed gives a reason."""
    out = folder / "out"
    code = peers.main(["--models", "0.6b", "--methods", "nebulaio,runai", "--cold", "0.6b", "--rounds", "2", "--device",
                       "host", "--drop", "file", "--settle", "0", "--slow", "1e9", "--workdir", str(folder), "--out",
                       str(out)])
    (found,) = json.loads((out / "peers.json").read_text())
    assert code == 0 and found["wrong"] == {}
    for phase in ("first", "steady", "cold"):
        assert len(found["cells"][phase]["nebulaio"]) == 2, found
    if peermethods.build(Device("host"), "runai").unavailable:
        assert "runai" in found["problems"]
    assert "| nebulaio |" in (out / "peers.md").read_text()


def test_cold_loads_alone(folder: Path) -> None:
    """Without warm rounds, the values are compared after the first cold load."""
    out = folder / "out"
    code = peers.main(["--models", "0.6b", "--methods", "nebulaio", "--cold", "0.6b", "--only-cold", "--rounds", "1",
                       "--device", "host", "--drop", "file", "--settle", "0", "--workdir", str(folder), "--out", str(out)])
    (found,) = json.loads((out / "peers.json").read_text())
    assert code == 0 and found["cells"].keys() == {"cold"}
    assert len(found["cells"]["cold"]["nebulaio"]) == 1
    assert found["wrong"] == {} and found["sums"] == 1


def test_settings_of_ours_are_loaders_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting is measured beside the default, and a setting that does not exist gives the reason."""
    names = ["nebulaio", "nebulaio:workers=3+io=pread", "nebulaio:wheels=4", "nebulaio:workers"]
    code = peers.main(["--models", "0.6b", "--methods", ",".join(names), "--rounds", "1", "--device", "host", "--settle",
                       "0", "--idle", "0.001", "--slow", "1e9", "--workdir", str(folder)])
    said = capsys.readouterr().out
    assert code == 0 and f"| {names[1]} |" in said
    for name in names[2:]:
        assert f"{name} did not run: " in said, said
    assert "setting 'workers' (expected NAME=VALUE" in said


@pytest.mark.parametrize("name", ["nebulaio", "nebulaio_prefetch"])
def test_our_library_is_loaded_before_a_load_is_timed(name: str) -> None:
    """The first load of a process does not include the time to load the library."""
    code = (
        f"from nbench import device, peermethods; peermethods.build(device.Device('host'), {name!r})\n"
        "maps = open('/proc/self/maps').read(); import nebulaio; print(nebulaio.library_path() in maps)"
    )
    bench = Path(peers.__file__).parent
    path = os.pathsep.join([str(bench), str(bench.parent / "python"), os.environ.get("PYTHONPATH", "")])
    said = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True,
                          stdout=subprocess.PIPE, text=True)
    assert said.stdout == "True\n"


def test_a_loader_that_loads_other_bytes_is_told() -> None:
    """The table names it, and the exit code is not 0."""
    found = {"model": "0.6b", "bytes": 10, "cells": {"first": {"nebulaio": [1.0], "other": [2.0]}}, "problems": {},
             "wrong": {"other": {"tensors": 1, "sum": 3}}}
    text = peers.table(found)
    assert "other loaded other bytes" in text and "| other | 2.000 (2.000 to 2.000) | 1 |" in text and "2.00 (2.00 to 2.00)" in text


def test_the_mixture_of_experts_has_thousands_of_small_tensors() -> None:
    """It has 9,216 tensors of 512 KiB."""
    shapes = MODELS["moe"].shapes()
    assert len(shapes) == len(dict(shapes)) == 9216 and MODELS["moe"].bytes() == 9216 * (512 << 10)
