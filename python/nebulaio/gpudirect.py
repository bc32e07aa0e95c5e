# SPDX-License-Identifier: Apache-2.0
"""Moves objects of a NebulaIO server, or of any S3 server, into GPU memory and back.

    >>> import numpy    # or cupy, torch, numba: where the buffer lies, the bytes go
    >>> from nebulaio import GPUDirectClient
    >>> client = GPUDirectClient(endpoint="http://localhost:9000", access_key="minioadmin", secret_key="minioadmin")
    >>> buffer = numpy.arange(1000)
    >>> client.write_from_gpu(bucket="models", key="weights.bin", gpu_buffer=buffer)["bytes"]
    8000
    >>> client.read_to_gpu(bucket="models", key="weights.bin", gpu_buffer=buffer)["bytes"]
    8000

On the server's own host, the server's door (a Unix socket) hands out the object's file,
and the client reads the file into the buffer. From other hosts, the client reads with
ranged GETs over HTTP. Each call returns a report that names the route of the bytes, and
the reason why a faster route was not used. A buffer on a GPU is an array of CuPy, torch or
Numba, or anything with the CUDA array interface or DLPack. A buffer in host memory is a
NumPy array, a bytearray or a similar object. `nebulaio.CuFile` accepts the same buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments, _device, _entries, _load
from ._handles import ProgressCallback
from ._listing import Listing, ObjectInfo
from ._report import Report

if TYPE_CHECKING:
    from ._arguments import Cache, Route
    from ._futures import Transfer

__all__ = ["GPUDirectClient", "ObjectInfo", "Report"]

Door = Literal["auto", "require", "off"]


class GPUDirectClient(Listing):
    """A client that moves objects between a server and arrays. All methods are thread-safe.

    Creating a client loads no library and opens no connection. The first method call loads
    the library and connects, also in a forked child. A client can be pickled, and connects
    again in the process that unpickles it. The pickle has keys that were passed to the client
    in plain text.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        *,
        session_token: str | None = None,
        region: str | None = None,
        door: Door | str = "auto",
        device: _device.DeviceLike | None = None,
        connections: int | None = None,
        verify: bool = True,
        ca_file: str | None = None,
        insecure_tls: bool = False,
        timeout: float | None = None,
        retries: int | None = None,
        buffer_pool_size: int | str | None = None,
        queue_depth: int | None = None,
        max_transfer_size: int | str | None = None,
        workers: int | None = None,
        device_ids: Sequence[int] | None = None,
        enable_p2p: bool | None = None,
    ) -> None:
        """Set the server, the account and the options.

        Args:
            endpoint: Address of the server, "http://host:port" or https. Default: NEBULAIO_ENDPOINT,
                AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or http://localhost:9000.
            access_key, secret_key, session_token: Keys of the account. Default:
                NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, or AWS_ACCESS_KEY_ID,
                AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
            region: Region of the server. Default: AWS_REGION, AWS_DEFAULT_REGION or us-east-1.
            door: "auto" uses the server's door if it is on this host and open to this
                process, else HTTP. "require" raises an error without a door. "off"
                always uses HTTP. Any other text is the path of the door's socket.
            device: Device on which `load_model` puts tensors, as in
                `nebulaio.safetensors.load_file`. Reads and writes use the device of the buffer.
            connections: Largest number of HTTP connections.
            timeout: Longest time in seconds without an answer from the server.
            retries: Number of retries of a request that failed temporarily.
            verify: Whether to compare every block with the server's checksum.
            ca_file: File of certificates to trust in addition to the system's.
            insecure_tls: Whether to trust any certificate of the server.
            buffer_pool_size, queue_depth, max_transfer_size, workers: The options of
                `nebulaio.configure`, for this client alone.
            device_ids: Numbers of the GPUs that may be used; None allows all GPUs that the
                server allows.
            enable_p2p: Whether a read into several GPUs may copy from GPU to GPU.
        """
        super().__init__(
            {
                "endpoint": _arguments.word("endpoint", endpoint),
                "access_key": _arguments.word("access_key", access_key),
                "secret_key": _arguments.word("secret_key", secret_key),
                "session_token": _arguments.word("session_token", session_token),
                "region": _arguments.word("region", region),
                "door": _arguments.word("door", door),
                "device": None if device is None else _device.canonical(device),
                "connections": _arguments.count("connections", connections),
                "verify": _arguments.truth("verify", verify),
                "ca_file": _arguments.word("ca_file", ca_file),
                "insecure_tls": _arguments.truth("insecure_tls", insecure_tls),
                "timeout_ms": _arguments.milliseconds(timeout),
                "retries": _arguments.count("retries", retries),
            },
            {
                "buffer_pool_size": buffer_pool_size,
                "queue_depth": queue_depth,
                "max_transfer_size": max_transfer_size,
                "workers": workers,
                "device_ids": device_ids,
                "enable_p2p": enable_p2p,
            },
        )

    def read_to_gpu(
        self,
        bucket: str,
        key: str,
        gpu_buffer: Any,
        offset: int = 0,
        size: int | None = None,
        *,
        stream: Any = None,
        buffer_offset: int = 0,
        version: str | None = None,
        verify: bool | None = None,
        route: Route = "auto",
        cache: Cache = "auto",
        progress: ProgressCallback | None = None,
    ) -> Report:
        """Read an object, or a range of it, into a buffer, and return the report.

        Args:
            bucket, key: Bucket and key of the object.
            gpu_buffer: Destination of the bytes, from buffer_offset on. The buffer may be
                larger than the object. If the buffer is smaller, `size` must limit the read.
            offset, size: Range of the object in bytes. A size of None means up to its end.
            stream: CUDA stream with queued work that may still use the buffer. Copies begin
                after the queued work. Default: the framework's current stream.
            buffer_offset: Offset in bytes of the destination in the buffer.
            version: Version of the object; None means the newest.
            verify: Whether to compare blocks with their checksums; None means the client's setting.
            route, cache: Route and cache policy, as in `nebulaio.safetensors.load_file`.
            progress: Function, called as progress(bytes_done, bytes_total) in the calling thread.

        Returns:
            The report. On return the bytes are in the buffer, and no stream has to be synchronized.

        Raises:
            NotFoundError: There is no such bucket, object or version.
            AccessError: The server denies access.
            CorruptError: A block differs from its checksum.

        Ctrl-C cancels the read and waits until nothing is in flight.
        """
        one = self._one(bucket, key, gpu_buffer, offset, size, stream, buffer_offset, version)
        return self._read(_entries.of(one), verify, route, cache).outcome(progress)

    def write_from_gpu(
        self,
        bucket: str,
        key: str,
        gpu_buffer: Any,
        *,
        size: int | None = None,
        buffer_offset: int = 0,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
        stream: Any = None,
        route: Route = "auto",
        progress: ProgressCallback | None = None,
    ) -> Report:
        """Write a buffer, or `size` bytes of it from buffer_offset on, as an object, and return the report.

        On return the object is complete, durable and visible. A reader always finds the old
        object or the new one. With if_match, the write replaces an object only if it has that
        ETag. With if_none_match, the write does not replace an object with that ETag; "*"
        protects every existing object. The buffer is read after the work that is queued on
        `stream`, by default the framework's current stream.
        """
        return self._write(
            bucket, key, gpu_buffer, size, buffer_offset, content_type, metadata, if_match, if_none_match, stream, route
        ).outcome(progress)

    def read_many(
        self,
        reads: Iterable[Any],
        *,
        stream: Any = None,
        verify: bool | None = None,
        route: Route = "auto",
        cache: Cache = "auto",
        progress: ProgressCallback | None = None,
    ) -> Report:
        """Read many objects as one job, and return one report with the entry `objects`.

        Each read is (bucket, key, buffer), (bucket, key, buffer, offset) or (bucket, key,
        buffer, offset, size). The first error ends all reads; the error names its object.
        """
        return self._read(self._several(reads, stream), verify, route, cache).outcome(progress)

    def read_to_gpus(
        self,
        bucket: str,
        key: str,
        gpu_buffers: Sequence[Any],
        offset: int = 0,
        size: int | None = None,
        *,
        stream: Any = None,
        version: str | None = None,
        verify: bool | None = None,
    ) -> Report:
        """Read an object once into buffers on several devices.

        If the driver allows it, the bytes are copied from the first device to the others.
        Otherwise they are copied from the same staging memory to each device. The entry
        `peers` of the report names the way for each device. Before the call, the caller must
        wait for work on the buffers of all devices but the first.
        """
        one = self._spread(bucket, key, gpu_buffers, offset, size, stream, version)
        return self._read(_entries.of(one), verify, "auto", "auto").outcome()

    def async_read(
        self,
        bucket: str,
        key: str,
        gpu_buffer: Any,
        offset: int = 0,
        size: int | None = None,
        *,
        callback: Callable[[Transfer], object] | None = None,
        stream: Any = None,
        buffer_offset: int = 0,
        version: str | None = None,
        verify: bool | None = None,
        route: Route = "auto",
        cache: Cache = "auto",
    ) -> Transfer:
        """Start `read_to_gpu` and return a future of its report at once.

        The future is a `concurrent.futures.Future` and can be awaited. When the read has
        ended, `callback` is called with the future, in a thread of the package. Until the end,
        the read owns the buffer and keeps it alive.
        """
        one = self._one(bucket, key, gpu_buffer, offset, size, stream, buffer_offset, version)
        return self._begin(self._read(_entries.of(one), verify, route, cache), callback)

    def async_write(
        self,
        bucket: str,
        key: str,
        gpu_buffer: Any,
        *,
        callback: Callable[[Transfer], object] | None = None,
        size: int | None = None,
        buffer_offset: int = 0,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
        stream: Any = None,
        route: Route = "auto",
    ) -> Transfer:
        """Start `write_from_gpu` and return a future of its report at once, as `async_read` does.

        The caller must not change the buffer until the future is done.
        """
        return self._begin(
            self._write(
                bucket, key, gpu_buffer, size, buffer_offset, content_type, metadata, if_match, if_none_match, stream,
                route
            ),
            callback,
        )

    def load_model(
        self, bucket: str, key: str, device: _device.DeviceLike | None = None, *, framework: str | None = None,
        **options: Any
    ) -> dict[str, Any]:
        """Load a model of safetensors objects and return all its tensors by name.

        `key` is a .safetensors object, an index.json, or the common prefix of a model's
        objects. `device` defaults to the client's device, or else to "auto". All other
        arguments are those of `nebulaio.safetensors.load_model`.
        """
        where = device if device is not None else self._options.get("device", "auto")
        return _load.load_tensors(f"s3://{bucket}/{key}", where, framework=framework, client=self, **options)  # type: ignore[arg-type]
