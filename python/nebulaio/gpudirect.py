# SPDX-License-Identifier: Apache-2.0
"""Objects of a NebulaIO server, or of any S3 server, straight into GPU memory and back.

    >>> import numpy    # or cupy, torch, numba: where the buffer lies, the bytes go
    >>> from nebulaio import GPUDirectClient
    >>> client = GPUDirectClient(endpoint="http://localhost:9000", access_key="minioadmin", secret_key="minioadmin")
    >>> buffer = numpy.arange(1000)
    >>> client.write_from_gpu(bucket="models", key="weights.bin", gpu_buffer=buffer)["bytes"]
    8000
    >>> client.read_to_gpu(bucket="models", key="weights.bin", gpu_buffer=buffer)["bytes"]
    8000

On the server's own host its door hands out the object's file, and this process
reads it into place by itself; elsewhere ranged GETs do. Each call returns a report
that says which, and why. Buffers are those of `nebulaio.CuFile`: CuPy, torch, Numba
and anything with the CUDA array interface or DLPack, and NumPy, bytearray and the
like for host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments, _device, _load
from ._handles import ProgressCallback
from ._listing import Listing, ObjectInfo
from ._report import Report

if TYPE_CHECKING:
    from ._arguments import Cache, Route
    from ._futures import Transfer

__all__ = ["GPUDirectClient", "ObjectInfo", "Report"]

Door = Literal["auto", "require", "off"]


class GPUDirectClient(Listing):
    """Moves objects between a server and arrays; safe to call from many threads at once.

    Making one loads no library and connects to nothing; the first use does. In a
    forked child it opens anew. It can be pickled, and connects anew where it is
    unpickled: keys that were given travel with it in the clear.
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
        """Say where the server is and who asks.

        endpoint: "http://host:port" or https; else NEBULAIO_ENDPOINT, AWS_ENDPOINT_URL_S3,
            AWS_ENDPOINT_URL, http://localhost:9000.
        access_key, secret_key, session_token: else NEBULAIO_ACCESS_KEY and
            NEBULAIO_SECRET_KEY, else AWS_ACCESS_KEY_ID and its likes.
        region: else AWS_REGION, else us-east-1.
        door: "auto" takes the server's door where it is on this host and open to this
            process, else HTTP; "require" raises where there is none; "off" is always HTTP;
            a path names the door's socket.
        device: where `load_model` puts tensors, as in `nebulaio.safetensors.load_file`.
            Reads and writes go where their buffer lies.
        connections: most connections for HTTP. timeout: seconds in which a request
            must give a sign of life. retries: of requests that failed in passing.
        verify: compare every block with the server's checksum.
        ca_file: certificates to trust besides the system's. insecure_tls: trust any.
        buffer_pool_size, queue_depth, max_transfer_size, workers: as in
            `nebulaio.configure`, for this client alone.
        device_ids: the GPUs that may be used, by number; None for all that the server allows.
        enable_p2p: whether bytes for several GPUs may be copied from one to the next.
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
        """Read an object, or a range of it, into a buffer, and return how it went.

        gpu_buffer: where the bytes go, from buffer_offset on. A larger one than the
            object is fine; a smaller one is an error unless `size` says how many bytes.
        offset, size: the range; None is up to the object's end.
        stream: the CUDA stream whose queued work may still use the buffer, the
            framework's current one if None; copies begin after it.
        version: of the object; None for the newest.
        verify: in place of the client's.
        route, cache: as in `nebulaio.safetensors.load_file`.
        progress: called as progress(bytes_done, bytes_total), in this thread.

        On return the bytes are in place: no stream needs to be waited for. Ctrl-C
        cancels the read and waits until nothing is in flight. Raises NotFoundError (a
        FileNotFoundError), AccessError (a PermissionError), CorruptError and the like.
        """
        return self._read([self._one(bucket, key, gpu_buffer, offset, size, stream, buffer_offset, version)], verify, route, cache).outcome(progress)

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
        """Write a buffer, or `size` bytes of it from buffer_offset on, as an object, and return how it went.

        On return the object is whole, durable and visible; a reader at any time
        finds the old one or the new one. if_match and if_none_match: the ETag that is,
        or is not, to be replaced; if_none_match="*" makes only new objects. The bytes are
        read after what is queued on `stream`, the framework's current one if None.
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
        """Read many objects as one job, and return one report of all, `objects` among its entries.

        reads: (bucket, key, buffer) each, with (…, offset) or (…, offset, size) for
            ranges. The first error ends the job and says of which object it is.
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
        """Read an object once, into buffers on several devices.

        From the first device it is copied to the others where the driver lets them
        reach each other; else each gets it from the same read. The report tells. Work that
        is queued on the other devices' buffers must be done before.
        """
        return self._read([self._spread(bucket, key, gpu_buffers, offset, size, stream, version)], verify, "auto", "auto").outcome()

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
        """Start `read_to_gpu` and return at once, with a future of its report.

        The future is a `concurrent.futures.Future` that can be awaited too. callback
        is called with it when the read has ended, in a thread of the library's. The
        buffer is kept alive, and belongs to the read, until then.
        """
        return self._begin(
            self._read([self._one(bucket, key, gpu_buffer, offset, size, stream, buffer_offset, version)], verify, route, cache), callback
        )

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
        """Start `write_from_gpu` and return at once; see `async_read`. The buffer must not change until the end."""
        return self._begin(
            self._write(
                bucket, key, gpu_buffer, size, buffer_offset, content_type, metadata, if_match, if_none_match, stream, route
            ),
            callback,
        )

    def load_model(
        self, bucket: str, key: str, device: _device.DeviceLike | None = None, *, framework: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Load a model of safetensors objects and return all its tensors by name.

        key: a .safetensors object, an index.json, or the prefix that the objects of a
            model share. device: the client's, else "auto". Everything else is as in
            `nebulaio.safetensors.load_model`.
        """
        where = device if device is not None else self._options.get("device", "auto")
        return _load.load_tensors(f"s3://{bucket}/{key}", where, framework=framework, client=self, **options)  # type: ignore[arg-type]
