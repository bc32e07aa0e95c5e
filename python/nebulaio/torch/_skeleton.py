# SPDX-License-Identifier: Apache-2.0
"""What a file of torch.save says about its storages: record, size, location and place in the object.

The pickle is read with stand-ins for all classes and functions, so nothing of the file is imported or called.
Torch itself builds the object later.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..errors import CorruptError
from ._ranges import MOST, RangesFile, Source

_LOCAL = 30  # bytes of a local header of a zip record before its name
_UINT32 = 0xFFFFFFFF
_DEPTH = 64  # levels of containers that names of tensors describe

# Torch builds these tensors with a device of their own, which a callable map_location cannot choose.
_WITHOUT_STORAGE = ("_rebuild_wrapper_subclass", "_rebuild_device_tensor_from_numpy")


class Foreign(Exception):
    """The file is one that torch itself has to read. The text is the reason."""


class Record(NamedTuple):
    """A storage in a file of torch.save: `size` bytes from `offset`.

    `location` is torch's tag, such as "cpu" or "cuda:0". `label` is the path of the first tensor that uses the
    storage, such as "optimizer.state.0.exp_avg".
    """

    key: str
    location: str
    offset: int
    size: int
    label: str


def read(ranges: Source, file: RangesFile) -> list[Record]:
    """Return the storages of a file in the order in which torch asks for them.

    Raises:
        Foreign: Only torch can read the file: legacy format, TorchScript, compressed or foreign byte order.
        CorruptError: The file is damaged.
    """
    file.seek(0)
    magic = file.read(4)
    if magic != b"PK\x03\x04":
        raise Foreign("it is not a zip file, as the legacy format of torch.save before 1.6")
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as cause:
        raise corrupt(ranges.name, str(cause)) from cause
    with archive:
        entries = _entries(archive, ranges)
        if "constants.pkl" in entries:
            raise Foreign("it is a TorchScript archive")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
            raise Foreign("its records are compressed")
        if "byteorder" in entries and _content(file, entries["byteorder"], ranges.name) != b"little":
            raise Foreign("its numbers are not little-endian")
        if "data.pkl" not in entries:
            raise corrupt(ranges.name, "it has no record data.pkl")
        found = _Storages(_content(file, entries["data.pkl"], ranges.name), ranges.name)
        return _place(found, entries, archive, ranges)


def corrupt(name: str, reason: str) -> CorruptError:
    """Return the error for a damaged file."""
    first = (reason.strip().splitlines() or ["no reason is known"])[0]
    return CorruptError(
        f"load {name}: it is no complete file of torch.save: {first:.300} (fix: copy it again, or save it again)"
    )


def _entries(archive: zipfile.ZipFile, ranges: Source) -> dict[str, zipfile.ZipInfo]:
    """Return the records by name without the archive's own name, which torch puts before each."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        record = entry.filename.partition("/")[2]
        if record in found:
            raise corrupt(ranges.name, f"it has two records {record!r:.100}")
        if not 0 <= entry.header_offset <= ranges.size - _LOCAL or not 0 <= entry.file_size <= ranges.size:
            raise corrupt(ranges.name, f"its record {record!r:.100} lies outside of the file")
        found[record] = entry
    return found


def _content(file: RangesFile, entry: zipfile.ZipInfo, name: str) -> bytes:
    """Return the bytes of a record. Its CRC-32 is not checked: torch may leave it out."""
    if entry.file_size > MOST:
        raise corrupt(name, f"its record {entry.filename!r:.100} has {entry.file_size} bytes, more than {MOST}")
    file.seek(entry.header_offset)
    start = _begin(entry, file.read(_LOCAL), name)
    file.seek(start)
    content = file.read(entry.file_size)
    if len(content) < entry.file_size:
        raise corrupt(name, f"its record {entry.filename!r:.100} ends behind the file")
    return content


def _begin(entry: zipfile.ZipInfo, header: bytes, name: str) -> int:
    """Return where the bytes of a record begin, by its local header."""
    if len(header) < _LOCAL or header[:4] != b"PK\x03\x04":
        raise corrupt(name, f"the record {entry.filename!r:.100} has no header")
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return entry.header_offset + _LOCAL + names


class _Reference(NamedTuple):
    """A storage as the pickle names it."""

    key: str
    location: str
    elements: int


class _Made:
    """A stand-in for an object of the pickle: the arguments, the state and the items that it was given."""

    parts: list[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> _Made:
        self = super().__new__(cls)
        self.parts = [args, kwargs]
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> _Made:
        return _Made(self, *args, **kwargs)

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts.append({key: value} if isinstance(key, (str, int)) else (key, value))

    def append(self, value: Any) -> None:
        self.parts.append((value,))

    def extend(self, values: Any) -> None:
        self.parts.append(list(values))

    add = append
    update = extend


class _Unpickler(pickle._Unpickler):
    """Reads a pickle without its classes and functions, and notes its storages.

    The base class is the one in Python: in the C one, a hostile number of a memo entry takes gigabytes of memory.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")
        self.storages: dict[str, _Reference] = {}
        self.classes: dict[str, type[_Made]] = {}

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        return self.classes.setdefault(full, type(name, (_Made,), {}))

    def persistent_load(self, said: Any) -> _Reference:
        if not isinstance(said, tuple) or len(said) != 5 or said[0] not in ("storage", b"storage"):
            raise pickle.UnpicklingError(f"a persistent id is not that of a storage: {said!r:.100}")
        _, _, key, location, count = said
        location = location.decode("ascii") if isinstance(location, bytes) else location
        if not isinstance(key, str) or not isinstance(location, str) or not isinstance(count, int) or count < 0:
            raise pickle.UnpicklingError(f"a storage is named by {(key, location, count)!r:.100}")
        found = _Reference(key, location, count)
        first = self.storages.setdefault(key, found)
        if first.elements and found.elements and first.location != location:
            raise pickle.UnpicklingError(f"storage {key!r:.40} is on {first.location!r:.40} and on {location!r:.40}")
        if first.elements != count:
            raise Foreign(f"it names storage {key!r:.40} with several sizes")
        return found


class _Storages:
    """The storages of a pickle, and the object with stand-ins, which gives them names."""

    def __init__(self, content: bytes, name: str) -> None:
        unpickler = _Unpickler(content)
        try:
            root = unpickler.load()
        except Foreign:
            raise
        except RecursionError as cause:
            raise corrupt(name, "its pickle is nested too deeply") from cause
        except Exception as cause:  # a damaged pickle raises almost anything
            raise corrupt(name, f"its pickle cannot be read: {cause}") from cause
        for full in unpickler.classes:
            if full.rpartition(".")[2] in _WITHOUT_STORAGE:
                raise Foreign(f"it holds tensors without storage ({full})")
        self.references = list(unpickler.storages.values())
        self.labels = dict(_named(root))


def _named(root: Any) -> Iterator[tuple[str, str]]:
    """Yield each storage's key with the path of the first tensor that uses the storage."""
    seen: set[int] = set()
    keys: set[str] = set()
    stack: list[tuple[str, Any, int]] = [("", root, 0)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, _Reference):
            if value.key not in keys:
                keys.add(value.key)
                yield value.key, path
            continue
        if depth > _DEPTH or id(value) in seen or not isinstance(value, (dict, list, tuple, _Made)):
            continue
        seen.add(id(value))
        inner: list[tuple[str, Any, int]]
        if isinstance(value, _Made):  # arguments have no names, and items and the state are dictionaries
            inner = [(path, one, depth + 1) for part in value.parts
                     for one in (part if type(part) is tuple else (part,))]
        elif isinstance(value, dict):
            inner = [(_join(path, key), item, depth + 1) for key, item in value.items()]
        else:
            inner = [(_join(path, number), item, depth + 1) for number, item in enumerate(value)]
        stack.extend(reversed(inner))


def _join(path: str, key: object) -> str:
    word = str(key) if isinstance(key, (str, int)) else type(key).__name__
    if word in ("_parameters", "_buffers", "_modules"):
        return path  # of a pickled module: state_dict() leaves them out too
    return f"{path}.{word:.200}" if path else f"{word:.200}"


def _place(
    found: _Storages, entries: dict[str, zipfile.ZipInfo], archive: zipfile.ZipFile, ranges: Source
) -> list[Record]:
    """Return the storages with the offsets of their bytes in the file."""
    wanted: list[tuple[_Reference, zipfile.ZipInfo]] = []
    for reference in found.references:
        entry = entries.get(f"data/{reference.key}")
        if entry is None:
            raise corrupt(ranges.name, f"the record data/{reference.key:.100} of a storage is missing")
        if reference.elements > entry.file_size:
            raise corrupt(
                ranges.name,
                f"storage {reference.key:.100} has {reference.elements} elements and its record {entry.file_size} bytes",
            )
        wanted.append((reference, entry))
    starts = _payloads([entry for _, entry in wanted], entries, archive, ranges)
    records = []
    for (reference, entry), offset in zip(wanted, starts):
        if offset + entry.file_size > ranges.size:
            raise corrupt(ranges.name, f"the record {entry.filename!r:.100} ends behind the file")
        label = found.labels.get(reference.key) or f"data/{reference.key}"
        records.append(Record(reference.key, reference.location, offset, entry.file_size, label))
    return records


def _payloads(
    wanted: list[zipfile.ZipInfo], entries: dict[str, zipfile.ZipInfo], archive: zipfile.ZipFile, ranges: Source
) -> list[int]:
    """Return where the bytes of each record begin.

    Of an object, the positions of the next records give the offsets, where this is certain. Otherwise each
    record's local header is read, as torch does.
    """
    if ranges.is_url:
        heads = sorted(entry.header_offset for entry in entries.values()) + [archive.start_dir]
        following = dict(zip(heads, heads[1:]))
        guessed = [_guess(entry, following[entry.header_offset]) for entry in wanted]
        if all(guessed):
            return [offset for offset in guessed if offset is not None]
    headers = ranges.read([(entry.header_offset, _LOCAL) for entry in wanted])
    return [_begin(entry, header, ranges.name) for entry, header in zip(wanted, headers)]


def _guess(entry: zipfile.ZipInfo, following: int) -> int | None:
    """Return where a record of torch's own writer begins, from the position of the next record, or None."""
    if not entry.file_size:
        return entry.header_offset + _LOCAL
    if not entry.flag_bits & 0x08:
        return None
    large = entry.header_offset >= _UINT32 or entry.file_size >= _UINT32
    start = following - (24 if large else 16) - entry.file_size  # the sizes of torch's data descriptors
    head = start - entry.header_offset - _LOCAL - len(entry.filename.encode())
    return start if start % 64 == 0 and 0 <= head < 1 << 16 else None
