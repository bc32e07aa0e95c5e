# SPDX-License-Identifier: Apache-2.0
"""Reads the metadata of a checkpoint, a pickle, without running code of the pickle."""

from __future__ import annotations

import copyreg
import dataclasses
import importlib
import io
import pathlib
import pickle
import re
from collections import OrderedDict
from pathlib import PurePosixPath
from typing import Any

from ..errors import CorruptError, UnsupportedError
from . import _opcodes

torch: Any = importlib.import_module("torch")

NAME = ".metadata"
"""The name of a checkpoint's metadata. The file with this name makes a checkpoint complete."""

MOST = 1 << 30
"""The largest metadata that is read, in bytes."""

_METADATA = "torch.distributed.checkpoint.metadata"
_MOST_BYTES = 1 << 62  # of a file
_PROPERTIES = 5  # entries of the state of a tensor's properties that every release has

_kinds: Any = importlib.import_module(_METADATA)

# Everything that torch's own savers put into a pickle of Metadata, by module. Older releases used the modules of
# sharded tensors.
_ALLOWED = {
    _METADATA: {
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint._hf_utils": {"_HFStorageInfo"},
    "torch.distributed._shard.sharded_tensor.metadata": {"MEM_FORMAT_ENCODING", "TensorProperties"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
}

_PATHS = {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"}


def rank_name(rank: int | None) -> str:
    """Return the name of the metadata of one rank, or of the whole checkpoint if the rank is None."""
    return NAME if rank is None else f"__{rank}{NAME}"


def load(data: bytes, what: str) -> Any:
    """Return the `Metadata` in the bytes of a metadata file. Errors begin with `what`.

    Raises:
        UnsupportedError: The pickle names a class or function that torch's metadata does not need.
        CorruptError: The bytes are no pickle of torch's metadata, or they are damaged.
    """
    try:
        _opcodes.check(data)
        metadata = _Unpickler(data, what).load()
    except UnsupportedError:
        raise
    except Exception as cause:
        # A damaged pickle can raise almost anything.
        raise CorruptError(
            f"{what}: not the metadata of a checkpoint: {type(cause).__name__}: {cause!s:.200} "
            "(fix: copy the checkpoint again, or load an older one)"
        ) from cause
    _check(metadata, what)
    return metadata


class _PropertiesOfAnyRelease(_kinds.TensorProperties):  # type: ignore[misc] # torch's types are unknown here
    """The properties of a tensor, also if a newer torch has saved them, which adds entries to their state."""

    def __setstate__(self, state: Any) -> None:
        try:
            super().__setstate__(state)
        except ValueError:
            super().__setstate__(tuple(state)[:_PROPERTIES])


def dump(metadata: Any) -> bytes:
    """Return the bytes of a metadata file, in the form that every torch from 2.11 on reads.

    The entries that newer releases add to the properties of a tensor are left out, because older ones refuse them.
    """
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=4)
    pickler.dispatch_table = {**copyreg.dispatch_table, _kinds.TensorProperties: _reduced}
    pickler.dump(_with_shared_parts(metadata))
    return file.getvalue()


def _with_shared_parts(metadata: Any) -> Any:
    """Return equal metadata in which equal shapes, names and properties are one object.

    A pickle writes an object once. The metadata of thousands of parts gets half as long, and is read in half the time.
    """
    texts: dict[str, str] = {}
    sizes: dict[Any, Any] = {}
    chunks: dict[Any, Any] = {}
    properties: dict[Any, Any] = {}

    def text(value: Any) -> Any:
        return texts.setdefault(value, value) if type(value) is str else value

    def size(value: Any) -> Any:
        return sizes.setdefault(value, value) if type(value) is torch.Size else value

    def chunk(value: Any) -> Any:
        if type(value) is not _kinds.ChunkStorageMetadata:
            return value
        offsets, lengths = size(value.offsets), size(value.sizes)
        try:
            return chunks.setdefault((offsets, lengths), _kinds.ChunkStorageMetadata(offsets=offsets, sizes=lengths))
        except TypeError:  # a planner of the user has put lists there
            return value

    def entry(value: Any) -> Any:
        if type(value) is not _kinds.TensorStorageMetadata:
            return value
        own = value.properties
        if type(own) is _kinds.TensorProperties:
            own = properties.setdefault(own.__getstate__(), own)
        return _kinds.TensorStorageMetadata(properties=own, size=size(value.size), chunks=[*map(chunk, value.chunks)])

    def index(value: Any) -> Any:
        if type(value) is not _kinds.MetadataIndex:
            return value
        return _kinds.MetadataIndex(fqn=text(value.fqn), offset=size(value.offset), index=value.index)

    stored = metadata.storage_data
    return dataclasses.replace(
        metadata,
        state_dict_metadata={text(name): entry(value) for name, value in metadata.state_dict_metadata.items()},
        storage_data={index(key): value for key, value in stored.items()} if type(stored) is dict else stored,
    )


def _reduced(properties: Any) -> Any:
    """Return how to pickle the properties of a tensor."""
    state = tuple(properties.__getstate__())[:_PROPERTIES]
    return copyreg.__newobj__, (_kinds.TensorProperties,), state  # type: ignore[attr-defined]


class _Unpickler(pickle.Unpickler):
    """An unpickler that finds only the classes of torch's metadata."""

    def __init__(self, data: bytes, what: str) -> None:
        super().__init__(io.BytesIO(data))
        self._what = what

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the allowed ones. Raises UnsupportedError with the name of any other."""
        if name in _ALLOWED.get(module, ()):
            found = getattr(importlib.import_module(module), name)
            return _PropertiesOfAnyRelease if found is _kinds.TensorProperties else found
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module.partition(".")[0] == "pathlib" and name in _PATHS:
            # A path of another system cannot be made here, and nobody opens it: it names where the save went.
            return PurePosixPath if name.endswith("PosixPath") else pathlib.PureWindowsPath
        raise UnsupportedError(
            f"{self._what}: its pickle names {module}.{name}, which is no part of a checkpoint's metadata; nothing of "
            "it was run (fix: load it only if you trust its origin, with torch's own FileSystemReader)"
        )


def _check(metadata: Any, what: str) -> None:
    """Raise CorruptError unless the loaded object is a `Metadata` with usable entries."""
    if not isinstance(metadata, _kinds.Metadata):
        raise CorruptError(f"{what}: it holds a {type(metadata).__name__}, expected torch's Metadata")
    checked: set[int] = set()  # sizes, chunks and properties that several tensors share
    paths: set[str] = set()
    try:
        for fqn, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, _kinds.TensorStorageMetadata):
                _check_tensor(entry, checked)
            elif not isinstance(entry, _kinds.BytesStorageMetadata):
                raise ValueError(f"{fqn!r} is a {type(entry).__name__}")
            if not isinstance(fqn, str):
                raise ValueError(f"the name {fqn!r} is not text")
        for index, info in (metadata.storage_data or {}).items():
            if not isinstance(index, _kinds.MetadataIndex) or not isinstance(index.fqn, str):
                raise ValueError(f"{index!r:.100} is not an index")
            path, offset, length = info.relative_path, info.offset, info.length
            if type(path) is not str or path not in paths:
                _check_path(path, index.fqn)
                paths.add(path)
            if type(offset) is not int or type(length) is not int or not (0 <= offset < _MOST_BYTES
                                                                          and 0 <= length < _MOST_BYTES):
                raise ValueError(f"{index.fqn!r} lies at {offset!r:.100} in {path!r:.200}, with {length!r:.100} bytes")
    except (AttributeError, TypeError, ValueError) as cause:
        raise CorruptError(
            f"{what}: not the metadata of a checkpoint: {cause!s:.200} (fix: copy the checkpoint again, or load an older one)"
        ) from cause


def _check_tensor(entry: Any, checked: set[int]) -> None:
    """Raise ValueError unless a tensor's entry has a dtype and shapes. `checked` has the ids of what was checked before.

    Everything is reachable from the metadata meanwhile, so that no id is used twice.
    """
    if id(entry.properties) not in checked:
        if isinstance(entry.properties, _PropertiesOfAnyRelease):
            entry.properties.__class__ = _kinds.TensorProperties  # whose equality asks for the same class
        if not isinstance(entry.properties.dtype, torch.dtype):
            raise ValueError(f"{entry.properties.dtype!r:.100} is not a dtype")
        checked.add(id(entry.properties))
    _check_size(entry.size, checked)
    for chunk in entry.chunks:
        if id(chunk) not in checked:
            if not isinstance(chunk, _kinds.ChunkStorageMetadata):
                raise ValueError(f"{chunk!r:.100} is not a chunk")
            _check_size(chunk.offsets, checked)
            _check_size(chunk.sizes, checked)
            checked.add(id(chunk))
        if len(chunk.sizes) != len(entry.size):
            raise ValueError(f"the chunk {chunk!r:.100} does not fit {tuple(entry.size)}")


def _check_size(size: Any, checked: set[int]) -> None:
    if id(size) not in checked:
        # A torch.Size has numbers only, and most sizes are of this type.
        if not (type(size) is torch.Size or all(isinstance(extent, int) for extent in size)) or min(size,
                                                                                                    default=0) < 0:
            raise ValueError(f"{size!r:.100} is not a shape")
        checked.add(id(size))


def _check_path(path: Any, fqn: str) -> None:
    """Raise ValueError unless the file of an item is inside of the checkpoint."""
    if not isinstance(path, str) or not path or "\0" in path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{fqn!r} lies in {path!r:.200}, which is not a file inside of the checkpoint")


DATA_FILE = re.compile(r"__(\d+)_\d+(_[0-9a-f]{16})?\.distcp")
"""The name of a data file, of stock torch or of ours. The first group is the rank, the second is our id."""


def files_of(metadata: Any) -> set[str]:
    """Return the names of the data files that a checkpoint's metadata names."""
    return {info.relative_path for info in (metadata.storage_data or {}).values()}


def id_of(metadata: Any) -> str | None:
    """Return the id of a checkpoint that this package has written, and None for a checkpoint of stock torch."""
    saved = getattr(getattr(metadata, "storage_meta", None), "save_id", None)
    ours = isinstance(saved, str) and re.fullmatch(r"[0-9a-f]{16}", saved) is not None
    return saved if ours else None
