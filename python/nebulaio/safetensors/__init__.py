# SPDX-License-Identifier: Apache-2.0
"""Loads safetensors files and sharded models into tensors on a GPU or the host, and saves them.

    >>> import numpy
    >>> from nebulaio.safetensors import load_file, save_file
    >>> report = save_file({"w": numpy.ones(3)}, "model.safetensors")
    >>> load_file("model.safetensors", device="cpu", framework="numpy")
    {'w': array([1., 1., 1.])}

The bytes of each file are loaded into one allocation of the framework. Every tensor is
a view of it. The memory is freed with the last tensor of a file.
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
"""A tensor of the chosen framework: torch.Tensor, cupy.ndarray, numpy.ndarray, jax.Array or a Numba device array."""


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

    Args:
        path: The file, or an object's URL "s3://bucket/key".
        device: "auto" (cuda:0 if it is usable, else the host), "cpu" or "host", "cuda" (the
            framework's current device), "cuda:N", a device number, or a torch.device.
        framework: "pt" for torch tensors (the default), "cupy", "numpy", "jax" or "numba".
            NumPy only has host memory, so its "auto" is the host. CuPy and Numba only have
            CUDA memory.
        tensors: A glob or globs of tensor names. Only these tensors are read.
        route: "buffered" through the page cache, "direct" past it, "cufile" by NVIDIA's
            libcufile, or "auto", which chooses for each range by what is cached.
        cache: What the page cache keeps afterwards: "keep", "bypass" or "auto".
        lenient: Whether to accept headers that only the reference implementation accepts,
            such as leading whitespace.
        unsupported: How to treat a dtype that the framework does not have: "error", or
            "bytes" for a flat uint8 view of its bytes.
        progress: Called as progress(bytes_done, bytes_total) in the calling thread, at least
            once. An exception in it cancels the load.
        verify: Whether to check every block that holds a byte of a tensor or of the header
            against FILE.crc64nvme. ``nebulaio inspect PATH --checksum`` writes that file.
        slices: Parts of tensors by glob, such as {"*.q_proj.weight": numpy.s_[0:128, :]}.
            Only these parts are read. Each slice has an end and no step; None is a whole
            dimension.
        shards: Even parts by glob, such as {"*.q_proj.weight": (0, rank, world)}: part
            number `rank` of `world` parts of dimension 0.
        client: The server of a URL. Default: `nebulaio.GPUDirectClient()`, which uses the
            environment. Through the server's door, `verify` needs no FILE.crc64nvme.

    Returns:
        Writable and complete tensors. No stream has to be waited for.

    Raises:
        NotFoundError: The file, or with verify its checksums, do not exist.
        CorruptError: The header is wrong, or a block differs from its checksum. The message
            names the file, the block and the tensors.
        NebulaioError: Another failure. A failed load returns nothing.

    Ctrl-C cancels the load, waits until nothing is in flight, and raises KeyboardInterrupt.
    The function is thread-safe. `nebulaio.last_report()` has the report, even after a
    failure.
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
    """Yield (name, tensor) in the order of the files, while later tensors still arrive.

        >>> import numpy
        >>> report = save_file({"a": numpy.ones(2), "b": numpy.zeros(2)}, "model.safetensors")
        >>> for name, array in stream("model.safetensors", device="cpu", framework="numpy"):
        ...     print(name, array)
        a [1. 1.]
        b [0. 0.]

    Args:
        paths: One path as in `load_model`, or several whose files follow each other.
        lookahead: None allocates memory for all files at once and reads them as one load. A
            number allocates memory for that many files beyond the current one. A consumer
            that copies then needs only a few files of memory beside its own model.

    All other arguments are those of `load_file`.

    A yielded tensor is complete: nothing is written there again, and no clone is needed.
    With verify, its blocks and its file's header have been checked. It is a view of its
    file's allocation, which is freed with the last tensor of that file.

    Loading begins with the call. An error of the load is raised after the ready tensors
    have been yielded. A file that changes while it is read is only detected at its end.

    Breaking out of the loop, `close()`, leaving a `with` block or dropping the iterator
    cancels the load and returns when nothing is in flight any more. Ctrl-C does the same.
    Afterwards `nebulaio.last_report()` has the report. With lookahead it covers the file
    that ended last.
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
    """Read and check the headers at path. No tensor data is read.

    path, tensors, lenient and client are as in `load_model`.

    Returns:
        A dictionary with
        "files": [{"path", "size", "dest_size", "dest_align"}],
        "tensors": [{"name", "dtype", "shape", "file", "offset", "size"}], where file is an
            index in "files" and offset is relative to that file's destination,
        "metadata": the file's metadata.

    Raises:
        NebulaioError: The same errors as a load of this path before it reads data.
    """
    with _load.open_model([path], _load.model_options("host", tensors, lenient), client) as model:
        layout: dict[str, Any] = dict(model.describe())
    del layout["device"]
    return layout


def write_checksums(
    path: str | os.PathLike[str], *, lenient: bool = False, progress: ProgressCallback | None = None
) -> list[str]:
    """Write FILE.crc64nvme beside each file of the model at path, for loads with verify.

    path and lenient are as in `load_model`. The files are read whole: use a copy that is
    known to be good. Returns the written paths. If it fails or is interrupted before all
    checksums are computed, it writes none.
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
    """Save tensors to one .safetensors file, directly from their memory.

    Args:
        tensors: The tensors by name: of torch, CuPy or NumPy, or with
            __cuda_array_interface__ or an array interface. They may be on the host and on
            several GPUs. They are read after the work queued on their current streams.
            Tensors of torch and of GPUs must be contiguous and must not share memory. NumPy
            arrays may have any strides and byte order, and are copied if necessary. Of a
            masked array the data is saved.
        path: The file to create or replace; a link is followed. "s3://bucket/key" is an
            object.
        metadata: Text for "__metadata__" of the file.
        checksum: Whether to write FILE.crc64nvme for verified loads. With False, an
            existing one is removed, because it does not match the new file.
        progress: Called as progress(bytes_done, bytes_total) in the calling thread, at least
            once. An exception in it cancels the save.
        client: The server and account for an object; None uses the environment.

    Raises:
        NebulaioError: The save failed. An existing file is unchanged.

    On return the file is complete and durable. A reader always finds the old file or the
    new one. Ctrl-C cancels the save, waits until nothing is in flight, and raises
    KeyboardInterrupt. The function is thread-safe. `nebulaio.last_report()` has the report,
    even after a failure.
    """
    _save.write(_save.prepare(tensors), path, metadata, checksum, progress, client)


def load(data: bytes, *, framework: FrameworkName | None = None) -> dict[str, Tensor]:
    """Return the tensors in the bytes of a .safetensors file by name, in new host memory."""
    return _serialize.load(data, framework)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with these tensors. `save_file` lists the accepted tensors."""
    return _serialize.save(tensors, metadata)


def save_model(
    model: Any, filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Save a torch module. Of tensors that share memory, one is saved, and the metadata names it for the others."""
    _modules.save_model(model, filename, metadata, force_contiguous)
