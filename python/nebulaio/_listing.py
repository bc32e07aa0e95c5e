# SPDX-License-Identifier: Apache-2.0
"""What a server tells of its objects and of itself: `stat`, `list` and `status` of a GPUDirectClient."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from . import _arguments, _objects
from ._connection import Connection
from .errors import InvalidError


@dataclass(frozen=True)
class ObjectInfo:
    """An object, or with `is_prefix` a prefix that several keys share, as `list` and `stat` tell of it."""

    bucket: str
    key: str
    size: int = 0
    etag: str = ""
    version: str = ""
    modified: datetime | None = None
    is_prefix: bool = False


class Listing(Connection):
    """A connection that can be asked what the server has."""

    def stat(self, bucket: str, key: str, version: str | None = None) -> ObjectInfo:
        """What an object is; raises NotFoundError where there is none."""
        found = _objects.ask(
            self._open(), "nebulaio_object_stat_start", _arguments.name("bucket", bucket), _arguments.name("key", key), _arguments.version(version)
        )
        return info(bucket, found)

    def list(self, bucket: str, prefix: str = "", delimiter: str = "", *, after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects of a bucket in the order of their keys, page by page.

        prefix: only keys that begin with it. delimiter: keys that have it behind the
            prefix are put together, as one entry with `is_prefix`. after: only what follows
            this key. limit: no more than that many entries.
        """
        name = _arguments.name("bucket", bucket)
        for what, text in (("prefix", prefix), ("delimiter", delimiter), ("after", after)):
            if not isinstance(text, str):
                raise InvalidError(f"{what}={text!r} is not text")
        most = _arguments.count("limit", limit)
        self._open()
        return self._pages(bucket, name, prefix, delimiter, after, most)

    def status(self) -> dict[str, Any]:
        """How the server is reached: by its door or why not, what it allows, and what was moved so far."""
        return _objects.ask(self._open(), "nebulaio_client_status_start")

    def _pages(self, bucket: str, name: bytes, prefix: str, delimiter: str, after: str, limit: int | None) -> Iterator[ObjectInfo]:
        left = limit
        while left is None or left > 0:
            options = {"prefix": prefix, "delimiter": delimiter, "after": after}
            if left is not None:
                options["limit"] = min(left, 1000)  # type: ignore[assignment]
            page = _objects.ask(self._open(), "nebulaio_object_list_start", name, json.dumps(options).encode())
            entries = [info(bucket, one) for one in page.get("objects") or ()]
            entries += [ObjectInfo(bucket, one, is_prefix=True) for one in page.get("prefixes") or ()]
            for entry in sorted(entries, key=lambda one: one.key.encode("utf-8", "surrogatepass")):
                yield entry
            left = None if left is None else left - len(entries)
            after = page.get("next") or ""
            if not page.get("truncated") or not after:
                return


def info(bucket: str, found: dict[str, Any]) -> ObjectInfo:
    """What the library says of an object."""
    modified = found.get("modified")
    when = None
    if modified and not modified.startswith("0001-"):
        base, _, fraction = modified.rstrip("Z").partition(".")
        when = datetime.fromisoformat(base).replace(tzinfo=timezone.utc)
        if fraction:
            when = when.replace(microsecond=int((fraction + "000000")[:6]))
    return ObjectInfo(
        bucket, found["key"], int(found.get("size", 0)), found.get("etag", ""), found.get("version", ""), when
    )
