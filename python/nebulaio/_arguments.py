# SPDX-License-Identifier: Apache-2.0
"""Checks of client arguments. Each returns the form that the library takes, or raises InvalidError."""

from __future__ import annotations

from typing import Any, Literal, get_args

from . import _buffers
from .errors import InvalidError

Route = Literal["auto", "buffered", "direct", "cufile"]
Cache = Literal["auto", "keep", "bypass"]


def choices(route: str, cache: str) -> dict[str, Any]:
    """Return the route and cache options for the library, without defaults."""
    for name, value, allowed in (("route", route, get_args(Route)), ("cache", cache, get_args(Cache))):
        if value not in allowed:
            raise InvalidError(f"{name}={value!r} is not one of {', '.join(allowed)}")
    return {name: value for name, value in (("route", route), ("cache", cache)) if value != "auto"}


def fits(memory: _buffers.Memory, skipped: int, wanted: int) -> None:
    """Raise InvalidError if the buffer has fewer than `wanted` bytes after `skipped`."""
    if skipped + wanted > memory.size:
        raise InvalidError(
            f"{wanted} bytes at buffer_offset {skipped}: the buffer has only {memory.size} bytes "
            "(fix: pass a smaller size or buffer_offset, or a larger buffer)"
        )


def name(what: str, value: Any) -> bytes:
    """Return the bytes of a bucket name or key."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidError(f"{what}={value!r} is not a name: expected text that is not empty and has no NUL")
    return value.encode("utf-8", "surrogatepass")


def version(value: Any) -> bytes | None:
    """Return the bytes of a version, or None for the newest."""
    return None if value is None else name("version", value)


def word(name: str, value: Any) -> str | None:
    """Return text, or None."""
    if value is None or (isinstance(value, str) and "\0" not in value):
        return value
    raise InvalidError(f"{name} is of type {type(value).__name__}, or has a NUL in it; expected text")


def count(name: str, value: Any) -> int | None:
    """Return a whole number, or None."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31):
        return value
    raise InvalidError(f"{name}={value!r} is not a whole number of 0 or more")


def truth(name: str, value: Any) -> bool:
    """Return True or False."""
    if isinstance(value, bool):
        return value
    raise InvalidError(f"{name}={value!r} is not True or False")


def milliseconds(seconds: Any) -> int | None:
    """Convert seconds to the library's milliseconds."""
    if seconds is None:
        return None
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds <= 86400:
        return max(1, round(seconds * 1000))
    raise InvalidError(f"timeout={seconds!r} is not a number of seconds above 0 and up to 86400")
