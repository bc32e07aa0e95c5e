# SPDX-License-Identifier: Apache-2.0
"""Finds where the values of each item are: by our manifest, by a model's headers, or in the item's own archive."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import _gather
from ..errors import CorruptError, NebulaioError, NotFoundError, UnsupportedError
from . import _hf, _manifest, _zips
from ._place import Place, address_of

torch: Any = importlib.import_module("torch")
_kinds: Any = importlib.import_module("torch.distributed.checkpoint.metadata")

_ROUND = 64 << 20  # bytes of small ranges that one job reads at most


class Source(NamedTuple):
    """An item in storage. `values` is None for bytes, and for an archive that only torch can read."""

    file: str
    offset: int
    length: int
    values: _zips.Values | None
    begin: int = 0  # offset of the values in the file


class Sources:
    """The places of all items of a plan."""

    def __init__(self, place: Place, metadata: Any, manifest: _manifest.Manifest | None, verify: bool) -> None:
        self._place = place
        self._metadata = metadata
        self._manifest = manifest
        self._verify = verify
        self._found: dict[Any, Source] = {}
        self._file_sizes: dict[str, int] = {}
        self.jobs: list[Any] = []
        """The reports of the jobs that have read small ranges."""

    def of(self, index: Any) -> Source:
        """Return the place of an item that `locate` or `find` has found."""
        return self._found[index]

    def locate(self, items: Sequence[Any], byte_items: Sequence[Any]) -> list[Any]:
        """Check that the files of a plan are there, and return the key by which to sort each of `items`.

        With a manifest, the values of tensors are found by `find`, so that the first ones are read while the others are
        looked for.
        """
        infos = [self._info(index) for index in items]
        others = [self._info(index) for index in byte_items]
        self._file_sizes = self._check_sizes([*zip(items, infos), *zip(byte_items, others)])
        for index, info in zip(byte_items, others):
            self._found[index] = Source(info.relative_path, info.offset, info.length, None)
        if self._manifest is None:
            self.find(items)  # now: a look into the data files would wait behind reads of tensors
        return [
            (info.relative_path, info.values.offset if isinstance(info, _hf.Stored) else info.offset) for info in infos
        ]

    def find(self, items: Iterable[Any]) -> None:
        """Find the values of tensors. Archives of stock torch are read in a few jobs for all items."""
        unknown, known = [], []
        for index in items:
            if index in self._found:
                continue
            info = self._metadata.storage_data[index]
            if isinstance(info, _hf.Stored):
                values = info.values
                found: Source | None = Source(info.relative_path, values.offset, values.size, values, values.offset)
            else:
                found = None if self._manifest is None else self._in_manifest(index, info)
            if found is None:
                unknown.append((index, info))
            else:
                self._found[index] = found
                known.append((index, found))
        self._look_inside(unknown, self._file_sizes)
        for index, found in [*known, *((index, self._found[index]) for index, _ in unknown)]:
            if found.values is not None:
                self._check(index, found)

    def check_rest(self) -> None:
        """Check the parts of the manifest that no item has needed yet."""
        if self._manifest is not None:
            self._manifest.items.check()

    def _info(self, index: Any) -> Any:
        info = self._metadata.storage_data.get(index)
        if info is None:
            raise CorruptError(
                f"load {self._place.path}: the metadata has no place for {index.fqn!r} at {index.offset} "
                "(fix: copy the checkpoint again, or load an older one)"
            )
        descriptors = getattr(info, "transform_descriptors", None)
        if descriptors:
            raise UnsupportedError(
                f"load {index.fqn!r} of {self._place.file(info.relative_path)}: it was transformed by {list(descriptors)} "
                "when it was saved, which only torch's FileSystemReader undoes (fix: load it with "
                "torch.distributed.checkpoint.FileSystemReader, and save it again without extensions)"
            )
        return info

    def _in_manifest(self, index: Any, info: Any) -> Source | None:
        assert self._manifest is not None
        shape = self._shape(index)
        at = tuple(index.offset) if index.offset is not None else (0,) * len(shape)
        entry = self._manifest.items.get(index.fqn, at)
        if entry is None or entry.dtype == "bytes":
            return None  # an archive that torch.save made as a whole
        dtype = _manifest.dtype_of(entry.dtype)
        inside = entry.file == info.relative_path and info.offset <= entry.offset and entry.offset + entry.size <= info.offset + info.length
        if dtype is None or not inside:
            raise CorruptError(
                f"load {index.fqn!r} of {self._place.file(info.relative_path)}: the manifest has {entry.dtype} at {entry.offset} "
                f"of {entry.file}, which is not in the item that the metadata names (fix: copy the checkpoint again)"
            )
        values = _zips.Values(entry.offset - info.offset, entry.size, dtype, entry.shape)
        return Source(info.relative_path, info.offset, info.length, values, entry.offset)

    def _shape(self, index: Any) -> tuple[int, ...]:
        """Return the shape of a stored part by the metadata."""
        entry = self._metadata.state_dict_metadata.get(index.fqn)
        if not isinstance(entry, _kinds.TensorStorageMetadata):
            raise CorruptError(f"load {index.fqn!r} of {self._place.path}: the metadata has no tensor of this name")
        if index.offset is None:
            return tuple(entry.size)
        if index.index is not None and index.index < len(entry.chunks) and entry.chunks[index.index].offsets == index.offset:
            return tuple(entry.chunks[index.index].sizes)
        for chunk in entry.chunks:
            if chunk.offsets == index.offset:
                return tuple(chunk.sizes)
        raise CorruptError(f"load {index.fqn!r} of {self._place.path}: the metadata has no part of it at {tuple(index.offset)}")

    def _check_sizes(self, infos: Iterable[tuple[Any, Any]]) -> dict[str, int]:
        """Return the sizes of the files. Raises an error for a missing or short one, before any tensor is changed."""
        ends: dict[str, tuple[int, str]] = {}
        for index, info in infos:
            end = info.values.offset + info.values.size if isinstance(info, _hf.Stored) else info.offset + info.length
            if end > ends.get(info.relative_path, (-1, ""))[0]:
                ends[info.relative_path] = end, index.fqn
        sizes = self._sizes(ends)
        for name, (end, fqn) in ends.items():
            size = sizes.get(name)
            if size is None:
                raise NotFoundError(
                    f"load {self._place.file(name)}: there is no such file, and tensor {fqn!r} is in it "
                    "(fix: copy the files of all ranks)"
                )
            wanted = self._manifest.files[name].size if self._manifest is not None and name in self._manifest.files else None
            if size < end or (wanted is not None and size != wanted):
                raise CorruptError(
                    f"load {self._place.file(name)}: it has {size} bytes, expected {wanted or f'at least {end}'}: tensor {fqn!r} "
                    "is not in it as a whole (fix: copy the file again)"
                )
        return sizes

    def _sizes(self, names: Iterable[str]) -> dict[str, int]:
        wanted = list(names)
        if any("/" in name for name in wanted) or len(wanted) <= 4:
            found = {name: self._place.size(name) for name in wanted}
            return {name: size for name, size in found.items() if size is not None}
        return self._place.sizes()

    def _look_inside(self, unknown: Sequence[tuple[Any, Any]], sizes: Mapping[str, int]) -> None:
        """Run the parsers of archives together: each round is one job with the ranges that they need next."""
        layouts = _zips.Layouts()
        running = []
        for index, info in unknown:
            parser = _zips.locate(info.length, sizes[info.relative_path] - info.offset, index.fqn, layouts)
            running.append((index, info, parser, next(parser)))
        while running:
            going = []
            for batch in _in_batches(running):
                for (index, info, parser, _), pieces in zip(batch, self._read(batch)):
                    try:
                        going.append((index, info, parser, parser.send(pieces)))
                    except StopIteration as end:
                        begin = info.offset + end.value.offset
                        self._found[index] = Source(info.relative_path, info.offset, info.length, end.value, begin)
                    except _zips.NotPlainError:
                        self._found[index] = Source(info.relative_path, info.offset, info.length, None)
                    except NebulaioError as cause:
                        raise type(cause)(
                            f"load {index.fqn!r} of {self._place.file(info.relative_path)}: the item at {info.offset}: {cause} "
                            "(fix: copy the file again, or load an older checkpoint)"
                        ) from cause
            running = going

    def _read(self, batch: Sequence[tuple[Any, Any, Any, list[_zips.Range]]]) -> list[list[bytes]]:
        """Read the ranges that parsers need."""
        total = sum(size for _, _, _, ranges in batch for _, size in ranges)
        memory = bytearray(total)
        base = address_of(memory)
        names = {name: number for number, name in enumerate(sorted({info.relative_path for _, info, _, _ in batch}))}
        segments, out, at = [], [], 0
        view = memoryview(memory)
        for index, info, _, ranges in batch:
            pieces = []
            for offset, size in ranges:
                if size:
                    segments.append(
                        _gather.Segment(names[info.relative_path], info.offset + offset, size, base + at, label=index.fqn)
                    )
                pieces.append((at, size))
                at += size
            out.append(pieces)
        if segments:
            report = _gather.read(
                [self._place.file(name) for name in names], segments, device="host", verify=self._verify, client=self._place.client
            )
            self.jobs.append(report)
        return [[bytes(view[begin : begin + size]) for begin, size in pieces] for pieces in out]

    def _check(self, index: Any, source: Source) -> None:
        """Raise CorruptError if an item has another dtype or shape than the metadata says."""
        values = source.values
        assert values is not None
        entry = self._metadata.state_dict_metadata.get(index.fqn)
        shape = self._shape(index)
        dtype = entry.properties.dtype
        size = math.prod(shape) * dtype.itemsize
        if values.dtype is not dtype or values.shape != shape or (values.strides is None and values.size != size):
            raise CorruptError(
                f"load {index.fqn!r} of {self._place.file(source.file)}: the item has {values.dtype} of shape {list(values.shape)}, "
                f"and the metadata says {dtype} of shape {list(shape)}: they are of different saves (fix: copy the checkpoint again)"
            )


def _in_batches(running: Sequence[Any]) -> Iterable[list[Any]]:
    batch: list[Any] = []
    size = 0
    for one in running:
        more = sum(length for _, length in one[3])
        if batch and size + more > _ROUND:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += more
    if batch:
        yield batch
