# SPDX-License-Identifier: Apache-2.0
"""A file or object that is read in ranges, as a Python file."""

from __future__ import annotations

import ctypes
import importlib
import io
import os
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .. import _gather, _load
from .._handles import ProgressCallback
from ..errors import AccessError, CorruptError, InvalidError, NotFoundError, ReadError

AHEAD = 256 << 10
"""Bytes that one read of an object fetches at least: a request costs more than these bytes."""

MOST = 1 << 30
"""Largest range that is read into host memory at once. A larger one comes from a damaged or hostile file."""


class Version(NamedTuple):
    """The identity of a file's content, which another write changes."""

    size: int
    mark: tuple[object, ...]


class Part(NamedTuple):
    """A range of the file, the storage of torch that receives it, and its name in errors."""

    offset: int
    storage: Any
    label: str


class Source(Protocol):
    """Something that is read in ranges. `Ranges` reads a file or object, `Content` has it in memory."""

    name: str
    verify: bool
    is_url: bool

    @property
    def size(self) -> int: ...

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]: ...

    def fill(self, device: str, stream: int, parts: Sequence[Part], progress: ProgressCallback | None) -> None: ...

    def confirm(self) -> None: ...

    def check_unchanged(self) -> None: ...


class Content:
    """The content of a small object, which was read before."""

    verify = False
    is_url = False

    def __init__(self, content: bytearray, name: str) -> None:
        self.name = name
        self._content = content

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self._content)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each range. Raises CorruptError for a range outside of the content."""
        _check_inside(self, ranges)
        return [bytes(memoryview(self._content)[offset : offset + size]) for offset, size in ranges]

    def fill(self, device: str, stream: int, parts: Sequence[Part], progress: ProgressCallback | None) -> None:
        """Copy parts into memory of one device."""
        torch: Any = importlib.import_module("torch")
        whole = torch.frombuffer(self._content, dtype=torch.uint8)
        for offset, storage, _ in parts:
            bytes_of = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            bytes_of.copy_(whole[offset : offset + storage.nbytes()])

    def confirm(self) -> None:
        """Do nothing: the read has checked the content."""

    def check_unchanged(self) -> None:
        """Do nothing: the content is this object's own."""


class Ranges:
    """A file or object whose ranges are read on demand.

    `name` is the path or URL for errors. With `verify`, `confirm` compares the ranges that were read with their
    checksums. A `Ranges` is a context manager that closes its file and its own client.
    """

    def __init__(self, path: str | os.PathLike[str], verify: bool = False, client: Any = None) -> None:
        self.name = os.fsdecode(path)
        self.verify = verify
        self.client = client
        self._fd = -1
        self._own: Any = None
        self._unconfirmed: list[tuple[int, bytes]] = []
        if not self.name or "\0" in self.name:
            raise InvalidError(f"load {self.name!r}: a path must not be empty or contain NUL")
        self.is_url = _load.is_url(path)
        if self.is_url:
            self._open_object()
        elif client is not None:
            raise InvalidError(f"client= is given and {self.name!r} is a path (expected s3://bucket/key)")
        else:
            self._open_file()
        self.version = self._look()

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.version.size

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each range (offset, size). All ranges are inside the file."""
        _check_inside(self, ranges)
        if self.is_url:
            found = self._gather(ranges, verify=False)
        else:
            found = [self._pread(offset, size) for offset, size in ranges]
        if self.verify:
            self._unconfirmed += [(offset, content) for (offset, _), content in zip(ranges, found)]
        return found

    def fill(
        self, device: str, stream: int, parts: Sequence[Part], progress: ProgressCallback | None
    ) -> None:
        """Read parts into memory of one device, in one job."""
        segments = [
            _gather.Segment(0, offset, storage.nbytes(), storage.data_ptr(), label=label)
            for offset, storage, label in parts
        ]
        _gather.read(
            [self.name], segments, device=device, stream=stream, verify=self.verify, client=self.client,
            progress=progress
        )

    def confirm(self) -> None:
        """With `verify`, compare what was read since the last call with its checksums. Otherwise do nothing.

        The check comes after the read, so that an error can name the tensors of a damaged block.
        """
        used, self._unconfirmed = self._unconfirmed, []
        again = self._gather([(offset, len(content)) for offset, content in used], verify=True)
        if any(content != other for (_, content), other in zip(used, again)):
            raise self._changed()

    def _gather(self, ranges: Sequence[tuple[int, int]], verify: bool) -> list[bytes]:
        buffers = [bytearray(size) for _, size in ranges]
        parts = [
            _gather.Segment(0, offset, size, _address(buffer), label="(description of the tensors)")
            for (offset, size), buffer in zip(ranges, buffers)
            if size
        ]
        if parts:
            _gather.read([self.name], parts, device="host", verify=verify, client=self.client)
        return [bytes(buffer) for buffer in buffers]

    def check_unchanged(self) -> None:
        """Raise CorruptError if the content was replaced or changed since it was opened."""
        if self._look() != self.version or (not self.is_url and self._named() != self.version):
            raise self._changed()

    def _changed(self) -> CorruptError:
        return CorruptError(f"load {self.name}: it was changed during the load (fix: load it again)")

    def close(self) -> None:
        """Close the file and the client that this object opened. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._own is not None:
            self._own.close()
            self._own = None

    def __enter__(self) -> Ranges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_file(self) -> None:
        try:
            self._fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFoundError(f"load {self.name}: there is no such file (fix: check the path)") from None
        except PermissionError:
            raise AccessError(f"load {self.name}: permission denied (fix: check the owner and the mode)") from None
        except OSError as cause:
            raise ReadError(f"load {self.name}: {cause.strerror}") from cause

    def _open_object(self) -> None:
        from ..gpudirect import GPUDirectClient

        endpoint, self._bucket, self._key = _load.place(self.name, "load")
        if not self._key:
            raise InvalidError(f"load {self.name!r}: the URL names no object (expected s3://bucket/key)")
        if self.client is None:
            self.client = self._own = GPUDirectClient(endpoint)
        elif endpoint is not None and endpoint != self.client.endpoint:
            raise InvalidError(
                f"load {self.name!r}: it lies at {endpoint}, the client's endpoint is {self.client.endpoint}")

    def _look(self) -> Version:
        if self.is_url:
            found = self.client.stat(self._bucket, self._key)
            return Version(found.size, (found.etag, found.version))
        return self._version(os.fstat(self._fd))

    def _named(self) -> Version | None:
        try:
            return self._version(os.stat(self.name))
        except OSError:
            return None

    def _version(self, found: os.stat_result) -> Version:
        if not stat.S_ISREG(found.st_mode):
            raise InvalidError(f"load {self.name}: it is not a regular file (expected a file of torch.save)")
        return Version(found.st_size, (found.st_dev, found.st_ino, found.st_mtime_ns))

    def _pread(self, offset: int, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                piece = os.pread(self._fd, size - len(found), offset + len(found))
            except OSError as cause:
                raise ReadError(f"load {self.name}: read {size} bytes at {offset}: {cause.strerror}") from cause
            if not piece:
                raise CorruptError(f"load {self.name}: it was cut during the load (fix: load it again)")
            found += piece
        return bytes(found)


class RangesFile(io.RawIOBase):
    """The file of a `Source` for readers that seek. Ranges that were read are kept."""

    def __init__(self, ranges: Source) -> None:
        self._ranges = ranges
        self._at = 0
        self._spans: list[tuple[int, bytes]] = []
        if ranges.is_url:
            self._fetch_ends()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._ranges.size}[whence]
        if start + offset < 0:
            raise ValueError(f"seek to {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        size = max(min(len(target), self._ranges.size - self._at), 0)
        if size:
            target[:size] = self._find(self._at, size)
            self._at += size
        return size

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes. A size that the file does not have costs no memory."""
        left = max(self._ranges.size - self._at, 0)
        size = left if size is None or size < 0 else min(size, left)
        if not size:
            return b""
        found = self._find(self._at, size)
        self._at += size
        return bytes(found)

    def _find(self, offset: int, size: int) -> memoryview | bytes:
        for start, content in self._spans:
            if start <= offset and offset + size <= start + len(content):
                return memoryview(content)[offset - start : offset - start + size]
        ahead = size if not self._ranges.is_url else min(max(size, AHEAD), self._ranges.size - offset)
        (content,) = self._ranges.read([(offset, ahead)])
        self._spans.insert(0, (offset, content))
        return memoryview(content)[:size]

    def _fetch_ends(self) -> None:
        """Read the begin and the end in one job: torch writes its pickle first and its directory last."""
        size = self._ranges.size
        if size <= 2 * AHEAD:
            ends = [(0, size)]
        else:
            ends = [(0, AHEAD), (size - AHEAD, AHEAD)]
        self._spans = [(at, content) for (at, _), content in zip(ends, self._ranges.read(ends))]


def _check_inside(source: Source, ranges: Sequence[tuple[int, int]]) -> None:
    """Raise CorruptError if a range is not inside the file, or too large for host memory."""
    for offset, size in ranges:
        if size > MOST or offset < 0 or offset + size > source.size:
            raise CorruptError(
                f"load {source.name}: it refers to {size} bytes at {offset}, and has {source.size} bytes "
                f"(at most {MOST} bytes are read at once; fix: copy it again, or save it again)"
            )


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if buffer else 0
