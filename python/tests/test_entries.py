# SPDX-License-Identifier: Apache-2.0
"""The packed entries of reads: the same fields by the general and by the quick way."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy
import pytest
from nebulaio import GPUDirectClient, _abi, _buffers, _entries
from nebulaio.errors import InvalidError

FIELDS = [field[0] for field in _abi.ObjectRead._fields_ if field[0] != "peers"]


def fields(entries: _entries.Entries) -> list[dict[str, Any]]:
    """Return the fields of the structures that the library gets."""
    return [{name: getattr(one, name) for name in FIELDS} for one in entries.pack()]


@pytest.fixture
def client() -> GPUDirectClient:
    return GPUDirectClient("http://localhost:1", access_key="a", secret_key="b")


def general(client: GPUDirectClient, reads: list[Any], stream: Any = None) -> _entries.Entries:
    """Return the entries of reads, each checked on its own."""
    found = _entries.Entries()
    for one in reads:
        found.add(client._one(*one, *(0, None)[len(one) - 3 :], stream, 0, None))
    return found


def test_every_field_has_a_word() -> None:
    offsets = [getattr(_abi.ObjectRead, field[0]).offset for field in _abi.ObjectRead._fields_]
    assert offsets == [8 * place for place in range(len(offsets))]


def test_fields_are_those_of_the_reads() -> None:
    memory = _buffers.memory_of(bytearray(64), writable=True)
    entries = _entries.Entries()
    entries.add(_entries.Read(b"b", b"k", None, 0, -1, memory, 0, 0))
    entries.add(_entries.Read(b"bucket", b"k\xc3\xa9", b"v1", 1 << 62, 3, memory, 5, (1 << 64) - 1, (memory, memory)))
    entries.add(_entries.Read(b"b", b"v1", b"v1", 7, 0, memory, 64, 2))
    first, second, third = entries.pack()
    size = ctypes.sizeof(_abi.ObjectRead)
    assert [getattr(first, name) for name in FIELDS] == [
        size, b"b", b"k", None, 0, -1, memory.address, 64, b"host", 0, 0]
    assert [getattr(second, name) for name in FIELDS] == [
        size, b"bucket", b"k\xc3\xa9", b"v1", 1 << 62, 3, memory.address + 5, 59, b"host", (1 << 64) - 1, 2]
    assert [getattr(third, name) for name in FIELDS] == [
        size, b"b", b"v1", b"v1", 7, 0, memory.address + 64, 0, b"host", 2, 0]
    assert not first.peers and [second.peers[i].address for i in range(2)] == [memory.address] * 2
    assert second.peers[1].device == b"host"


def test_no_entries() -> None:
    assert len(_entries.Entries().pack()) == 0


@pytest.mark.parametrize("stream", [None, 5])
def test_quick_way_gives_the_same_entries(client: GPUDirectClient, stream: Any) -> None:
    whole = numpy.zeros((40, 16), numpy.float32)
    reads: list[Any] = []
    for i in range(40):
        reads += [
            ("bucket" if i % 3 else "other", f"key é {i}", whole[i]),
            ("bucket", f"k{i}", whole[i], 3),
            ("bucket", f"k{i}", whole[i], 3, 4),
            ("bucket", f"k{i}", bytearray(i)),
            ("bucket", f"k{i}", whole[i : i + 1].T),
            ("bucket", f"k{i}", numpy.zeros((0, 3))),
        ]
    assert fields(client._several(iter(reads), stream)) == fields(general(client, reads, stream))


def test_quick_way_is_taken(client: GPUDirectClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    one = GPUDirectClient._one
    monkeypatch.setattr(GPUDirectClient, "_one", lambda *given: asked.append(given[2]) or one(*given))
    whole = numpy.zeros((10, 16), numpy.uint8)
    assert len(client._several([("b", f"k{i}", whole[i]) for i in range(10)], None)) == 10
    assert asked == ["k0"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (("b", "", "array"), "key='' is not a name"),
        (("b", "k\0", "array"), "is not a name"),
        (("", "k", "array"), "bucket='' is not a name"),
        ((b"b", "k", "array"), "bucket=b'b' is not a name"),
        (("b", "k", "readonly"), "is read-only"),
        (("b", "k", "gaps"), "is not contiguous"),
        (("b", "k", "objects"), "holds references to Python objects"),
        (("b", "k", "none"), "is not a buffer"),
        (("b", "k"), "tuple of 2 entries"),
        (["b", "k", "array"], "list of other entries"),
    ],
)
def test_errors_after_simple_reads(client: GPUDirectClient, bad: Any, said: str) -> None:
    array = numpy.zeros(16, numpy.uint8)
    readonly = numpy.zeros(16, numpy.uint8)
    readonly.flags.writeable = False
    buffers = {"array": array, "readonly": readonly, "gaps": array[::2], "none": None}
    buffers["objects"] = numpy.array([None, 1])
    given = type(bad)(buffers[part] if place == 2 else part for place, part in enumerate(bad))
    with pytest.raises(InvalidError, match=said):
        client._several([("b", "first", array), ("b", "second", array), given], None)


def test_arrays_live_as_long_as_the_entries(client: GPUDirectClient) -> None:
    arrays = [numpy.zeros(16, numpy.uint8) for _ in range(3)]
    known = [weakref.ref(array) for array in arrays]
    entries = client._several([("b", f"k{i}", array) for i, array in enumerate(arrays)], None)
    arrays.clear()
    assert all(one() is not None for one in known)
    del entries
    assert all(one() is None for one in known)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:Sparse")
def test_tensors_by_the_quick_way(client: GPUDirectClient) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros((20, 16))
    tensors = [whole[3], whole[4, :0], whole[5].reshape(4, 4).t(), torch.nn.Parameter(whole[6])]
    tensors.append(whole[7].view(torch.int32))
    reads = [("b", f"k{i}", tensor) for i, tensor in enumerate([whole[0], whole[1], *tensors, *whole[8:]])]
    assert fields(client._several(reads, None)) == fields(general(client, reads))
    lazy = torch.zeros(4, dtype=torch.complex64)
    square = torch.eye(4)
    sparse = (square.to_sparse(), square.to_sparse_csr(), square.to_sparse_csc(), square.to_sparse_bsr((2, 2)))
    for bad in (square[:, :2], *sparse, lazy.conj(), lazy.conj().imag):
        with pytest.raises(InvalidError):
            client._several([*reads, ("b", "bad", bad)], None)
