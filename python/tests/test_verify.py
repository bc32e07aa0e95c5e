# SPDX-License-Identifier: Apache-2.0
"""Loads that check content: what is found, what it is called, what is missing."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio import _process, errors
from nebulaio.safetensors import load_file, load_model, write_checksums
from support import Entry, random_entry, write, write_sharded

ENTRIES: dict[str, Entry] = {f"layer.{n}": random_entry(n, "F32", [700, 100 + n]) for n in range(12)}


def load(path: Path, **options: Any) -> dict[str, Any]:
    return load_file(path, "cpu", framework="numpy", verify=True, **options)


def flip(path: Path, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("route", ["auto", "buffered", "direct"])
def test_good_and_damaged(tmp_path: Path, route: str) -> None:
    path = write(tmp_path / "t.safetensors", ENTRIES)
    assert write_checksums(path) == [f"{path}.crc64nvme"]
    try:
        out = load(path, route=route)
    except errors.UnsupportedError:
        assert route == "direct"  # the file system under the test may have no direct reads
        return
    assert all(out[name].tobytes() == entry[2] for name, entry in ENTRIES.items())
    report = nebulaio.last_report()
    assert report is not None
    assert report["verify"]["algorithm"] == "crc64nvme"
    assert report["verify"]["bytes"] == path.stat().st_size
    rng = random.Random(7)
    start = path.stat().st_size - sum(len(entry[2]) for entry in ENTRIES.values())
    for _ in range(20):
        bit = rng.randrange(8 * start, 8 * path.stat().st_size)
        flip(path, bit)
        with pytest.raises(errors.CorruptError) as caught:
            load(path, route=route)
        for part in (str(path), f"block {bit // 8 >> 20},", "it holds", "fix:"):
            assert part in str(caught.value)
        flip(path, bit)
    load(path, route=route)


def test_unverified_loads_do_not_look(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", ENTRIES)
    write_checksums(path)
    flip(path, 8 * path.stat().st_size - 1)
    load_file(path, "cpu", framework="numpy")
    report = nebulaio.last_report()
    assert report is not None and "verify" not in report


def test_without_checksums(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", ENTRIES)
    with pytest.raises(errors.NotFoundError, match=rf"nebulaio inspect {path} --checksum"):
        load(path)


def test_stale_checksums(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", ENTRIES)
    write_checksums(path)
    write(path, {"other": random_entry(1, "U8", [100])})
    with pytest.raises(errors.CorruptError, match="is stale"):
        load(path)


def test_model(tmp_path: Path) -> None:
    shards = {f"m-{n}.safetensors": {f"{n}.a": random_entry(n, "U8", [2_000_000])} for n in range(3)}
    folder = write_sharded(tmp_path / "m", shards).parent
    seen: list[tuple[int, int]] = []
    written = write_checksums(folder, progress=lambda *now: seen.append(now))
    assert sorted(written) == sorted(f"{folder / name}.crc64nvme" for name in shards)
    assert seen[-1][0] == seen[-1][1] == sum((folder / name).stat().st_size for name in shards)
    load_model(folder, "cpu", framework="numpy", verify=True)
    flip(folder / "m-1.safetensors", 8 * 1_500_000)
    with pytest.raises(errors.CorruptError, match=r'm-1.safetensors: block 1, .* tensor "1.a"'):
        load_model(folder, "cpu", framework="numpy", verify=True)
    load_model(folder, "cpu", framework="numpy", verify=True, tensors="0.a", progress=None)  # it reads other blocks


def test_what_cannot_be_summed(tmp_path: Path, fake_library: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="gone"):
        write_checksums(tmp_path / "gone.safetensors")
    path = write(tmp_path / "t.safetensors", ENTRIES)
    os.truncate(path, 100)
    with pytest.raises(errors.CorruptError):
        write_checksums(path)
    assert [file.name for file in tmp_path.iterdir()] == ["t.safetensors"]


def test_interrupted_sums_leave_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [64 << 20])})

    def progress(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_checksums(path, progress=progress)
    left = [file.name for file in tmp_path.iterdir()]
    # It may have ended before the first look at its progress.
    assert left == ["t.safetensors"] or sorted(left) == ["t.safetensors", "t.safetensors.crc64nvme"]


def test_sums_on_the_fake(fake: _process.Holder) -> None:
    gc.collect()  # errors of earlier tests may hold what they were about
    with pytest.raises(errors.ReadError, match="scripted"):
        write_checksums("wait=6")
    assert fake.load().functions.fake_live() == 0
    assert nebulaio.last_report() is None
