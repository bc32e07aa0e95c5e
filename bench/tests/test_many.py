# SPDX-License-Identifier: Apache-2.0
"""The benchmark of many processes runs and counts; no speed is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import many
import pytest
import safetensors


def test_the_file_is_valid(tmp_path: Path) -> None:
    path = many.make(tmp_path / "m.safetensors", 2 * many.TENSOR)
    many.drop(path)
    with safetensors.safe_open(path, "np") as file:
        assert file.keys() == ["layers.0.weight", "layers.1.weight"]


def test_processes_load_the_file_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2] / "python"))
    out = tmp_path / "out.json"
    arguments = ["--processes", "2", "--gigabytes", "0.2", "--device", "cpu", "--rounds", "1", "--workdir",
                 str(tmp_path)]
    assert many.main([*arguments, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert [r["processes"] for r in found["rounds"]] == [1, 2]
    for each in found["rounds"]:
        assert sum(each["routes"].values()) == each["processes"] * many.TENSOR and each["said_times"] > 0
    assert not (tmp_path / "many.safetensors").exists()
