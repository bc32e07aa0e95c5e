# SPDX-License-Identifier: Apache-2.0
"""Keeps the checkpoints and files of the benchmark in a directory, within a limit of bytes.

Rows share files, and a later run finds them again. A file counts as made when a note beside it says so.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from nbench import cache

from . import ranks
from .states import Spec

KEPT = ("stock", "ours", "pt")
"""What rows share: checkpoints by stock torch and by us, and a file of torch.save. The first ones are removed first."""


class Files:
    """The files of one state. `limit` is the most bytes that all of them together may have on the disk."""

    def __init__(self, folder: Path, spec: Spec, limit: int, say: Callable[[str], None]) -> None:
        self.folder, self.spec, self.limit, self.say = folder, spec, limit, say
        folder.mkdir(parents=True, exist_ok=True)
        self.scratch.parent.mkdir(exist_ok=True)

    @property
    def scratch(self) -> Path:
        """Return the path for what a row writes and removes again."""
        return self.folder / "scratch" / "target"

    def path(self, name: str) -> Path:
        """Return the directory or file of one of `KEPT`."""
        return self.folder / f"{name}-{self.spec.bytes}-{self.spec.ranks}{'.pt' if name == 'pt' else ''}"

    def data(self, name: str) -> list[Path]:
        """Return the files with the tensors of one of `KEPT`."""
        path = self.path(name)
        return [path] if name == "pt" else sorted(path.glob("*.distcp"))

    def is_made(self, name: str) -> bool:
        """Return whether one of `KEPT` is complete."""
        return _note(self.path(name)).exists()

    def checkpoints(self, names: Collection[str], timeout: float) -> dict[str, float]:
        """Make the checkpoints of the world that are missing, and return the seconds of their saves."""
        missing = [name for name in names if not self.is_made(name)]
        if not missing:
            return {}
        self.room(self.spec.bytes * len(missing), keep=names)
        for name in missing:
            self.remove(name)
        self.say(f"{self.spec.ranks} ranks save {self.spec.bytes / 1e9:.2f} GB by {' and by '.join(missing)}")
        seconds = ranks.save(self.spec, {name: self.path(name) for name in missing}, timeout)
        for path in (path for name in missing for path in self.data(name)):
            _sync(path)
        for name in missing:
            _note(self.path(name)).write_text(json.dumps({"seconds": seconds[name]}))
        return seconds

    def file(self, write: Callable[[Path], None]) -> None:
        """Make the file of torch.save if it is missing."""
        if self.is_made("pt"):
            return
        self.remove("pt")
        self.room(self.spec.bytes, keep=("pt",))
        write(self.path("pt"))
        _sync(self.path("pt"))
        _note(self.path("pt")).write_text("{}")

    def room(self, nbytes: int, keep: Collection[str] = ()) -> None:
        """Remove files of `KEPT` until `nbytes` more fit below the limit. Those of `keep` stay."""
        self.clear_scratch()
        there = {name: sum(_sizes(self.path(name))) for name in KEPT}
        for name in KEPT:
            if sum(there.values()) + nbytes <= self.limit:
                return
            if name not in keep and there.pop(name):
                self.say(f"removing {self.path(name).name}, so that at most {self.limit / 1e9:.0f} GB are on the disk")
                self.remove(name)
        if sum(there.values()) + nbytes > self.limit * 1.05:
            raise OSError(
                f"{nbytes} bytes more exceed the limit of {self.limit} bytes (fix: a smaller --size, or --limit)"
            )

    def remove(self, name: str) -> None:
        """Remove one of `KEPT`, its note first."""
        _note(self.path(name)).unlink(missing_ok=True)
        _remove(self.path(name))

    def clear_scratch(self) -> None:
        """Remove what rows have written, and wait until the removal is on the disk."""
        if any(self.scratch.parent.iterdir()):
            shutil.rmtree(self.scratch.parent)
            self.scratch.parent.mkdir()
            _sync(self.folder)


def remove_all(folder: Path) -> None:
    """Remove the files of all states in a folder, and the folder if nothing else is in it."""
    for name in KEPT:
        for path in folder.glob(f"{name}-*-*"):
            _remove(path)
    _remove(folder / "scratch")
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def warm(paths: Sequence[Path]) -> float:
    """Read files into the page cache, and return the smallest share of a file that is there."""
    return min(cache.warm(path) for path in paths)


def drop(paths: Sequence[Path], everything: bool) -> None:
    """Drop files from the page cache, or all files of the machine. Raises an error if a part of a file stays."""
    for path in paths[1:]:
        cache.drop(path, everything=False)
    cache.drop(paths[0], everything=everything)
    left = max(cache.resident(path) for path in paths)
    if left > cache.COLD_LIMIT:
        raise cache.CacheError(f"{left:.0%} of a file of {paths[0].parent} stays in the page cache")


def require_warm(paths: Sequence[Path]) -> None:
    """Read what has left the page cache. Raises an error if it does not stay."""
    if (share := warm(paths)) <= cache.WARM_LIMIT:
        raise cache.CacheError(f"only {share:.0%} of a file of {paths[0].parent} is in the page cache")


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable, so that no later row waits for it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".made")


def _sizes(path: Path) -> list[int]:
    every = [path, *path.rglob("*")] if path.is_dir() else [path]
    return [one.stat().st_size for one in every if one.is_file()]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
