# SPDX-License-Identifier: Apache-2.0
"""The place of a checkpoint: a directory, or a prefix of a bucket."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

from .. import _gather, _load
from .._report import Report
from ..errors import CorruptError, InvalidError, NotFoundError, UnsupportedError
from ..gpudirect import GPUDirectClient

_SUMS = ".crc64nvme"


def address_of(data: bytearray) -> int:
    """Return the address of a buffer's bytes. The buffer must not be resized or freed while the address is used."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) if data else 0


class Directory:
    """A checkpoint in a directory."""

    client: Any = None

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, name: str) -> str:
        """Return the path of a file of the checkpoint, as the library takes it."""
        return os.path.join(self.path, name)

    def make(self) -> None:
        """Create the directory and its parents, and make their names durable."""
        missing = []
        path = os.path.abspath(self.path)
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        os.makedirs(self.path, exist_ok=True)
        for made in reversed(missing):
            _sync(os.path.dirname(made))

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files by name. A missing directory has none."""
        found = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
        except FileNotFoundError:
            return {}
        return found

    def size(self, name: str) -> int | None:
        """Return the size of one file, or None if there is no such file."""
        try:
            return os.stat(self.file(name)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a small file. Raises NotFoundError, and CorruptError if it has more than `most` bytes."""
        try:
            with open(self.file(name), "rb") as file:
                data = file.read(most + 1)
        except (FileNotFoundError, NotADirectoryError) as cause:
            raise _missing(self.file(name)) from cause
        return _short(data, most, self.file(name))

    def stage(self, name: str, data: bytes, checksum: bool = False) -> Report:
        """Write a small file durably, and return the report with its checksum."""
        return _write(self, name, data, checksum)

    def rename(self, old: str, new: str) -> None:
        """Rename a data file and its checksums. The new names are durable after the next commit."""
        os.rename(self.file(old), self.file(new))
        try:
            os.rename(self.file(old + _SUMS), self.file(new + _SUMS))
        except FileNotFoundError:
            return  # a save without checksums

    def promote(self, staged: str, name: str, data: bytes) -> None:
        """Give a staged file its final name. On return the name is durable. This is the commit of a checkpoint."""
        os.rename(self.file(staged), self.file(name))
        _sync(self.path)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files. A missing file is no error."""
        for name in names:
            try:
                os.unlink(self.file(name))
            except FileNotFoundError:
                continue

    def sync(self) -> None:
        """Make all removals durable."""
        _sync(self.path)


class Prefix:
    """A checkpoint below a prefix of a bucket. Each object appears whole and durable, or not at all."""

    def __init__(self, url: str, client: Any) -> None:
        endpoint, bucket, key = _load.place(url, "checkpoint")
        if client is not None and endpoint is not None and endpoint != client.endpoint:
            raise InvalidError(f"checkpoint {url!r}: it lies at {endpoint}, the client's endpoint is {client.endpoint}")
        self.path = url.rstrip("/") + "/"
        self.client = GPUDirectClient(endpoint) if client is None else client
        self._bucket = bucket
        self._prefix = key.rstrip("/") + "/" if key.rstrip("/") else ""

    def file(self, name: str) -> str:
        """Return the URL of an object of the checkpoint."""
        return self.path + name

    def make(self) -> None:
        """Do nothing: a prefix needs no creation."""

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all objects by name, without those of deeper prefixes."""
        skip = len(self._prefix)
        found = self.client.list(self._bucket, self._prefix, "/")
        return {one.key[skip:]: one.size for one in found if not one.is_prefix and len(one.key) > skip}

    def size(self, name: str) -> int | None:
        """Return the size of one object, or None if there is no such object."""
        try:
            return int(self.client.stat(self._bucket, self._prefix + name).size)
        except NotFoundError:
            return None

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a small object. Raises NotFoundError, and CorruptError if it has more than `most` bytes."""
        size = self.size(name)
        if size is None:
            raise _missing(self.file(name))
        if size > most:
            raise CorruptError(f"read {self.file(name)}: it has {size} bytes, expected at most {most}")
        data = bytearray(size)
        if size:
            self.client.read_to_gpu(self._bucket, self._prefix + name, data)
        return bytes(data)

    def stage(self, name: str, data: bytes, checksum: bool = False) -> Report:
        """Write a small object and return the report with its checksum."""
        return _write(self, name, data, checksum)

    def rename(self, old: str, new: str) -> None:
        """Raise UnsupportedError: an object store has no renames."""
        raise UnsupportedError(
            f"save to {self.path}: the planner has used a plan of an earlier save, whose names are taken "
            "(fix: save to a bucket with a planner without enable_plan_caching)"
        )

    def promote(self, staged: str, name: str, data: bytes) -> None:
        """Write an object under its final name, and remove the staged one. This is the commit of a checkpoint."""
        _write(self, name, data, False)
        self.remove([staged])

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects. A missing object is no error."""
        for name in names:
            self.client.delete(self._bucket, self._prefix + name)

    def sync(self) -> None:
        """Do nothing: a removal is durable when the server has answered."""


Place = Directory | Prefix


def open_place(path: str | os.PathLike[str], client: Any) -> Place:
    """Return the place that a path or URL names. Raises InvalidError for an empty path, or a client with a path."""
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise InvalidError(f"checkpoint {name!r}: a path must not be empty or contain NUL")
    if _load.is_url(name):
        return Prefix(name, client)
    if client is not None:
        raise InvalidError(f"client= is given and {name!r} is a path (expected s3://bucket/prefix)")
    return Directory(name)


def is_place(path: Any) -> bool:
    """Return whether a value can name a checkpoint: a path, or a URL of an object store."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    name = os.fsdecode(path)
    return _load.is_url(name) or (bool(name) and "://" not in name and "\0" not in name)


def _write(place: Place, name: str, data: bytes, checksum: bool) -> Report:
    kept = bytearray(data)
    pieces = [_gather.Piece(address_of(kept), len(kept), "host")]
    return _gather.write(place.file(name), pieces, checksum=checksum, client=place.client)


def read_verified(place: Place, name: str, most: int) -> bytes:
    """Return the content of a small file that has checksums beside it. Raises CorruptError if they differ."""
    size = place.size(name)
    if size is None:
        raise _missing(place.file(name))
    if size > most:
        raise CorruptError(f"read {place.file(name)}: it has {size} bytes, expected at most {most}")
    data = bytearray(size)
    if size:
        segment = _gather.Segment(0, 0, size, address_of(data), label=name)
        _gather.read([place.file(name)], [segment], device="host", verify=True, client=place.client)
    return bytes(data)


def _missing(file: str) -> NotFoundError:
    return NotFoundError(
        f"read {file}: there is no such file (fix: check the checkpoint's path; an unfinished save has none)")


def _short(data: bytes, most: int, file: str) -> bytes:
    if len(data) > most:
        raise CorruptError(f"read {file}: it has more than {most} bytes")
    return data


def _sync(directory: str) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
