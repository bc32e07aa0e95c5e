# SPDX-License-Identifier: Apache-2.0
"""Decode and collate hooks of a loader, in the caller's thread or in a pool of threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Union

from ..errors import ClosedError, DecodeError, InvalidError
from ._batch import Batch

Decode = Union[Mapping[str, Callable[[Any], Any]], Callable[[Batch], Any]]
Collate = Callable[[list[dict[str, Any]]], Any]
_CLOSED = "use loader: another thread has closed it (fix: make a new Loader)"


class Hooks:
    """The hooks of a loader. `run` makes from a batch what the loader delivers."""

    def __init__(self, decode: Any, collate: Any) -> None:
        if decode is not None and not callable(decode) and not isinstance(decode, Mapping):
            raise InvalidError(f"decode={decode!r} is not a callable or a mapping from columns to callables")
        for name, hook in decode.items() if isinstance(decode, Mapping) else ():
            if not callable(hook):
                raise InvalidError(f"decode of column {name!r} is {hook!r}, expected a callable")
        if collate is not None and not callable(collate):
            raise InvalidError(f"collate={collate!r} is not callable")
        if collate is not None and callable(decode):
            raise InvalidError(
                "collate is given, and decode is a callable of whole batches (fix: collate inside of it)")
        self.columns: Mapping[str, Callable[[Any], Any]] = decode if isinstance(decode, Mapping) else {}
        self._whole = decode if callable(decode) else None
        self._collate = collate

    def __bool__(self) -> bool:
        return bool(self.columns) or self._whole is not None or self._collate is not None

    def run(self, batch: Batch) -> Any:
        """Return the decoded and collated batch. Raises DecodeError with the name of the sample."""
        if self._whole is not None:
            try:
                return self._whole(batch)
            except Exception as cause:
                raise _failed("decode", batch, None, cause) from cause
        for name, hook in self.columns.items():
            values = batch.samples_of(name)
            for i, value in enumerate(values):
                try:
                    values[i] = hook(value)
                except Exception as cause:
                    raise _failed(f"decode column {name!r}", batch, i, cause) from cause
            batch.replace(name, values)
        if self._collate is None:
            return batch
        columns = {name: batch[name] if name in self.columns else batch.samples_of(name) for name in batch}
        samples = [
            {"__key__": key, **{name: values[i] for name, values in columns.items()}}
            for i, key in enumerate(batch.sample_keys)
        ]
        try:
            return self._collate(samples)
        except Exception as cause:
            raise _failed("collate", batch, None, cause) from cause


def _failed(doing: str, batch: Batch, sample: int | None, cause: Exception) -> DecodeError:
    """Return the error for a hook that failed at a sample, or at a whole batch."""
    what = f"{type(cause).__name__}: {cause}"
    keys = batch.sample_keys
    if sample is None:
        names = f"{batch.size} samples from {keys[0]!r} on" if keys else "an empty batch"
        return DecodeError(f"{doing} of a batch of epoch {batch.epoch}, {names}: {what}")
    number = int(batch.indices[sample])
    return DecodeError(f"{doing} of sample {number} ({keys[sample]!r}{_file(batch, number)}): {what}")


def _file(batch: Batch, number: int) -> str:
    found = batch.place_of(number)
    return f" of {found}" if found else ""


class Inline:
    """Runs hooks in the thread that takes the batches, one batch at a time."""

    depth = 1

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def start(self, batch: Batch) -> Any:
        """Return the batch itself: the hooks run in `finish`."""
        return batch

    def finish(self, started: Any) -> Any:
        """Return the decoded batch."""
        return self._hooks.run(started)

    def close(self, wait: bool) -> None:
        """Do nothing."""


class Pool:
    """Runs hooks of several batches at the same time in threads, ahead of their use."""

    def __init__(self, hooks: Hooks, threads: int) -> None:
        self._hooks = hooks
        self._threads = ThreadPoolExecutor(threads, "nebulaio-decode")
        self.depth = 2 * threads

    def start(self, batch: Batch) -> Future[Any]:
        """Begin to decode a batch."""
        try:
            return self._threads.submit(self._hooks.run, batch)
        except RuntimeError as cause:  # another thread has closed the pool
            raise ClosedError(_CLOSED) from cause

    def finish(self, started: Future[Any]) -> Any:
        """Wait for a batch and return it. Ctrl-C ends the wait."""
        try:
            return started.result()
        except CancelledError as cause:
            raise ClosedError(_CLOSED) from cause

    def close(self, wait: bool) -> None:
        """Forget the hooks that have not begun. With `wait`, wait for the others."""
        self._threads.shutdown(wait=wait, cancel_futures=True)
