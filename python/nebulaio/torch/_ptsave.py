# SPDX-License-Identifier: Apache-2.0
"""`save` for the files of torch.save: torch writes the pickle, and the engine writes the tensors."""

from __future__ import annotations

import ctypes
import importlib
import io
import os
import pickle
import types
from typing import Any

from .. import _gather, _process
from .._handles import ProgressCallback
from .._report import Report
from ..errors import InvalidError, NebulaioError, UnsupportedError

torch: Any = importlib.import_module("torch")

ALIGNMENT = 4096
"""Offsets of storages in saved files are multiples of this number, so that they can be read past the page cache."""


class Layout:
    """The bytes of a file of torch.save: `pieces` in order, and what keeps their memory alive.

    `streams` has the current stream of each GPU: work queued on it may still write the tensors.
    """

    def __init__(self, obj: Any, pickle_protocol: int = 2) -> None:
        self._parts: list[Any] = []  # bytearrays of torch's own bytes, and storages
        self._storages: dict[str, Any] = {}
        gaps = _Sink(self._parts)
        config = importlib.import_module("torch.utils.serialization").config
        with config.patch("save.storage_alignment", ALIGNMENT), torch.serialization.skip_data():
            torch.save(obj, gaps, pickle_module=self._recorder(), pickle_protocol=pickle_protocol)
        self.pieces: list[_gather.Piece] = []
        self.streams: dict[str, int] = {}
        waiting = iter([storage for storage in self._storages.values() if storage.nbytes()])
        for at, part in enumerate(self._parts):
            if isinstance(part, int):
                part = self._parts[at] = self._reachable(next(waiting, None), part)
                self._add_storage(part)
            else:
                address = ctypes.addressof(ctypes.c_char.from_buffer(part))
                self.pieces.append(_gather.Piece(address, len(part), "host"))
        if next(waiting, None) is not None:
            raise UnsupportedError(
                "save: torch has left no place in the file for a storage (fix: use torch 2.11 or newer)")

    @property
    def size(self) -> int:
        """The number of bytes of the file."""
        return sum(piece.size for piece in self.pieces)

    def _recorder(self) -> Any:
        """Return a pickle module that notes each storage that torch names in the pickle."""
        storages = self._storages

        class Pickler(pickle.Pickler):
            def __init_subclass__(cls, **kwargs: Any) -> None:
                # torch.save derives a class whose persistent_id names storages.
                named = cls.persistent_id

                def persistent_id(self: Any, one: Any) -> Any:
                    said = named(self, one)
                    if said is not None:
                        storages.setdefault(said[2], getattr(one, "_untyped_storage", one))
                    return said

                setattr(cls, "persistent_id", persistent_id)  # noqa: B010 - mypy refuses to assign a method

        return types.SimpleNamespace(Pickler=Pickler, __name__="pickle")

    def _reachable(self, storage: Any, size: int) -> Any:
        """Return a storage in memory that the engine reaches."""
        if storage is None or storage.nbytes() != size:
            raise UnsupportedError(
                f"save: torch has left {size} bytes in the file for a storage of "
                f"{0 if storage is None else storage.nbytes()} bytes (fix: use torch 2.11 or newer)"
            )
        return storage if storage.device.type in ("cpu", "cuda") else storage.cpu()

    def _add_storage(self, storage: Any) -> None:
        device = "host"
        if storage.device.type == "cuda":
            device = f"cuda:{storage.device.index}"
            _process.current().require_cuda_after_fork(device)
            self.streams[device] = int(torch.cuda.current_stream(storage.device).cuda_stream)
        self.pieces.append(_gather.Piece(storage.data_ptr(), storage.nbytes(), device))


class _Sink:
    """A file for torch.save that keeps torch's own bytes, and the sizes of the places of storages."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def write(self, content: Any) -> int:
        if len(content):
            if not self._parts or isinstance(self._parts[-1], int):
                self._parts.append(bytearray())
            self._parts[-1] += content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Leave out the bytes of a storage. Torch writes a file from begin to end, and seeks for nothing else."""
        if whence != io.SEEK_CUR or offset < 0:
            raise UnsupportedError(f"save: torch seeks to {offset} (whence {whence}) in the file that it writes")
        if offset:
            self._parts.append(offset)
        return 0

    def flush(self) -> None:
        """Do nothing: the parts are complete."""


def save(
    obj: Any,
    path: str | os.PathLike[str],
    *,
    checksum: bool = True,
    pickle_protocol: int = 2,
    client: Any = None,
    progress: ProgressCallback | None = None,
) -> Report:
    """Save an object to a .pt or .bin file that torch.load reads, straight from GPU memory.

    The file appears under its name when it is complete and durable. Until then, an older file stays.

    Args:
        obj: What torch.save takes: tensors, modules, state dictionaries, nested containers.
        path: Path of the file, or s3://bucket/key.
        checksum: Whether to write checksums to FILE.crc64nvme, which load(verify=True) needs.
        pickle_protocol: Version of the pickle format.
        client: A GPUDirectClient for s3:// paths. Default: the settings of the environment.
        progress: Called with (bytes done, bytes in total) during the write.

    Returns:
        The report of the write.

    Raises:
        InvalidError: Torch cannot save the object, or an argument is wrong.
        NebulaioError: The write failed. An older file under this name is unchanged.
    """
    layout = layout_of(obj, path, pickle_protocol)
    with _gather.start_write(path, layout.pieces, streams=layout.streams, checksum=checksum, client=client) as running:
        return running.wait(progress)


def layout_of(obj: Any, path: str | os.PathLike[str], pickle_protocol: int) -> Layout:
    """Return the bytes of the file that torch.save would write for an object."""
    try:
        return Layout(obj, pickle_protocol)
    except NebulaioError:
        raise
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError, RecursionError) as cause:
        raise InvalidError(f"save {os.fsdecode(path)}: torch cannot save a {type(obj).__name__}: {cause}") from cause
