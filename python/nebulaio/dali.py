# SPDX-License-Identifier: Apache-2.0
"""A reader for NVIDIA DALI pipelines that reads the objects below a prefix into device arrays.

    >>> from nebulaio import GPUDirectClient
    >>> from nebulaio.dali import GPUDirectReader
    >>> from nvidia.dali import pipeline_def
    >>> client = GPUDirectClient("http://localhost:9000")    # keys come from the environment
    >>> for number in range(3):
    ...     report = client.write_from_gpu("training-data", f"raw/{number}.bin", bytes([number] * 4))
    >>> @pipeline_def
    ... def training_pipeline():
    ...     return GPUDirectReader(endpoint="http://localhost:9000", bucket="training-data", prefix="raw/")
    >>> pipe = training_pipeline(batch_size=2, num_threads=1, device_id=None)    # device_id=0 reads to the first GPU
    >>> (batch,) = pipe.run()
    >>> batch.as_array().tolist()
    [[0, 0, 0, 0], [1, 1, 1, 1]]

The reader is a source of DALI's own operator external_source, so DALI needs no plugin. NebulaIO reads
further batches while DALI works on earlier ones. DALI is imported when a pipeline is defined.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from . import _arguments, _batches, _device_arrays, _prefix
from .errors import DeviceError, InvalidError, UnsupportedError
from .gpudirect import GPUDirectClient, Report

__all__ = ["GPUDirectReader", "Kind"]

Kind = Literal["auto", "raw", "npy"]
"""The format of the objects. "auto" decides by the suffix of the keys."""


def GPUDirectReader(
    bucket: str,
    prefix: str = "",
    *,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    device: Literal["cpu", "gpu"] | None = None,
    batch_size: int | None = None,
    suffix: str | Sequence[str] | None = None,
    kind: Kind = "auto",
    random_shuffle: bool = False,
    seed: int = 0,
    shard_id: int = 0,
    num_shards: int = 1,
    pad_last_batch: bool = False,
    read_ahead: int = 2,
    layout: str | None = None,
    name: str | None = None,
    report: Callable[[Report], object] | None = None,
    **client_options: Any,
) -> Any:
    """Return the DataNode of a batch of objects. Call GPUDirectReader inside of a pipeline definition.

    Args:
        bucket, prefix, suffix: The objects: all objects of the bucket with this prefix and suffix.
        endpoint, access_key, secret_key: Server and keys, as in `GPUDirectClient`. The defaults come from
            the environment.
        device: "gpu" reads into memory of the pipeline's GPU, and needs torch or CuPy to allocate it. "cpu"
            reads into host memory: decoders of images need their input there. Default: "gpu" if the pipeline
            has a device_id, or else "cpu".
        batch_size: Samples of a batch. Default, and largest value: the batch size of the pipeline.
        kind: "raw" yields the content as uint8 of one dimension. "npy" yields the array of a .npy file.
        random_shuffle, seed: Whether each epoch has a new order. The order depends on the seed and the
            epoch alone, so that all shards agree on it.
        shard_id, num_shards: Read each `num_shards`-th object of the epoch's order, from the object `shard_id` on.
        pad_last_batch: Whether to repeat the last object of a shard until all batches of all shards are full.
            Without padding, the last batch may be smaller, and shards may differ by one object.
        read_ahead: Number of batches that are read before DALI asks for them.
        layout, name: Layout and name of the output, as in external_source.
        report: Function that is called with the report of each batch, in the thread that runs the pipeline.
        client_options: Further options of `GPUDirectClient`, such as door="require".

    The end of an epoch raises StopIteration in `pipe.run()`; after `pipe.reset()` the next epoch begins. DALI's
    iterators handle both with auto_reset=True. Errors of reads are raised by `pipe.run()`.

    Raises:
        NotFoundError: There is no such bucket, or no object has the prefix and the suffix.
        InvalidError: An argument is wrong, or no pipeline is being defined.
        DeviceError: The library cannot use the pipeline's GPU.
        UnsupportedError: DALI, or a package that allocates GPU memory, cannot be imported.
    """
    pipeline = _current_pipeline()
    where = device if device is not None else ("cpu" if pipeline.device_id is None else "gpu")
    if where not in ("cpu", "gpu"):
        raise InvalidError(f"device={device!r} is not 'cpu' or 'gpu'")
    if where == "gpu" and pipeline.device_id is None:
        raise InvalidError(
            "GPUDirectReader device='gpu': the pipeline has no GPU "
            "(fix: give the pipeline a device_id, or pass device='cpu')"
        )
    most = int(pipeline.max_batch_size)
    samples = _arguments.count("batch_size", batch_size) or most
    if samples > most:
        raise InvalidError(
            f"GPUDirectReader batch_size={batch_size}: the pipeline's batch_size is {most} (expected at most that)"
        )
    client = GPUDirectClient(endpoint, access_key, secret_key, **client_options)
    objects = _prefix.list_objects(client, bucket, prefix, suffix)
    source = _batches.Batches(
        client,
        bucket,
        objects,
        _memory(client, where, pipeline.device_id),
        _batches.Order(
            len(objects),
            samples,
            _whole("shard_id", shard_id),
            _whole("num_shards", num_shards),
            _arguments.truth("random_shuffle", random_shuffle),
            _whole("seed", seed),
            _arguments.truth("pad_last_batch", pad_last_batch),
        ),
        is_array=_is_array(objects, kind, f"s3://{bucket}/{prefix}"),
        read_ahead=_whole("read_ahead", read_ahead),
        report=report,
    )
    return _external_source(source, where, layout, name)


def _external_source(source: _batches.Batches, where: str, layout: str | None, name: str | None) -> Any:
    dali = importlib.import_module("nvidia.dali")
    types = importlib.import_module("nvidia.dali.types")
    options: dict[str, Any] = {"source": source, "batch": True, "batch_info": True, "device": where}
    if not source.is_array:
        options.update(dtype=types.DALIDataType.UINT8, ndim=1)
    if source.memory.stream is not None:
        options["cuda_stream"] = source.memory.stream  # the stream on which torch or CuPy frees the arrays
    options.update({key: value for key, value in (("layout", layout), ("name", name)) if value is not None})
    return dali.fn.external_source(**options)


def _current_pipeline() -> Any:
    try:
        pipeline = importlib.import_module("nvidia.dali.pipeline").Pipeline.current()
    except ImportError as cause:
        raise UnsupportedError(
            f"GPUDirectReader: DALI cannot be imported: {cause} "
            "(fix: pip install nvidia-dali-cuda130, or the wheel of your CUDA)"
        ) from cause
    if pipeline is None:
        raise InvalidError(
            "GPUDirectReader: no pipeline is being defined (fix: call it in a function with @pipeline_def)"
        )
    return pipeline


def _memory(client: GPUDirectClient, where: str, device_id: int | None) -> _device_arrays.Memory:
    """Return what allocates arrays for the pipeline. Raises DeviceError if the library cannot use its GPU."""
    if where == "cpu":
        return _device_arrays.NumpyMemory()
    system = client._open().system
    found = system.devices()
    device = f"cuda:{device_id}"
    if not any(one["id"] == device for one in found["devices"]):
        reason = found.get("no_gpu") or f"the library finds {', '.join(one['id'] for one in found['devices'])}"
        raise DeviceError(f"GPUDirectReader on {device}: {reason} (fix: see nebulaio.devices(), or pass device='cpu')")
    system.cuda_used = True
    return _device_arrays.cuda_memory(int(device_id or 0))


def _is_array(objects: _prefix.Objects, kind: str, place: str) -> bool:
    """Return whether all objects are .npy files. Raises InvalidError if only some are, because a batch has one type."""
    if kind not in get_args(Kind):
        raise InvalidError(f"kind={kind!r} is not one of {', '.join(get_args(Kind))}")
    if kind != "auto":
        return kind == "npy"
    arrays = sum(key.endswith(".npy") for key in objects)
    if 0 < arrays < len(objects):
        raise InvalidError(
            f"read {place}: {arrays} of {len(objects)} objects are .npy files, and a pipeline needs one type "
            "(fix: pass suffix='.npy' or another suffix, or kind='raw')"
        )
    return arrays > 0


def _whole(name: str, value: Any) -> int:
    found = _arguments.count(name, value)
    if found is None:
        raise InvalidError(f"{name}=None is not a whole number of 0 or more")
    return found
