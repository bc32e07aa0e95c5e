# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays from the real library: every dtype, shape and selection, byte for byte."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
import safetensors.numpy
from nebulaio.errors import NotFoundError, UnsupportedError
from nebulaio.safetensors import inspect, load_file
from support import BITS, NO_MEMORY, Entry, odd_entries, python, random_entry, write, write_sparse

ml_dtypes = pytest.importorskip("ml_dtypes")

NUMPY = {
    "BOOL": numpy.bool_, "U8": numpy.uint8, "I8": numpy.int8, "I16": numpy.int16, "U16": numpy.uint16,
    "F16": numpy.float16, "I32": numpy.int32, "U32": numpy.uint32, "F32": numpy.float32, "C64": numpy.complex64,
    "F64": numpy.float64, "I64": numpy.int64, "U64": numpy.uint64, "BF16": ml_dtypes.bfloat16,
    "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
PACKED = sorted(BITS.keys() - NUMPY.keys())


def load(path: Path, **options: Any) -> dict[str, Any]:
    return load_file(path, "cpu", framework="numpy", **options)


def check(out: dict[str, Any], entries: dict[str, Entry]) -> None:
    assert sorted(out) == sorted(entries)
    for name, (dtype, shape, data) in entries.items():
        assert out[name].dtype == NUMPY[dtype], name
        assert out[name].shape == tuple(shape), name
        assert out[name].tobytes() == data, name


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shape", [[], [1], [7], [3, 5], [2, 3, 4], [1, 1, 1, 1, 9], [0], [4, 0, 2], [1] * 32])
def test_dtype_and_shape(tmp_path: Path, dtype: str, shape: list[int]) -> None:
    entries = {"t": random_entry(1, dtype, shape)}
    check(load(write(tmp_path / "t.safetensors", entries)), entries)


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_dtypes_have_no_type(tmp_path: Path, dtype: str) -> None:
    entry = random_entry(2, dtype, [2, 8])
    path = write(tmp_path / "t.safetensors", {"other": random_entry(3, "U8", [3]), "packed": entry})
    with pytest.raises(UnsupportedError, match=f"'packed': dtype {dtype}"):
        load(path)
    out = load(path, unsupported="bytes")["packed"]
    assert (out.dtype, out.ndim, out.tobytes()) == (numpy.uint8, 1, entry[2])


def test_without_ml_dtypes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = random_entry(2, "BF16", [4])
    path = write(tmp_path / "t.safetensors", {"b": entry, "f": random_entry(3, "F32", [4])})
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(UnsupportedError, match=r"'b': dtype BF16.*pip install ml_dtypes.*fix: install ml_dtypes"):
        load(path)
    assert load(path, unsupported="bytes")["b"].tobytes() == entry[2]
    assert load(path, tensors="f")["f"].dtype == numpy.float32


def test_misaligned_tensors_come_out_aligned(tmp_path: Path) -> None:
    """Old writers put tensors at any byte; what is returned is aligned all the same."""
    entries = odd_entries(NUMPY, 4, 5)
    out = load(write(tmp_path / "t.safetensors", entries, pad=1))
    check(out, entries)
    assert all(array.flags.aligned for array in out.values())


@pytest.mark.parametrize("seed", range(12))
def test_random_files_equal_the_reference(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    kinds = [dtype for dtype in NUMPY if NUMPY[dtype].__module__ == "numpy"]
    tensors = {}
    for number in range(rng.randrange(1, 40)):
        dtype = rng.choice(kinds)
        shape = [rng.randrange(0 if rng.random() < 0.1 else 1, 9) for _ in range(rng.randrange(0, 5))]
        data = random_entry(seed * 1000 + number, dtype, shape)[2]
        tensors[f"layer.{number}.{dtype}"] = numpy.frombuffer(data, NUMPY[dtype]).reshape(shape)
    path = tmp_path / "t.safetensors"
    metadata = {"format": "np", "ключ": "värde\n", "": ""} if seed % 2 else None
    safetensors.numpy.save_file(tensors, path, metadata)
    ours, theirs = load(path), safetensors.numpy.load_file(path)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert ours[name].dtype == array.dtype and ours[name].shape == array.shape
        assert ours[name].tobytes() == array.tobytes()
    assert inspect(path)["metadata"] == (metadata or {})


@pytest.mark.parametrize("route", ["auto", "buffered", "direct"])
@pytest.mark.parametrize("cache", ["auto", "keep", "bypass"])
def test_larger_file_by_every_route(tmp_path: Path, route: str, cache: str) -> None:
    sizes = [1 << 20, 1, (4 << 20) + 3, 4095, 4096, 4097, (8 << 20) - 1]
    entries = {f"t{number}": random_entry(number, "U8", [size]) for number, size in enumerate(sizes)}
    path = write(tmp_path / "t.safetensors", entries)
    try:
        check(load(path, route=route, cache=cache), entries)
    except UnsupportedError as refused:
        assert route == "direct"  # the file system under the test may have no direct reads
        assert "fix" in str(refused)


def test_empty_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {}, {"only": "metadata"})
    assert load(path) == {}
    assert inspect(path)["metadata"] == {"only": "metadata"}


def test_only_zero_size_tensors(tmp_path: Path) -> None:
    entries = {"a": random_entry(1, "F64", [0]), "b": random_entry(1, "BF16", [3, 0])}
    check(load(write(tmp_path / "t.safetensors", entries)), entries)


def test_odd_names(tmp_path: Path) -> None:
    names = ["", " ", "a b", "ä/ö", "日本", "\U0001f600", 'q"uote', "back\\slash", "new\nline", "*", "[x]", "x" * 4000]
    entries = {name: random_entry(number, "I16", [number]) for number, name in enumerate(names)}
    check(load(write(tmp_path / "t.safetensors", entries)), entries)


def test_odd_paths(tmp_path: Path) -> None:
    entries = {"t": random_entry(1, "U8", [5])}
    folder = tmp_path / "späce dir"
    folder.mkdir()
    check(load(write(folder / "näme\n.safetensors", entries)), entries)
    raw = folder / b"not-utf8-\xff.safetensors".decode("utf-8", "surrogateescape")
    check(load(write(raw, entries)), entries)


def test_subset(tmp_path: Path) -> None:
    entries = {f"layers.{layer}.{part}": random_entry(layer, "F16", [50, 3]) for layer in range(12) for part in "wb"}
    path = write(tmp_path / "t.safetensors", entries)
    for globs, expected in [
        (["layers.0.*"], {"layers.0.w", "layers.0.b"}),
        ("*.w", {f"layers.{layer}.w" for layer in range(12)}),
        (["layers.1.w", "layers.1?.b"], {"layers.1.w", "layers.10.b", "layers.11.b"}),
    ]:
        check(load(path, tensors=globs), {name: entries[name] for name in expected})
        assert {tensor["name"] for tensor in inspect(path, tensors=globs)["tensors"]} == expected


def test_subset_that_matches_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [5])})
    with pytest.raises(NotFoundError, match="nothing.here"):
        load(path, tensors=["nothing.here*"])


def test_arrays_are_writable_views_that_keep_their_memory(tmp_path: Path) -> None:
    entries = {"a": random_entry(1, "F32", [1000]), "b": random_entry(2, "F32", [1000])}
    out = load(write(tmp_path / "t.safetensors", entries))
    one = out.pop("a")
    before = out["b"].tobytes()
    one[:] = 7
    assert out["b"].tobytes() == before
    del out
    gc.collect()
    assert (one == 7).all()


def test_report(tmp_path: Path) -> None:
    entries = {"a": random_entry(1, "U8", [123456])}
    path = write(tmp_path / "t.safetensors", entries)
    load(path)
    report = nebulaio.last_report()
    assert report is not None and report is not nebulaio.last_report()
    assert "host" in str(report)
    assert "123456" in str(report)


def test_auto_is_the_host(tmp_path: Path) -> None:
    entries = {"a": random_entry(1, "U8", [10])}
    check(load_file(write(tmp_path / "t.safetensors", entries), framework="numpy"), entries)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": random_entry(1, "U8", [3 << 20])})
    seen: list[tuple[int, int]] = []
    load(path, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] >= 3 << 20


def test_no_memory_is_our_error(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "large.safetensors", 4 << 30)
    assert "on host" in python(NO_MEMORY, path, "numpy")
