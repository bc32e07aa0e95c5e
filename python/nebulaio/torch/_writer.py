# SPDX-License-Identifier: Apache-2.0
"""The storage writer of torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from .. import _arguments, _checkpoints
from .._collector import without_collections
from ..errors import InvalidError, NebulaioError
from . import _hf_writer, _leftovers, _manifest, _metadata
from ._place import Directory, Place, is_place, open_place
from ._writing import Writing
from ._written import Assignment, WrittenFile, done

_filesystem: Any = importlib.import_module("torch.distributed.checkpoint.filesystem")
_kinds: Any = importlib.import_module("torch.distributed.checkpoint.metadata")

if TYPE_CHECKING:

    class _StorageWriter:
        """torch.distributed.checkpoint.StorageWriter, for type checkers without torch."""

else:
    from torch.distributed.checkpoint import StorageWriter as _StorageWriter

__all__ = ["StorageWriter"]

Format = Literal["torch", "safetensors"]
"""The format of the data files: archives of torch.save, or the safetensors files of Hugging Face."""


class StorageWriter(_StorageWriter):
    """Writes a checkpoint of torch.distributed.checkpoint from GPU or host memory, without a copy in Python.

    Stock torch reads the checkpoint with its FileSystemReader, and with its HuggingFaceStorageReader if the format
    is "safetensors". Every file is complete and durable before it has its name. The last file, `.metadata`, makes the
    checkpoint visible: a save that fails or is killed leaves an older checkpoint in the same place as it was.

    A writer may be used for several saves, one after the other. It can be pickled.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        checksum: bool = True,
        step: int | None = None,
        client: Any = None,
        format: Format = "torch",  # noqa: A002 - the word of the field
    ) -> None:
        """Set the place of the checkpoint.

        Args:
            path: Directory, or URL of a prefix such as s3://bucket/run/step-7. A missing directory is created.
            checksum: Whether to write FILE.crc64nvme beside each data file, which `verify=True` needs.
            step: Number of the training step, which the manifest records.
            client: GPUDirectClient for a URL; the default one uses the environment.
            format: "torch", or "safetensors" for checkpoints that have only tensors. A place for "safetensors" must
                not hold a model yet, because readers of this format take every .safetensors file that they find.
        """
        self._checksum = _arguments.truth("checksum", checksum)
        if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
            raise InvalidError(f"step={step!r} is not a whole number from 0 on")
        if format not in ("torch", "safetensors"):
            raise InvalidError(f"format={format!r} is not one of torch, safetensors")
        self._step = step
        self._client = client
        self._format = format
        self._place: Place = open_place(path, client)
        self._rank: int | None = None
        self._collective = True
        self._id = _new_id()  # that of the coordinator names the checkpoint
        self._began = 0.0
        self._report: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, for a process that saves in the background. The report stays in its process."""
        return {**self.__dict__, "_report": None}

    @property
    def report(self) -> dict[str, Any] | None:
        """The report of this rank's last save, or None: docs/checkpoints.md lists its keys."""
        return self._report

    @property
    def checkpoint_id(self) -> str:
        """The directory or URL of the checkpoint."""
        return self._place.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return whether a value is a path, or a URL of an object store."""
        return is_place(checkpoint_id)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a new save, to another place if one is given."""
        if checkpoint_id:
            self._place = open_place(checkpoint_id, self._client)
        self._id = _new_id()

    def storage_meta(self) -> Any:
        """Return the place and the id of the save, which torch stores in the metadata."""
        return _kinds.StorageMeta(checkpoint_id=self._place.path, save_id=self._id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Create the directory and begin a save. torch calls this on every rank."""
        self._rank = kwargs.get("rank")
        self._collective = kwargs.get("use_collectives", True)
        self._id = _new_id()  # of this rank; the plan brings the coordinator's
        self._began = time.monotonic()
        self._report = None
        self._place.make()

    def prepare_local_plan(self, plan: Any) -> Any:
        """Send the id of this rank to the coordinator with the plan."""
        return dataclasses.replace(plan, storage_data=Assignment(self._rank or 0, self._id, self._id, 0))

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """Give each rank the checkpoint's id, and remove files of saves that were killed. Only the coordinator calls it."""
        if self._format == "safetensors":
            _hf_writer.prepare(self._place, self._id, self._alone())
        else:
            _leftovers.remove_dead(self._place, self._alone())
        prefixes = [self._prefix_for(number, plan, len(plans)) for number, plan in enumerate(plans)]
        return [dataclasses.replace(plan, storage_data=prefix) for plan, prefix in zip(plans, prefixes)]

    def _prefix_for(self, number: int, plan: Any, world: int) -> Assignment:
        sent = plan.storage_data if isinstance(plan.storage_data, Assignment) else None
        rank = number if self._collective or self._rank is None else self._rank
        return Assignment(rank, self._id, sent.token if sent else "", world)

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write the items of this rank. On return its files are durable. After an error its files are removed."""
        prefix = plan.storage_data
        if not isinstance(prefix, Assignment):
            raise InvalidError(
                "save: the plan was not prepared by this writer (fix: use one writer for the whole save)")
        if prefix.token != self._id:
            # A planner with cached plans gives back the plan of an earlier save, with the id of that save. Its names
            # belong to the older checkpoint, so the files get an id of this rank's own until the checkpoint is
            # committed.
            prefix = Assignment(self._rank or prefix.rank, self._id, self._id, prefix.world)
        writing = Writing(self._place, prefix, self._checksum)
        try:
            if self._format == "safetensors":
                results = _hf_writer.write(writing, plan.items, planner)
            else:
                results = writing.write(plan.items, planner)
        except BaseException:
            _quietly_remove(self._place, writing.names())
            raise
        self._report = writing.report(time.monotonic() - self._began)
        return done(results)

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """Write the manifest and the metadata, which completes the checkpoint. Only the coordinator calls it.

        If it fails before the checkpoint is complete, all files of this save are removed. Afterwards files of older
        checkpoints in the same place are removed; a failure of that is a note of the report.
        """
        began = time.monotonic()
        files = _files(results)
        if self._format == "safetensors":
            notes = _hf_writer.finish(self._place, self._id, self._step, files, results)
        else:
            notes = self._finish(metadata, results)
        if self._report is not None:
            self._report["id"] = self._id
            self._report["commit_seconds"] = time.monotonic() - began
            self._report["seconds"] = time.monotonic() - self._began
            self._report["checkpoint_bytes"] = sum(file.size for file in files)
            self._report["notes"] += notes

    def _finish(self, metadata: Any, results: list[list[Any]]) -> list[str]:
        """Complete a checkpoint of data files of torch's format. Returns notes for the report."""
        results = _adopt(self._place, self._id, results)
        files = _files(results)
        written = {one.index: one.storage_data for part in results for one in part}
        metadata.version = getattr(_filesystem, "CURRENT_DCP_VERSION", None)
        metadata.storage_data = {index: one.info() for index, one in written.items()}
        metadata.storage_meta = self.storage_meta()
        with without_collections():
            data = _metadata.dump(metadata)
        name = _metadata.rank_name(self._alone())
        items = [one.entry(index) for index, one in written.items()]
        draft = _manifest.draft(self._id, world=len(results), step=self._step, files=files, items=items)
        try:
            if self._alone() is not None:
                return self._commit_alone(name, data, draft)
            told = _checkpoints.commit_checkpoint(self._place.path, draft, data, self._place.client)
            return list(told["notes"])
        except BaseException:
            if not self._is_complete(name, data):
                _quietly_remove(self._place, _with_sums(files))
            raise

    def _commit_alone(self, name: str, data: bytes, draft: dict[str, Any]) -> list[str]:
        """Complete the checkpoint of a rank that saves without the others, with metadata of its own."""
        staged = f"{name}.{self._id}.partial"
        manifest = _manifest.name_of(self._id)
        replaced = _leftovers.manifest_beside(self._place, name)
        try:
            report = self._place.stage(staged, data)
            entry = _manifest.FileEntry(name, len(data), str(report["crc64nvme"]))
            self._place.stage(manifest, _manifest.encode(draft, entry), checksum=True)
            self._place.promote(staged, name, data)
        except BaseException:
            if not self._is_complete(name, data):
                _quietly_remove(self._place, [staged, manifest, manifest + ".crc64nvme"])
            raise
        kept = {file["name"] for file in draft["files"]} | {manifest}
        return _leftovers.remove_older(self._place, kept, self._alone(), replaced)

    def _alone(self) -> int | None:
        """Return the rank if it saves without the others, with metadata of its own."""
        return None if self._collective else self._rank

    def _is_complete(self, name: str, data: bytes) -> bool:
        """Return whether the metadata of this save is in place, or may be: then its files must stay."""
        try:
            return self._place.read(name, max(len(data), 1) + 1) == data
        except FileNotFoundError:
            return False
        except (NebulaioError, OSError):
            return isinstance(self._place, Directory)  # an unreachable server: nothing can be removed either


def _files(results: list[list[Any]]) -> list[_manifest.FileEntry]:
    """Return the data files of all ranks, each once and in order."""
    found = {one.storage_data.file.name: one.storage_data.file for part in results for one in part}
    return [_manifest.FileEntry(*found[name]) for name in sorted(found)]


def _adopt(place: Place, identity: str, results: list[list[Any]]) -> list[list[Any]]:
    """Give all data files the checkpoint's id, and return the results with the new names.

    Only the files of ranks whose planner has used a cached plan have another id. They are not part of a checkpoint
    yet, so that a crash between the renames leaves nothing but leftovers.
    """
    renamed: dict[str, WrittenFile] = {}
    for part in results:
        for one in part:
            file = one.storage_data.file
            mine = re.sub(r"_[0-9a-f]{16}\.distcp$", f"_{identity}.distcp", file.name)
            if mine != file.name and file.name not in renamed:
                place.rename(file.name, mine)
                renamed[file.name] = file._replace(name=mine)
    if not renamed:
        return results
    return [
        [
            dataclasses.replace(
                one, storage_data=one.storage_data._replace(
                    file=renamed.get(one.storage_data.file.name, one.storage_data.file))
            )
            for one in part
        ]
        for part in results
    ]


def _with_sums(files: Iterable[_manifest.FileEntry]) -> list[str]:
    return [name for file in files for name in (file.name, file.name + ".crc64nvme")]


def _quietly_remove(place: Place, names: Iterable[str]) -> None:
    """Remove what a failed save has written. What cannot be removed is left for the next save: the first error matters."""
    for name in names:
        try:
            place.remove([name])
        except (NebulaioError, OSError):
            continue


def _new_id() -> str:
    return secrets.token_hex(8)
