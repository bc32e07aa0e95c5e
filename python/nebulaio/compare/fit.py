# SPDX-License-Identifier: Apache-2.0
"""Reduces a model to the size that fits on this machine.

A model that does not fit is not refused. If the device has too little memory, the model
gets fewer layers. If the disk has too little space, its files get holes. Each change is a
sentence that the output repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from . import parts
from .shapes import Spec, size_of
from .stats import bytes_text

_GIB = 1 << 30
_HOST_SHARE = 0.4  # share of available memory for tensors: the page cache holds the files too
_CACHE_SHARE = 0.7  # share of available memory for files that are warm at the same time
_REAL_LIMIT = 16 * _GIB  # most bytes that are written into files with holes


class DoesNotFit(Exception):
    """Not even one layer of the model fits. The message names the memory or disk that is too small."""


@dataclass(frozen=True)
class Room:
    """Free bytes on the disk of the model directory, in host memory, and on the device (None for the host)."""

    disk: int
    memory: int
    device: int | None

    def for_tensors(self) -> int:
        """Return the bytes that all tensors on the device may take together."""
        if self.device is None:
            return int(self.memory * _HOST_SHARE)
        return int(self.device * 0.97) - _GIB


@dataclass(frozen=True)
class Plan:
    """A model to make: `real_layers` of its layers have content, the other layers are holes.

    If `rank` is set, only the part of this rank has content.
    """

    spec: Spec
    sparse: bool
    real_layers: int
    notes: list[str] = field(default_factory=list)
    rank: parts.Rank | None = None

    def recipe(self) -> dict[str, Any]:
        """Return what determines the content of the files, in the form of JSON."""
        found = {"spec": asdict(self.spec), "sparse": self.sparse, "real": self.real_layers}
        return found if self.rank is None else {**found, "rank": asdict(self.rank)}

    def name(self, seed: int) -> str:
        """Return the name of the model's directory."""
        kind = "" if not self.sparse else "-sparse"
        if self.rank is not None:
            kind = f"-rank-{self.rank.index}-of-{self.rank.world}"
        return f"{self.spec.name}-{self.spec.layers}-{seed}{kind}"

    def content(self, name: str, shape: tuple[int, ...]) -> Iterable[tuple[int, int]]:
        """Return the ranges of bytes of a tensor that have content, each with its first byte and its end."""
        if self.rank is not None:
            return parts.runs(name, shape, self.rank)
        return [(0, size_of(shape))] if self.real(name) else []

    def real(self, name: str) -> bool:
        """Return whether the tensor has content. Small tensors and tensors outside of layers always have."""
        if not self.sparse or not name.startswith("model.layers.") or "norm" in name or name.endswith(".bias"):
            return True
        return int(name.split(".")[2]) < self.real_layers

    def written(self) -> int:
        """Return the bytes that the files take on disk."""
        if self.rank is not None:
            return parts.footprint(self.spec, self.rank)
        return sum(size_of(shape) for name, shape in self.spec.tensors().items() if self.real(name))


def can_be_warm(nbytes: int, memory: int) -> bool:
    """Return whether files of this size stay in the page cache while they are loaded."""
    return nbytes <= memory * _CACHE_SHARE


def made_by(spec: dict[str, Any], sparse: bool, real: int, rank: dict[str, int] | None = None) -> Plan:
    """Return the plan with this recipe."""
    return Plan(Spec(**spec), sparse, real, rank=None if rank is None else parts.Rank(**rank))


def plan(spec: Spec, room: Room, *, sparse: bool = False, copies: int = 1, models: int = 1) -> Plan:
    """Return the plan of a model that fits: `copies` of it on the device at once, `models` of them on disk.

    Raises DoesNotFit if not even one layer fits.
    """
    notes: list[str] = []
    limit = room.for_tensors() // copies
    where = "host memory" if room.device is None else "the device"
    if models > 1 and room.memory * _CACHE_SHARE / models < limit:
        limit, where = int(room.memory * _CACHE_SHARE / models), "the page cache"
    spec = _shortened(spec, Spec.nbytes, limit, where, notes)
    layers = spec.layers
    disk = (room.disk - _GIB) // models
    if not sparse and spec.nbytes() <= disk:
        return Plan(spec, False, layers, notes)
    made = Plan(spec, True, 0, notes)
    if made.written() > disk:
        raise DoesNotFit(
            f"model {spec.name}: embeddings alone need {bytes_text(made.written() * models)} on disk, "
            f"{bytes_text(room.disk)} are free (fix: --dir on a larger file system)"
        )
    real = 0
    while real < layers and Plan(spec, True, real + 1).written() <= min(disk // 2, _REAL_LIMIT, spec.nbytes() // 2):
        real += 1
    why = "as asked" if sparse and spec.nbytes() <= disk else f"{bytes_text(room.disk)} are free on its disk"
    share = 1 - Plan(spec, True, real).written() / spec.nbytes()
    notes.append(
        f"files with holes ({why}): embeddings, norms, biases and {real} of {layers} layers have random weights, "
        f"{share:.0%} of the bytes are zeros that storage never reads"
    )
    return Plan(spec, True, real, notes)


def plan_rank(spec: Spec, room: Room, rank: parts.Rank, *, sparse: bool = False) -> Plan:
    """Return the plan of a model of which one rank's part is loaded.

    If the whole model does not fit on the disk, or with `sparse`, the files have only this part.
    Raises InvalidError if the model cannot be divided among the ranks, and DoesNotFit if not
    even one layer fits.
    """
    parts.check(spec, rank)
    notes: list[str] = []
    where = "host memory" if room.device is None else "the device"
    spec = _shortened(spec, lambda model: parts.share(model, rank), room.for_tensors(), where, notes)
    disk = room.disk - _GIB
    if not sparse and spec.nbytes() <= disk:
        return Plan(spec, False, spec.layers, notes)
    made = Plan(spec, True, spec.layers, notes, rank)
    if made.written() > disk:
        raise DoesNotFit(
            f"model {spec.name}: the part of {rank} needs {bytes_text(made.written())} on disk, "
            f"{bytes_text(room.disk)} are free (fix: --dir on a larger file system, or more ranks)"
        )
    notes.append(
        f"files with holes: only the {bytes_text(parts.share(spec, rank))} of {rank} have random weights, "
        f"and storage never reads the rest of the {bytes_text(spec.nbytes())}"
    )
    return made


def _shortened(spec: Spec, size: Callable[[Spec], int], limit: int, where: str, notes: list[str]) -> Spec:
    """Return the model with as many layers as the limit allows, and note what was changed."""
    if size(spec) <= limit:
        return spec
    smallest = size(spec.with_layers(1))
    layers = 1 + (limit - smallest) // (size(spec.with_layers(2)) - smallest)
    if layers < 1:
        raise DoesNotFit(
            f"model {spec.name}: one layer needs {bytes_text(smallest)} of {where}, "
            f"{bytes_text(limit)} may be used (fix: a smaller --model, or fewer --processes)"
        )
    notes.append(
        f"made with {layers} of {spec.published} layers ({bytes_text(size(spec.with_layers(layers)))} of "
        f"{bytes_text(size(spec))}): {where} has room for {bytes_text(limit)} of each"
    )
    return spec.with_layers(layers)
