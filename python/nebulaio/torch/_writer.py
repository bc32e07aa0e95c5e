# SPDX-License-Identifier: Apache-2.0
"""The storage writer of torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
import importlib
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .. import _arguments, _gather
from ..errors import InvalidError, NebulaioError
from . import _hf_writer, _items, _leftovers, _manifest, _metadata
from ._place import Directory, Place, address_of, is_place, open_place
from ._written import Assignment, Batches, Source, Written, WrittenFile, device_of, done, streams_of

torch: Any = importlib.import_module("torch")
_dcp: Any = importlib.import_module("torch.distributed.checkpoint")
_planner: Any = importlib.import_module("torch.distributed.checkpoint.planner")
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
            raise InvalidError("save: the plan was not prepared by this writer (fix: use one writer for the whole save)")
        if prefix.token != self._id:
            # A planner with cached plans gives back the plan of an earlier save, with the id of that save. Its names
            # belong to the older checkpoint, so the files get an id of this rank's own.
            prefix = Assignment(self._rank or prefix.rank, self._id, self._id, prefix.world)
        writing = _Writing(self._place, prefix, self._checksum)
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
            notes = self._finish(metadata, files, results)
        if self._report is not None:
            self._report["id"] = self._id
            self._report["commit_seconds"] = time.monotonic() - began
            self._report["seconds"] = time.monotonic() - self._began
            self._report["checkpoint_bytes"] = sum(file.size for file in files)
            self._report["notes"] += notes

    def _finish(self, metadata: Any, files: Sequence[_manifest.FileEntry], results: list[list[Any]]) -> list[str]:
        name = _metadata.rank_name(self._alone())
        staged = f"{name}.{self._id}.partial"
        replaced = _leftovers.manifest_beside(self._place, name)
        written = {one.index: one.storage_data for part in results for one in part}
        metadata.version = getattr(_filesystem, "CURRENT_DCP_VERSION", None)
        metadata.storage_data = {index: one.info() for index, one in written.items()}
        metadata.storage_meta = self.storage_meta()
        data = _metadata.dump(metadata)
        manifest = _manifest.name_of(self._id)
        try:
            report = self._place.stage(staged, data)
            entry = _manifest.FileEntry(name, len(data), str(report["crc64nvme"]))
            items = [one.entry(index) for index, one in written.items()]
            content = _manifest.encode(
                self._id, world=len(results), step=self._step, metadata=entry, files=files, items=items
            )
            self._place.stage(manifest, content)
            self._place.promote(staged, name, data)
        except BaseException:
            if not self._is_complete(name, data):
                _quietly_remove(self._place, [staged, manifest, *_with_sums(files)])
            raise
        return _leftovers.remove_older(self._place, {file.name for file in files} | {manifest}, self._alone(), replaced)

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


class _Writing:
    """The data files of one rank in one save."""

    def __init__(self, place: Place, prefix: Assignment, checksum: bool) -> None:
        self.place = place
        self.prefix = prefix
        self.checksum = checksum
        self._files: list[str] = []
        self._reports: list[Any] = []
        self._items = 0
        self._copied = 0
        self._by_torch = 0
        self._notes: list[str] = []

    def names(self) -> list[str]:
        """Return the names of all files that were begun."""
        return [name for file in self._files for name in (file, file + ".crc64nvme")]

    def begin_file(self, name: str) -> None:
        """Record a file before it is written."""
        self._files.append(name)

    def end_file(self, report: Any, items: int, copied: int = 0) -> None:
        """Record the report of a written file."""
        self._reports.append(report)
        self._items += items
        self._copied += copied

    def note(self, text: str) -> None:
        """Add a note to the report."""
        self._notes.append(text)

    def write(self, items: Sequence[Any], planner: Any) -> list[Any]:
        """Write the items and return torch's WriteResults. Tensors that need a copy go to files of their own, in groups."""
        templates = _items.Templates()
        results: list[Any] = []
        for number, batch in enumerate(Batches(items, planner)):
            name = f"__{self.prefix.rank}_{number}_{self.prefix.id}.distcp"
            self.begin_file(name)
            results += self._write_file(name, batch, templates)
            batch.clear()  # frees the copies before the next ones are made
        if self._by_torch:
            self._notes.append(f"{self._by_torch} tensors of other classes than torch.Tensor were saved by torch.save in host memory")
        return results

    def _write_file(self, name: str, batch: list[Source], templates: _items.Templates) -> list[Any]:
        layout = _items.Layout()
        entries = []
        copied = 0
        for one in batch:
            if one.tensor is None:
                entries.append((one, layout.add_bytes(one.data)))
                self._by_torch += one.by_torch
            else:
                template = templates.of(one.tensor.dtype, tuple(one.tensor.shape), one.item.index.fqn)
                entries.append((one, layout.add_tensor(one.tensor, template)))
                copied += one.copied
        base = address_of(layout.host)
        pieces = [
            _gather.Piece(base + part.begin, part.size, "host")
            if part.tensor is None
            else _gather.Piece(part.tensor.data_ptr(), part.size, device_of(part.tensor))
            for part in layout.parts
        ]
        streams = streams_of(part.tensor for part in layout.parts if part.tensor is not None)
        report = _gather.write(
            self.place.file(name), pieces, streams=streams, checksum=self.checksum, client=self.place.client
        )
        self.end_file(report, len(entries), copied)
        file = WrittenFile(name, layout.size, str(report["crc64nvme"]))
        return [
            _dcp.storage.WriteResult(index=one.item.index, size_in_bytes=item.length, storage_data=Written.of(one, item, file))
            for one, item in entries
        ]

    def report(self, seconds: float) -> dict[str, Any]:
        """Return the report of the rank's save."""
        size = sum(int(report["bytes"]) for report in self._reports)
        moving = sum(float(report["seconds"]) for report in self._reports)
        return {
            "op": "save",
            "path": self.place.path,
            "id": self.prefix.id,
            "rank": self.prefix.rank,
            "world": self.prefix.world,
            "bytes": size,
            "files": len(self._reports),
            "items": self._items,
            "copied_items": self._copied,
            "seconds": seconds,
            "write_seconds": moving,
            "gbps": size / moving / 1e9 if moving else 0.0,
            "notes": list(self._notes),
            "jobs": [dict(report) for report in self._reports],
        }


def _files(results: list[list[Any]]) -> list[_manifest.FileEntry]:
    """Return the data files of all ranks, each once and in order."""
    found = {one.storage_data.file.name: one.storage_data.file for part in results for one in part}
    return [_manifest.FileEntry(*found[name]) for name in sorted(found)]


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
