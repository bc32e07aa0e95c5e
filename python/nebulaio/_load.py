# SPDX-License-Identifier: Apache-2.0
"""The steps of a load: open, allocate, start, make views meanwhile, wait."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from . import _arguments, _device, _frameworks, _handles, _objects, _process, _slices
from ._collector import without_collections
from ._connection import Connection, with_defaults
from .errors import InvalidError

_NO_GLOBS = "tensors={!r} is not a glob or a list of globs, such as ['model.layers.0.*'] (None: all tensors)"


@dataclass
class Order:
    """The arguments of a load in the library's forms."""

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
    client: Connection | None = None  # a GPUDirectClient, for paths that are s3:// URLs
    start: dict[str, Any] = field(init=False)  # options of nebulaio_load_start

    def __post_init__(self) -> None:
        self.start = _arguments.choices(self.route, self.cache)
        if self.verify:
            self.start["verify"] = True
        if self.unsupported not in get_args(_frameworks.UnsupportedPolicy):
            raise InvalidError(f"unsupported={self.unsupported!r} is not one of error, bytes")
        if self.tensors is not None and not isinstance(self.tensors, str):
            if not isinstance(self.tensors, Iterable):
                raise InvalidError(_NO_GLOBS.format(self.tensors))
            self.tensors = list(self.tensors)  # it is read more than once

    def choice(self) -> dict[str, Any]:
        """Return the options that choose tensors. A selection takes them too."""
        return {**_globs(self.tensors), **_slices.options(self.slices, self.shards)}

    def prepare(self) -> tuple[_frameworks.Framework, dict[str, Any]]:
        """Return the framework, and the options of nebulaio_model_open."""
        choice = self.choice()
        wanted = _device.canonical(self.device)
        holder = _process.current()
        if wanted != "host" and self.framework != "numpy":
            holder.require_cuda_after_fork(wanted)  # before the framework fails with its own error
        maker = _frameworks.get(self.framework)
        wanted = maker.prefer(wanted)
        return maker, {**model_options(wanted, None, self.lenient), **choice}

    def open(self, paths: Sequence[str | os.PathLike[str]], options: dict[str, Any]) -> _handles.Model:
        """Open the model at the first path together with the files of the other paths."""
        return open_model(paths, options, self.client)


def open_model(
    paths: Sequence[str | os.PathLike[str]], options: dict[str, Any], client: Connection | None = None
) -> _handles.Model:
    """Open a model of files, or of objects if its paths are URLs. The default client uses the environment."""
    urls = [is_url(path) for path in paths]
    if not any(urls):
        if client is not None:
            raise InvalidError(f"client= is given and {os.fsdecode(paths[0])!r} is a path (expected s3://bucket/key)")
        if len(paths) > 1:
            options = {**options, "more": [_text(path) for path in paths[1:]]}
        return _handles.Model(_process.current().open(), paths[0], options)
    if not all(urls):
        raise InvalidError(
            "open model: some of the paths are URLs and some are not (fix: load them one after the other)")
    places = [place(os.fsdecode(path), "open model") for path in paths]
    endpoint, bucket, key = places[0]
    if any(other[:2] != (endpoint, bucket) for other in places):
        raise InvalidError("open model: the URLs name several buckets (fix: load them one after the other)")
    if client is None:
        client = with_defaults(endpoint)
    elif endpoint is not None and endpoint != client.endpoint:
        raise InvalidError(
            f"open model {os.fsdecode(paths[0])!r}: its endpoint is {endpoint}, but the client's is {client.endpoint}"
        )
    if len(places) > 1:
        options = {**options, "more": [other[2] for other in places[1:]]}
    return _objects.Model(client._open(), bucket, key, options)


_SCHEMES = {"s3": None, "nebula": "http://", "nebulas": "https://"}


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is an object URL: s3://bucket/key, nebula://host:port/bucket/key or nebulas://."""
    return os.fsdecode(path).partition("://")[0] in _SCHEMES and "://" in os.fsdecode(path)


def place(url: str, doing: str) -> tuple[str | None, str, str]:
    """Return the endpoint (None: of the client or the environment), bucket and key of a URL."""
    scheme, _, rest = url.partition("://")
    prefix, endpoint = _SCHEMES[scheme], None
    if prefix is not None:
        host, _, rest = rest.partition("/")
        endpoint = prefix + host
    bucket, _, key = rest.partition("/")
    if not bucket or "\0" in url or (prefix is not None and endpoint == prefix):
        raise InvalidError(
            f"{doing} {url!r}: not an object URL (expected s3://bucket/key or nebula://host:port/bucket/key)"
        )
    return endpoint, bucket, key


def _text(path: str | os.PathLike[str]) -> str:
    """Return a path in a form that JSON can carry."""
    name = os.fsdecode(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidError(f"stream {name!r}: a path in a list must be valid UTF-8 (fix: rename it)") from None
    return name


class FolderError(InvalidError, IsADirectoryError):
    """A path is a directory, and one file is expected."""


def require_file(path: str | os.PathLike[str], doing: str, fix: str) -> None:
    """Raise an error for a directory or an index, which are models and not files."""
    if os.path.isdir(path):
        raise FolderError(f"{doing} {os.fsdecode(path)!r}: a directory, not a .safetensors file (fix: use {fix})")
    if os.fsdecode(path).endswith(".json"):
        raise InvalidError(f"{doing} {os.fsdecode(path)!r}: not a .safetensors file (fix: use {fix})")


def load(
    path: str | os.PathLike[str], order: Order, progress: _handles.ProgressCallback | None
) -> dict[str, Any]:
    """Load the model at path. nebulaio.safetensors.load_file documents the behaviour."""
    maker, options = order.prepare()
    with order.open([path], options) as model:
        places = model.files()
        place = places["device"]
        destinations = allocate(maker, model.system, places)
        with _handles.Load(model, destinations, maker.stream(place), order.start) as running:
            # The load runs from here on. Leaving the block early cancels it.
            out = _views(maker, model, destinations, order.unsupported)
            running.wait(progress)
        return maker.finals(out)


def _views(
    maker: _frameworks.Framework, model: _handles.Model, destinations: list[_handles.Destination], unsupported: str
) -> dict[str, Any]:
    """Return views of all tensors of a model. What describes thousands of them is freed while the load still runs."""
    with without_collections():
        tensors = model.describe()["tensors"]
        dtypes = _frameworks.choose(maker, tensors, unsupported)  # type: ignore[arg-type]
        return maker.views(tensors, destinations, dtypes)


def load_tensors(
    path: str | os.PathLike[str],
    device: _device.DeviceLike = "auto",
    *,
    framework: _frameworks.FrameworkName | None = None,
    tensors: str | Iterable[str] | None = None,
    route: _arguments.Route = "auto",
    cache: _arguments.Cache = "auto",
    lenient: bool = False,
    unsupported: _frameworks.UnsupportedPolicy = "error",
    progress: _handles.ProgressCallback | None = None,
    verify: bool = False,
    slices: _slices.Slices | None = None,
    shards: _slices.Shards | None = None,
    client: Connection | None = None,
) -> dict[str, Any]:
    """Load a model by the arguments of nebulaio.safetensors.load_model."""
    order = Order(device, framework, tensors, route, cache, lenient, unsupported, verify, slices, shards, client)
    return load(path, order, progress)


def allocate(
    maker: _frameworks.Framework, system: _process.System, places: _handles.Places
) -> list[_handles.Destination]:
    """Allocate a destination for each file."""
    if places["device"] != "host":
        system.cuda_used = True
    return [maker.allocate(file["dest_size"], file["dest_align"], places["device"]) for file in places["files"]]


def model_options(device: str, tensors: str | Iterable[str] | None, lenient: bool) -> dict[str, Any]:
    """Return the options of nebulaio_model_open. Raises InvalidError for globs that are not text."""
    options: dict[str, Any] = {"device": device, **_globs(tensors)}
    if lenient:
        options["lenient"] = True
    return options


def _globs(tensors: str | Iterable[str] | None) -> dict[str, Any]:
    if tensors is None:
        return {}
    globs = [tensors] if isinstance(tensors, str) else list(tensors)
    if not globs or not all(isinstance(glob, str) for glob in globs):
        raise InvalidError(_NO_GLOBS.format(globs))
    return {"tensors": globs}
