# SPDX-License-Identifier: Apache-2.0
"""The steps of a save: look at each tensor, start, wait. No byte passes through Python."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _abi, _handles, _load, _process
from ._connection import with_environment
from ._frameworks import hold
from ._frameworks.held import Held
from .errors import ArgumentTypeError, InvalidError


class Save(_handles.Job):
    """A save job. The tensors still belong to the caller."""

    def __init__(
        self, system: _process.System, path: bytes, tensors: Sequence[Held], stream: int, options: dict[str, Any]
    ) -> None:
        self._path = path
        self._stream = stream
        self._options = json.dumps(options).encode()
        self._tensors = (_abi.Tensor * len(tensors))()
        self._shapes = []
        for slot, tensor in zip(self._tensors, tensors):
            shape = (ctypes.c_int64 * len(tensor.shape))(*tensor.shape)
            self._shapes.append(shape)
            slot.name = tensor.name.encode()
            slot.dtype = tensor.dtype.encode()
            slot.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
            slot.rank = len(tensor.shape)
            slot.address = tensor.address
            slot.size = tensor.size
            slot.device = tensor.device.encode()
        super().__init__(system, tensors)

    def _start(self) -> None:
        _abi.call(
            self.system.functions.nebulaio_save_start,
            self.system.handle,
            self._path,
            self._tensors,
            len(self._tensors),
            self._stream,
            self._options,
            ctypes.byref(self.number),
        )


def prepare(tensors: Mapping[str, Any]) -> list[Held]:
    """Return the tensors of a save as `write` takes them. nebulaio.safetensors.save_file documents the errors."""
    held = [hold(key, tensor) for key, tensor in named(tensors)]
    refuse_shared(held)
    return held


def write(
    held: Sequence[Held],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None,
    checksum: bool,
    progress: _handles.ProgressCallback | None,
    client: Any = None,
) -> None:
    """Save prepared tensors to path."""
    name = os.fsencode(path)
    if not name or b"\0" in name:
        raise InvalidError(f"save {os.fspath(path)!r}: a path must not be empty or contain NUL")
    options: dict[str, Any] = {}
    if metadata is not None:
        options["metadata"] = texts(metadata)
    if not checksum:
        options["checksum"] = False
    server = server_of(path, client)
    if server is not None:
        options["client"] = server
    holder = _process.current()
    gpus = [tensor.device for tensor in held if tensor.device != "host"]
    if gpus:
        holder.require_cuda_after_fork(gpus[0])
    system = holder.open() if client is None else client._open().system
    streams = _streams(held)
    if gpus:
        system.cuda_used = True
        options["streams"] = streams
    with Save(system, name, held, streams[gpus[0]] if gpus else 0, options) as running:
        running.wait(progress)


def server_of(path: str | os.PathLike[str], client: Any) -> dict[str, Any] | None:
    """Return the client options for a save to a URL, completed from os.environ, or None for a file."""
    if not _load.is_url(path):
        if client is not None:
            raise InvalidError(f"client= is given and {os.fsdecode(path)!r} is a path (expected s3://bucket/key)")
        return None
    endpoint = _load.place(os.fsdecode(path), "save")[0]
    if client is not None and endpoint is not None and endpoint != client.endpoint:
        raise InvalidError(
            f"save {os.fsdecode(path)!r}: it lies at {endpoint}, the client's endpoint is {client.endpoint}")
    given = {} if client is None else dict(client._options)
    return with_environment(given if endpoint is None else {**given, "endpoint": endpoint}, os.environ)


def named(tensors: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the tensors with their names. Raises InvalidError for names that are not text."""
    if not isinstance(tensors, Mapping):
        raise ArgumentTypeError(f"save: tensors is a {type(tensors).__name__}, expected a dict of tensors by name")
    for name in tensors:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"save: the tensor name {name!r} is a {type(name).__name__}, expected text")
        if "\0" in name or not _is_text(name):
            raise InvalidError(f"save: the tensor name {name!r} contains NUL or half a character, expected text")
    return list(tensors.items())


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def texts(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata. Raises InvalidError for values that are not text."""
    if not isinstance(metadata, Mapping):
        raise ArgumentTypeError(f"save: metadata is a {type(metadata).__name__}, expected a dict of text or None")
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ArgumentTypeError(f"save: metadata {key!r}: {value!r} is not text, expected a dict of str to str")
        if not _is_text(key) or not _is_text(value):
            raise InvalidError(f"save: metadata {key!r}: {value!r} is not text, expected a dict of str to str")
    return dict(metadata)


class SharedMemoryError(InvalidError, RuntimeError):
    """Tensors of torch or of a GPU share memory. The class is a RuntimeError too, as in the package safetensors."""


def refuse_shared(held: Sequence[Held]) -> None:
    """Raise SharedMemoryError if tensors share memory.

    The file would hold the shared memory twice, and a load would separate the tensors. NumPy
    arrays may share memory: slicing makes views, and the package safetensors saves each.
    """
    end: dict[str, tuple[int, str]] = {}
    for tensor in sorted(held, key=lambda tensor: (tensor.device, tensor.address)):
        if tensor.size == 0 or tensor.shareable:
            continue
        last, other = end.get(tensor.device, (0, ""))
        if tensor.address < last:
            raise SharedMemoryError(
                f"save: tensors {other!r} and {tensor.name!r} share memory: each would get its own copy in the file, "
                "and a load would return separate tensors (fix: leave one of them out, save "
                f"{tensor.name!r} as a copy with .clone(), or use save_model for a module)"
            )
        end[tensor.device] = (tensor.address + tensor.size, tensor.name)


def _streams(held: Sequence[Held]) -> dict[str, int]:
    """Return the stream to wait for on each GPU. Work on a second stream of a GPU is waited for here."""
    streams: dict[str, int] = {}
    for tensor in held:
        if tensor.device == "host" or tensor.stream is None:
            continue
        if streams.setdefault(tensor.device, tensor.stream) != tensor.stream:
            tensor.synchronize()
    for tensor in held:
        if tensor.device != "host":
            streams.setdefault(tensor.device, 0)
    return streams
