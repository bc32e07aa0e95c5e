# SPDX-License-Identifier: Apache-2.0
"""Reads stored tensors when they are asked for, and those that will be asked for next ahead of time.

Transformers asks for one tensor after the other, in the natural order of their names, from a few threads. A job per
tensor would leave the engine idle between them. So each request also starts jobs for the tensors behind it, until a
window of bytes is on its way. The device and the part of such a tensor are guessed: they are those of the last tensor
with the same name up to its numbers.
"""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from .._device import canonical
from ..errors import ClosedError, NebulaioError, UnsupportedError
from ._jobs import Files, Job, Part, Ranges, Stored

JOB = 256 << 20
"""Bytes that one job reads at least, if so many tensors may be read ahead."""

WINDOW = 1 << 30
"""Bytes that are read ahead at most. They are also the most that is read in vain at a time."""

_NEAR = 64
"""Tensors that requests of several threads may be out of order."""

_DIGITS = 18  # of a number that is compared by its value

_NUMBERS = re.compile(r"\d+")


class Guess(NamedTuple):
    """Where a tensor will probably go: its device, and the part of it."""

    device: Any  # torch.device
    ranges: Ranges | None
    shape: tuple[int, ...]


class _Flight(NamedTuple):
    """A part that is being read, or is complete and waits for its request."""

    job: Job
    part: Part


class Ahead:
    """Stored tensors in the order in which they are asked for. Any number of threads may read.

    With `bold`, a tensor of a kind that was not asked for yet is read ahead whole. Without it, only kinds that were
    asked for are: a rank of several asks for parts that are not known before.
    """

    def __init__(self, files: Files, order: Sequence[Stored], bold: bool) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._files = files
        self._order = order
        self._bold = bold
        self._kinds = [_NUMBERS.sub("#", stored.name) for stored in order]
        self._before = [0, *accumulate(stored.size for stored in order)]  # bytes of all tensors before each
        self._lock = threading.Lock()
        self._flights: dict[int, _Flight] = {}  # that nobody has asked for yet, by place in the order
        self._jobs: list[Job] = []  # that may still run
        self._guesses: dict[str, Guess | None] = {}  # by kind; None: such tensors are not read ahead
        self._dropped: set[int] = set()  # places whose flights were given up
        self._last: Any = None  # the device of the last request
        self._next = 0  # the first place that was not considered yet
        self._far = 0  # the highest place that was asked for
        self._waiting = 0  # bytes of flights
        self._window = WINDOW
        self._closed = False
        self.counts = {"ahead": 0, "alone": 0, "moved": 0}
        self.wanted = 0  # bytes that were asked for
        self.unused = 0  # bytes that were read in vain
        self.notes: list[str] = []
        self.began = self.ended = 0.0  # time.perf_counter() of the first request, and of the last tensor's arrival

    def read(self, at: int, ranges: Ranges | None, device: Any = None) -> Any:
        """Return the tensor at a place of the order, or a part of it, on a torch.device (None: the probable one)."""
        with self._lock:
            self.began = self.began or time.perf_counter()
            if self._closed:
                raise ClosedError(f"read {self._order[at].name!r}: the load has ended")
            if self._order[at].dtype is None:
                raise UnsupportedError(
                    f"read {self._order[at].name!r}: this torch has no dtype for {self._order[at].code} "
                    "(fix: use a newer torch)"
                )
            if device is None:
                device = self._probable(at)
            if device.type == "cuda" and device.index is None:
                device = self._torch.device("cuda", self._torch.cuda.current_device())
            flight = self._flights.pop(at, None)
            if flight is not None:
                self._waiting -= _bytes(flight.part)
                if flight.part.ranges != ranges:
                    self.unused += _bytes(flight.part)
                    flight = None
            if at in self._dropped:  # it was only late
                self._dropped.discard(at)
                self._guesses.pop(self._kinds[at], None)
            self._learn(at, ranges, device)
            self._pass(at)
            if flight is None:
                flight = self._start(at, Guess(device, ranges, ()))
                self.counts["alone"] += 1
            else:
                self.counts["ahead"] += 1
            self.wanted += _bytes(flight.part)
            self._fill()
        flight.job.wait()
        self.ended = time.perf_counter()
        tensor = flight.part.memory
        if tensor.device != device:
            self.counts["moved"] += 1
            tensor = tensor.to(device)
        return tensor

    def close(self) -> None:
        """Cancel all reads and wait for their end. What nobody asked for is freed."""
        with self._lock:
            self._closed = True
            jobs, self._jobs = self._jobs, []
            for at in list(self._flights):
                self.unused += _bytes(self._flights.pop(at).part)
        for job in jobs:
            job.cancel()
        for job in jobs:
            job.close()

    def _probable(self, at: int) -> Any:
        guess = self._guesses.get(self._kinds[at])
        return guess.device if guess is not None else self._last or self._torch.device("cpu")

    def _learn(self, at: int, ranges: Ranges | None, device: Any) -> None:
        """Keep the device and part of a request as the guess for tensors of its kind."""
        kind, shape = self._kinds[at], self._order[at].shape
        self._last = device
        known = self._guesses.get(kind)
        if kind in self._guesses and (known is None or known.ranges != ranges):
            self._guesses[kind] = None  # parts of this kind differ
        else:
            self._guesses[kind] = Guess(device, ranges, shape)

    def _guess(self, at: int) -> Guess | None:
        kind, shape = self._kinds[at], self._order[at].shape
        guess = self._guesses.get(kind, Guess(self._last, None, shape))
        if guess is None or self._order[at].dtype is None or (guess.ranges is not None and guess.shape != shape):
            return None
        return guess

    def _pass(self, at: int) -> None:
        """Give up flights that lie so far behind a request that nobody will ask for them."""
        jumped = at >= self._next
        self._next = max(self._next, at + 1)
        self._far = max(self._far, at)
        for old in list(self._flights):
            behind = self._before[self._far] - self._before[old]
            if behind <= self._window and not (jumped and old < at - _NEAR):
                break
            flight = self._flights.pop(old)
            self._waiting -= _bytes(flight.part)
            self.unused += _bytes(flight.part)
            self._dropped.add(old)
            self._guesses[self._kinds[old]] = None

    def _start(self, at: int, guess: Guess) -> _Flight:
        """Start to read one tensor that was asked for, together with those behind it."""
        try:
            part = self._part(at, guess)
        except self._torch.OutOfMemoryError:
            self._shrink(guess.device)
            part = self._part(at, guess)
        (flight,) = self._launch([part])
        return flight

    def _fill(self) -> None:
        """Start jobs for the tensors that will be asked for next, while there is room for a whole job."""
        while self._window and self._window - self._waiting >= min(JOB, self._window):
            places, parts = self._collect()
            if not parts:
                return
            for place, flight in zip(places, self._launch(parts)):
                self._flights[place] = flight
                self._waiting += _bytes(flight.part)

    def _collect(self) -> tuple[list[int], list[Part]]:
        """Return the parts of the next job with their places. All of them go to one device."""
        places: list[int] = []
        parts: list[Part] = []
        size = 0
        while self._next < len(self._order) and size < JOB:
            at = self._next
            if self._before[at] - self._before[self._far + 1] > self._window:
                break
            if not self._bold and self._kinds[at] not in self._guesses:
                break  # it will be known when it is asked for
            guess = self._guess(at)
            if guess is not None:
                if parts and parts[0].memory.device != self._memory(guess.device):
                    break
                try:
                    parts.append(self._part(at, guess))
                except self._torch.OutOfMemoryError:
                    self._shrink(guess.device)
                    break
                places.append(at)
                size += _bytes(parts[-1])
            self._next += 1
        return places, parts

    def _memory(self, device: Any) -> Any:
        """Return the device whose memory the engine fills: torch copies on to devices that the engine does not know."""
        return device if device.type in ("cpu", "cuda") else self._torch.device("cpu")

    def _part(self, at: int, guess: Guess) -> Part:
        """Return a part with new memory."""
        stored = self._order[at]
        shape = stored.shape if guess.ranges is None else [end - first for first, end in guess.ranges]
        memory = self._torch.empty(shape, dtype=stored.dtype, device=self._memory(guess.device))
        return Part(stored, guess.ranges, memory)

    def _launch(self, parts: Sequence[Part]) -> list[_Flight]:
        if not parts:
            return []
        device = parts[0].memory.device
        stream = 0
        if device.type == "cuda":
            stream = int(self._torch.cuda.current_stream(device).cuda_stream)
        job = Job(self._files, parts, canonical(device), stream)
        self._jobs = [*(other for other in self._jobs if other.poll()), job]
        return [_Flight(job, part) for part in parts]

    def _shrink(self, device: Any) -> None:
        """Stop to read ahead, because the device has no memory for it, and free what was read ahead."""
        self.notes.append(
            f"{device} has too little free memory to read ahead: each tensor was read when it was asked for")
        self._window = 0
        for at in list(self._flights):
            flight = self._flights.pop(at)
            try:
                flight.job.wait()  # not close: other threads may wait for other parts of it
            except NebulaioError:
                pass  # raised for those who ask for its parts
            self.unused += _bytes(flight.part)
        self._waiting = 0


def natural(name: str) -> list[tuple[int, str, int]]:
    """Return the key that sorts names as transformers does: parts between dots, and numbers by value."""
    key = []
    for part in name.split("."):
        text = part.rstrip("0123456789")
        number = part[len(text) :]
        if len(number) > _DIGITS:
            text, number = part, ""
        key.append((0 if number and not text else 1, text, int(number or -1)))
    return key


def _bytes(part: Part) -> int:
    return int(part.memory.numel() * part.memory.element_size())
