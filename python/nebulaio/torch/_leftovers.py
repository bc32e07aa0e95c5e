# SPDX-License-Identifier: Apache-2.0
"""Removes the files of a checkpoint's place that no complete checkpoint names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .._collector import without_collections
from ..errors import NebulaioError
from . import _manifest, _metadata
from ._place import Place

_SUMS = ".crc64nvme"
_STAGED = re.compile(r"(__\d+)?\.metadata\.[0-9a-f]{16}\.partial|\..+\.[0-9a-f]{16}\.nebulaio\.tmp")
_RANK_METADATA = re.compile(r"__(\d+)\.metadata")


def manifest_beside(place: Place, name: str) -> str | None:
    """Return the name of the manifest that belongs to a metadata file, or None if there is none that can be read."""
    try:
        metadata = _metadata.load(place.read(name, _metadata.MOST), f"read {place.file(name)}")
    except NebulaioError:
        return None
    identity = _metadata.id_of(metadata)
    return None if identity is None else _manifest.name_of(identity)


def remove_dead(place: Place, rank: int | None) -> None:
    """Remove data files and manifests of saves that never became complete, so that their space is free for a new save.

    Only files with an id of ours are removed. If a metadata file cannot be read, nothing is removed. Two saves to one
    place at the same time are not supported. `rank` limits this to the files of one rank, which saves alone.
    """
    sizes = place.sizes()
    kept = _named(place, sizes)
    if kept is None:
        return
    dead = [name for name in sizes if _is_ours(name) and name not in kept and rank in (None, _rank_of(name))]
    if dead:
        place.remove(dead)
        place.sync()


def remove_older(place: Place, new: Iterable[str], rank: int | None, replaced: str | None) -> list[str]:
    """Remove all data files, checksums and manifests that the new checkpoint does not name. Returns notes on failures.

    `rank` limits this to the files of one rank, which has metadata of its own, and to the manifest `replaced`.
    """
    try:
        sizes = place.sizes()
        kept = _named(place, sizes)
        if kept is None:
            return ["files of older checkpoints were kept, because a metadata file beside the new one cannot be read"]
        kept |= {name for one in new for name in (one, one + _SUMS)}
        old = [
            name for name in sizes
            if name not in kept
            and (_is_ours(name) or _is_data(name))
            and (rank in (None, _rank_of(name)) or name.removesuffix(_SUMS) == replaced)
        ]
        place.remove(old)
        if old:
            place.sync()
    except (NebulaioError, OSError) as problem:
        return [f"files of an older checkpoint could not be removed: {problem}"]
    return []


def _named(place: Place, sizes: Iterable[str]) -> set[str] | None:
    """Return all names that complete checkpoints use, or None if a metadata file cannot be read."""
    kept: set[str] = set()
    for name in sizes:
        if name != _metadata.NAME and not _RANK_METADATA.fullmatch(name):
            continue
        try:
            with without_collections():
                metadata = _metadata.load(place.read(name, _metadata.MOST), f"read {place.file(name)}")
        except NebulaioError:
            return None
        for file in _metadata.files_of(metadata):
            kept |= {file, file + _SUMS}
        identity = _metadata.id_of(metadata)
        if identity is not None:
            kept |= {_manifest.name_of(identity), _manifest.name_of(identity) + _SUMS}
    return kept


def _is_data(name: str) -> bool:
    """Return whether a file holds data or the checksums of data, of stock torch or of ours."""
    return _metadata.DATA_FILE.fullmatch(name.removesuffix(_SUMS)) is not None


def _is_ours(name: str) -> bool:
    """Return whether only this package gives a file such a name."""
    plain = name.removesuffix(_SUMS)
    data = _metadata.DATA_FILE.fullmatch(plain)
    if data is not None:
        return data[2] is not None
    return _STAGED.fullmatch(name) is not None or _manifest.FILE.fullmatch(plain) is not None


def _rank_of(name: str) -> int | None:
    found = re.match(r"__(\d+)[_.]", name)
    return int(found[1]) if found else None
