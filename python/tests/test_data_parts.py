# SPDX-License-Identifier: Apache-2.0
"""The parts of data sets that need neither torch nor DALI: headers of arrays, listings, shares and orders."""

from __future__ import annotations

import io
import pickle
import random
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from nebulaio import _batches, _npy, _prefix
from nebulaio.errors import CorruptError, InvalidError, NebulaioError, UnsupportedError


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    numpy.lib.format.write_array(file, array, version)
    return file.getvalue()


def header(text: str, version: int = 1) -> bytes:
    """A .npy file with this header and 12 bytes of data."""
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + bytes(12)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3), (2, 0, 3)])
def test_headers_of_numpy(version: tuple[int, int], shape: tuple[int, ...]) -> None:
    for dtype in ("?", "u1", "i2", "u4", "f2", "f4", "f8", "i8", "c8", "c16"):
        array = numpy.zeros(shape, dtype)
        content = npy(array, version)
        found = _npy.parse(content, len(content), "a")
        assert found == (array.dtype.name, shape, len(content) - array.nbytes, array.nbytes)
    one = npy(numpy.asfortranarray(numpy.zeros(5)), version)
    assert _npy.parse(one, len(one), "a").shape == (5,)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("{'descr': '<i4', 'fortran_order': True, 'shape': (1, 3)}", UnsupportedError, "Fortran order"),
        ("{'descr': '>i4', 'fortran_order': False, 'shape': (3,)}", UnsupportedError, "big-endian"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", UnsupportedError, "Python objects"),
        ("{'descr': '|O8', 'fortran_order': False, 'shape': (3,)}", UnsupportedError, "Python objects"),
        ("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (3,)}", UnsupportedError, "has fields"),
        ("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", UnsupportedError, "expected numbers"),
        ("{'descr': '|V2', 'fortran_order': False, 'shape': (6,)}", UnsupportedError, "expected numbers"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (4,)}", CorruptError,
         "12 bytes after its header, expected 16"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (-3,)}", CorruptError, "the shape is"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (True, 3)}", CorruptError, "the shape is"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': [3]}", CorruptError, "the shape is"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807)}", CorruptError,
         "expected 3"),
        ("{'descr': '<i4', 'fortran_order': 2, 'shape': (3,)}", CorruptError, "fortran_order is 2"),
        ("{'descr': '<i4', 'shape': (3,)}", CorruptError, "expected descr"),
        ("{'descr': exit(), 'fortran_order': False, 'shape': (3,)}", CorruptError, "cannot be read"),
        ("[" * 5000, CorruptError, "cannot be read"),
        ("", CorruptError, "cannot be read"),
    ],
)
def test_headers_that_are_refused(text: str, kind: type[NebulaioError], words: str) -> None:
    for version in (1, 2, 3):
        content = header(text, version)
        with pytest.raises(kind, match=f"^load x: .*{words}"):
            _npy.parse(content, len(content), "load x")


def test_headers_that_are_damaged() -> None:
    for content, kind, words in (
        (b"\x93NUMPY\x01\x00", CorruptError, "it has 8 bytes"),
        (b"\x93NUMPY\x04\x00" + bytes(20), UnsupportedError, "version 4.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", UnsupportedError, "4294967295 bytes, expected at most 65536"),
        (b"\x93NUMPY\x01\x00\xff\xff" + bytes(20), CorruptError, "expected a header of 65545"),
        (b"\x93NUMPY\x03\x00\x02\x00\x00\x00\xff\xfe", CorruptError, "cannot be read"),
    ):
        with pytest.raises(kind, match=words):
            _npy.parse(content, len(content), "x")


def test_random_headers_only_raise_our_errors() -> None:
    chance = random.Random(11)
    seeds = [npy(numpy.zeros((2, 3), "f4")), npy(numpy.zeros(4, "i8"), (3, 0)),
             header("{'descr': [('a', '|O')], 'shape': ((),)}")]
    for _ in range(5000):
        content = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 6)):
            content[chance.randrange(len(content))] = chance.choice(
                b"\x00\xff'({[,])}:<>|0123456789OUVfiub\n") if content else 0
        del content[chance.randrange(1, len(content) + 1) :]
        try:
            found = _npy.parse(bytes(content), len(content), "x")
        except NebulaioError:
            continue
        assert found.offset + found.size == len(content)


class Bucket:
    """A client whose bucket has these keys."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = sorted(keys, key=str.encode)

    def list(self, bucket: str, prefix: str = "", delimiter: str = "", limit: int | None = None) -> Any:
        return [SimpleNamespace(key=key, size=len(key)) for key in self._keys if key.startswith(prefix)][:limit]


def test_a_listing_finds_its_keys() -> None:
    keys = [f"p/{name}" for name in ("a", "ä", "ab", "\U0001f600", "￿", "z", "folder/", "folder/x", "b.npy", "b.npz")]
    objects = _prefix.list_objects(Bucket(keys), "b", "p/", None)  # type: ignore[arg-type]
    expected = sorted((key for key in keys if not key.endswith("/")), key=str.encode)
    assert list(objects) == expected and len(objects) == 9
    again = pickle.loads(pickle.dumps(objects))
    for at, key in enumerate(expected):
        assert again[at] == key and again.size(at) == len(key) and again.find(key) == at
    for key in ("", "p/", "p/b", "p/zz", "q", "p/folder/"):
        assert objects.find(key) is None
    for at in (-1, 9):
        with pytest.raises(IndexError):
            objects[at]
    assert list(_prefix.list_objects(Bucket(keys), "b", "p/", [".npy", "x"])) == ["p/b.npy", "p/folder/x"]  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 7, 12, 100])
@pytest.mark.parametrize("world", [1, 2, 3, 7, 12])
def test_shares_of_ranks(count: int, world: int) -> None:
    def all_of(tail: Any) -> list[list[int]]:
        return [list(_prefix.Share(count, rank, world, tail)) for rank in range(world)]

    padded = all_of("pad")
    assert {len(one) for one in padded} == {-(-count // world)} and set(sum(padded, [])) == set(range(count))
    if count < world:
        with pytest.raises(InvalidError, match="some ranks would have none"):
            all_of("keep")
        return
    assert sorted(sum(all_of("keep"), [])) == list(range(count))
    dropped = all_of("drop")
    assert {len(one) for one in dropped} == {count // world} and len(set(sum(dropped, []))) == count // world * world
    assert _prefix.Share(count, 0, world, "keep")[-1] == all_of("keep")[0][-1]


@pytest.mark.parametrize("count", [3, 4, 10, 64])
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 4, 100])
@pytest.mark.parametrize("shuffled", [False, True])
def test_orders_of_epochs(count: int, shards: int, batch: int, shuffled: bool) -> None:
    def epoch(shard: int, number: int, padded: bool) -> list[list[int]]:
        order, found = _batches.Order(count, batch, shard, shards, shuffled, 5, padded), []
        while (indices := order.batch(number, len(found))) is not None:
            found.append(indices)
        return found

    for number in range(2):
        whole = [epoch(shard, number, False) for shard in range(shards)]
        assert sorted(at for one in whole for indices in one for at in indices) == list(range(count))
        assert all(len(indices) == batch for one in whole for indices in one[:-1])
        padded = [epoch(shard, number, True) for shard in range(shards)]
        assert len({len(one) for one in padded}) == 1 and {len(indices) for one in padded for indices in one} == {batch}
        assert {at for one in padded for indices in one for at in indices} == set(range(count))
    if shuffled and count == 64:
        assert epoch(0, 0, False) != epoch(0, 1, False)
