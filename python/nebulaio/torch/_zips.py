# SPDX-License-Identifier: Apache-2.0
"""Finds the values of a stored tensor inside of its item, which is a small zip archive of torch.save.

A parser is a generator: it yields the ranges of the item that it needs, is sent their bytes, and returns the
place of the values. So one job reads the ranges of all items together.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Generator
from typing import Any, NamedTuple

from .._frameworks.torch import _NAMES as TORCH_NAMES
from ..errors import CorruptError, UnsupportedError
from ._pickles import NotPlainError, TensorUnpickler

torch: Any = importlib.import_module("torch")

HEAD, TAIL = 1024, 1024
"""Bytes at the ends of an item that hold the directory and the small records of a usual item."""

_MOST_RECORD = 1 << 20  # bytes of a directory or of data.pkl
_MOST_RECORDS = 64

Range = tuple[int, int]  # offset in the item, and size
Parser = Generator[list[Range], list[bytes], "Values"]


class Values(NamedTuple):
    """The values of an item: where they are in the item, and how the tensor lies in them.

    `strides` counts elements. None means that the tensor is contiguous.
    """

    offset: int
    size: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    first: int = 0  # element of the values with which the tensor begins


class _Record(NamedTuple):
    """A file of a zip archive."""

    header: int  # offset of its local header
    size: int


class Layouts:
    """The layouts of tensors by their data.pkl, and the records of their archives. Equal ones are parsed once.

    Archives of equal tensors have the same directory, except for the checksums of their records.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Any, ...]] = {}
        self._directories: dict[tuple[int, int, int], tuple[bytearray, list[int], dict[str, _Record]]] = {}

    def records(self, directory: bytes, count: int, length: int) -> dict[str, _Record]:
        """Return the records of a zip directory by name, without the archive's own folder. Nobody may change them."""
        key = length, count, len(directory)
        known = self._directories.get(key)
        if known is not None and _without_sums(directory, known[1]) == known[0]:
            return known[2]
        found, sums = _records(directory, count, length)
        self._directories[key] = _without_sums(directory, sums), sums, found
        return found

    def of(self, pickled: bytes) -> tuple[Any, ...]:
        """Return (storage key, dtype, elements of the storage, first element, shape, strides) of a data.pkl."""
        found = self._known.get(pickled)
        if found is None:
            found = self._known[pickled] = TensorUnpickler(pickled).layout()
        return found


def locate(length: int, room: int, fqn: str, layouts: Layouts) -> Parser:
    """Return the parser of an item of `length` bytes, an archive of torch.save or a file of safetensors.

    `room` is the number of bytes from the beginning of the item to the end of its file.

    The parser raises CorruptError for an item that is neither, and NotPlainError for an archive that holds another
    object than a tensor, such as a subclass.
    """
    head_size, tail_size = min(HEAD, room), min(TAIL, length)
    head, tail = yield [(0, head_size), (length - tail_size, tail_size)]
    if not head.startswith(b"PK\x03\x04"):
        return (yield from _locate_in_safetensors(head, room, fqn))
    head = head[:length]
    ends = _End.find(tail, length)
    directory = tail[ends.offset - (length - tail_size) :][: ends.size] if ends.offset >= length - tail_size else b""
    if not directory:
        (directory,) = yield [(ends.offset, ends.size)]
    records = layouts.records(directory, ends.records, length)
    pickles = _only(records, "data.pkl")
    header = head[pickles.header : pickles.header + 30]
    if len(header) < 30:
        (header,) = yield [(pickles.header, 30)]
    begin = _after_header(header, pickles)
    if pickles.size > _MOST_RECORD:
        raise NotPlainError
    if begin + pickles.size > length:
        raise CorruptError(f"its data.pkl of {pickles.size} bytes at {begin} does not fit {length} bytes")
    pickled = head[begin : begin + pickles.size]
    if len(pickled) < pickles.size:
        (pickled,) = yield [(begin, pickles.size)]
    order = records.get("byteorder")
    key, dtype, count, first, shape, strides = layouts.of(bytes(pickled))
    storage = _only(records, f"data/{key}")
    headers = [head[one.header : one.header + 30] for one in (storage, order) if one is not None]
    if any(len(one) < 30 for one in headers):
        headers = yield [(one.header, 30) for one in (storage, order) if one is not None]
    offset = _after_header(headers[0], storage)
    if order is not None:
        at = _after_header(headers[1], order)
        if at + order.size > length:
            raise CorruptError(f"its record of the byte order at {at} does not fit {length} bytes")
        name = head[at : at + order.size]
        if len(name) < order.size:
            (name,) = yield [(at, min(order.size, 16))]
        if bytes(name) != b"little":
            raise NotPlainError
    if storage.size != count * dtype.itemsize or offset + storage.size > length:
        raise CorruptError(f"its storage has {storage.size} bytes at {offset} of {length}, expected {count} x {dtype}")
    return Values(offset, storage.size, dtype, shape, strides, first)


class _End(NamedTuple):
    """The end of a zip archive: how many records its directory has, and where the directory is."""

    records: int
    size: int
    offset: int

    @classmethod
    def find(cls, tail: bytes, length: int) -> _End:
        """Parse the last bytes of an archive of `length` bytes."""
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < 22:
            raise CorruptError("it has no end of a zip archive")
        count, size, offset = struct.unpack("<HII", tail[at + 10 : at + 20])
        far = tail.rfind(b"PK\x06\x06", 0, at)
        if far >= 0 and at - far >= 56:
            count, size, offset = struct.unpack("<QQQ", tail[far + 32 : far + 56])
        if size > _MOST_RECORD or count > _MOST_RECORDS or offset + size > length:
            raise CorruptError(
                f"its zip directory of {count} records and {size} bytes at {offset} does not fit {length} bytes")
        return cls(count, size, offset)


def _without_sums(directory: bytes, sums: list[int]) -> bytearray:
    """Return a directory whose checksums, which begin at these offsets, are zero."""
    out = bytearray(directory)
    for at in sums:
        out[at : at + 4] = b"\0\0\0\0"
    return out


def _records(directory: bytes, count: int, length: int) -> tuple[dict[str, _Record], list[int]]:
    """Return the records of a zip directory by name, and the offsets of their checksums."""
    found: dict[str, _Record] = {}
    sums: list[int] = []
    at = 0
    for _ in range(count):
        entry = directory[at : at + 46]
        if len(entry) < 46 or entry[:4] != b"PK\x01\x02":
            raise CorruptError("its zip directory is damaged")
        method = int.from_bytes(entry[10:12], "little")
        packed, size = struct.unpack("<II", entry[20:28])
        name_size, extra_size, comment_size = struct.unpack("<HHH", entry[28:34])
        header = int.from_bytes(entry[42:46], "little")
        name = bytes(directory[at + 46 : at + 46 + name_size])
        extra = directory[at + 46 + name_size : at + 46 + name_size + extra_size]
        size, packed, header = _far_sizes(extra, size, packed, header)
        if method != 0 or packed != size:
            raise NotPlainError
        if header + 30 > length or size > length:
            raise CorruptError(
                f"its zip directory has a record of {size} bytes at {header}, and the item has {length} bytes")
        found[name.decode("utf-8", "replace").partition("/")[2]] = _Record(header, size)
        sums.append(at + 16)
        at += 46 + name_size + extra_size + comment_size
    return found, sums


def _far_sizes(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Return the sizes and the offset of a record, from the zip64 field if they are too large for the others."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[at : at + 4])
        if kind == 1:
            numbers = [value for (value,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + length // 8 * 8])]
            values = [size, packed, header]
            for place, value in enumerate(values):
                if value == 0xFFFFFFFF:
                    if not numbers:
                        raise CorruptError("its zip directory is damaged")
                    values[place] = numbers.pop(0)
            return values[0], values[1], values[2]
        at += 4 + length
    return size, packed, header


def _only(records: dict[str, _Record], name: str) -> _Record:
    if name not in records:
        raise CorruptError(f"its zip archive has no record {name!r}")
    return records[name]


def _after_header(header: bytes, record: _Record) -> int:
    """Return the offset of a record's bytes, behind its local header."""
    if header[:4] != b"PK\x03\x04" or len(header) < 30:
        raise CorruptError(f"its zip archive has no record at {record.header}")
    name_size, extra_size = struct.unpack("<HH", header[26:30])
    return int(record.header + 30 + name_size + extra_size)


def _locate_in_safetensors(head: bytes, room: int, fqn: str) -> Parser:
    """Locate a tensor in a file of safetensors that begins where the item begins.

    torch writes such items with SerializationFormat.SAFETENSORS. The length of the item is that of the values alone.
    """
    if len(head) < 8:
        raise CorruptError("it is neither an archive of torch.save nor a file of safetensors")
    size = int.from_bytes(head[:8], "little")
    if not 2 <= size <= min(100_000_000, room - 8) or head[8:9] != b"{":
        raise CorruptError("it is neither an archive of torch.save nor a file of safetensors")
    text = head[8 : 8 + size]
    if len(text) < size:
        (text,) = yield [(8, size)]
    try:
        entry = json.loads(bytes(text))[fqn]
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        kind = dtype_of(dtype)
        if kind is None:
            raise UnsupportedError(f"torch has no dtype {dtype!r:.50}")
        if not all(isinstance(number, int) and number >= 0 for number in (*shape, begin, end)):
            raise ValueError("negative offset")
        if begin > end or 8 + size + end > room:
            raise ValueError(f"bytes {begin} to {end} are not in the file")
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as cause:
        raise CorruptError(
            f"its safetensors header has no usable entry: {type(cause).__name__}: {cause!s:.100}") from cause
    return Values(8 + size + begin, end - begin, kind, shape)


def dtype_of(code: str) -> Any:
    """Return torch's dtype for a safetensors dtype, or None if torch has none."""
    name = TORCH_NAMES.get(code)
    return None if name is None or code == "F4" else getattr(torch, name, None)  # F4 counts other elements than torch
