# SPDX-License-Identifier: Apache-2.0
"""Loads safetensors files and sharded models into tensors on a GPU or the host, and saves them.

    >>> import numpy
    >>> from nebulaio.safetensors import load_file, save_file
    >>> report = save_file({"w": numpy.ones(3)}, "model.safetensors")
    >>> load_file("model.safetensors", device="cpu", framework="numpy")
    {'w': array([1., 1., 1.])}

The bytes of each file are loaded into one allocation of the framework. Every tensor of
the file is a part of this allocation, which is freed with the last tensor of the file.
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
from .._prefetch import PrefetchLoader, PrefetchPlan, TensorMeta
from .._safe_open import SafeSlice, safe_open
from .._serialize import TensorSpec, deserialize, serialize, serialize_file
from .._slices import Shards, Slices
from .._stream import Stream
from ..errors import NebulaioError as SafetensorError

if TYPE_CHECKING:
    from ..gpudirect import GPUDirectClient

__all__ = [
    "Cache",
    "DeviceLike",
    "PrefetchLoader",
    "PrefetchPlan",
    "ProgressCallback",
    "PySafeSlice",
    "Route",
    "SafeSlice",
    "SafetensorError",
    "Shards",
    "Slices",
    "Stream",
    "Tensor",
    "TensorMeta",
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


PySafeSlice = SafeSlice
"""The name of `SafeSlice` in the package safetensors."""


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
        path: Path of the file, or the URL of an object, "s3://bucket/key".
        device: Device of the tensors: "auto" (cuda:0 if it is usable, else the host), "cpu" or "host", "cuda" (the
            framework's current device), "cuda:N", a device number, or a torch.device.
        framework: Framework of the tensors: "pt" (torch, the default), "cupy", "numpy", "jax"
            or "numba". NumPy only has host memory, so its device "auto" is the host. CuPy and
            Numba only have CUDA memory.
        tensors: Glob or globs of tensor names. Only matching tensors are read.
        route: "buffered" (through the page cache), "direct" (O_DIRECT), "cufile" (NVIDIA's
            libcufile), or "auto", which reads cached ranges from the page cache.
        cache: Whether the file stays in the page cache after the load: "keep", "bypass" or
            "auto".
        lenient: Whether to accept whitespace around the JSON object of a header, and unknown
            fields of a tensor's entry.
        unsupported: How to treat a dtype that the framework does not have: "error", or
            "bytes" for a flat uint8 view of its bytes.
        progress: Function, called as progress(bytes_done, bytes_total) in the calling thread at
            least once. An exception of the function cancels the load.
        verify: Whether to check every block that holds a byte of a tensor or of the header
            against FILE.crc64nvme. ``nebulaio inspect PATH --checksum`` writes FILE.crc64nvme.
        slices: Parts of tensors by glob, such as {"*.q_proj.weight": numpy.s_[0:128, :]}. Of
            a matching tensor, only this part is loaded. Each slice has an end and no step;
            None means a whole dimension.
        shards: Even parts by glob, such as {"*.q_proj.weight": (0, rank, world)}: part
            number `rank` of `world` parts of dimension 0.
        client: Client for the server of a URL. Default: `nebulaio.GPUDirectClient()`, which
            uses the environment. Through the server's door, `verify` needs no FILE.crc64nvme.

    Returns:
        Writable and complete tensors. No stream has to be synchronized.

    Raises:
        NotFoundError: The file does not exist, or with verify its checksums do not.
        CorruptError: The header is wrong, or a block differs from its checksum. The error
            names the file, the block and the tensors.
        NebulaioError: Another failure. A failed load returns nothing.

    Ctrl-C cancels the load, waits until nothing is in flight, and raises KeyboardInterrupt.
    The function is thread-safe. `nebulaio.last_report()` has the report, even after a
    failure.
    """
    _load.require_file(path, "load_file", "load_model for a model")
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
        paths: One path as in `load_model`, or several paths in the order of the stream.
        lookahead: None allocates memory for all files at once and reads them as one load. A
            number allocates memory for that many files beyond the current one. Use a number
            if you copy the tensors into a model of your own.

    All other arguments are those of `load_file`.

    A yielded tensor is complete: nothing is written to its memory again, and no clone is
    needed. With verify, the tensor's blocks and its file's header have been checked. Every
    tensor is a view of its file's allocation, which is freed with the last tensor of the file.

    Loading begins with the call of `stream`. An error of the load is raised after the tensors
    that were ready before it. A change of a file during the load is only detected at the
    end of the load.

    Breaking out of the loop, `close()`, leaving a `with` block or dropping the iterator
    cancels the load and returns when nothing is in flight any more. Ctrl-C also
    cancels the load. After the end, `nebulaio.last_report()` returns the report. With
    lookahead, the report covers the file that ended last.
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

    The arguments are those of `load_model`.

    Returns:
        A dictionary with the keys "files", "tensors" and "metadata".

        "files" is a list of {"path", "size", "dest_size", "dest_align"}.

        "tensors" is a list of {"name", "dtype", "shape", "file", "offset", "size"}. The
        value of "file" is an index in "files". The value of "offset" is relative to the
        destination of that file.

        "metadata" is the metadata in the files' headers.

    Raises:
        NebulaioError: The headers are missing or wrong, as for a load of the same path.
    """
    with _load.open_model([path], _load.model_options("host", tensors, lenient), client) as model:
        layout: dict[str, Any] = dict(model.describe())
    del layout["device"]
    return layout


def write_checksums(
    path: str | os.PathLike[str], *, lenient: bool = False, progress: ProgressCallback | None = None
) -> list[str]:
    """Write FILE.crc64nvme beside each file of the model at path, for loads with verify.

    `path` and `lenient` are those of `load_model`. The files are read whole: use a copy that
    is known to be good. Returns the paths of the written files. If `write_checksums` fails or
    is interrupted before all checksums are computed, it writes no file.
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
            __cuda_array_interface__ or an array interface. Tensors may be on the host and on
            several GPUs. GPU tensors are read after the work queued on their current streams.
            Tensors of torch and of GPUs must be contiguous and must not share memory. NumPy
            arrays may have any strides and byte order, and are copied if necessary. Masked
            arrays are saved by their data, without the mask.
        path: Path of the file to create or replace; symbolic links are followed. Or the URL
            of an object, "s3://bucket/key".
        metadata: Text for "__metadata__" of the file.
        checksum: Whether to write FILE.crc64nvme for verified loads. With False, an
            existing FILE.crc64nvme is removed, because it does not match the new file.
        progress: Function, called as progress(bytes_done, bytes_total) in the calling thread at
            least once. An exception of the function cancels the save.
        client: Client with the server and account of an object; None uses the environment.

    Raises:
        NebulaioError: The save failed. An existing file at `path` is unchanged.

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
    model: Any, filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True
) -> None:
    """Save a torch module to a file.

    If tensors of the module share memory, only one of them is saved. The file's metadata maps
    the names of the others to the saved tensor.
    """
    _modules.save_model(model, filename, metadata, force_contiguous)
