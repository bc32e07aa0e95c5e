# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint as Hugging Face safetensors files that torch's HuggingFaceStorageReader reads."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from typing import Any

from .. import _process, _report, _save
from .._frameworks import hold
from ..errors import InvalidError, NebulaioError
from . import _manifest
from ._hf import INDEX, OFFSETS, SHARDING
from ._place import Place
from ._writing import Writing
from ._written import Batches, Source, Written, WrittenFile

_storage: Any = importlib.import_module("torch.distributed.checkpoint.storage")

_MARK = re.compile(r"checkpoint-[0-9a-f]{16}\.partial")
_SHARD = re.compile(r"(shard-\d{5,}-)?model-\d{5,}-of-\d{5,}\.safetensors(\.crc64nvme)?")


def prepare(place: Place, identity: str, alone: int | None) -> None:
    """Check that the place is free, and mark that a save has begun. Files of a killed save are removed.

    Raises InvalidError if the place has a model: readers take every .safetensors file that they find, so that two
    models in one place would be mixed.
    """
    if alone is not None:
        raise InvalidError(
            "save: format='safetensors' needs use_collectives=True, because one manifest lists all files")
    sizes = place.sizes()
    marks = [name for name in sizes if _MARK.fullmatch(name)]
    if marks and not any(_manifest.FILE.fullmatch(name) for name in sizes):
        place.remove([name for name in sizes if _SHARD.fullmatch(name) or name == INDEX])
        place.remove(marks)
        place.sync()
        sizes = place.sizes()
    there = sorted(name for name in sizes if name.endswith(".safetensors") or name == INDEX)
    if there:
        raise InvalidError(
            f"save to {place.path}: it has {there[0]!r} already, and readers of safetensors would mix the two models "
            "(fix: save to a new directory, or remove the old model first)"
        )
    place.stage(_mark(identity), b"{}")


def write(writing: Writing, items: Sequence[Any], planner: Any) -> list[Any]:
    """Write the tensors of a rank to safetensors files, and return torch's WriteResults."""
    batches = Batches(items, planner)
    results: list[Any] = []
    shard = "" if writing.prefix.world == 1 else f"shard-{writing.prefix.rank + 1:05d}-"
    for number, batch in enumerate(batches, 1):
        name = f"{shard}model-{number:05d}-of-{len(batches):05d}.safetensors"
        writing.begin_file(name)
        results += _write_file(writing, name, batch)
        batch.clear()
    return results


def _write_file(writing: Writing, name: str, batch: list[Source]) -> list[Any]:
    held, places = [], {}
    for one in batch:
        fqn = one.item.index.fqn
        if one.tensor is None:
            raise InvalidError(
                f"save {fqn!r}: it is no plain tensor, and safetensors files hold only tensors "
                "(fix: leave it out, or save with format='torch')"
            )
        if fqn in places:
            raise InvalidError(
                f"save {fqn!r}: this rank has several parts of it, and a safetensors file has room for one "
                "(fix: save with format='torch')"
            )
        places[fqn] = {OFFSETS: list(one.item.tensor_data.chunk.offsets)}
        held.append(hold(fqn, one.tensor))
    metadata = {SHARDING: json.dumps(places), "DCP_VERSION": "1.0", "format": "pt"}
    _save.write(held, writing.place.file(name), metadata, writing.checksum, None, writing.place.client)
    raw = _process.current().last_raw()
    report = _report.read(raw) if raw else {}
    writing.end_file(report, len(batch), sum(one.copied for one in batch))
    size = writing.place.size(name) or 0
    file = WrittenFile(name, size, str(report.get("crc64nvme", "")))
    return [
        _storage.WriteResult(
            index=one.item.index,
            size_in_bytes=one.tensor.numel() * one.tensor.itemsize,
            storage_data=Written(file, 0, 0, 0, one.tensor.numel() * one.tensor.itemsize, "", tuple(one.tensor.shape)),
        )
        for one in batch
    ]


def finish(
    place: Place, identity: str, step: int | None, files: Sequence[_manifest.FileEntry], results: list[list[Any]]
) -> list[str]:
    """Write the index of a model of one rank, then the manifest, which makes the checkpoint complete."""
    manifest = _manifest.name_of(identity)
    index = None
    try:
        if len(results) == 1:
            # With several ranks, a tensor is in several files, which the index of Hugging Face cannot say.
            weights = {one.index.fqn: one.storage_data.file.name for one in results[0]}
            total = sum(one.storage_data.size for one in results[0])
            text = json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2).encode()
            report = place.stage(INDEX, text)
            index = _manifest.FileEntry(INDEX, len(text), str(report["crc64nvme"]))
        fields = _manifest.draft(identity, world=len(results), step=step, files=files, items=())
        place.stage(manifest, _manifest.encode(fields, index, "safetensors"), checksum=True)
    except BaseException:
        shards = [name for file in files for name in (file.name, file.name + ".crc64nvme")]
        for name in [manifest, manifest + ".crc64nvme", INDEX, *shards, _mark(identity)]:
            try:
                place.remove([name])
            except (NebulaioError, OSError):
                continue  # the next save removes it
        raise
    try:
        place.remove([_mark(identity)])
        place.sync()
    except (NebulaioError, OSError) as problem:
        return [f"the mark of the running save could not be removed: {problem}"]
    return []


def _mark(identity: str) -> str:
    return f"checkpoint-{identity}.partial"
