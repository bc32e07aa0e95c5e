# SPDX-License-Identifier: Apache-2.0
"""The entries of a read of objects, packed as the library takes them.

A batch has thousands of entries. Packed entries are rows of numbers, because a structure, a
tuple and a description of the memory for each entry take longer than reading the object.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from . import _abi, _buffers

_STRUCT: Final = ctypes.sizeof(_abi.ObjectRead)
_WORDS: Final = _STRUCT // 8  # every field has 8 bytes
_TEXTS: Final = ("bucket", "key", "version", "device")
_TO_THE_END: Final = (1 << 64) - 1  # a size of -1


class Read(NamedTuple):
    """A read of one object, or of a range of it. A size of -1 means up to the object's end."""

    bucket: bytes
    key: bytes
    version: bytes | None
    offset: int
    size: int
    memory: _buffers.Memory
    at: int  # offset in the memory
    stream: int
    peers: tuple[_buffers.Memory, ...] = ()


class Entries:
    """Entries of a read, which keep the memory and the names of their objects alive."""

    def __init__(self) -> None:
        # Each row has the fields of one entry. A field for a text is the offset of the text in the joined _texts, or
        # 0 if the entry has no such text.
        self._rows: list[tuple[int, ...]] = []
        self._texts: list[bytes] = [b""]
        self._end = 1
        self._shared: dict[bytes, int] = {}
        self._kept: list[object] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, one: Read) -> None:
        """Append the entry of a read."""
        bucket, key, version, offset, size, memory, at, stream, others = one
        peers = 0
        if others:
            listed = (_abi.Peer * len(others))(*(_abi.Peer(p.address, p.device.encode()) for p in others))
            self._kept.append(listed)
            peers = ctypes.addressof(listed)
        named = self._once(bucket)
        versioned = 0 if version is None else self._once(version)
        device = self._once(memory.device.encode())
        self._rows.append((_STRUCT, named, self._end, versioned, offset, size & _TO_THE_END, memory.address + at,
                           memory.size - at, device, stream, peers, len(others)))
        self._texts.append(key)
        self._end += len(key) + 1
        self._kept.append(one)

    def _once(self, text: bytes) -> int:
        """Return the offset of a text that other entries may have, too."""
        at = self._shared.get(text)
        if at is None:
            at = self._shared[text] = self._end
            self._texts.append(text)
            self._end += len(text) + 1
        return at

    def pack(self) -> ctypes.Array[_abi.ObjectRead]:
        """Return the structures for the library. They are valid while the entries exist."""
        count = len(self._rows)
        if count == 0:
            return (_abi.ObjectRead * 0)()
        texts = b"\0".join(self._texts) + b"\0"
        base = ctypes.cast(ctypes.c_char_p(texts), ctypes.c_void_p).value or 0
        words = array("Q", bytes(_STRUCT * count))
        for place, (field, column) in enumerate(zip(_abi.ObjectRead._fields_, zip(*self._rows))):
            same = column.count(column[0]) == count
            numbers: Sequence[int] = column[:1] if same else column
            if field[0] in _TEXTS:
                numbers = [base + at if at else 0 for at in numbers]
            words[place::_WORDS] = array("Q", numbers) * (count if same else 1)
        self._kept.append(texts)
        return (_abi.ObjectRead * count).from_buffer(words)


class Quick:
    """Appends the entries of simple reads to entries, in a loop that makes few calls.

    A simple read reads a whole object into a plain array or tensor, in a bucket and on a
    device of an earlier read. All other reads are left to the general way, which also
    raises the errors.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        self._tensor: Any = getattr(torch, "Tensor", None)
        self._strided: Any = getattr(torch, "strided", None)
        self._array: Any = getattr(numpy, "ndarray", None)
        self._buckets: dict[Any, int] = {}  # offsets of names
        self._places: dict[Any, tuple[int, int]] = {}  # device and stream, by torch device or for all arrays

    def learn(self, bucket: str, buffer: Any, one: Read) -> None:
        """Note the bucket and the device of a read that the general way accepted."""
        if type(bucket) is str and (type(buffer) is self._tensor or type(buffer) is self._array):
            where = buffer.device if type(buffer) is self._tensor else self._array
            self._places[where] = self._entries._once(one.memory.device.encode()), one.stream
            self._buckets[bucket] = self._entries._once(one.bucket)

    def others(self, reads: Iterable[Any]) -> Iterator[Any]:
        """Append the entries of simple reads, and yield all other reads in order.

        The caller appends the entry of each yielded read before it asks for the next one.
        """
        entries, buckets, hold = self._entries, self._buckets, self._hold
        rows, texts, kept = entries._rows, entries._texts, entries._kept
        for one in reads:
            found = None
            if type(one) is tuple and len(one) == 3:
                bucket, key, buffer = one
                if type(key) is str and key and "\0" not in key and type(bucket) is str and bucket in buckets:
                    found = hold(buffer)
            if found is None:
                yield one
                continue
            address, place, owner = found
            name = key.encode("utf-8", "surrogatepass")
            end = entries._end
            rows.append((_STRUCT, buckets[bucket], end, 0, 0, _TO_THE_END, address, buffer.nbytes, *place, 0, 0))
            texts.append(name)
            entries._end = end + len(name) + 1
            kept.append(owner)

    def _hold(self, buffer: Any) -> tuple[int, tuple[int, int], object] | None:
        """Return the address, the place and the owner of a plain buffer, or None if the buffer is another one."""
        kind = type(buffer)
        if kind is self._tensor:
            place = self._places.get(buffer.device)
            if (
                place is None or buffer.layout is not self._strided or buffer.is_nested or not buffer.is_contiguous()
                or buffer.is_conj() or buffer.is_neg()
            ):
                return None
            return buffer.data_ptr(), place, buffer
        place = self._places.get(kind)
        if place is None or buffer.dtype.hasobject:
            return None
        try:
            owner = ctypes.c_char.from_buffer(buffer)  # keeps the array from being resized
        except (TypeError, ValueError, BufferError):
            return None  # the array is empty, read-only or has gaps
        return ctypes.addressof(owner), place, owner


def of(one: Read) -> Entries:
    """Return the entries of a single read."""
    found = Entries()
    found.add(one)
    return found
