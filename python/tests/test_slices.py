# SPDX-License-Identifier: Apache-2.0
"""Parts of tensors in load_file, load_model and stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from nebulaio import _slices, errors
from nebulaio.safetensors import load_file, load_model, stream
from support import random_entry, write, write_sharded

SHARDS = {
    f"m-{n}.safetensors": {f"{n}.w": random_entry(n, "F32", [8, 6]), f"{n}.b": random_entry(n + 9, "F32", [8])}
    for n in (1, 2)
}


def whole(entry: tuple[str, list[int], bytes]) -> Any:
    return numpy.frombuffer(entry[2], "f4").reshape(entry[1])


def test_forms() -> None:
    assert _slices.options(None, None) == {}
    assert _slices.options({"a.*": numpy.s_[0:128, :], "b": slice(3, 5), "c": (None, slice(None, 7))}, None) == {
        "slices": [
            {"tensor": "a.*", "ranges": [[0, 128], None]},
            {"tensor": "b", "ranges": [[3, 5]]},
            {"tensor": "c", "ranges": [None, [0, 7]]},
        ]
    }
    assert _slices.options(None, {"*": (1, 3, 8)}) == {"shards": [{"tensor": "*", "dim": 1, "rank": 3, "world": 8}]}


@pytest.mark.parametrize(
    "options",
    [
        {"slices": {}}, {"slices": [1]}, {"slices": {1: slice(0, 2)}}, {"slices": {"a": 3}},
        {"slices": {"a": slice(0, 4, 2)}},
        {"slices": {"a": slice(2, None)}}, {"slices": {"a": slice(-2, 4)}}, {"slices": {"a": slice(4, 2)}},
        {"slices": {"a": ...}}, {"slices": {"a": slice(0, 1.5)}}, {"shards": {}}, {"shards": {"a": (0, 1)}},
        {"shards": {"a": (0, 2, 2)}}, {"shards": {"a": (-1, 0, 2)}}, {"shards": {"a": (0, -1, 2)}},
        {"shards": {"a": (0, 0.5, 2)}},
        {"shards": {"a": 7}},
    ],
    ids=str,
)
def test_what_is_no_part(tmp_path: Path, options: Any) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [8, 8])})
    with pytest.raises(errors.InvalidError, match=f"{next(iter(options))}"):
        load_file(path, "cpu", framework="numpy", **options)


@pytest.mark.parametrize("lookahead", [None, 1])
def test_parts_of_a_model(tmp_path: Path, lookahead: int | None) -> None:
    folder = write_sharded(tmp_path / "m", SHARDS).parent
    options: Any = {"framework": "numpy", "slices": {"*.w": numpy.s_[2:5, 1:4]}}
    expected = {"1.w": whole(SHARDS["m-1.safetensors"]["1.w"])[2:5, 1:4],
                "1.b": whole(SHARDS["m-1.safetensors"]["1.b"]),
                "2.w": whole(SHARDS["m-2.safetensors"]["2.w"])[2:5, 1:4],
                "2.b": whole(SHARDS["m-2.safetensors"]["2.b"])}
    for out in (load_model(folder, "cpu", **options), dict(stream(folder, "cpu", lookahead=lookahead, **options))):
        assert out.keys() == expected.keys()
        for name, tensor in expected.items():
            assert out[name].shape == tensor.shape and out[name].tobytes() == tensor.tobytes()


def test_shards_put_together(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", SHARDS["m-1.safetensors"])
    for dim in (0, 1):
        parts = [load_file(path, "cpu", framework="numpy", shards={"*.w": (dim, rank, 2)})["1.w"] for rank in range(2)]
        assert numpy.concatenate(parts, dim).tobytes() == SHARDS["m-1.safetensors"]["1.w"][2]
