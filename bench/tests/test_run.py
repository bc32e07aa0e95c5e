# SPDX-License-Identifier: Apache-2.0
"""Whole runs on host memory with reference methods alone. No test asserts a speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nbench import cli, models, verify
from nbench.device import Device
from nbench.measure import Sample, memory_pass, run_method
from nbench.methods import Method

pytest.importorskip("numpy")
pytest.importorskip("safetensors")

SMALL = [("embed", (2048, 1024)), ("up", (3072, 1024)), ("norm", (1024,))]  # 10 MB: five windows


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the model `tiny` even smaller."""
    monkeypatch.setitem(models.MODELS, "tiny", models.Model("tiny", "tiny", lambda: list(SMALL)))
    monkeypatch.setattr(cli, "find_cli", lambda _: None)


def run(tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run on host with numpy and return the results file."""
    out = tmp_path / "out"
    status = cli.main([
        "--device", "host", "--no-torch", "--rounds", "2", "--workdir", str(tmp_path / "work"), "--out", str(out),
        "--sweep-mib", "4", "--methods", "safetensors,ceiling_pinned,ceiling_raw", *options,
    ])
    data: dict[str, Any] = json.loads((out / "results.json").read_text())
    data["status"] = status
    data["markdown"] = (out / "results.md").read_text()
    assert (out / "plot.svg").read_text().startswith("<svg")
    return data


def test_warm_cold_half_and_three(tmp_path: Path) -> None:
    data = run(tmp_path, "--only", "warm,cold,half,three")
    assert data["status"] == 0
    rows = {row["name"]: row for row in data["runs"][0]["rows"]}
    assert list(rows) == ["warm-tiny", "cold-tiny", "half-tiny", "three-tiny"]
    for row in rows.values():
        assert row["rounds_done"] == 2
        loads = [s for s in row["samples"] if s["method"] == "safetensors"]
        assert loads
        assert {s["bits"] for s in loads} == {"equal"}
        assert all(s["seconds"] > 0 and s["cpu_s"] >= 0 for s in loads)
        assert f"### {row['name']}" in data["markdown"]
    warm = [s for s in rows["warm-tiny"]["samples"] if s["method"] == "safetensors"]
    assert all(s["valid"] and s["cached_before"] > 0.99 for s in warm)
    states = {s["state"] for s in rows["half-tiny"]["samples"]}
    assert states == {"cold", "warm", "first-half", "alternate-2MiB", "random-4KiB"}
    assert [s["repeat"] for s in rows["three-tiny"]["samples"]] == [1, 2, 3] * 2


def test_first_memory_four_and_analysis(tmp_path: Path) -> None:
    data = run(tmp_path, "--only", "first,memory,four,analysis", "--rounds", "1")
    assert data["status"] == 0
    rows = {row["name"]: row for row in data["runs"][0]["rows"]}
    first = rows["first"]["samples"][0]
    assert len(first["extra"]["seconds"]) == 7
    assert "growth_bytes" in rows["memory"]["samples"][0]["extra"]
    assert {s["variant"] for s in rows["four"]["samples"]} == {"alone", "at once"}
    assert {s["bits"] for s in rows["four"]["samples"]} == {"equal"}
    assert rows["four"]["facts"]["aggregate_ratio"]["safetensors"] > 0
    assert "why" in rows["analysis"]["facts"]["cost"]["safetensors"]


def test_no_budget_means_no_rounds_and_says_so(tmp_path: Path) -> None:
    row = run(tmp_path, "--only", "warm", "--budget", "0")["runs"][0]["rows"][0]
    assert row["rounds_done"] == 0
    assert row["stopped"]
    assert not list((tmp_path / "work").iterdir())  # and no file was made for it


def test_bad_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--device", "host", "--out", str(tmp_path)]
    assert cli.main([*out, "--methods", "magic"]) == 2
    assert cli.main([*out, "--only", "warm-70b"]) == 2
    assert "magic" in capsys.readouterr().err


def test_a_method_that_raises_is_a_result(small: Path) -> None:
    def broken(_: Path) -> dict[str, Any]:
        raise RuntimeError("no such driver")

    device = Device("host", use_torch=False)
    sample = run_method(device, Method("broken", broken), small, Sample("broken", 0, 1), None)
    assert not sample.valid
    assert sample.error == "RuntimeError: no such driver"
    assert memory_pass(device, Method("broken", broken), small) == {"error": "RuntimeError: no such driver"}


def test_differences_are_found(small: Path) -> None:
    from safetensors.numpy import load_file

    reference = verify.Reference(Device("host", use_torch=False), small)
    good = load_file(str(small))
    assert reference.differs(good) == ""
    changed = {**good, "a.weight": good["a.weight"].copy()}
    changed["a.weight"].view("uint8")[5, 5] ^= 1
    assert reference.differs(changed) == "a.weight: content differs"
    assert "shape" in reference.differs({**good, "b.bias": good["b.bias"].reshape(1, 7)})
    assert "dtype" in reference.differs({**good, "b.bias": good["b.bias"].astype("float32")})
    assert "names differ" in reference.differs({key: good[key] for key in list(good)[1:]})
