# SPDX-License-Identifier: Apache-2.0
"""What the loaders of vLLM and SGLang share: their extra settings, the files of a checkpoint, and the report."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from . import _arguments, _load
from .errors import CorruptError, InvalidError, NotFoundError
from .gpudirect import GPUDirectClient

INDEX = "model.safetensors.index.json"
_MOST_INDEX = 1 << 30


@dataclass(frozen=True)
class Settings:
    """The keys of a serving framework's model_loader_extra_config."""

    weights: str | None = None
    verify: bool = False
    cache: str = "auto"
    gap: int | None = None
    defer: bool = True
    report: bool | str = False
    strict: bool | None = None
    pattern: str | None = None


def settings(given: object, load_format: str, *, without: Sequence[str] = ()) -> Settings:
    """Return the settings of a load format. Raises InvalidError for unknown keys and wrong values."""
    what = f"model_loader_extra_config of load format {load_format!r}"
    if given is None:
        return Settings()
    if not isinstance(given, Mapping):
        raise InvalidError(
            f"{what}: {given!r} is a {type(given).__name__}, expected an object such as {{\"verify\": true}}")
    known = [one.name for one in fields(Settings) if one.name not in without]
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise InvalidError(f"{what}: unknown {', '.join(map(repr, unknown))}, expected keys out of {', '.join(known)}")
    found = Settings(**given)
    for name in ("verify", "defer"):
        _arguments.truth(f"{what}: {name}", getattr(found, name))
    _arguments.choices("auto", found.cache)
    _arguments.count(f"{what}: gap", found.gap)
    if found.strict is not None:
        _arguments.truth(f"{what}: strict", found.strict)
    if not isinstance(found.report, (bool, str)) or found.report == "":
        raise InvalidError(f"{what}: report={found.report!r} is neither true, false nor a path")
    for name in ("weights", "pattern"):
        value = getattr(found, name)
        if value is not None and (not isinstance(value, str) or not value or "\0" in value):
            raise InvalidError(f"{what}: {name}={value!r} is not a text that is not empty")
    if found.weights is not None and not _load.is_url(found.weights) and not os.path.exists(found.weights):
        raise NotFoundError(f"{what}: weights={found.weights!r}: there is no such file or directory")
    return found


@dataclass(frozen=True)
class Checkpoint:
    """The safetensors files of a checkpoint, and the client of those that are objects."""

    files: list[str]
    client: Any = None


def checkpoint(place: str, patterns: Sequence[str], index: str = INDEX) -> Checkpoint:
    """Find the files of a checkpoint at a directory, a prefix of a bucket, or the URL or path of one file.

    If the place has an index, only the files of the index count. An empty `index` is none. Raises NotFoundError if
    there are no files.
    """
    if place.endswith(".safetensors"):
        return Checkpoint([place], _client(place) if _load.is_url(place) else None)
    client, base, names, read = _listed(place)
    found = sorted({name for name in names for pattern in patterns if fnmatch.fnmatchcase(name, pattern)})
    if index and index in names:
        wanted = _indexed(read(index), base + index)
        missing = sorted(wanted - names)
        if missing:
            raise NotFoundError(f"load {base}{missing[0]}: {base}{index} names this file, and there is no such file")
        found = [name for name in found if name in wanted]
    if not found:
        raise NotFoundError(f"load {place}: there are no files {' or '.join(patterns)} (fix: check the path)")
    return Checkpoint([base + name for name in found], client)


def _client(url: str) -> GPUDirectClient:
    return GPUDirectClient(_load.place(url, "load")[0])


def _listed(place: str) -> tuple[Any, str, set[str], Callable[[str], bytes]]:
    """Return the client, the beginning of all names, the names in a place, and a function that reads a small file."""
    if not _load.is_url(place):
        directory = os.path.join(place, "")

        def read_file(name: str) -> bytes:
            with open(directory + name, "rb") as file:
                return file.read(_MOST_INDEX)

        try:
            return None, directory, set(os.listdir(place)), read_file
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"load {place}: there is no such directory (fix: check the path)") from None
    client = _client(place)
    _, bucket, key = _load.place(place, "load")
    prefix = key.rstrip("/") + "/" if key.rstrip("/") else ""

    def read_object(name: str) -> bytes:
        data = bytearray(min(client.stat(bucket, prefix + name).size, _MOST_INDEX))
        if data:
            client.read_to_gpu(bucket, prefix + name, data)
        return bytes(data)

    names = {one.key[len(prefix) :] for one in client.list(bucket, prefix, "/") if not one.is_prefix}
    names.discard("")  # the object that some tools write as the marker of a folder
    return client, place.rstrip("/") + "/", names, read_object


def _indexed(text: bytes, name: str) -> set[str]:
    """Return the files that an index names."""
    try:
        found = set(json.loads(text)["weight_map"].values())
        if not all(isinstance(file, str) and "/" not in file for file in found):
            raise ValueError("a file is not beside the index")
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CorruptError(f"load {name}: not an index: {type(cause).__name__}: {cause!s:.200}") from cause
    return found


def write_report(report: dict[str, Any], wanted: bool | str, rank: int, world: int, log: Callable[[str], None]) -> None:
    """Log the report in one line, and write it as JSON if `wanted` is a path.

    In a path, {rank} is the rank. Without it, each rank of several adds "-rankN" before the suffix.
    """
    if not wanted:
        return
    log(describe(report))
    if isinstance(wanted, str):
        path = wanted.replace("{rank}", str(rank))
        if path == wanted and world > 1:
            stem, suffix = os.path.splitext(path)
            path = f"{stem}-rank{rank}{suffix}"
        part = f"{path}.part{os.getpid()}"
        with open(part, "w", encoding="utf-8") as file:
            json.dump({**report, "rank": rank, "world": world}, file, indent=1)
            file.write("\n")
        os.replace(part, path)


def describe(report: Mapping[str, Any]) -> str:
    """Return a report in one sentence."""
    eager, buffered = report["eager"], report["buffered"]
    return (
        f"nebulaio: read {report['read_bytes']} of {report['file_bytes']} bytes of {report['files']} files in "
        f"{report['seconds']:.2f} s ({report['gbps']:.2f} GB/s while reading) to {report['device']}: {report['direct']['copies']} copies "
        f"straight into parameters, {buffered['copies']} through buffers, {eager['reads']} eager reads of {eager['bytes']} bytes"
    )
