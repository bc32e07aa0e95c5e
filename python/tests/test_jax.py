# SPDX-License-Identifier: Apache-2.0
"""JAX arrays from the real library: on the host, and the aliases that a GPU's memory is seen through."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import nebulaio
import numpy
import pytest
from nebulaio._handles import Destination
from nebulaio.errors import UnsupportedError
from nebulaio.safetensors import load_file, safe_open, stream
from support import Entry, random_entry, write

jax = pytest.importorskip("jax", reason="jax is not installed")

WIDE = ["I64", "U64", "F64"]
NARROW = ["BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64",
          "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"]


def entries(dtypes: list[str]) -> dict[str, Entry]:
    out = {}
    for number, dtype in enumerate(dtypes):
        for shape in ([], [number + 1, 3], [0, 2], [64, 64]):
            out[f"{dtype}.{len(out)}"] = random_entry(len(out), dtype, shape)
            out[f"odd.{len(out)}"] = random_entry(len(out), "U8", [number % 5 + 1])
    return out


def check(out: dict[str, Any], expected: dict[str, Entry]) -> None:
    assert sorted(out) == sorted(expected)
    for name, (_, shape, data) in expected.items():
        assert isinstance(out[name], jax.Array), name
        assert out[name].shape == tuple(shape), name
        assert numpy.asarray(out[name]).tobytes() == data, name


def test_host(tmp_path: Path) -> None:
    expected = entries(NARROW)
    path = write(tmp_path / "t.safetensors", expected, pad=1)
    check(load_file(path, "cpu", framework="jax"), expected)
    check(dict(stream(path, "cpu", framework="jax")), expected)
    for name in ("flax", "jax"):
        with safe_open(path, name) as file:
            check({key: file.get_tensor(key) for key in file.keys()}, expected)
    report = nebulaio.last_report()
    assert report is not None and report["device"]["id"] == "host"


def test_arrays_can_be_computed_with_and_keep_their_memory(tmp_path: Path) -> None:
    expected = {"a": random_entry(1, "I32", [1000, 100]), "b": random_entry(2, "I32", [64])}
    out = load_file(write(tmp_path / "t.safetensors", expected), "cpu", framework="jax")
    first = out.pop("a")
    del out
    gc.collect()
    assert int(jax.numpy.bitwise_xor.reduce(first, axis=None)) == int(
        numpy.bitwise_xor.reduce(numpy.frombuffer(expected["a"][2], "i4"))
    )


def test_64_bits_are_not_cut_in_half(tmp_path: Path) -> None:
    expected = entries(WIDE)
    path = write(tmp_path / "t.safetensors", expected)
    with pytest.raises(UnsupportedError, match="jax_enable_x64"):
        load_file(path, "cpu", framework="jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        check(load_file(path, "cpu", framework="jax"), expected)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_packed_types_as_bytes(tmp_path: Path) -> None:
    entry = random_entry(2, "F4", [2, 8])
    path = write(tmp_path / "t.safetensors", {"p": entry})
    with pytest.raises(UnsupportedError, match="dtype F4"):
        load_file(path, "cpu", framework="jax")
    assert numpy.asarray(load_file(path, "cpu", framework="jax", unsupported="bytes")["p"]).tobytes() == entry[2]


@pytest.mark.parametrize("dtype", NARROW)
def test_aliases_of_an_arrays_memory(dtype: str) -> None:
    """What a load to a GPU hands out, on memory of the CPU: aliases where XLA takes the address, else copies."""
    from nebulaio._frameworks import jax as ours

    framework = ours.JaxFramework(jax)
    buffer = jax.numpy.zeros(1 << 16, "uint8", device=jax.devices("cpu")[0])
    buffer.block_until_ready()
    address = buffer.unsafe_buffer_pointer()
    data = random_entry(3, "BOOL" if dtype == "BOOL" else "U8", [1 << 16])[2]
    ctypes.memmove(address, data, len(data))
    place = Destination(buffer, address, 1 << 16)
    kinds = framework.dtypes({dtype})
    made = []
    for offset in (0, 64, 1024, 8, 24, 40):
        for shape in ([], [5], [3, 4], [0, 2]):
            size = kinds[dtype].itemsize * int(numpy.prod(shape))
            layout: Any = {"name": "t", "dtype": dtype, "shape": shape, "file": 0, "offset": offset, "size": size}
            array = framework.final(framework.views([layout], [place], kinds)["t"])
            assert (array.shape, array.dtype) == (tuple(shape), kinds[dtype])
            assert (array.unsafe_buffer_pointer() == address + offset) == (offset % 64 == 0 and size > 0)
            made.append((array, data[offset : offset + size]))
    del buffer, place
    gc.collect()
    assert all(numpy.asarray(array).tobytes() == expected for array, expected in made)


@pytest.mark.cuda
def test_gpu(tmp_path: Path) -> None:
    try:
        jax.local_devices(backend="gpu")
    except RuntimeError as error:
        pytest.skip(f"jax has no GPU: {error}")
    expected = entries(NARROW)
    path = write(tmp_path / "t.safetensors", expected, pad=1)
    for out in (load_file(path, "cuda", framework="jax"), dict(stream(path, "cuda", framework="jax"))):
        check(out, expected)
        assert {next(iter(array.devices())).platform for array in out.values()} == {"gpu"}
    report = nebulaio.last_report()
    assert report is not None and report["device"]["id"] == "cuda:0"
    big = write(tmp_path / "big.safetensors",
                {"a": random_entry(1, "I32", [1 << 22]), "b": random_entry(2, "F32", [7])})
    out = load_file(big, "cuda", framework="jax")
    total = int(jax.numpy.bitwise_xor.reduce(out.pop("a"), axis=None))
    assert total == int(numpy.bitwise_xor.reduce(numpy.frombuffer(random_entry(1, "I32", [1 << 22])[2], "i4")))
