# SPDX-License-Identifier: Apache-2.0
"""The rows that compare methods with each other. No test asserts a speed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from nbench import checks, cli, models, ratios, writing
from nbench.ceilings import Setting, Slots

SMALL = [("embed", (2048, 1024)), ("up", (3072, 1024)), ("norm", (1024,))]


def sample(method: str, index: int, gbps: float, variant: str = "", **more: Any) -> dict[str, Any]:
    return {"method": method, "round": index, "gbps": gbps, "seconds": 1.0, "valid": True, "variant": variant, **more}


def row(kind: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": f"{kind}-7b", "kind": kind, "samples": samples, "facts": {}, "last_report": {}}


def test_a_ratio_is_of_one_round_and_of_the_best_setting() -> None:
    found = ratios.ratio(
        row("save", [
            sample("nebulaio", 0, 2.0), sample("ceiling_write", 0, 1.0, "a"), sample("ceiling_write", 0, 4.0, "b"),
            sample("nebulaio", 1, 3.0), sample("ceiling_write", 1, 3.0, "a"), sample("ceiling_write", 1, 2.0, "b"),
            sample("nebulaio", 2, 9.0),
        ]),
        ("nebulaio", ""), ("ceiling_write", "*"),
    )
    assert found is not None
    assert (found.n, found.min, found.max) == (2, 0.5, 1.0)


def test_checks_follow_the_figures() -> None:
    amplified = {"state": "warm", "extra": {"amplification": 1.2}}
    named = {
        "save-7b": row("save", [sample("nebulaio", 0, 0.8), sample("ceiling_write", 0, 1.0, "a"),
                                sample("safetensors_fsync", 0, 0.4)]),
        "slice-7b": row("slice", [sample("nebulaio", 0, 1.0, "rows, rank 0 of 8", **amplified)]),
        "cufile-0.6b": row("cufile", [sample("nebulaio", 0, 50.0, "auto"),
                                      sample("nebulaio", 0, 20.0, "cufile sync",
                                             report={"routes": [{"route": "cufile_compat"}]})]),
    }
    found = {(c.row, c.asked): c.verdict for c in ratios.checks(named)}
    assert found["save-7b", "of the write ceiling ≥ 0.9"] == checks.FAIL
    assert found["save-7b", "× safetensors and fsync ≥ 1.5"] == checks.PASS
    assert found["slice-7b", "read / wanted, rows, warm ≤ 1.5"] == checks.PASS
    assert found["cufile-0.6b", "auto to cuFile sync, warm ≥ 2"] == checks.PASS
    assert found["cufile-0.6b", "each interface runs, its route from the counters"] == checks.PASS
    assert found["verify-7b", "verified, of the plain rate ≥ 0.85"] == checks.NOT_RUN


def test_a_direct_write_makes_a_whole_file(tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError as problem:
        pytest.skip(f"no O_DIRECT here: {problem}")
    slots = Slots(2, 1 << 20)
    try:
        for view in slots.views:
            view[:] = b"\x5a" * len(view)
        writing.direct_write(tmp_path / "f", 3_000_001, Setting(2, 1 << 20), slots)
        assert (tmp_path / "f").read_bytes() == b"\x5a" * 3_002_368  # whole pages
        with pytest.raises(FileExistsError):
            writing.direct_write(tmp_path / "f", 1, Setting(1, 4096), slots)
    finally:
        slots.close()


def test_save_verify_and_slice_on_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("safetensors")
    monkeypatch.setitem(models.MODELS, "tiny", models.Model("tiny", "tiny", lambda: list(SMALL)))
    program = cli.ROOT / "bin" / "nebulaio"
    if not program.exists():
        pytest.skip("the nebulaio program is not built")
    out = tmp_path / "out"
    status = cli.main([
        "--device", "host", "--no-torch", "--rounds", "2", "--workdir", str(tmp_path / "work"), "--out", str(out),
        "--models", "tiny",
        "--sweep-mib", "2", "--only", "save,verify,slice", "--nebulaio", str(program),
    ])
    rows = {r["name"]: r for r in json.loads((out / "results.json").read_text())["runs"][0]["rows"]}
    assert status == 0 and list(rows) == ["save-tiny", "verify-tiny", "slice-tiny"]
    for name, one in rows.items():
        assert one["rounds_done"] == 2
        ours = [s for s in one["samples"] if s["method"] == "nebulaio"]
        assert ours and not any(s.get("error") for s in ours), name
        assert {s["bits"] for s in ours if "bits" in s} == {"equal"}
    assert not list((tmp_path / "work").glob("*saved*"))
    assert {s["variant"].partition(",")[0] for s in rows["slice-tiny"]["samples"]} == {"rows", "columns"}
    assert "Ratios of the same round" in (out / "results.md").read_text()
