# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint: its files with their checksums, and where the values of each tensor are."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from .._frameworks.torch import _NAMES
from ..errors import CorruptError, UnsupportedError

torch: Any = importlib.import_module("torch")

VERSION = 1
FORMAT = "torch-dcp"
MOST = 1 << 30
"""The largest manifest that is read, in bytes."""

FILE = re.compile(r"checkpoint-([0-9a-f]{16})\.nebulaio\.json")
"""The name of a manifest. The group is the checkpoint's id."""

# F4 counts values in safetensors and pairs of values in torch, so the manifest uses torch's name.
_CODES = {name: code for code, name in _NAMES.items() if code != "F4"}
_DTYPES = {code: name for name, code in _CODES.items()}


def name_of(identity: str) -> str:
    """Return the name of the manifest of the checkpoint with that id."""
    return f"checkpoint-{identity}.nebulaio.json"


def code_of(dtype: Any) -> str:
    """Return the name of a dtype in a manifest: that of safetensors, or torch's if safetensors has none."""
    name = str(dtype).removeprefix("torch.")
    return _CODES.get(name, name)


def dtype_of(code: str) -> Any:
    """Return torch's dtype for a name in a manifest, or None."""
    found = getattr(torch, _DTYPES.get(code, code), None)
    return found if isinstance(found, torch.dtype) else None


class FileEntry(NamedTuple):
    """A data file of a checkpoint. `crc64nvme` has 16 hexadecimal digits."""

    name: str
    size: int
    crc64nvme: str


class ItemEntry(NamedTuple):
    """The values of a tensor, or of a part of it, in a data file. `at` is the place of the part in the tensor.

    For an item that is no tensor, `dtype` is "bytes" and `shape` and `at` are empty.
    """

    tensor: str
    file: str
    offset: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    at: tuple[int, ...]


class Manifest(NamedTuple):
    """A manifest that was read and checked."""

    id: str
    world: int
    step: int | None
    metadata_name: str
    metadata_size: int
    metadata_crc: str
    files: dict[str, FileEntry]
    items: Items


class Items:
    """The items of a manifest by tensor and place. An entry is checked when it is asked for."""

    def __init__(self, entries: Sequence[Mapping[str, Any]], files: Sequence[FileEntry], what: str) -> None:
        self._entries = {(entry["tensor"], tuple(entry["at"])): entry for entry in entries}
        self._files = files
        self._what = what
        self._checked: set[Any] = set()

    def get(self, tensor: str, at: tuple[int, ...]) -> ItemEntry | None:
        """Return the entry of a part of a tensor, or None. Raises CorruptError if the entry is damaged."""
        key = tensor, at
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._checked.add(key)
        return self._item(entry)

    def check(self) -> None:
        """Raise CorruptError if any entry that was not asked for is damaged."""
        for key, entry in self._entries.items():
            if key not in self._checked:
                self._item(entry)

    def _item(self, entry: Mapping[str, Any]) -> ItemEntry:
        try:
            number, offset, size = _whole(entry["file"]), _whole(entry["offset"]), _whole(entry["size"])
            if number >= len(self._files) or offset + size > self._files[number].size:
                raise ValueError(f"{size} bytes at {offset} of file {number} are not in the checkpoint")
            return ItemEntry(
                _text(entry["tensor"]), self._files[number].name, offset, size, _text(entry["dtype"]),
                tuple(map(_whole, entry["shape"])), tuple(map(_whole, entry["at"])),
            )
        except (KeyError, TypeError, ValueError) as cause:
            raise _damaged(self._what, cause) from cause


def draft(
    identity: str, *, world: int, step: int | None, files: Sequence[FileEntry], items: Sequence[ItemEntry]
) -> dict[str, Any]:
    """Return the fields of a manifest that the writer knows. The commit of the library adds the others."""
    numbers = {file.name: number for number, file in enumerate(files)}
    return {
        "id": identity,
        "step": step,
        "world": world,
        "files": [file._asdict() for file in files],
        "items": [
            {**item._asdict(), "file": numbers[item.file], "shape": list(item.shape), "at": list(item.at)}
            for item in items
        ],
    }


def encode(fields: Mapping[str, Any], metadata: FileEntry | None, kind: str = FORMAT) -> bytes:
    """Return the bytes of a manifest that the library does not commit."""
    content = {
        "version": VERSION,
        "format": kind,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "bytes": sum(file["size"] for file in fields["files"]),
        "metadata": None if metadata is None else metadata._asdict(),
        **fields,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode(data: bytes, what: str) -> Manifest:
    """Return the manifest in the bytes of a file. Its items are checked when they are used. Errors begin with `what`.

    Raises:
        UnsupportedError: A later release has written the manifest.
        CorruptError: The bytes are not a manifest, or they are damaged.
    """
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            raise TypeError(f"it is a {type(content).__name__}")
        if content["version"] != VERSION:
            raise UnsupportedError(
                f"{what}: its version is {content['version']!r:.50}, expected {VERSION} (fix: use a newer NebulaIO)"
            )
        files = [_file(entry) for entry in content["files"]]
        # A model of safetensors shards has no metadata beside the manifest.
        told = content["metadata"]
        metadata = FileEntry("", 0, "") if told is None and content["format"] != FORMAT else _file(told)
        items = Items(content["items"], files, what)
        step = content["step"]
        return Manifest(
            _text(content["id"]), _whole(content["world"]), None if step is None else _whole(step),
            metadata.name, metadata.size, metadata.crc64nvme, {file.name: file for file in files}, items,
        )
    except (KeyError, TypeError, ValueError, RecursionError) as cause:
        if isinstance(cause, UnsupportedError):
            raise
        raise _damaged(what, cause) from cause


def _damaged(what: str, cause: Exception) -> CorruptError:
    return CorruptError(
        f"{what}: not a manifest: {type(cause).__name__}: {cause!s:.200} (fix: copy the checkpoint again, or load an older one)"
    )


def _file(entry: Mapping[str, Any]) -> FileEntry:
    name, crc = _text(entry["name"]), _text(entry["crc64nvme"])
    if "/" in name or name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{name!r:.200} is not the name of a file")
    if crc and not re.fullmatch("[0-9a-f]{16}", crc):
        raise ValueError(f"the checksum {crc!r:.50} of {name!r:.200} has not 16 hexadecimal digits")
    return FileEntry(name, _whole(entry["size"]), crc)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.50} is not a whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.50} is not text")
    return value


def crc64nvme(data: bytes) -> str:
    """Return the CRC-64/NVME of bytes as 16 hexadecimal digits. It is for small files: it takes 0.1 s for 1 MB."""
    table = _table()
    crc = (1 << 64) - 1
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return f"{crc ^ ((1 << 64) - 1):016x}"


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x9A6C9329AC4BC9B5 if number & 1 else 0)
        table.append(number)
    return table
