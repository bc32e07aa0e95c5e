# SPDX-License-Identifier: Apache-2.0
"""The benchmark of safe_open runs and reports both sides; no speed is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safe_open
import safetensors


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "python"))


def test_files_are_valid(tmp_path: Path) -> None:
    with safetensors.safe_open(safe_open.make(tmp_path / "t.safetensors", 7, 64), "np") as file:
        assert len(file.keys()) == 7 and file.get_tensor("t000003").shape == (16,)


def test_both_sides_are_measured(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ["--tensors", "3,5", "--frameworks", "np", "--rounds", "2", "--calls", "10", "--json", str(out)]
    assert safe_open.main(arguments) == 0
    found = json.loads(out.read_text())
    assert [case["tensors"] for case in found] == [3, 5]
    for case in found:
        assert case["ratio"] > 0 and set(case["call_us"]) == set(case["open_ms"]) == {"ours", "reference"}
