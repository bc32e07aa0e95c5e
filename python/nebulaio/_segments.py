# SPDX-License-Identifier: Apache-2.0
"""Ranges of files and the memory that receives them, as the library takes them."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _abi
from .errors import InvalidError

_MOST = 1 << 64


class Segment(NamedTuple):
    """A range of one file, and the address that receives it.

    `file` is the number of the file in the list of files. If `stride` is not 0, only the
    first `width` bytes of every `stride` bytes are wanted, and they are packed without gaps
    at `address`. `label` names the content in errors.
    """

    file: int
    offset: int
    size: int
    address: int
    width: int = 0
    stride: int = 0
    label: str = ""


def natural(of: str, what: str, value: Any) -> int:
    """Return a whole number that fits 64 bits. ctypes would cut a larger one silently."""
    if isinstance(value, int) and 0 <= value < _MOST:
        return value
    raise InvalidError(f"{of}: {what}={value!r} is not a whole number from 0 to 2^64-1")


def labels_of(segments: Sequence[Segment]) -> tuple[ctypes.Array[ctypes.c_char], list[int]]:
    """Return the labels in one buffer, and the address of each; 0 means no label."""
    encoded = [_label(at, s.label) if s.label else b"" for at, s in enumerate(segments)]
    buffer = ctypes.create_string_buffer(b"\0".join(encoded))
    places, at = [], ctypes.addressof(buffer)
    for label in encoded:
        places.append(at if label else 0)
        at += len(label) + 1
    return buffer, places


def _label(at: int, label: str) -> bytes:
    """Return the bytes of a segment's label."""
    try:
        name = label.encode()
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise InvalidError(f"segment {at}: the label {label!r} contains NUL or half a character, expected text")
    return name


def table_of(segments: Sequence[Segment], labels: Sequence[int]) -> ctypes.Array[_abi.Segment]:
    """Return the segments as the library takes them.

    A checkpoint has many thousands of them, and an array of numbers is filled several times
    faster than fields of structs.
    """
    if not segments:
        return (_abi.Segment * 0)()
    try:
        numbers = array.array(
            "Q",
            [
                number
                for s, label in zip(segments, labels)
                for number in (s.file, s.offset, s.size, s.width, s.stride, s.address, label)
            ],
        )
    except (OverflowError, TypeError):
        for at, s in enumerate(segments):
            for what in ("file", "offset", "size", "width", "stride", "address"):
                natural(f"segment {at}", what, getattr(s, what))
        raise
    return (_abi.Segment * len(segments)).from_buffer(numbers)
