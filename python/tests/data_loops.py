# SPDX-License-Identifier: Apache-2.0
"""Training loops made up for tests: data sets whose read and decode take a known time. Needs torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Samples(Dataset[Any]):
    """A data set whose samples are read in `read` seconds and decoded in `decode` seconds.

    With `useful`, so many workers are the best: with more of them, each decode takes longer by the square
    of their number, as on a disk that is slowed down by many readers. With `burns`, a decode takes
    seconds of a processor; without, it sleeps.
    """

    def __init__(
        self, *, read: float = 0.0, decode: float = 0.0, useful: int = 0, burns: bool = False, length: int = 1 << 20
    ) -> None:
        self._read, self._decode, self._useful, self._burns, self._length = read, decode, useful, burns, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        if self._read:
            time.sleep(self._read)
        return self.transform(number)

    def transform(self, number: int) -> Any:
        if self._burns:
            until = time.thread_time() + self._decode
            while time.thread_time() < until:
                sum(range(500))
        elif self._decode:
            worker = get_worker_info()
            crowd = max(1.0, worker.num_workers / self._useful) if worker and self._useful else 1.0
            time.sleep(self._decode * crowd**2)
        return torch.full((8,), float(number))


def maker(samples: Any, workers: int = 0, batch_size: int = 2) -> Callable[..., Any]:
    """Return a function that makes DataLoaders of the samples."""

    def make(num_workers: int = workers, **more: Any) -> Any:
        return DataLoader(samples, batch_size=batch_size, num_workers=num_workers, **more)

    return make


def pause(seconds: float) -> Callable[[Any], Any]:
    """Return a function of a batch that takes some seconds."""

    def wait(batch: Any) -> Any:
        if seconds:
            time.sleep(seconds)
        return batch

    return wait


# Loops by their right verdict: the loader, the copy, the step, and further arguments of `profile`.
LOOPS: dict[str, list[tuple[Callable[[], Callable[..., Any]], float, float, dict[str, Any]]]] = {
    "cpu-bound": [
        (lambda: maker(Samples(decode=0.01, burns=True)), 0.0, 0.001, {}),
        (lambda: maker(Samples(decode=0.02), workers=1), 0.0, 0.001, {"decode": "transform"}),
    ],
    "storage-bound": [(lambda: maker(Samples(read=0.02), workers=1), 0.0, 0.001, {})],
    "copy-bound": [(lambda: maker(Samples()), 0.06, 0.001, {})],
    "compute-bound": [(lambda: maker(Samples(), workers=1), 0.0, 0.1, {})],
}
