# SPDX-License-Identifier: Apache-2.0
"""Writes the data files of one rank in one save, and collects the report."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from .. import _gather
from . import _items
from ._place import Place, address_of
from ._written import Assignment, Batches, Source, Written, WrittenFile, device_of, streams_of

_storage: Any = importlib.import_module("torch.distributed.checkpoint.storage")


class Writing:
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
            self._notes.append(
                f"{self._by_torch} tensors of other classes than torch.Tensor were saved by torch.save in host memory")
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
            _storage.WriteResult(index=one.item.index, size_in_bytes=item.length,
                                 storage_data=Written.of(one, item, file))
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
