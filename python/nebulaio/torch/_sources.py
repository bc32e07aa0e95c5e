# SPDX-License-Identifier: Apache-2.0
"""Finds where the values of each item are: by our manifest, by a model's headers, or in the item's own archive."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .. import _gather
from ..errors import CorruptError, NebulaioError, NotFoundError, UnsupportedError
from . import _hf, _manifest, _pickles, _rows, _zips
from ._place import Place, address_of
from ._rows import Want

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


class _Begun(NamedTuple):
    """A parser of an archive, with the ranges that it needs next, and their bytes once they are read."""

    want: Want
    info: Any
    parser: _zips.Parser
    ranges: list[_zips.Range]
    pieces: list[bytes] | None = None


class Sources:
    """The places of all items of a plan."""

    def __init__(self, place: Place, metadata: Any, manifest: _manifest.Manifest | None, verify: bool) -> None:
        self._place = place
        self._metadata = metadata
        self._manifest = manifest
        self._verify = verify
        self._infos = {(index.fqn, index.offset): info for index, info in metadata.storage_data.items()}
        self._found: dict[tuple[str, Any], Source] = {}
        self._file_sizes: dict[str, int] = {}
        self._layouts = _zips.Layouts()
        self._begun: dict[tuple[str, Any], _Begun] = {}
        self.jobs: list[Any] = []
        """The reports of the jobs that have read small ranges."""

    def of(self, want: Want) -> Source:
        """Return the place of a part that `find` has found."""
        return self._found[want.fqn, want.at]

    def object(self, index: Any) -> Source:
        """Return the place of an item that is no tensor, which `locate` has checked."""
        info = self._infos[index.fqn, index.offset]
        return Source(info.relative_path, info.offset, info.length, None)

    def locate(self, items: Sequence[Any], byte_items: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """Check that the files of a plan are there. Return the key by which to sort each of `items`, and its parts.

        With a manifest, the values of tensors are found by `find`, so that the first ones are read while the others are
        looked for.
        """
        ends: dict[str, int] = {}
        last: dict[str, str] = {}  # the tensor that ends there
        keys, counts = [], []
        for index, item in [*((item.storage_index, item) for item in items), *((index, None) for index in byte_items)]:
            rows = None if item is None else self._rows(item)
            places = (index.offset,) if rows is None else _rows.places(rows, item)
            infos: list[Any] = [self._infos.get((index.fqn, at)) for at in places]
            for info in infos:
                if info is None or getattr(info, "transform_descriptors", None):
                    raise self._refused(index.fqn, infos)
                end = info.offset + info.length
                if end > ends.get(info.relative_path, -1):
                    ends[info.relative_path], last[info.relative_path] = end, index.fqn
            keys.append((infos[0].relative_path, infos[0].offset) if infos else ("", 0))
            counts.append(len(infos))
        self._file_sizes = self._check_sizes({name: (end, last[name]) for name, end in ends.items()})
        if self._manifest is None:
            # Now: a look into the data files would wait behind reads of tensors.
            self._look_ahead([want for item in items for want in self.wants(item)])
        return keys[: len(items)], counts[: len(items)]

    def wants(self, item: Any) -> list[Want]:
        """Return the boxes of stored parts that an item of the plan wants. Raises CorruptError if there are none."""
        rows = self._rows(item)
        if rows is not None:
            far = [begin + length for begin, length in zip(item.storage_offsets, item.lengths)]
            if len(far) != len(rows.sizes) or any(end > extent for end, extent in zip(far, rows.sizes)):
                raise CorruptError(
                    f"load {item.storage_index.fqn!r}: the plan wants elements up to {far} of a tensor of shape {list(rows.sizes)}"
                )
            return list(_rows.wants(rows, item))
        index = item.storage_index
        found = _rows.stored(self._entry(index.fqn), item)
        if found is None:
            raise CorruptError(
                f"load {index.fqn!r} of {self._place.path}: the metadata has no part of it at {tuple(index.offset)}")
        return [found]

    def find(self, wants: Iterable[Want]) -> None:
        """Find the values of tensors. Archives of stock torch are read in a few jobs for all items."""
        unknown, known = [], []
        for want in wants:
            key = want.fqn, want.at
            if key in self._found:
                continue
            info = self._infos[key]
            if isinstance(info, _hf.Stored):
                values = info.values
                found: Source | None = Source(info.relative_path, values.offset, values.size, values, values.offset)
            else:
                found = None if self._manifest is None else self._in_manifest(want, info)
            if found is None:
                unknown.append((want, info))
            else:
                self._found[key] = found
                known.append(want)
        self._look_inside(unknown)
        for want in [*known, *(want for want, _ in unknown)]:
            self._check(want, self._found[want.fqn, want.at])

    def forget(self) -> None:
        """Forget where the values are. `of` must not be called afterwards."""
        self._found.clear()

    def check_rest(self) -> None:
        """Check the parts of the manifest that no item has needed yet."""
        if self._manifest is not None:
            self._manifest.items.check()

    def _rows(self, item: Any) -> _rows.Rows | None:
        entry = self._metadata.state_dict_metadata.get(item.storage_index.fqn)
        return _rows.rows_of(entry, item.storage_index) if isinstance(entry, _kinds.TensorStorageMetadata) else None

    def _entry(self, fqn: str) -> Any:
        entry = self._metadata.state_dict_metadata.get(fqn)
        if not isinstance(entry, _kinds.TensorStorageMetadata):
            raise CorruptError(f"load {fqn!r} of {self._place.path}: the metadata has no tensor of this name")
        return entry

    def _refused(self, fqn: str, infos: Sequence[Any]) -> NebulaioError:
        """Return the error for a tensor of which one part has no place, or was transformed."""
        if None in infos:
            return CorruptError(
                f"load {self._place.path}: the metadata has no place for a part of {fqn!r} "
                "(fix: copy the checkpoint again, or load an older one)"
            )
        info = next(info for info in infos if getattr(info, "transform_descriptors", None))
        return UnsupportedError(
            f"load {fqn!r} of {self._place.file(info.relative_path)}: it was transformed by {list(info.transform_descriptors)} "
            "when it was saved, which only torch's FileSystemReader undoes (fix: load it with "
            "torch.distributed.checkpoint.FileSystemReader, and save it again without extensions)"
        )

    def _in_manifest(self, want: Want, info: Any) -> Source | None:
        assert self._manifest is not None
        at = want.at if want.at is not None else (0,) * len(want.shape)
        entry = self._manifest.items.get(want.fqn, at)
        if entry is None or entry.dtype == "bytes":
            return None  # an archive that torch.save made as a whole
        dtype = _manifest.dtype_of(entry.dtype)
        inside = entry.file == info.relative_path and info.offset <= entry.offset and entry.offset + entry.size <= info.offset + info.length
        if dtype is None or not inside:
            raise CorruptError(
                f"load {want.fqn!r} of {self._place.file(info.relative_path)}: the manifest has {entry.dtype} at {entry.offset} "
                f"of {entry.file}, which is not in the item that the metadata names (fix: copy the checkpoint again)"
            )
        values = _zips.Values(entry.offset - info.offset, entry.size, dtype, entry.shape)
        return Source(info.relative_path, info.offset, info.length, values, entry.offset)

    def _check_sizes(self, ends: Mapping[str, tuple[int, str]]) -> dict[str, int]:
        """Return the sizes of the files. Raises an error for a missing or short one, before any tensor is changed."""
        sizes = self._sizes(ends)
        for name, (end, fqn) in ends.items():
            size = sizes.get(name)
            if size is None:
                raise NotFoundError(
                    f"load {self._place.file(name)}: there is no such file, and tensor {fqn!r} is in it "
                    "(fix: copy the files of all ranks)"
                )
            wanted = self._manifest.files[
                name].size if self._manifest is not None and name in self._manifest.files else None
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

    def _parser(self, want: Want, info: Any) -> _Begun:
        parser = _zips.locate(info.length, self._file_sizes[info.relative_path] - info.offset, want.fqn, self._layouts)
        return _Begun(want, info, parser, next(parser))

    def _look_ahead(self, wants: Sequence[Want]) -> None:
        """Read the first ranges that the parsers of archives need. `find` parses them, while tensors are read."""
        begun = {}
        for want in wants:
            info = self._infos[want.fqn, want.at]
            if not isinstance(info, _hf.Stored):
                begun[want.fqn, want.at] = self._parser(want, info)
        if sum(size for one in begun.values() for _, size in one.ranges) > _ROUND:
            self.find(wants)  # so many that their bytes are not kept
            return
        for (key, one), pieces in zip(begun.items(), self._read(list(begun.values()))):
            self._begun[key] = one._replace(pieces=pieces)

    def _look_inside(self, unknown: Sequence[tuple[Any, Any]]) -> None:
        """Run the parsers of archives together: each round is one job with the ranges that they need next."""
        running = []
        for want, info in unknown:
            key = want.fqn, want.at
            running.append(self._begun.pop(key) if key in self._begun else self._parser(want, info))
        while running:
            going = []
            for batch in _in_batches(running):
                if any(one.pieces is None for one in batch):
                    batch = [one._replace(pieces=pieces) for one, pieces in zip(batch, self._read(batch))]
                for want, info, parser, _, pieces in batch:
                    assert pieces is not None
                    key = want.fqn, want.at
                    try:
                        going.append(_Begun(want, info, parser, parser.send(pieces)))
                    except StopIteration as end:
                        begin = info.offset + end.value.offset
                        self._found[key] = Source(info.relative_path, info.offset, info.length, end.value, begin)
                    except _pickles.NotPlainError:
                        self._found[key] = Source(info.relative_path, info.offset, info.length, None)
                    except NebulaioError as cause:
                        raise type(cause)(
                            f"load {want.fqn!r} of {self._place.file(info.relative_path)}: the item at {info.offset}: {cause} "
                            "(fix: copy the file again, or load an older checkpoint)"
                        ) from cause
            running = going

    def _read(self, batch: Sequence[_Begun]) -> list[list[bytes]]:
        """Read the ranges that parsers need."""
        total = sum(size for one in batch for _, size in one.ranges)
        memory = bytearray(total)
        base = address_of(memory)
        names = {name: number for number, name in enumerate(sorted({one.info.relative_path for one in batch}))}
        segments, out, at = [], [], 0
        view = memoryview(memory)
        for want, info, _, ranges, _ in batch:
            pieces = []
            for offset, size in ranges:
                if size:
                    segments.append(
                        _gather.Segment(names[info.relative_path], info.offset + offset, size, base + at,
                                        label=want.fqn)
                    )
                pieces.append((at, size))
                at += size
            out.append(pieces)
        if segments:
            report = _gather.read(
                [self._place.file(name) for name in names], segments, device="host", verify=self._verify,
                client=self._place.client
            )
            self.jobs.append(report)
        return [[bytes(view[begin : begin + size]) for begin, size in pieces] for pieces in out]

    def _check(self, want: Want, source: Source) -> None:
        """Raise CorruptError if an item has another dtype or shape than the metadata says."""
        values = source.values
        if values is None:
            return
        dtype = self._entry(want.fqn).properties.dtype
        size = math.prod(want.shape) * dtype.itemsize
        if values.dtype is not dtype or values.shape != want.shape or (values.strides is None and values.size != size):
            raise CorruptError(
                f"load {want.fqn!r} of {self._place.file(source.file)}: the item has {values.dtype} of shape {list(values.shape)}, "
                f"and the metadata says {dtype} of shape {list(want.shape)}: they are of different saves (fix: copy the checkpoint again)"
            )


def _in_batches(running: Sequence[_Begun]) -> Iterable[list[_Begun]]:
    batch: list[_Begun] = []
    size = 0
    for one in running:
        more = sum(length for _, length in one.ranges)
        if batch and size + more > _ROUND:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += more
    if batch:
        yield batch
