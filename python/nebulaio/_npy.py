# SPDX-License-Identifier: Apache-2.0
"""The header of a .npy file: type, shape, and the offset of the first element."""

from __future__ import annotations

import ast
import math
from typing import Final, NamedTuple

from .errors import CorruptError, UnsupportedError

FIRST_READ: Final = 4096
"""The bytes to read at first. Nearly all headers have 128 bytes."""

_MAGIC: Final = b"\x93NUMPY"
_LONGEST: Final = 64 << 10
_COPY: Final = "(fix: the object is damaged or truncated: copy it again, or save the array again)"

# The array protocol's type codes, and the names that NumPy and torch give to them.
_TYPES: Final = {
    "b1": "bool", "?": "bool", "u1": "uint8", "i1": "int8", "u2": "uint16", "i2": "int16", "f2": "float16",
    "u4": "uint32", "i4": "int32", "f4": "float32", "u8": "uint64", "i8": "int64", "f8": "float64",
    "c8": "complex64", "c16": "complex128",
}


class Header(NamedTuple):
    """What a header says. `dtype` is the name of a type in NumPy and torch. `offset` and `size` are in bytes."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def length(head: bytes, name: str) -> int:
    """Return how many bytes the header has, from its first 12 bytes or more.

    Raises CorruptError if it is no .npy file, and UnsupportedError if its version is unknown. Errors
    begin with `name`.
    """
    if not head.startswith(_MAGIC):
        raise CorruptError(f"{name}: it begins with {head[:6]!r}, expected {_MAGIC!r} {_COPY}")
    if len(head) < 12:
        raise CorruptError(f"{name}: it has {len(head)} bytes, expected a .npy header {_COPY}")
    if head[6] not in (1, 2, 3):
        raise UnsupportedError(
            f"{name}: the .npy format is version {head[6]}.{head[7]}, expected 1.0, 2.0 or 3.0 "
            "(fix: save it with numpy.save)"
        )
    start = 10 if head[6] == 1 else 12
    text = int.from_bytes(head[8:start], "little")
    if text > _LONGEST:
        raise UnsupportedError(
            f"{name}: the header has {text} bytes, expected at most {_LONGEST} (fix: save an array of numbers)"
        )
    return start + text


def parse(head: bytes, total: int, name: str) -> Header:
    """Parse the header of an object of `total` bytes. `head` has the whole header, and maybe more.

    Raises CorruptError for a damaged header or a wrong size, and UnsupportedError for arrays that are not
    numbers in the order of C and of this machine. Errors begin with `name`.
    """
    offset = length(head, name)
    if len(head) < offset:
        raise CorruptError(f"{name}: it has {total} bytes, expected a header of {offset} {_COPY}")
    start = 10 if head[6] == 1 else 12
    try:
        found = ast.literal_eval(head[start:offset].decode("latin-1" if head[6] < 3 else "utf-8").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as cause:
        raise CorruptError(f"{name}: the header cannot be read: {cause} {_COPY}") from cause
    if not isinstance(found, dict) or found.keys() != {"descr", "fortran_order", "shape"}:
        raise CorruptError(f"{name}: the header is {found!r:.100}, expected descr, fortran_order and shape {_COPY}")
    shape = found["shape"]
    if not isinstance(shape, tuple) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        raise CorruptError(f"{name}: the shape is {shape!r:.100}, expected up to 64 sizes {_COPY}")
    dtype, width = _type(found["descr"], name)
    if found["fortran_order"] not in (True, False):
        raise CorruptError(f"{name}: fortran_order is {found['fortran_order']!r:.100}, expected True or False {_COPY}")
    if found["fortran_order"] and len(shape) > 1:
        raise UnsupportedError(
            f"{name}: the array of shape {shape} is in Fortran order (fix: save numpy.ascontiguousarray(a))"
        )
    size = math.prod(shape) * width
    if size != total - offset:
        raise CorruptError(
            f"{name}: it has {total - offset} bytes after its header, "
            f"expected {size} for {dtype} of shape {shape} {_COPY}"
        )
    return Header(dtype, shape, offset, size)


def _type(descr: object, name: str) -> tuple[str, int]:
    """Return the name and the bytes of a type."""
    if not isinstance(descr, str):
        raise UnsupportedError(
            f"{name}: the array has fields: {descr!r:.100} (fix: save each field as an array of its own)"
        )
    if descr.lstrip("|<>=")[:1] == "O":
        raise UnsupportedError(
            f"{name}: the array has Python objects, and reading them could run code (fix: save a.astype('<f4'))"
        )
    known = _TYPES.get(descr.lstrip("|<>="))
    if known is None:
        raise UnsupportedError(
            f"{name}: the data type is {descr!r:.40}, expected numbers "
            "(fix: save it as numbers, such as a.view('uint16'))"
        )
    width = 1 if known == "bool" else int(descr.lstrip("|<>=")[1:])
    if descr.startswith(">") and width > 1:
        raise UnsupportedError(
            f"{name}: the data type is {descr!r}, which is big-endian (fix: save a.astype({'<' + descr[1:]!r}))"
        )
    return known, width
