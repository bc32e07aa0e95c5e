# SPDX-License-Identifier: Apache-2.0
"""The flow of a load: open, allocate, start, describe and make views meanwhile, wait."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, get_args

from . import _device, _frameworks, _handles, _process
from .errors import InvalidError

_ROUTES = ("auto", "buffered", "direct")
_CACHES = ("auto", "keep", "bypass")


def load(
    path: str | os.PathLike[str],
    device: _device.DeviceLike,
    framework: str | None,
    tensors: str | Iterable[str] | None,
    route: str,
    cache: str,
    lenient: bool,
    unsupported: str,
    progress: _handles.ProgressCallback | None,
) -> dict[str, Any]:
    """Load the model at path; see nebulaio.safetensors.load_file for the contract."""
    options = _choices(route=route, cache=cache)
    if unsupported not in get_args(_frameworks.UnsupportedPolicy):
        raise InvalidError(f"unsupported={unsupported!r} is not one of error, bytes")
    wanted = _device.canonical(device)
    holder = _process.current()
    if wanted != "host" and framework != "numpy":
        holder.require_cuda_after_fork(wanted)  # before a framework touches CUDA and fails its own way
    maker = _frameworks.get(framework)
    wanted = maker.prefer(wanted)
    system = holder.open()
    with _handles.Model(system, path, model_options(wanted, tensors, lenient)) as model:
        places = model.files()
        place = places["device"]
        if place != "host":
            system.cuda_used = True
        destinations = [maker.allocate(file["dest_size"], file["dest_align"], place) for file in places["files"]]
        with _handles.Load(model, destinations, maker.stream(place), options) as running:
            # Bytes flow from here on; leaving the block early cancels them.
            tensors_laid_out = model.describe()["tensors"]
            dtypes = _frameworks.choose(maker, tensors_laid_out, unsupported)  # type: ignore[arg-type]
            out = maker.views(tensors_laid_out, destinations, dtypes)
            running.wait(progress)
        return out


def model_options(device: str, tensors: str | Iterable[str] | None, lenient: bool) -> dict[str, Any]:
    """The options of nebulaio_model_open; raises InvalidError for globs that are not text."""
    options: dict[str, Any] = {"device": device}
    if tensors is not None:
        globs = [tensors] if isinstance(tensors, str) else list(tensors)
        if not globs or not all(isinstance(glob, str) for glob in globs):
            raise InvalidError(
                f"tensors={globs!r} is not a glob or a list of globs, such as ['model.layers.0.*'] (None: all tensors)"
            )
        options["tensors"] = globs
    if lenient:
        options["lenient"] = True
    return options


def _choices(route: str, cache: str) -> dict[str, Any]:
    """The options of nebulaio_load_start, without those left at their default."""
    for name, value, allowed in (("route", route, _ROUTES), ("cache", cache, _CACHES)):
        if value not in allowed:
            raise InvalidError(f"{name}={value!r} is not one of {', '.join(allowed)}")
    return {name: value for name, value in (("route", route), ("cache", cache)) if value != "auto"}
