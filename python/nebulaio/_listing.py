# SPDX-License-Identifier: Apache-2.0
"""The queries of a GPUDirectClient: `stat`, `list`, `delete` and `status`."""

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
    """An object that `list` or `stat` found. With `is_prefix`, it is a common prefix of several keys."""

    bucket: str
    key: str
    size: int = 0
    etag: str = ""
    version: str = ""
    modified: datetime | None = None
    is_prefix: bool = False


class Listing(Connection):
    """A connection with queries to the server."""

    def stat(self, bucket: str, key: str, version: str | None = None) -> ObjectInfo:
        """Return the properties of an object. Raises NotFoundError if the object does not exist."""
        found = _objects.ask(
            self._open(), "nebulaio_object_stat_start", _arguments.name("bucket", bucket), _arguments.name("key", key),
            _arguments.version(version)
        )
        return info(bucket, found)

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object. A missing object is no error.

        In a bucket with versions, the object is hidden and its versions are kept. The removal goes over HTTP, because
        the door only reads and writes.
        """
        _objects.ask(
            self._open(), "nebulaio_object_delete_start", _arguments.name("bucket", bucket), _arguments.name("key", key)
        )

    def list(self, bucket: str, prefix: str = "", delimiter: str = "", *, after: str = "",
             limit: int | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects of a bucket in the order of their keys, page by page.

        Args:
            bucket: Name of the bucket.
            prefix: Yield only keys that begin with this text.
            delimiter: Group keys that contain this text after the prefix into one entry with
                `is_prefix`.
            after: Yield only keys behind this key.
            limit: Largest number of entries to yield; None means all.
        """
        name = _arguments.name("bucket", bucket)
        for what, text in (("prefix", prefix), ("delimiter", delimiter), ("after", after)):
            if not isinstance(text, str):
                raise InvalidError(f"{what}={text!r} is not text")
        most = _arguments.count("limit", limit)
        self._open()
        return self._pages(bucket, name, prefix, delimiter, after, most)

    def status(self) -> dict[str, Any]:
        """Return how the client reaches the server (through the door, or why not), the limits and the counters."""
        return _objects.ask(self._open(), "nebulaio_client_status_start")

    def _pages(self, bucket: str, name: bytes, prefix: str, delimiter: str, after: str,
               limit: int | None) -> Iterator[ObjectInfo]:
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
    """Convert the library's description of an object."""
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
