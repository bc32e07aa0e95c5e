# SPDX-License-Identifier: Apache-2.0
"""Yields tensors one by one, each as soon as it is complete, while later tensors still arrive."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from . import _frameworks, _handles
from ._load import Order, allocate
from .errors import ClosedError, InvalidError


class Stream(_handles.OfThisProcess, Iterator["tuple[str, Any]"]):
    """An iterator of (name, tensor) in the order of the files. See nebulaio.safetensors.stream.

    Calling `close`, leaving a `with` block or dropping the iterator cancels the rest of the
    load and waits until nothing is in flight. Only one thread at a time may use the iterator.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        order: Order,
        lookahead: int | None,
        progress: _handles.ProgressCallback | None,
    ) -> None:
        self._running: deque[_Batch] = deque()
        self._model: _handles.Model | None = None
        if lookahead is not None and (isinstance(lookahead, bool) or not isinstance(lookahead, int) or lookahead < 0):
            raise InvalidError(f"lookahead={lookahead!r} is not a number of files from 0 (None: all at once)")
        self._order = order
        self._progress = progress
        self._maker, options = order.prepare()
        self._model = order.open(paths, options)
        files = self._model.files()["files"]
        # The stream is one load of all files, from front to back, or one load per file.
        self._waiting: deque[int | None] = deque([None] if lookahead is None else range(len(files)))
        self._ahead = 1 + (lookahead or 0)
        self._sizes = (0, 0)  # bytes of finished batches, bytes in total
        if progress is not None:
            self._sizes = (0, sum(tensor["size"] for tensor in self._model.describe()["tensors"]))
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[str, Any]:
        try:
            while self._running:
                batch = self._running[0]
                if batch.left():
                    return batch.take(self._maker, self._tell)
                batch.load.wait(None)  # the end of the load proves that no file has changed
                self._sizes = (self._sizes[0] + batch.size, self._sizes[1])
                self._running.popleft()
                batch.end()
                self._start()
            if self._model is not None and self._progress is not None:
                self._progress(self._sizes[1], self._sizes[1])
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream and cancel the rest of the load. Yielded tensors stay valid."""
        put_off: BaseException | None = None
        self._waiting = deque()
        for batch in self._running:
            batch.load.cancel()  # cancel all before waiting for the first
        while self._running:
            batch = self._running.popleft()
            try:
                batch.end()
            except BaseException as interrupt:  # raised when the batch is over  # noqa: BLE001
                put_off = interrupt
        model, self._model = self._model, None
        if model is not None:
            model.release()
        if put_off is not None:
            raise put_off

    def __del__(self) -> None:
        model = getattr(self, "_model", None)
        if model is not None and not model.system.ended:
            self.close()

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._ahead:
            assert self._model is not None
            file = self._waiting.popleft()
            model = self._model
            if file is not None:
                model = _handles.Selection(model, {**self._order.choice(), "files": [file]})
            self._running.append(_Batch(model, self._maker, self._order))

    def _tell(self) -> None:
        if self._progress is not None:
            done = self._sizes[0] + sum(batch.load.counted()[0] for batch in self._running)
            self._progress(done, self._sizes[1])


class _Batch:
    """A load of a stream, and its tensors that were not yielded yet."""

    def __init__(self, model: _handles.Model, maker: _frameworks.Framework, order: Order) -> None:
        places = model.files()
        self.model = model
        # Each is released with the last tensor of its file. The tensors keep it alive then.
        self.places: list[Any] = list(allocate(maker, model.system, places))
        self.load = _handles.Load(model, self.places, maker.stream(places["device"]), order.start)
        self.load.__enter__()
        try:
            tensors = model.describe()["tensors"]
            dtypes = _frameworks.choose(maker, tensors, order.unsupported)  # type: ignore[arg-type]
            self.size = sum(tensor["size"] for tensor in tensors)
            self.rest: deque[tuple[str, int, Any]] = deque()
            for file, group in groupby(tensors, lambda tensor: tensor["file"]):
                mine = list(group)
                views = maker.views(mine, self.places, dtypes)
                self.rest.extend((tensor["name"], file, views[tensor["name"]]) for tensor in mine)
        except BaseException:
            self.end()
            raise
        self.taken = self.ready = 0

    def left(self) -> int:
        """Return the number of tensors that were not yielded yet."""
        return len(self.rest)

    def take(self, maker: _frameworks.Framework, tell: Any) -> tuple[str, Any]:
        """Wait for the next tensor and return it."""
        if self.taken == self.ready:
            self.ready = self.load.ready(self.ready, tell)
            tell()
            if not self.rest:
                raise ClosedError("stream: it was closed while another thread waited for its next tensor")
        name, file, view = self.rest.popleft()
        self.taken += 1
        if not self.rest or self.rest[0][1] != file:
            self.places[file] = None
        return name, maker.final(view)

    def end(self) -> None:
        """Wait for the end of the load and release everything."""
        self.rest = deque()
        try:
            self.load.__exit__(None, None, None)
        finally:
            self.places.clear()
            if isinstance(self.model, _handles.Selection):
                self.model.release()


def paths_of(paths: Any) -> list[str | os.PathLike[str]]:
    """Return one path, or several in order, as a list. Raises InvalidError for anything else."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        return [paths]  # type: ignore[list-item]
    try:
        found = list(paths)
    except TypeError:
        found = []
    if not found or not all(isinstance(path, (str, bytes, os.PathLike)) for path in found):
        raise InvalidError(f"stream {paths!r}: not a path or a list of paths")
    return found
