# SPDX-License-Identifier: Apache-2.0
"""Reads safetensors headers, and writes small files.

The harness reads headers itself, to be independent of the code that it measures: counts and offsets come from the
file. The writer serves machines without `nebulaio generate`; its content is random, finite 16-bit floats.
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ITEM_SIZE = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4,
    "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    "F8_E4M3": 1, "F8_E5M2": 1,
}

_PATTERN = (32 << 20) + 4094  # bytes; no multiple of a page, so repeats never line up


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file. start and end are offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """The content of a safetensors header."""

    size: int  # of the whole file
    data_start: int
    tensors: tuple[Tensor, ...]


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read the header of a safetensors file.

    Raises ValueError if the file is not a safetensors file.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise ValueError(f"{path}: too short for a safetensors file")
        (length,) = struct.unpack("<Q", prefix)
        if length > size - 8:
            raise ValueError(f"{path}: the header is longer than the file")
        entries = json.loads(file.read(length))
    start = 8 + length
    tensors = [
        Tensor(
            name,
            entry["dtype"],
            tuple(entry["shape"]),
            start + entry["data_offsets"][0],
            start + entry["data_offsets"][1],
        )
        for name, entry in entries.items()
        if name != "__metadata__"
    ]
    return Header(size, start, tuple(sorted(tensors, key=lambda t: t.start)))


def write(path: str | os.PathLike[str], shapes: Sequence[tuple[str, Sequence[int]]], *,
          dtype: str = "BF16", seed: int = 0) -> int:
    """Write a safetensors file of random finite values and return its size.

    `dtype` is BF16 or F16. The file gets its name only when it is complete and on disk.
    """
    if dtype not in ("BF16", "F16"):
        raise ValueError(f"{dtype}: only BF16 and F16 are written here")
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes:
        nbytes = math.prod(shape) * ITEM_SIZE[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + nbytes]}
        offset += nbytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    final, part = Path(path), Path(f"{path}.part")
    pattern = memoryview(_finite(random.Random(seed), min(_PATTERN, max(offset, 2))))
    try:
        with open(part, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            left = offset
            while left:
                left -= file.write(pattern[: min(left, len(pattern))])
            file.flush()
            os.fsync(file.fileno())
        part.rename(final)
    finally:
        part.unlink(missing_ok=True)
    return 8 + len(header) + offset


def _finite(source: random.Random, nbytes: int) -> bytes:
    """Return random little-endian 16-bit floats without infinities and NaNs, both as F16 and as BF16.

    One exponent bit, which both formats have in the high byte, is cleared.
    """
    raw = bytearray(source.randbytes(nbytes + nbytes % 2))
    raw[1::2] = raw[1::2].translate(bytes(byte & 0xBF for byte in range(256)))
    return bytes(raw)
