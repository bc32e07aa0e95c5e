# SPDX-License-Identifier: Apache-2.0
"""NebulaIO's loader and engine, and a plain loop, as contenders.

A contender yields the batches of an epoch. It may keep anything from one epoch to the next, but no samples.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .samples import Samples, data_offset


@dataclass(frozen=True)
class Task:
    """What a contender has to do."""

    samples: Samples
    batch: int
    device: str  # "host" or "cuda:N"
    shuffle: bool
    source: str = ""  # URL of the samples as objects, for the contenders that read objects
    setting: dict[str, Any] = field(default_factory=dict)
    epochs: int = 1  # that are measured together


class Contender(ABC):
    """A loader, opened in a process of its own."""

    form = ""  # the form of the samples that the contender reads
    package = ""  # the module that the contender needs

    def __init__(self, task: Task) -> None:
        self.task = task

    @staticmethod
    def settings(task: Task, workers: list[int]) -> list[dict[str, Any]]:
        """Return the settings to choose the best from."""
        return [{}]

    def begin(self) -> None:  # noqa: B027  most contenders have nothing to forget
        """Forget what was read ahead, before the measured epochs begin."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Any]:
        """Yield the batches of an epoch, in host or device memory."""

    def finish(self) -> None:
        """Wait until the last batches are in device memory."""
        if self.task.device != "host":
            import torch

            torch.cuda.synchronize()

    def shape(self, batch: Any) -> tuple[int, int]:
        """Return the number of samples and bytes of a batch."""
        if isinstance(batch, list):
            return len(batch), sum(len(sample) for sample in batch)
        return int(batch.shape[0]), math.prod(batch.shape)

    def each(self, batch: Any) -> Iterator[Any]:
        """Yield the bytes of each sample of a batch."""
        for sample in batch if isinstance(batch, list) else host(batch):
            yield sample

    def report(self) -> Any:
        """Return what the contender says about the last epoch, as plain data."""
        return None


def host(batch: Any) -> np.ndarray:
    """Return a batch as an array in host memory."""
    return np.ascontiguousarray(batch.cpu().numpy() if hasattr(batch, "cpu") else batch)


class Ours(Contender):
    """nebulaio.data.Loader over WebDataset shards."""

    form, package = "tar", "nebulaio.data"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from nebulaio.data import Loader

        source = task.source or str(task.samples.path(self.form))
        self.loader = Loader(source, batch_size=task.batch, device=task.device, shuffle="full" if task.shuffle
                             else "stored",
                             epochs=task.epochs, drop_last=False)
        self.start = self.loader.state_dict()

    def begin(self) -> None:
        """Begin anew, so that no measured epoch profits from what an earlier one has read ahead."""
        self.loader.load_state_dict(self.start)

    def epoch(self, number: int) -> Iterator[Any]:
        for batch in self.loader:
            (column,) = batch.values()  # the name of the only column depends on the form
            yield column.dense() if hasattr(column, "dense") else column

    def report(self) -> Any:
        """Return the report of the last epoch."""
        return self.loader.report()


class OursMDS(Ours):
    """nebulaio.data.Loader over MDS shards."""

    form = "mds"


class OursFiles(Ours):
    """nebulaio.data.Loader over one file for each sample."""

    form = "files"


class OursObjects(Ours):
    """nebulaio.data.Loader over one object for each sample, through the door."""

    form = ""


class Engine(Contender):
    """The reference: the engine loads the same bytes from one file, in order, as it loads a model."""

    form, package = "one.safetensors", "nebulaio"

    def epoch(self, number: int) -> Iterator[Any]:
        """Yield everything as one batch."""
        from nebulaio.safetensors import load_file

        options: dict[str, Any] = {"framework": "numpy"} if self.task.device == "host" else {"framework": "pt"}
        tensors = load_file(self.task.samples.path(self.form), self.task.device, **options)
        yield [tensors[name] for name in sorted(tensors)]

    def shape(self, batch: Any) -> tuple[int, int]:
        total = sum(math.prod(part.shape) for part in batch)
        return total // self.task.samples.size, total

    def each(self, batch: Any) -> Iterator[Any]:
        for part in batch:
            yield from host(part).reshape(-1, self.task.samples.size)


class Plain(Contender):
    """One thread that reads each sample of one big file into its place in a batch."""

    form = "one.safetensors"

    def epoch(self, number: int) -> Iterator[Any]:
        samples, path = self.task.samples, self.task.samples.path(self.form)
        order = np.arange(samples.count)
        if self.task.shuffle:
            np.random.default_rng(number).shuffle(order)
        offset, fd = data_offset(path), os.open(path, os.O_RDONLY)
        try:
            for begin in range(0, samples.count, self.task.batch):
                chosen = order[begin : begin + self.task.batch]
                batch = np.empty((len(chosen), samples.size), np.uint8)
                for row, n in zip(batch, chosen.tolist()):
                    if os.preadv(fd, [row], offset + n * samples.size) != samples.size:
                        raise OSError(f"{path}: sample {n} is not whole")
                yield self.deliver(batch)
        finally:
            os.close(fd)

    def deliver(self, batch: np.ndarray) -> Any:
        if self.task.device == "host":
            return batch
        import torch

        return torch.from_numpy(batch).to(self.task.device)


OWN: dict[str, type[Contender]] = {
    "ours": Ours, "ours-mds": OursMDS, "ours-files": OursFiles, "ours-objects": OursObjects, "engine": Engine,
    "plain": Plain,
}
