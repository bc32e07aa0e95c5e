# SPDX-License-Identifier: Apache-2.0
"""The flow of a load: open, allocate, start, describe and make views meanwhile, wait."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

from . import _device, _frameworks, _handles, _process, _slices
from .errors import InvalidError

_ROUTES = ("auto", "buffered", "direct", "cufile")
_CACHES = ("auto", "keep", "bypass")


@dataclass
class Order:
    """What the caller asked for, in the forms that the library takes."""

    device: _device.DeviceLike = "auto"
    framework: str | None = None
    tensors: str | Iterable[str] | None = None
    route: str = "auto"
    cache: str = "auto"
    lenient: bool = False
    unsupported: str = "error"
    verify: bool = False
    slices: _slices.Slices | None = None
    shards: _slices.Shards | None = None
    start: dict[str, Any] = field(init=False)  # options of nebulaio_load_start

    def __post_init__(self) -> None:
        self.start = _choices(self.route, self.cache)
        if self.verify:
            self.start["verify"] = True
        if self.unsupported not in get_args(_frameworks.UnsupportedPolicy):
            raise InvalidError(f"unsupported={self.unsupported!r} is not one of error, bytes")
        if self.tensors is not None and not isinstance(self.tensors, str):
            self.tensors = list(self.tensors)  # it is read more than once

    def choice(self) -> dict[str, Any]:
        """The part of the options of a model that a selection from an open one takes too."""
        return {**_globs(self.tensors), **_slices.options(self.slices, self.shards)}

    def prepare(self) -> tuple[_frameworks.Framework, _process.System, dict[str, Any]]:
        """The framework, the opened system, and the options of nebulaio_model_open."""
        choice = self.choice()
        wanted = _device.canonical(self.device)
        holder = _process.current()
        if wanted != "host" and self.framework != "numpy":
            holder.require_cuda_after_fork(wanted)  # before a framework touches CUDA and fails its own way
        maker = _frameworks.get(self.framework)
        wanted = maker.prefer(wanted)
        return maker, holder.open(), {**model_options(wanted, None, self.lenient), **choice}


def load(
    path: str | os.PathLike[str], order: Order, progress: _handles.ProgressCallback | None
) -> dict[str, Any]:
    """Load the model at path; see nebulaio.safetensors.load_file for the contract."""
    maker, system, options = order.prepare()
    with _handles.Model(system, path, options) as model:
        places = model.files()
        place = places["device"]
        destinations = allocate(maker, system, places)
        with _handles.Load(model, destinations, maker.stream(place), order.start) as running:
            # Bytes flow from here on; leaving the block early cancels them.
            tensors = model.describe()["tensors"]
            dtypes = _frameworks.choose(maker, tensors, order.unsupported)  # type: ignore[arg-type]
            out = maker.views(tensors, destinations, dtypes)
            running.wait(progress)
        return {name: maker.final(view) for name, view in out.items()}


def allocate(
    maker: _frameworks.Framework, system: _process.System, places: _handles.Places
) -> list[_handles.Destination]:
    """A destination for each file."""
    if places["device"] != "host":
        system.cuda_used = True
    return [maker.allocate(file["dest_size"], file["dest_align"], places["device"]) for file in places["files"]]


def model_options(device: str, tensors: str | Iterable[str] | None, lenient: bool) -> dict[str, Any]:
    """The options of nebulaio_model_open; raises InvalidError for globs that are not text."""
    options: dict[str, Any] = {"device": device, **_globs(tensors)}
    if lenient:
        options["lenient"] = True
    return options


def _globs(tensors: str | Iterable[str] | None) -> dict[str, Any]:
    if tensors is None:
        return {}
    globs = [tensors] if isinstance(tensors, str) else list(tensors)
    if not globs or not all(isinstance(glob, str) for glob in globs):
        raise InvalidError(
            f"tensors={globs!r} is not a glob or a list of globs, such as ['model.layers.0.*'] (None: all tensors)"
        )
    return {"tensors": globs}


def _choices(route: str, cache: str) -> dict[str, Any]:
    """The options of nebulaio_load_start, without those left at their default."""
    for name, value, allowed in (("route", route, _ROUTES), ("cache", cache, _CACHES)):
        if value not in allowed:
            raise InvalidError(f"{name}={value!r} is not one of {', '.join(allowed)}")
    return {name: value for name, value in (("route", route), ("cache", cache)) if value != "auto"}
