# SPDX-License-Identifier: Apache-2.0
"""Options of the process-wide system, checked, from configure() and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from .errors import InvalidError

Options = dict[str, "int | str"]

_SIZES: Final = ("buffer_pool_size", "max_transfer_size", "write_block_size")
_COUNTS: Final = ("queue_depth", "workers", "write_depth")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "io": ("auto", "uring", "pread"),
    "cufile": ("sync", "async", "batch"),
    "verify_on": ("auto", "host", "device"),
    "devices": ("auto", "require", "off"),
}
KEYS: Final = (*_SIZES, *_COUNTS, *_CHOICES)

_UNITS: Final[Mapping[str, int]] = {
    # As the command line reads them: K and KiB are 1024, kB is 1000.
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", re.ASCII)


def check(key: str, value: object, source: str) -> int | str:
    """Return the value of an option in the library's form.

    `source` names the origin of the value in messages. Raises InvalidError with the wrong
    value and the expected form.
    """
    if key in _CHOICES:
        if value in _CHOICES[key]:
            return str(value)
        raise InvalidError(f"{source}: {value!r} is not one of {', '.join(_CHOICES[key])}")
    if isinstance(value, str):
        number = _size(value) if key in _SIZES else _count(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        number = None
    if number is None or number < 0 or (key in _SIZES and number == 0):
        form = "a size such as 134217728 or '128MiB'" if key in _SIZES else "a whole number, 0 = auto"
        raise InvalidError(f"{source}: {value!r} is not {form}")
    return number


def size(name: str, value: object) -> int:
    """Return a size in bytes, given as a number or as text such as "128MiB". Raises InvalidError."""
    number = _size(value) if isinstance(value, str) else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    raise InvalidError(f"{name}={value!r} is not a size such as 134217728 or '128MiB'")


def from_environment(environment: Mapping[str, str] | None = None) -> Options:
    """Return the options from the environment variables NEBULAIO_<KEY>. Empty values count as unset."""
    found = os.environ if environment is None else environment
    options: Options = {}
    for key in KEYS:
        variable = "NEBULAIO_" + key.upper()
        value = found.get(variable, "").strip()
        if value:
            options[key] = check(key, value, f"environment variable {variable}")
    return options


def _size(value: str) -> int | None:
    match = _SIZE.fullmatch(value)
    if match is None:
        return None
    unit = _UNITS.get(match[2].upper())
    size = None if unit is None else Fraction(match[1]) * unit
    return int(size) if size is not None and size.denominator == 1 else None


def _count(value: str) -> int | None:
    return int(value) if value.isascii() and value.strip().isdigit() else None
