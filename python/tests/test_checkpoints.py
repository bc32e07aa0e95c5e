# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are committed, listed, verified and pruned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import serving
from nebulaio import _checkpoints
from nebulaio.errors import CorruptError, InvalidError, NotFoundError
from nebulaio.gpudirect import GPUDirectClient

DATA = bytes(range(256)) * 64


def draft(step: int, size: int = len(DATA)) -> dict[str, Any]:
    name = f"__0_0_{step:016x}.distcp"
    items = [{"tensor": "model.w", "file": 0, "offset": 0, "size": size, "dtype": "U8", "shape": [size], "at": [0]}]
    return {"id": f"{step:016x}", "step": step, "world": 1, "files": [{"name": name, "size": size}], "items": items}


def save(path: Path, step: int) -> dict[str, Any]:
    path.mkdir(parents=True, exist_ok=True)
    (path / f"__0_0_{step:016x}.distcp").write_bytes(DATA)
    return _checkpoints.commit_checkpoint(path, draft(step), b"metadata")


def test_commit_list_verify_prune(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        report = save(tmp_path / f"step-{step:010d}", step)
        assert (report["step"], report["files"], report["bytes"], report["removed"]) == (step, 1, len(DATA), [])
    (tmp_path / "step-0000000009").mkdir()
    found = _checkpoints.list_checkpoints(tmp_path)
    assert [(one["step"], one["complete"], one["format"], one["world"]) for one in found] == [
        (step, True, "nebulaio", 1) for step in (1, 2, 3)
    ]
    everything = _checkpoints.list_checkpoints(tmp_path, all=True)
    assert everything[-1]["name"] == "step-0000000009" and everything[-1]["reason"] == "the directory is empty"
    # The file was written without checksums, so that nothing can be compared.
    seen: list[tuple[int, int]] = []
    report = _checkpoints.verify_checkpoint(found[0]["path"], progress=lambda done, total: seen.append((done, total)))
    assert report["verdict"] == "no checksums" and report["unverified"] == [f"__0_0_{1:016x}.distcp"] and seen
    plan = _checkpoints.prune_checkpoints(tmp_path, keep_last=1, dry_run=True)
    assert [one["step"] for one in plan["removed"]] == [1, 2] and len(os.listdir(tmp_path)) == 4
    done = _checkpoints.prune_checkpoints(tmp_path, keep_last=1, keep_every=2)
    assert [one["step"] for one in done["removed"]] == [1]
    assert sorted(os.listdir(tmp_path)) == ["step-0000000002", "step-0000000003", "step-0000000009"]


def test_bad_input(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(NotFoundError, match="__0_0_0000000000000002.distcp is missing"):
        _checkpoints.commit_checkpoint(tmp_path, draft(2), b"metadata")
    with pytest.raises(CorruptError, match="expected 7"):
        _checkpoints.commit_checkpoint(tmp_path, draft(1, 7), b"metadata")
    with pytest.raises(InvalidError, match="16 hex digits"):
        _checkpoints.commit_checkpoint(tmp_path, {"id": "x", "world": 1}, b"metadata")
    with pytest.raises(InvalidError, match=r"\.metadata is empty"):
        _checkpoints.commit_checkpoint(tmp_path, draft(1), b"")
    with pytest.raises(InvalidError, match="must not be empty"):
        _checkpoints.list_checkpoints("")
    with pytest.raises(NotFoundError):
        _checkpoints.verify_checkpoint(tmp_path / "none")
    with pytest.raises(InvalidError, match="keep_last=0"):
        _checkpoints.prune_checkpoints(tmp_path, keep_last=0)
    with pytest.raises(InvalidError, match="neither keep_last nor keep_every"):
        _checkpoints.prune_checkpoints(tmp_path)
    assert [one["id"] for one in _checkpoints.list_checkpoints(tmp_path)] == [f"{1:016x}"]


def test_a_bucket(tmp_path: Path) -> None:
    with serving.serving(tmp_path, buckets=("box",)) as server:
        client = GPUDirectClient(endpoint=server.endpoint, **server.keys)
        for step in (1, 2):
            server.put("box", f"run/step-{step:010d}/__0_0_{step:016x}.distcp", DATA)
            _checkpoints.commit_checkpoint(f"s3://box/run/step-{step:010d}", draft(step), b"metadata", client=client)
        found = _checkpoints.list_checkpoints("s3://box/run", client=client)
        assert [one["step"] for one in found] == [1, 2]
        # The server keeps checksums of every object.
        report = _checkpoints.verify_checkpoint(found[1]["path"], client=client)
        assert (report["verdict"], report["read"]) == ("good", len(DATA))
        done = _checkpoints.prune_checkpoints("s3://box/run", keep_last=1, client=client)
        assert [one["step"] for one in done["removed"]] == [1]
        assert [one["step"] for one in _checkpoints.list_checkpoints("s3://box/run", client=client)] == [2]
    with pytest.raises(InvalidError, match="client= is given"):
        _checkpoints.list_checkpoints(tmp_path, client=client)
