# SPDX-License-Identifier: Apache-2.0
"""The storage reader of torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _arguments
from .._collector import without_collections
from ..errors import CorruptError, InvalidError, NotFoundError
from . import _hf, _manifest, _metadata, _rows, _shared
from ._loading import Loading
from ._place import Place, is_place, open_place, read_verified
from ._sources import Sources
from ._written import done

torch: Any = importlib.import_module("torch")
_kinds: Any = importlib.import_module("torch.distributed.checkpoint.metadata")

if TYPE_CHECKING:

    class _StorageReader:
        """torch.distributed.checkpoint.StorageReader, for type checkers without torch."""

else:
    from torch.distributed.checkpoint import StorageReader as _StorageReader

__all__ = ["StorageReader"]


class _OtherWorldError(NotFoundError):
    """Ranks have saved without each other, and a rank that loads is none of them."""


class _Unread(_kinds.Metadata):  # type: ignore[misc] # torch's types are unknown here
    """Metadata that could not be read. The use of any of its fields raises the error."""

    def __init__(self, problem: Exception) -> None:
        self.__dict__["problem"] = problem

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            raise self.problem
        return super().__getattribute__(name)


_FIELDS = frozenset(field.name for field in dataclasses.fields(_kinds.Metadata))


class StorageReader(_StorageReader):
    """Reads a checkpoint of torch.distributed.checkpoint straight into the tensors that receive it.

    The checkpoint is one of stock torch, one of `nebulaio.torch.StorageWriter`, or a Hugging Face model of
    safetensors files, with or without the sharding information of torch. It is in a directory, or below a prefix of
    an object store. The metadata is read without running code of its pickle. The objects that are no tensors are read
    as stock torch reads them: torch's default planner unpickles them, so load only checkpoints that you trust.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False, client: Any = None) -> None:
        """Set the place of the checkpoint.

        Args:
            path: Directory, or URL of a prefix such as s3://bucket/run/step-7.
            verify: Whether to compare every block with its checksum. Data files need FILE.crc64nvme beside them.
            client: GPUDirectClient for a URL; the default one uses the environment.
        """
        self._verify = _arguments.truth("verify", verify)
        self._client = client
        self._place: Place = open_place(path, client)
        self._metadata: Any = None
        self._manifest: _manifest.Manifest | None = None
        self._load_id = secrets.token_hex(8)
        self._problem: Exception | None = None  # of the last read of the whole checkpoint's metadata
        self._report: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, without what was read."""
        return {**self.__dict__, "_report": None, "_metadata": None, "_manifest": None, "_problem": None}

    @property
    def report(self) -> dict[str, Any] | None:
        """The report of this rank's last load, or None: docs/checkpoints.md lists its keys."""
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
        """Begin a new load, from another place if one is given."""
        if checkpoint_id:
            self._place = open_place(checkpoint_id, self._client)
        self._metadata = self._manifest = self._problem = None
        self._load_id = secrets.token_hex(8)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Return the checkpoint's `Metadata`, or that of one rank if `rank` is given.

        Raises:
            NotFoundError: The place has no checkpoint, or no manifest for it.
            CorruptError: The metadata or the manifest is damaged, or they belong to different saves.
            UnsupportedError: The pickle of the metadata names something else than torch's own classes.
        """
        rank = kwargs.get("rank")
        try:
            return self._read_metadata(rank)
        except Exception as problem:
            if rank is None:
                self._problem = problem
                raise
            if self._problem is None:
                raise
            # torch's loader asks for the metadata of a rank if that of the checkpoint cannot be read, and loses both
            # errors in older releases. The first use of what it gets here raises the right one.
            return _Unread(problem if isinstance(problem, _OtherWorldError) else self._problem)

    def _read_metadata(self, rank: int | None) -> Any:
        name = _metadata.rank_name(rank)
        what = f"read {self._place.file(name)}"
        self._manifest = None
        try:
            data = self._place.read(name, _metadata.MOST)
        except NotFoundError:
            sizes = self._place.sizes()
            self._refuse_other_world(rank, sizes)
            if rank is not None or not _hf.is_model(sizes):
                raise
            metadata = _hf.read_metadata(self._place, sizes, self._verify)
        else:
            if self._verify:
                self._manifest = self._manifest_of(data)  # before the pickle is read
            with without_collections():
                metadata = _metadata.load(data, what)
                self._check_manifest(metadata, data)
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = _kinds.StorageMeta()
        metadata.storage_meta.load_id = self._load_id
        return metadata

    def _refuse_other_world(self, rank: int | None, names: Iterable[str]) -> None:
        """Raise NotFoundError if ranks have saved without each other, and none of them is this rank."""
        saved = sum(re.fullmatch(r"__\d+\.metadata", name) is not None for name in names)
        if rank is not None and saved:
            raise _OtherWorldError(
                f"read {self._place.file(_metadata.rank_name(rank))}: {saved} ranks have saved this checkpoint with "
                f"use_collectives=False, and rank {rank} is none of them (fix: load with {saved} ranks; a checkpoint that "
                "any number of ranks can load needs use_collectives=True)"
            )

    def _manifest_of(self, data: bytes) -> _manifest.Manifest | None:
        """Return the manifest whose checksum is that of the metadata. Raises CorruptError if all manifests differ.

        None means that the place has no manifest, as those of stock torch.
        """
        names = [name for name in self._place.sizes() if _manifest.FILE.fullmatch(name)]
        crc = _manifest.crc64nvme(data) if names else ""
        for name in names:
            manifest = _manifest.decode(read_verified(self._place, name, _manifest.MOST),
                                        f"read {self._place.file(name)}")
            if (manifest.metadata_size, manifest.metadata_crc) == (len(data), crc):
                return manifest
        if names:
            raise CorruptError(
                f"verify {self._place.file(_metadata.NAME)}: its checksum is {crc}, and no manifest beside it has this "
                "one: it is damaged, or of another save (fix: copy the checkpoint again, or load an older one)"
            )
        return None

    def _check_manifest(self, metadata: Any, data: bytes) -> None:
        """Read the manifest of a checkpoint of ours, and check that it belongs to the metadata."""
        identity = _metadata.id_of(metadata)
        if identity is None:
            return
        files = _metadata.files_of(metadata)
        if not any(re.search(r"_[0-9a-f]{16}\.", name) for name in files):
            return
        name = _manifest.name_of(identity)
        if self._manifest is None:
            try:
                content = self._place.read(name, _manifest.MOST)
            except NotFoundError as cause:
                raise NotFoundError(
                    f"read {self._place.file(name)}: the metadata is that of save {identity}, and its manifest is missing: "
                    "the metadata is of another checkpoint, or the copy is incomplete (fix: copy the checkpoint again)"
                ) from cause
            self._manifest = _manifest.decode(content, f"read {self._place.file(name)}")
        manifest = self._manifest
        if manifest.id != identity or manifest.metadata_size != len(data):
            raise CorruptError(
                f"read {self._place.file(name)}: it belongs to save {manifest.id} with {manifest.metadata_size} bytes of "
                f"metadata, but the metadata is that of save {identity} and has {len(data)} bytes (fix: copy the checkpoint again)"
            )
        ranks = {int(found[1]) for file in manifest.files if (found := _metadata.DATA_FILE.fullmatch(file))}
        if manifest.metadata_name == _metadata.NAME and ranks and max(ranks) >= manifest.world:
            raise CorruptError(
                f"read {self._place.file(name)}: it says that {manifest.world} ranks have saved, and has a file of rank "
                f"{max(ranks)} (fix: copy the checkpoint again)"
            )
        unknown = sorted(files - set(manifest.files))
        if unknown:
            raise CorruptError(
                f"read {self._place.file(name)}: it does not list {unknown[0]!r}, which the metadata names "
                "(fix: copy the checkpoint again)"
            )

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Keep the metadata for the load, and join the parts of its tensors. torch calls this on every rank."""
        if isinstance(metadata, _Unread):
            raise metadata.problem
        if metadata.storage_data is None:
            raise InvalidError(
                f"load {self._place.path}: the metadata has no storage_data (fix: pass what read_metadata returned)")
        _rows.join(metadata)  # before the planner makes its plan of the same object
        self._metadata = metadata

    def prepare_local_plan(self, plan: Any) -> Any:
        """Send the name of this host to the coordinator with the plan."""
        return dataclasses.replace(plan, storage_data=_shared.Host.here())

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """Tell each rank which items other ranks of its host read too. Only the coordinator calls it."""
        return [
            dataclasses.replace(plan, storage_data=shared) for plan, shared in zip(plans, _shared.find(plans))
        ]

    def read_data(self, plan: Any, planner: Any) -> Any:
        """Read the items of a plan into the planner's tensors. On return every byte is in place.

        Raises:
            NotFoundError: A data file is missing.
            CorruptError: A file is too short, an item is damaged or has another dtype or shape than the metadata says,
                or, with `verify`, a block differs from its checksum. The error names the file and the tensor.
            InvalidError: A tensor of the planner cannot hold the saved values.
        """
        if self._metadata is None:
            raise InvalidError(
                "load: set_up_storage_reader was not called (fix: use torch.distributed.checkpoint.load)")
        began = time.monotonic()
        shared = plan.storage_data if isinstance(plan.storage_data, _shared.Shared) else _shared.Shared.none()
        sources = Sources(self._place, self._metadata, self._manifest, self._verify)
        loading = Loading(self._place, sources, planner, self._verify, shared)
        try:
            loading.run(plan.items)
        finally:
            self._report = loading.report(time.monotonic() - began)
        return done(None)
