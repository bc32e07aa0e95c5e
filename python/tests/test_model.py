# SPDX-License-Identifier: Apache-2.0
"""Sharded models and what can be wrong with files and folders."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from nebulaio.errors import AccessError, CorruptError, InvalidError, NebulaioError, NotFoundError
from nebulaio.safetensors import inspect, load_file, load_model
from support import Entry, python, random_entry, write, write_sharded

SHARDS: dict[str, dict[str, Entry]] = {
    f"model-0000{shard}-of-00003.safetensors": {
        f"layers.{shard}.{part}": random_entry(shard * 10 + number, dtype, [7, shard, 3])
        for number, (part, dtype) in enumerate({"w": "F32", "s": "U8", "n": "F64"}.items())
    }
    for shard in (1, 2, 3)
}
ALL = {name: entry for entries in SHARDS.values() for name, entry in entries.items()}


def load(path: Path, **options: Any) -> dict[str, Any]:
    return load_model(path, "cpu", framework="numpy", **options)


def check(out: dict[str, Any], entries: dict[str, Entry]) -> None:
    assert sorted(out) == sorted(entries)
    for name, (_, shape, data) in entries.items():
        assert out[name].shape == tuple(shape)
        assert out[name].tobytes() == data


def test_directory_and_index(tmp_path: Path) -> None:
    index = write_sharded(tmp_path / "m", SHARDS)
    check(load(index.parent), ALL)
    check(load(index), ALL)
    layout = inspect(index.parent)
    assert sorted(Path(file["path"]).name for file in layout["files"]) == sorted(SHARDS)


def test_one_allocation_a_file(tmp_path: Path) -> None:
    out = load(write_sharded(tmp_path / "m", SHARDS).parent)

    def owner(array: Any) -> int:
        while array.base is not None:
            array = array.base
        return id(array)

    assert len({owner(array) for array in out.values()}) == 3


def test_subset_over_shards(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path / "m", SHARDS).parent
    check(load(folder, tensors=["*.w"]), {name: ALL[name] for name in ALL if name.endswith(".w")})
    check(load(folder, tensors=["layers.2.*"]), {name: ALL[name] for name in ALL if ".2." in name})


def test_single_file_model(tmp_path: Path) -> None:
    entries = {"a": random_entry(1, "U8", [9])}
    path = write(tmp_path / "model.safetensors", entries)
    check(load(tmp_path), entries)
    check(load(path), entries)


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "gone.safetensors"
    with pytest.raises(NotFoundError, match="gone.safetensors"):
        load_file(path, "cpu", framework="numpy")
    with pytest.raises(FileNotFoundError):
        inspect(path)


def test_directory_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(NotFoundError, match=str(tmp_path)):
        load(tmp_path)


def test_missing_shard(tmp_path: Path) -> None:
    folder = write_sharded(tmp_path / "m", SHARDS).parent
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(NebulaioError, match="model-00002-of-00003"):
        load(folder)


@pytest.mark.parametrize("change", ["extra", "lost", "swapped", "outside", "text"])
def test_lying_index(tmp_path: Path, change: str) -> None:
    index = write_sharded(tmp_path / "m", SHARDS)
    content = json.loads(index.read_text())
    weights = content["weight_map"]
    first, last = sorted(SHARDS)[0], sorted(SHARDS)[-1]
    if change == "extra":
        weights["not.there"] = first
    elif change == "lost":
        del weights["layers.1.w"]
    elif change == "swapped":
        weights["layers.1.w"] = last
    elif change == "outside":
        weights["layers.1.w"] = "../" + first
    text = "{" if change == "text" else json.dumps(content)
    index.write_text(text)
    with pytest.raises(CorruptError, match="index"):
        load(index)


@pytest.mark.parametrize("cut", [1, 50, 10**6])
def test_truncated(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [100])})
    os.truncate(path, max(path.stat().st_size - cut, 0))
    with pytest.raises(CorruptError, match="t.safetensors"):
        load_file(path, "cpu", framework="numpy")


def test_not_a_regular_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    with pytest.raises(InvalidError, match="regular file"):
        load_file(pipe, "cpu", framework="numpy")


def test_unreadable_file() -> None:
    """Also as root, who may read everything: the process gives up its rights first."""
    folder = Path(tempfile.mkdtemp(prefix="nebulaio-test-"))
    try:
        folder.chmod(0o755)
        path = write(folder / "secret.safetensors", {"a": random_entry(1, "U8", [100])})
        path.chmod(0)
        code = """
import os, sys, numpy, nebulaio
from nebulaio.safetensors import load_file
nebulaio.devices()
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    load_file(sys.argv[1], "cpu", framework="numpy")
except PermissionError as error:
    print(type(error).__name__, error)
"""
        out = python(code, path)
        assert out.startswith(AccessError.__name__)
        assert str(path) in out
    finally:
        shutil.rmtree(folder)
