# SPDX-License-Identifier: Apache-2.0
"""Load safetensors files and sharded models into tensors on a GPU or the host.

    >>> from nebulaio.safetensors import load_file
    >>> tensors = load_file("model.safetensors", device="cuda:0")

The bytes of each file land in one allocation of the framework's own allocator,
and every tensor is a view of it: memory is freed when the last tensor of a file
is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

from . import _handles, _load, _process
from ._device import DeviceLike
from ._frameworks import FrameworkName, UnsupportedPolicy
from ._handles import ProgressCallback
from .errors import InvalidError

__all__ = ["DeviceLike", "ProgressCallback", "Tensor", "inspect", "load_file", "load_model"]

Tensor = Any
"""A tensor of the framework asked for: torch.Tensor, cupy.ndarray or numpy.ndarray."""

Route = Literal["auto", "buffered", "direct"]
Cache = Literal["auto", "keep", "bypass"]


def load_file(
    path: str | os.PathLike[str],
    device: DeviceLike = "auto",
    *,
    framework: FrameworkName | None = None,
    tensors: str | Iterable[str] | None = None,
    route: Route = "auto",
    cache: Cache = "auto",
    lenient: bool = False,
    unsupported: UnsupportedPolicy = "error",
    progress: ProgressCallback | None = None,
) -> dict[str, Tensor]:
    """Load one .safetensors file and return its tensors by name.

    device: "auto" (cuda:0 where the library finds a usable one, else the host),
        "cpu" or "host", "cuda" (the framework's current device), "cuda:N", a
        device number, or a torch.device.
    framework: "pt" for torch tensors (the default), "cupy", or "numpy"; NumPy
        holds host memory only, so that its "auto" is the host.
    tensors: a glob or globs of tensor names; only these are read.
    route: how file bytes travel: "buffered" through the page cache, "direct"
        past it, or "auto": each range by where it already lies.
    cache: what the page cache keeps afterwards: "keep", "bypass" or "auto".
    lenient: accept headers that the reference implementation accepts and the
        specification does not, such as leading whitespace.
    unsupported: what becomes of a dtype that the framework has no type for:
        "error", or "bytes" for a flat uint8 view of its bytes.
    progress: called as progress(bytes_done, bytes_total), in the calling thread,
        at least once; an exception from it cancels the load.

    The tensors are writable and complete on return: no stream needs to be waited
    for. A failed load returns nothing and raises a `nebulaio.errors.NebulaioError`
    subclass; Ctrl-C cancels the load, waits until nothing is in flight, and raises
    KeyboardInterrupt. Safe to call from many threads at once. How the bytes went
    is in `nebulaio.last_report()`, after a failure too.
    """
    if os.path.isdir(path) or os.fspath(path).endswith(".json"):
        raise InvalidError(f"load_file {os.fspath(path)!r}: not a .safetensors file (fix: use load_model for a model)")
    return _load.load(path, device, framework, tensors, route, cache, lenient, unsupported, progress)


def load_model(
    path: str | os.PathLike[str],
    device: DeviceLike = "auto",
    *,
    framework: FrameworkName | None = None,
    tensors: str | Iterable[str] | None = None,
    route: Route = "auto",
    cache: Cache = "auto",
    lenient: bool = False,
    unsupported: UnsupportedPolicy = "error",
    progress: ProgressCallback | None = None,
) -> dict[str, Tensor]:
    """Load a model of one or many files and return all its tensors by name.

    path: a directory as Hugging Face lays it out, a *.safetensors.index.json,
        or a single .safetensors file. All files are read together.

    Everything else is as in `load_file`.
    """
    return _load.load(path, device, framework, tensors, route, cache, lenient, unsupported, progress)


def inspect(
    path: str | os.PathLike[str],
    *,
    tensors: str | Iterable[str] | None = None,
    lenient: bool = False,
) -> dict[str, Any]:
    """Read and check the headers at path, and no tensor data.

    path, tensors and lenient are as in `load_model`. Returns a dictionary:
        "files": [{"path", "size", "dest_size", "dest_align"}],
        "tensors": [{"name", "dtype", "shape", "file", "offset", "size"}], where
            file is a place in "files" and offset a place in its destination,
        "metadata": the text that the file's writer put beside the tensors.

    Raises what a load of the same path would raise before reading data.
    """
    system = _process.current().open()
    with _handles.Model(system, path, _load.model_options("host", tensors, lenient)) as model:
        layout: dict[str, Any] = dict(model.describe())
    del layout["device"]
    return layout
