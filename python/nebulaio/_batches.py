# SPDX-License-Identifier: Apache-2.0
"""Batches of objects in the order of an epoch, read ahead of their use."""

from __future__ import annotations

import math
import random
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _npy, _prefix
from ._device_arrays import Memory
from .errors import CorruptError, InvalidError, NotFoundError
from .gpudirect import GPUDirectClient, Report

if TYPE_CHECKING:
    from ._futures import Transfer


class Order:
    """The indices of each batch of one shard, for any epoch.

    The order of an epoch depends on the seed and the number of the epoch alone. All shards compute the same
    order, and each takes its part, so that an epoch has each index once.
    """

    def __init__(
        self, count: int, batch: int, shard: int, shards: int, shuffled: bool, seed: int, padded: bool
    ) -> None:
        if not 0 <= shard < shards:
            raise InvalidError(f"shard_id={shard} of num_shards={shards} (expected shard_id from 0 to num_shards - 1)")
        if count < shards:
            raise InvalidError(
                f"{count} objects cannot be shared by num_shards={shards}: some shards would have none "
                "(fix: use fewer shards)"
            )
        self._count, self._batch, self._shard, self._shards = count, batch, shard, shards
        self._shuffled, self._seed = shuffled, seed
        own, largest = len(range(shard, count, shards)), math.ceil(count / shards)
        self._length = math.ceil(largest / batch) * batch if padded else own
        self._own = own
        self._epoch: tuple[int, array[int]] | None = None

    def batch(self, epoch: int, number: int) -> list[int] | None:
        """Return the indices of a batch, or None after the end of the epoch."""
        first = number * self._batch
        if first >= self._length:
            return None
        order = self._of(epoch)
        last = min(first + self._batch, self._length)
        return [order[self._shard + min(at, self._own - 1) * self._shards] for at in range(first, last)]

    def _of(self, epoch: int) -> Sequence[int]:
        if not self._shuffled:
            return range(self._count)
        if self._epoch is None or self._epoch[0] != epoch:
            mixed = list(range(self._count))
            random.Random(f"{self._seed} {epoch}").shuffle(mixed)
            self._epoch = epoch, array("Q", mixed)
        return self._epoch[1]


class Batch(NamedTuple):
    """A batch whose read has begun. `heads` are the headers of .npy files on a GPU, in host memory."""

    epoch: int
    number: int
    indices: list[int]
    arrays: list[Any]
    heads: list[bytearray]
    read: Transfer


class Batches:
    """A function from DALI's BatchInfo to a list of arrays. Only one thread at a time may call it.

    Each call starts the reads of the next batches. A call for another batch than the next one of the
    epoch drops the batches that were read ahead.
    """

    def __init__(
        self,
        client: GPUDirectClient,
        bucket: str,
        objects: _prefix.Objects,
        memory: Memory,
        order: Order,
        *,
        is_array: bool,
        read_ahead: int,
        report: Callable[[Report], object] | None,
    ) -> None:
        if report is not None and not callable(report):
            raise InvalidError(f"report={report!r} is not callable")
        self.memory, self.is_array = memory, is_array
        self._client, self._bucket, self._objects = client, bucket, objects
        self._order, self._ahead, self._report = order, read_ahead, report
        self._running: deque[Batch] = deque()

    def __call__(self, info: Any) -> list[Any]:
        """Return the arrays of a batch. Raises StopIteration after the last batch of the epoch."""
        epoch, number = int(info.epoch_idx), int(info.iteration)
        if self._running and self._running[0][:2] != (epoch, number):
            self._drop()
        with self.memory.active():
            for at in range(number + len(self._running), number + self._ahead + 1):
                indices = self._order.batch(epoch, at)
                if indices is None:
                    break
                self._running.append(self._start(epoch, at, indices))
            if not self._running:
                raise StopIteration
            return self._finish(self._running.popleft())

    def _drop(self) -> None:
        """Cancel the reads that nobody waits for. Their arrays live until they have ended."""
        while self._running:
            self._running.popleft().read.cancel()

    def _start(self, epoch: int, number: int, indices: list[int]) -> Batch:
        arrays, heads, reads = [], [], []
        for at in indices:
            size = self._objects.size(at)
            arrays.append(self.memory.empty(size))
            reads.append((self._bucket, self._objects[at], arrays[-1]))
        if self.is_array and not self.memory.on_host:
            for at in indices:
                heads.append(bytearray(min(self._objects.size(at), _npy.FIRST_READ)))
                reads.append((self._bucket, self._objects[at], heads[-1], 0, len(heads[-1])))  # type: ignore[arg-type]
        job = self._client._read(self._client._several(reads, None), None, "auto", "auto")
        return Batch(epoch, number, indices, arrays, heads, self._client._begin(job, None))

    def _finish(self, batch: Batch) -> list[Any]:
        try:
            report = batch.read.result()
        except (InvalidError, NotFoundError):
            self._drop()
            self._blame(batch)
            raise
        except BaseException:
            self._drop()
            raise
        said = report.get("objects") or [report]
        for place, at in enumerate(batch.indices):
            replaced = bool(batch.heads) and said[place]["etag"] != said[place + len(batch.indices)]["etag"]
            if said[place]["size"] != self._objects.size(at) or replaced:
                self._drop()
                self._blame(batch)
                raise CorruptError(
                    f"read s3://{self._bucket}/{self._objects[at]}: it was replaced during the read "
                    "(fix: run the epoch again)"
                )
        if self._report is not None:
            self._report(report)
        if not self.is_array:
            return batch.arrays
        return [self._typed(batch, place) for place in range(len(batch.arrays))]

    def _typed(self, batch: Batch, place: int) -> Any:
        at = batch.indices[place]
        what, size = f"read s3://{self._bucket}/{self._objects[at]}", self._objects.size(at)
        content = batch.arrays[place]
        head = bytes(content[: _npy.FIRST_READ]) if self.memory.on_host else bytes(batch.heads[place])
        if len(head) >= 12 and (whole := min(_npy.length(head, what), size)) > len(head):
            longer = bytearray(whole)
            self._client.read_to_gpu(self._bucket, self._objects[at], longer, 0, whole)
            head = bytes(longer)
        return self.memory.typed(content, _npy.parse(head, size, what))

    def _blame(self, batch: Batch) -> None:
        """Raise the error of the first object of a batch that is gone, or has changed since it was listed."""
        for at in batch.indices:
            _prefix.check_unchanged(self._client, self._bucket, self._objects, at)
