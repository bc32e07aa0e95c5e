# SPDX-License-Identifier: Apache-2.0
"""Load safetensors files and sharded models into tensors on a GPU or the host, and save them.

    >>> import numpy
    >>> from nebulaio.safetensors import load_file, save_file
    >>> report = save_file({"w": numpy.ones(3)}, "model.safetensors")
    >>> load_file("model.safetensors", device="cpu", framework="numpy")
    {'w': array([1., 1., 1.])}

The bytes of each file land in one allocation of the framework's own allocator,
and every tensor is a view of it: memory is freed when the last tensor of a file
is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import _checksums, _handles, _load, _modules, _process, _save, _serialize, _stream
from .._arguments import Cache, Route
from .._device import DeviceLike
from .._frameworks import FrameworkName, UnsupportedPolicy
from .._handles import ProgressCallback
from .._load_model import load_model
from .._safe_open import SafeSlice, safe_open
from .._serialize import TensorSpec, deserialize, serialize, serialize_file
from .._slices import Shards, Slices
from .._stream import Stream
from ..errors import InvalidError
from ..errors import NebulaioError as SafetensorError

if TYPE_CHECKING:
    from ..gpudirect import GPUDirectClient

__all__ = [
    "Cache",
    "DeviceLike",
    "ProgressCallback",
    "Route",
    "SafeSlice",
    "SafetensorError",
    "Shards",
    "Slices",
    "Stream",
    "Tensor",
    "TensorSpec",
    "deserialize",
    "inspect",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "serialize",
    "serialize_file",
    "stream",
    "write_checksums",
]

Tensor = Any
"""A tensor of the framework asked for: torch.Tensor, cupy.ndarray, numpy.ndarray, jax.Array or a Numba device array."""


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
    verify: bool = False,
    slices: Slices | None = None,
    shards: Shards | None = None,
    client: GPUDirectClient | None = None,
) -> dict[str, Tensor]:
    """Load one .safetensors file and return its tensors by name.

    device: "auto" (cuda:0 where the library finds a usable one, else the host),
        "cpu" or "host", "cuda" (the framework's current device), "cuda:N", a
        device number, or a torch.device.
    framework: "pt" for torch tensors (the default), "cupy", "numpy", "jax" or
        "numba". NumPy holds host memory only, so that its "auto" is the host;
        CuPy and Numba hold CUDA memory only.
    tensors: a glob or globs of tensor names; only these are read.
    route: how file bytes travel: "buffered" through the page cache, "direct"
        past it, "cufile" by NVIDIA's libcufile, or "auto": each range by where it
        already lies.
    cache: what the page cache keeps afterwards: "keep", "bypass" or "auto".
    lenient: accept headers that the reference implementation accepts and the
        specification does not, such as leading whitespace.
    unsupported: what becomes of a dtype that the framework has no type for:
        "error", or "bytes" for a flat uint8 view of its bytes.
    progress: called as progress(bytes_done, bytes_total), in the calling thread,
        at least once; an exception from it cancels the load.
    verify: check every block that holds a byte of a tensor or of the header
        against FILE.crc64nvme, which ``nebulaio inspect PATH --checksum`` writes:
        a difference is a CorruptError that names file, block and tensors, missing
        checksums are a NotFoundError.
    slices: parts of tensors by glob, such as {"*.q_proj.weight": numpy.s_[0:128, :]}:
        only these are read. Each slice has an end and no step; None is a whole
        dimension.
    shards: even parts by glob, such as {"*.q_proj.weight": (0, rank, world)}: the
        rank-th of `world` parts of dimension 0.
    client: the server of a path that is a URL, "s3://bucket/key"; without one, what
        `nebulaio.GPUDirectClient()` finds in the environment. With the server's door
        `verify` needs no FILE.crc64nvme beside the object.

    The tensors are writable and complete on return: no stream needs to be waited
    for. A failed load returns nothing and raises a `nebulaio.errors.NebulaioError`
    subclass; Ctrl-C cancels the load, waits until nothing is in flight, and raises
    KeyboardInterrupt. Safe to call from many threads at once. How the bytes went
    is in `nebulaio.last_report()`, after a failure too.
    """
    if os.path.isdir(path) or os.fsdecode(path).endswith(".json"):
        raise InvalidError(f"load_file {os.fsdecode(path)!r}: not a .safetensors file (fix: use load_model for a model)")
    return _load.load(
        path,
        _load.Order(device, framework, tensors, route, cache, lenient, unsupported, verify, slices, shards, client),
        progress,
    )


def stream(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    device: DeviceLike = "auto",
    *,
    framework: FrameworkName | None = None,
    tensors: str | Iterable[str] | None = None,
    route: Route = "auto",
    cache: Cache = "auto",
    lenient: bool = False,
    unsupported: UnsupportedPolicy = "error",
    progress: ProgressCallback | None = None,
    verify: bool = False,
    slices: Slices | None = None,
    shards: Shards | None = None,
    lookahead: int | None = None,
    client: GPUDirectClient | None = None,
) -> Stream:
    """Yield (name, tensor) in the order of the files, each while later ones still arrive.

        >>> import numpy
        >>> report = save_file({"a": numpy.ones(2), "b": numpy.zeros(2)}, "model.safetensors")
        >>> for name, array in stream("model.safetensors", device="cpu", framework="numpy"):
        ...     print(name, array)
        a [1. 1.]
        b [0. 0.]

    paths: one path as in `load_model`, or several, whose files follow each other.
    lookahead: None takes memory for all files at once and reads them as one. A
        number takes memory for that many files beyond the one being yielded: what
        a consumer that copies needs beside its own model is then a few files.

    A tensor is final where it lies when it is yielded: nothing is written there
    again, and no clone is needed. It is a view of its file's one allocation, which is
    freed when the last tensor of that file is gone. With verify its blocks and its
    file's header have been checked by then.

    Loading begins with the call. An error of the load is raised when the tensors
    that are ready have been yielded; that a file changed while it was read is known
    only at its end. Breaking out of the loop, `close()`, leaving a `with` block and
    letting go of the iterator cancel the load and return when nothing is in flight
    any more; Ctrl-C does so inside the wait. `nebulaio.last_report()` is the
    report afterwards, with lookahead that of the file that ended last.

    Everything else is as in `load_file`.
    """
    return Stream(
        _stream.paths_of(paths),
        _load.Order(device, framework, tensors, route, cache, lenient, unsupported, verify, slices, shards, client),
        lookahead,
        progress,
    )


def inspect(
    path: str | os.PathLike[str],
    *,
    tensors: str | Iterable[str] | None = None,
    lenient: bool = False,
    client: GPUDirectClient | None = None,
) -> dict[str, Any]:
    """Read and check the headers at path, and no tensor data.

    path, tensors, lenient and client are as in `load_model`. Returns a dictionary:
        "files": [{"path", "size", "dest_size", "dest_align"}],
        "tensors": [{"name", "dtype", "shape", "file", "offset", "size"}], where
            file is a place in "files" and offset a place in its destination,
        "metadata": the text that the file's writer put beside the tensors.

    Raises what a load of the same path would raise before reading data.
    """
    with _load.open_model([path], _load.model_options("host", tensors, lenient), client) as model:
        layout: dict[str, Any] = dict(model.describe())
    del layout["device"]
    return layout


def write_checksums(
    path: str | os.PathLike[str], *, lenient: bool = False, progress: ProgressCallback | None = None
) -> list[str]:
    """Write FILE.crc64nvme beside each file of the model at path, for loads with verify.

    path and lenient are as in `load_model`. The files are read whole: do it with a
    copy that is known to be good. Returns the paths written; when it fails or is
    interrupted before all sums are made, none is.
    """
    system = _process.current().open()
    with (
        _handles.Model(system, path, _load.model_options("host", None, lenient)) as model,
        _checksums.Checksums(model) as running,
    ):
        running.wait(progress)
        return running.written


def save_file(
    tensors: Mapping[str, Tensor],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    checksum: bool = True,
    progress: ProgressCallback | None = None,
    client: GPUDirectClient | None = None,
) -> None:
    """Save tensors to one .safetensors file, from the memory they lie in.

    tensors: by name; of torch, CuPy or NumPy, or anything with
        __cuda_array_interface__ or an array interface. They may lie on the host
        and on several GPUs at once, and are read after the work queued on their
        current streams. Those of torch and of GPUs are contiguous, and no two share
        memory. Arrays of NumPy may have any order, strides and byte order: what is not
        contiguous or not little-endian is copied, and of a masked array the data is saved.
    path: the file to make or replace; a link is followed. "s3://bucket/key" is an object.
    metadata: text to put beside the tensors, as "__metadata__".
    checksum: write FILE.crc64nvme too, which verified loads need. Without it,
        one that is there is removed: it is not of the new file.
    progress: called as progress(bytes_done, bytes_total), in the calling thread,
        at least once; an exception from it cancels the save.
    client: which server to save an object to, and as whom; None for what os.environ says.

    On return the file is whole and durable: written, synced and renamed into
    place, its directory synced. A reader at any time finds the old file or the
    new one. A failed save raises a `nebulaio.errors.NebulaioError` subclass and
    leaves what was there; Ctrl-C cancels it, waits until nothing is in flight,
    and raises KeyboardInterrupt. Safe to call from many threads at once. How the
    bytes went is in `nebulaio.last_report()`, after a failure too.
    """
    _save.save(tensors, path, metadata, checksum, progress, client)


def load(data: bytes, *, framework: FrameworkName | None = None) -> dict[str, Tensor]:
    """The tensors in the bytes of a .safetensors file, by name and in host memory of their own."""
    return _serialize.load(data, framework)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a .safetensors file with these tensors, which are those that `save_file` takes."""
    return _serialize.save(tensors, metadata)


def save_model(
    model: Any, filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Save a torch module; of tensors that share memory one is saved, and the metadata names it for the others."""
    _modules.save_model(model, filename, metadata, force_contiguous)
