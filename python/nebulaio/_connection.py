# SPDX-License-Identifier: Apache-2.0
"""The base of GPUDirectClient: its options, the library's client in each process, and its jobs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _arguments, _buffers, _entries, _objects, _options, _process
from .cufile import _whole_number
from .errors import ClosedError, InvalidError

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._futures import Transfer


class Connection:
    """A server and an account. Each process connects when it first uses the connection."""

    def __init__(self, options: dict[str, Any], tuning: dict[str, Any]) -> None:
        """`options` are those of nebulaio_client_open, `tuning` those of the system. None means not given."""
        self._lock = threading.Lock()
        self._client: _objects.Client | None = None
        self._closed = False
        if (options["access_key"] is None) != (options["secret_key"] is None):
            raise InvalidError(
                "access_key and secret_key: only one of them is given (fix: give both, or neither to use the environment)"
            )
        self._options = {key: value for key, value in options.items() if value is not None}
        numbers, p2p = tuning.pop("device_ids"), tuning.pop("enable_p2p")
        self._tuning: dict[str, Any] = {
            key: _options.check(key, value, f"GPUDirectClient {key}") for key, value in tuning.items()
            if value is not None
        }
        if numbers is not None:
            self._tuning["device_ids"] = [_arguments.count("device_ids", number) for number in numbers]
        if p2p is not None:
            self._tuning["enable_p2p"] = _arguments.truth("enable_p2p", p2p)

    @property
    def endpoint(self) -> str | None:
        """Return the endpoint that was passed to the client, or None if the environment names it."""
        return self._options.get("endpoint")

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._closed

    def __repr__(self) -> str:
        said = [f"{key}={self._options[key]!r}" for key in ("endpoint", "access_key", "door", "device")
                if key in self._options]
        return f"GPUDirectClient({', '.join(said)}{', closed' if self._closed else ''})"

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to connect: all settings, and given keys in plain text.

        Keys from the environment are left out: the other process reads its own.
        """
        return {"options": dict(self._options), "tuning": dict(self._tuning), "closed": self._closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._client = None
        self._options, self._tuning, self._closed = state["options"], state["tuning"], state["closed"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for running transfers, then close the connections. A second call does nothing."""
        self._closed = True
        client = self._client
        if client is not None and client.usable():
            watcher = _process.current().watcher
            if watcher is not None:
                watcher.wait(client)
        self._client = None  # released when no thread uses it any more

    def _open(self) -> _objects.Client:
        """Return the library's client. The first call in each process opens it."""
        if self._closed:
            raise ClosedError("use client: it is closed")
        client = self._client
        if client is not None and client.usable():
            return client
        system = _process.current().open_with(self._tuning)
        if client is not None:
            self._lock = threading.Lock()  # after a fork, the thread that held the old lock does not exist
        with self._lock:
            if self._client is None or not self._client.usable():
                self._client = _objects.Client(system, with_environment(self._options, os.environ))
            return self._client

    def _memory(self, buffer: Any, writable: bool, known: _buffers.Known | None = None) -> _buffers.Memory:
        memory = _buffers.memory_of(buffer, writable, known)
        if memory.device != "host" and not (known and memory.device in known.checked):
            _process.current().require_cuda_after_fork(memory.device)
            allowed = self._tuning.get("device_ids")
            if allowed and memory.device not in [f"cuda:{number}" for number in allowed]:
                raise InvalidError(
                    f"{type(buffer).__name__} is on {memory.device}, but device_ids of this client are {allowed} "
                    "(fix: move it to one of these devices, or add its device to device_ids)"
                )
            self._open().system.cuda_used = True
            if known:
                known.checked.add(memory.device)
        return memory

    def _one(
        self, bucket: Any, key: Any, buffer: Any, offset: Any, size: Any, stream: Any, buffer_offset: Any, version: Any,
        known: _buffers.Known | None = None,
    ) -> _entries.Read:
        memory = self._memory(buffer, True, known)
        begin, skipped = _whole_number("offset", offset), _whole_number("buffer_offset", buffer_offset)
        wanted = -1 if size is None else _whole_number("size", size)
        _arguments.fits(memory, skipped, max(wanted, 0))
        return _entries.Read(
            _arguments.name("bucket", bucket), _arguments.name("key", key), _arguments.version(version), begin, wanted,
            memory, skipped, _stream(memory, stream)
        )

    def _spread(self, bucket: Any, key: Any, gpu_buffers: Sequence[Any], offset: Any, size: Any, stream: Any,
                version: Any) -> _entries.Read:
        buffers = list(gpu_buffers)
        if not buffers:
            raise InvalidError("read_to_gpus: no buffers are given (expected one per device)")
        first = self._one(bucket, key, buffers[0], offset, size, stream, 0, version)
        peers = tuple(self._memory(buffer, writable=True) for buffer in buffers[1:])
        for peer in peers:
            if peer.size < first.memory.size:
                raise InvalidError(
                    f"read_to_gpus: the buffer on {peer.device} has {peer.size} bytes and the first, on {first.memory.device}, "
                    f"{first.memory.size} (fix: give buffers of equal size)"
                )
        return first._replace(peers=peers)

    def _several(self, reads: Iterable[Any], stream: Any) -> _entries.Entries:
        found = _entries.Entries()
        quick = _entries.Quick(found)
        known = _buffers.Known()  # facts that all buffers of one call share
        for one in quick.others(reads):
            if not isinstance(one, tuple) or not 3 <= len(one) <= 5:
                raise InvalidError(
                    f"read_many: {type(one).__name__} of {len(one) if isinstance(one, tuple) else 'other'} entries is not a tuple "
                    "(bucket, key, buffer), (bucket, key, buffer, offset) or (bucket, key, buffer, offset, size)"
                )
            bucket, key, buffer, offset, size = one + (0, None)[len(one) - 3 :]
            read = self._one(bucket, key, buffer, offset, size, stream, 0, None, known)
            found.add(read)
            quick.learn(bucket, buffer, read)
        return found

    def _read(self, entries: _entries.Entries, verify: bool | None, route: str, cache: str) -> _objects.ObjectJob:
        options = _arguments.choices(route, cache)
        if verify is not None:
            options["verify"] = _arguments.truth("verify", verify)
        return _objects.read(self._open(), entries, options)

    def _write(
        self, bucket: Any, key: Any, buffer: Any, size: Any, buffer_offset: Any, content_type: Any, metadata: Any,
        if_match: Any, if_none_match: Any, stream: Any, route: str,
    ) -> _objects.ObjectJob:
        memory = self._memory(buffer, writable=False)
        skipped = _whole_number("buffer_offset", buffer_offset)
        wanted = max(memory.size - skipped, 0) if size is None else _whole_number("size", size)
        _arguments.fits(memory, skipped, wanted)
        options = _arguments.choices(route, "auto")
        said = {"content_type": content_type, "if_match": if_match, "if_none_match": if_none_match}
        options.update({name: _arguments.word(name, value) for name, value in said.items() if value is not None})
        if metadata is not None:
            if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
                raise InvalidError(f"metadata={dict(metadata)!r:.200} has names or values that are not text")
            options["metadata"] = dict(metadata)
        one = _objects.Write(_arguments.name("bucket", bucket), _arguments.name("key", key), memory, skipped, wanted,
                             _stream(memory, stream))
        return _objects.write(self._open(), one, options)

    def _begin(self, job: _objects.ObjectJob, callback: Callable[[Transfer], object] | None) -> Transfer:
        from . import _futures

        if callback is not None and not callable(callback):
            raise InvalidError(f"callback={callback!r} is not callable")
        return _futures.watcher(job.system).start(job, callback)


def with_defaults(endpoint: str | None) -> Connection:
    """The connection that GPUDirectClient(endpoint) makes: keys, and an endpoint of None, come from the environment."""
    return Connection(
        {
            "endpoint": _arguments.word("endpoint", endpoint),
            "access_key": None,
            "secret_key": None,
            "door": "auto",
            "verify": True,
            "insecure_tls": False,
        },
        {"device_ids": None, "enable_p2p": None},
    )


def with_environment(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options, completed from the environment by the library's rules.

    Python reads the environment, because the library's Go runtime only sees the environment
    at process start and not later changes of os.environ.
    """

    def first(*names: str) -> str:
        return next((environment[name] for name in names if environment.get(name)), "")

    found = dict(options)
    if not found.get("endpoint"):
        found["endpoint"] = first("NEBULAIO_ENDPOINT", "AWS_ENDPOINT_URL_S3",
                                  "AWS_ENDPOINT_URL") or "http://localhost:9000"
    if not found.get("region"):
        found["region"] = first("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
    if not found.get("access_key"):
        # Take the key and its secret from the same source. A mixed pair would never match.
        names = {"access_key": "NEBULAIO_ACCESS_KEY", "secret_key": "NEBULAIO_SECRET_KEY"}
        if not first("NEBULAIO_ACCESS_KEY"):
            names = {"access_key": "AWS_ACCESS_KEY_ID", "secret_key": "AWS_SECRET_ACCESS_KEY",
                     "session_token": "AWS_SESSION_TOKEN"}
        found.update({key: environment[name] for key, name in names.items() if environment.get(name)})
    return found


def _stream(memory: _buffers.Memory, stream: Any) -> int:
    return memory.stream if stream is None else _buffers.stream_number(stream)
