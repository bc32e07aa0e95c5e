# SPDX-License-Identifier: Apache-2.0
"""The stored tensors of safetensors files: where the bytes of each are. Two jobs read the headers of all files."""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _gather, _load
from ._frameworks.torch import _NAMES as TORCH_NAMES
from .errors import CorruptError, NotFoundError, ReadError, UnsupportedError

torch: Any = importlib.import_module("torch")

_FIRST = 64 << 10  # bytes of each file that the first job reads
_MOST_HEADER = 100_000_000


class Stored(NamedTuple):
    """A tensor in a file: the number of the file, and the offset of the first byte in the file."""

    name: str
    file: int
    begin: int
    dtype: Any
    shape: tuple[int, ...]


class Version(NamedTuple):
    """The identity of a file's content. Another write of the file changes it."""

    size: int
    mark: tuple[object, ...]


class Files:
    """Safetensors files that are read in ranges: paths, or URLs of objects on one server.

    `names` are the paths or URLs. `tensors` holds the stored tensors of each file, in the order of the file.
    `client` is a GPUDirectClient for URLs, or None for paths. Raises NotFoundError for a missing file, and
    CorruptError for one that is damaged or cut.
    """

    def __init__(self, names: Sequence[str], client: Any = None, verify: bool = False) -> None:
        self.names = list(names)
        self.client = client
        self.verify = verify
        self._versions = [self._look(name) for name in self.names]
        self.tensors = [
            _tensors(number, name, version.size, base, header)
            for number, (name, version, (base, header)) in enumerate(zip(self.names, self._versions, self._headers()))
        ]

    @property
    def size(self) -> int:
        """The number of bytes of all files."""
        return sum(version.size for version in self._versions)

    def check_unchanged(self) -> None:
        """Raise CorruptError if a file was replaced or changed since its header was read."""
        for name, version in zip(self.names, self._versions):
            if self._look(name) != version:
                raise CorruptError(f"load {name}: it was changed during the load (fix: load it again)")

    def _look(self, name: str) -> Version:
        if _load.is_url(name):
            _, bucket, key = _load.place(name, "load")
            found = self.client.stat(bucket, key)
            return Version(found.size, (found.etag, found.version))
        try:
            status = os.stat(name)
        except FileNotFoundError:
            raise NotFoundError(f"load {name}: there is no such file (fix: check the path)") from None
        except OSError as cause:
            raise ReadError(f"load {name}: {cause.strerror}") from cause
        return Version(status.st_size, (status.st_dev, status.st_ino, status.st_mtime_ns))

    def _headers(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the offset of the values and the header of each file."""
        sizes = [version.size for version in self._versions]
        first = [bytearray(min(_FIRST, size)) for size in sizes]
        self._read([0] * len(first), first)
        rest = []
        for name, size, piece in zip(self.names, sizes, first):
            length = int.from_bytes(piece[:8], "little")
            if len(piece) < 8 or not 2 <= length <= _MOST_HEADER or 8 + length > size:
                raise CorruptError(f"load {name}: not a complete safetensors file (fix: copy it again)")
            rest.append(bytearray(max(8 + length - len(piece), 0)))
        self._read([len(piece) for piece in first], rest)
        found = []
        for name, begin, end in zip(self.names, first, rest):
            length = int.from_bytes(begin[:8], "little")
            try:
                header = json.loads(bytes(begin[8 : 8 + length] + end))
                if not isinstance(header, dict):
                    raise TypeError(f"it is a {type(header).__name__}")
            except (ValueError, TypeError, RecursionError) as cause:
                raise CorruptError(f"load {name}: its header is damaged: {cause!s:.200}") from cause
            found.append((8 + length, header))
        return found

    def _read(self, offsets: Sequence[int], pieces: Sequence[bytearray]) -> None:
        wanted = [number for number, piece in enumerate(pieces) if piece]
        if wanted:
            segments = [
                _gather.Segment(at, offsets[number], len(pieces[number]), _address(pieces[number]), label="header")
                for at, number in enumerate(wanted)
            ]
            names = [self.names[number] for number in wanted]
            _gather.read(names, segments, device="host", verify=self.verify, client=self.client)


def _tensors(file: int, name: str, size: int, base: int, header: dict[str, Any]) -> list[Stored]:
    """Return the tensors of one file. Their bytes follow each other without gaps up to the end of the file."""
    header.pop("__metadata__", None)
    try:
        entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        at = 0
        found = []
        for tensor, entry in entries:
            begin, end = entry["data_offsets"]
            stored = Stored(tensor, file, base + begin, *_kind(name, tensor, entry["dtype"], entry["shape"]))
            if begin != at or end - begin != math.prod(stored.shape) * stored.dtype.itemsize:
                raise ValueError(
                    f"tensor {tensor!r} has the bytes {begin} to {end}, which do not fit {entry['shape']} at {at}")
            at = end
            found.append(stored)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        if isinstance(cause, CorruptError):
            raise
        raise CorruptError(f"load {name}: its header is damaged: {type(cause).__name__}: {cause!s:.200}") from cause
    if base + at != size:
        raise CorruptError(
            f"load {name}: it has {size} bytes, and its header describes {base + at} (fix: copy it again)")
    return found


def _kind(file: str, name: str, code: Any, shape: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor in torch, where two elements of F4 are one."""
    if not isinstance(shape, list) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"tensor {name!r} has the shape {shape!r:.100}")
    dtype = getattr(torch, TORCH_NAMES.get(code, ""), None)
    if code == "F4" and dtype is not None and shape and shape[-1] % 2 == 0:
        return dtype, (*shape[:-1], shape[-1] // 2)
    if dtype is None or code == "F4":
        raise UnsupportedError(f"load {file}: torch {torch.__version__} has no dtype {code!r:.50} for tensor {name!r}")
    return dtype, tuple(shape)


def _address(piece: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(piece))
