# SPDX-License-Identifier: Apache-2.0
"""Reads the headers of safetensors files as the metadata of a checkpoint: Hugging Face models, and shards of torch."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import _gather
from ..errors import CorruptError, NotFoundError, UnsupportedError
from . import _manifest, _zips
from ._place import Place, address_of

torch: Any = importlib.import_module("torch")
_kinds: Any = importlib.import_module("torch.distributed.checkpoint.metadata")

INDEX = "model.safetensors.index.json"
SHARDING = "DCP_SHARDING_INFO"
OFFSETS = "saved_offsets"

_SUFFIX = ".safetensors"
_FIRST = 64 << 10  # bytes of each file that the first job reads
_MOST_HEADER = 100_000_000
_MOST_INDEX = 1 << 30


class Stored(NamedTuple):
    """Where the values of a tensor are: torch's metadata keeps it as the storage data of an index."""

    relative_path: str
    values: _zips.Values

    @property
    def offset(self) -> int:
        """The offset of the values in the file."""
        return self.values.offset

    @property
    def length(self) -> int:
        """The number of bytes of the values."""
        return self.values.size


def is_model(sizes: Mapping[str, int]) -> bool:
    """Return whether a place has safetensors files."""
    return any(name.endswith(_SUFFIX) for name in sizes)


def read_metadata(place: Place, sizes: Mapping[str, int], verify: bool) -> Any:
    """Return the `Metadata` of all tensors of a model in a place with these files.

    The files are those of our manifest, else those of the index, else all. Each part of a tensor is a chunk, at the
    offset that the sharding information names. Without sharding information, a file holds whole tensors.
    """
    names = _files(place, sizes)
    for name in names:
        if name not in sizes:
            raise NotFoundError(
                f"read {place.file(name)}: the model names this file, and there is no such file (fix: copy it again)")
    metadata = _kinds.Metadata(state_dict_metadata={}, storage_data={})
    for name, (base, header) in zip(names, _headers(place, names, sizes, verify)):
        _add_file(metadata, name, sizes[name], base, header, f"read {place.file(name)}")
    for fqn, entry in metadata.state_dict_metadata.items():
        covered = sum(math.prod(chunk.sizes) for chunk in entry.chunks)
        if covered < math.prod(entry.size):
            raise CorruptError(
                f"read {place.path}: the parts of tensor {fqn!r} have {covered} of {math.prod(entry.size)} elements "
                "(fix: copy the files of all ranks)"
            )
    return metadata


def _files(place: Place, sizes: Mapping[str, int]) -> list[str]:
    manifests = [name for name in sizes if _manifest.FILE.fullmatch(name)]
    if len(manifests) == 1:
        manifest = _manifest.decode(place.read(manifests[0], _manifest.MOST), f"read {place.file(manifests[0])}")
        for file in manifest.files.values():
            if sizes.get(file.name, file.size) != file.size:
                raise CorruptError(
                    f"read {place.file(file.name)}: it has {sizes[file.name]} bytes, and the manifest says {file.size} "
                    "(fix: copy the file again)"
                )
        return sorted(manifest.files)
    if INDEX in sizes:
        try:
            found = json.loads(place.read(INDEX, _MOST_INDEX))["weight_map"].values()
            names = sorted(set(found))
            if not all(isinstance(name, str) and "/" not in name and name.endswith(_SUFFIX) for name in names):
                raise ValueError("a file is not a .safetensors file beside the index")
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise CorruptError(
                f"read {place.file(INDEX)}: not an index: {type(cause).__name__}: {cause!s:.200}") from cause
        return names
    return sorted(name for name in sizes if name.endswith(_SUFFIX))


def _headers(place: Place, names: Sequence[str], sizes: Mapping[str, int], verify: bool) -> list[tuple[int, Any]]:
    """Return the offset of the values and the header of each file. Two jobs read the headers of all files."""
    first = [bytearray(min(_FIRST, sizes[name])) for name in names]
    _read(place, names, [(0, piece) for piece in first], verify)
    rest = []
    for name, piece in zip(names, first):
        length = int.from_bytes(piece[:8], "little")
        if len(piece) < 8 or not 2 <= length <= _MOST_HEADER or 8 + length > sizes[name]:
            raise CorruptError(f"read {place.file(name)}: not a complete safetensors file (fix: copy it again)")
        rest.append(bytearray(max(8 + length - len(piece), 0)))
    _read(place, names, [(len(begin), piece) for begin, piece in zip(first, rest)], verify)
    found = []
    for name, begin, end in zip(names, first, rest):
        length = int.from_bytes(begin[:8], "little")
        try:
            header = json.loads(bytes(begin[8 : 8 + length] + end))
            if not isinstance(header, dict):
                raise TypeError(f"it is a {type(header).__name__}")
        except (ValueError, TypeError, RecursionError) as cause:
            raise CorruptError(f"read {place.file(name)}: its header is damaged: {cause!s:.200}") from cause
        found.append((8 + length, header))
    return found


def _read(place: Place, names: Sequence[str], pieces: Sequence[tuple[int, bytearray]], verify: bool) -> None:
    segments = [
        _gather.Segment(number, offset, len(piece), address_of(piece), label="header")
        for number, (offset, piece) in enumerate(pieces)
        if piece
    ]
    if segments:
        used = sorted({segment.file for segment in segments})
        segments = [segment._replace(file=used.index(segment.file)) for segment in segments]
        files = [place.file(names[number]) for number in used]
        _gather.read(files, segments, device="host", verify=verify, client=place.client)


def _add_file(metadata: Any, name: str, size: int, base: int, header: dict[str, Any], what: str) -> None:
    """Add the tensors of one file to the metadata."""
    try:
        told = header.pop("__metadata__", None) or {}
        places = json.loads(told[SHARDING]) if told.get(SHARDING) else None
        for fqn, entry in header.items():
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            dtype = _zips.dtype_of(entry["dtype"])
            if dtype is None:
                raise UnsupportedError(f"{what}: torch has no dtype {entry['dtype']!r:.50} for tensor {fqn!r}")
            at = tuple(places[fqn][OFFSETS]) if places is not None else (0,) * len(shape)
            if len(at) != len(shape) or not all(isinstance(n, int) and n >= 0 for n in (*shape, *at, begin, end)):
                raise ValueError(f"tensor {fqn!r} has shape {shape} at {at}")
            if end - begin != math.prod(shape) * dtype.itemsize or base + end > size:
                raise ValueError(f"tensor {fqn!r} has bytes {begin} to {end}, which do not fit {shape} of {dtype}")
            _add_chunk(metadata, fqn, dtype, shape, at)
            index = _kinds.MetadataIndex(fqn=fqn, offset=at)
            if index in metadata.storage_data:
                raise ValueError(
                    f"tensor {fqn!r} is in {metadata.storage_data[index].relative_path} too, at the same place {at}")
            metadata.storage_data[index] = Stored(name, _zips.Values(base + begin, end - begin, dtype, shape))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        if isinstance(cause, (UnsupportedError, CorruptError)):
            raise
        raise CorruptError(f"{what}: its header is damaged: {type(cause).__name__}: {cause!s:.200}") from cause


def _add_chunk(metadata: Any, fqn: str, dtype: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> None:
    chunk = _kinds.ChunkStorageMetadata(offsets=torch.Size(at), sizes=torch.Size(shape))
    known = metadata.state_dict_metadata.get(fqn)
    reach = [begin + extent for begin, extent in zip(at, shape)]
    if known is None:
        properties = _kinds.TensorProperties(dtype=dtype)
        metadata.state_dict_metadata[fqn] = _kinds.TensorStorageMetadata(properties, torch.Size(reach), [chunk])
        return
    if known.properties.dtype is not dtype or len(known.size) != len(shape):
        raise ValueError(f"the parts of tensor {fqn!r} differ in dtype or rank")
    known.chunks.append(chunk)
    known.size = torch.Size(max(a, b) for a, b in zip(known.size, reach))
