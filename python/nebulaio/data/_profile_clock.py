# SPDX-License-Identifier: Apache-2.0
"""Times copies and steps: by CUDA events where there is a CUDA device, by the clock elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from ._profile_factory import cuda

Copy = Callable[[Any], Any]
Step = Callable[[Any], Any]

# Iterations that the host may run ahead of the device. More would only fill the device's queue.
_AHEAD = 2


class Meter(Protocol):
    """Runs copy and step of each batch, and returns the seconds of both at the end."""

    timing: str

    def run(self, batch: Any) -> None:
        """Copy one batch and take one step with it."""

    def finish(self) -> list[tuple[float, float]]:
        """Wait for the device. Return (copy, step) in seconds for each batch since the last call."""

    def forget(self) -> None:
        """Drop the times of the batches so far, without waiting for the device."""


class ClockMeter:
    """Meter of a machine without CUDA: both functions are over when they return."""

    timing = "clock"

    def __init__(self, copy: Copy | None, step: Step | None) -> None:
        self._copy, self._step = copy, step
        self._times: list[tuple[float, float]] = []

    def run(self, batch: Any) -> None:
        begin = perf_counter()
        if self._copy is not None:
            batch = self._copy(batch)
        copied = perf_counter()
        if self._step is not None:
            self._step(batch)
        self._times.append((copied - begin, perf_counter() - copied))

    def finish(self) -> list[tuple[float, float]]:
        times, self._times = self._times, []
        return times

    def forget(self) -> None:
        self._times = []


class EventMeter:
    """Meter of a CUDA device: events on the current stream mark the begin and the end of copy and step."""

    timing = "CUDA events"

    def __init__(self, torch: Any, copy: Copy | None, step: Step | None) -> None:
        self._torch, self._copy, self._step = torch, copy, step
        self._marks: list[tuple[Any, Any, Any]] = []
        self._ends: deque[Any] = deque()  # of the batches that may still run

    def _mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def run(self, batch: Any) -> None:
        begin = self._mark()
        if self._copy is not None:
            batch = self._copy(batch)
        copied = self._mark()
        if self._step is not None:
            self._step(batch)
        end = self._mark()
        self._marks.append((begin, copied, end))
        self._ends.append(end)
        if len(self._ends) > _AHEAD:
            self._ends.popleft().synchronize()

    def finish(self) -> list[tuple[float, float]]:
        self._torch.cuda.synchronize()
        self._ends.clear()
        marks, self._marks = self._marks, []
        return [(a.elapsed_time(b) / 1e3, b.elapsed_time(c) / 1e3) for a, b, c in marks]

    def forget(self) -> None:
        self._marks = []


def meter(copy: Copy | None, step: Step | None) -> Meter:
    """Return the meter of this machine."""
    torch = cuda()
    return EventMeter(torch, copy, step) if torch is not None else ClockMeter(copy, step)


def to_cuda(batch: Any) -> Any:
    """Move every torch tensor of a batch to the current CUDA device, in the order of its stream."""
    return _each_tensor(batch, lambda tensor: tensor.to("cuda", non_blocking=True))


def pinned(batch: Any) -> Any:
    """Return a batch whose torch tensors on the host are in pinned memory."""
    return _each_tensor(batch, lambda tensor: tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory())


def pageable(batch: Any) -> Any:
    """Return a batch whose torch tensors on the host are in ordinary memory."""
    return _each_tensor(batch, lambda tensor: tensor.clone() if tensor.is_pinned() else tensor)


def _each_tensor(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch with each of its torch tensors changed."""
    if isinstance(batch, sys.modules["torch"].Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: _each_tensor(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_each_tensor(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_each_tensor(value, change) for value in batch)
    return batch


def samples_of(batch: Any) -> int:
    """Return the number of samples in a batch: the length of its first array or list, or 1."""
    if isinstance(batch, dict):
        return samples_of(next(iter(batch.values()))) if batch else 1
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 1
    if isinstance(batch, (list, tuple)) and batch:
        first = batch[0]
        return samples_of(first) if hasattr(first, "shape") or isinstance(first, (list, tuple, dict)) else len(batch)
    return 1


def bytes_of(batch: Any) -> int:
    """Return the bytes of the arrays and buffers in a batch."""
    if isinstance(batch, dict):
        return sum(map(bytes_of, batch.values()))
    if isinstance(batch, (list, tuple)):
        return sum(map(bytes_of, batch))
    if isinstance(batch, (bytes, bytearray)):
        return len(batch)
    count = getattr(batch, "nbytes", 0)
    return count if isinstance(count, int) else 0
