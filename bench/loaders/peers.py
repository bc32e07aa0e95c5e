# SPDX-License-Identifier: Apache-2.0
"""The loaders of other projects as contenders, each with its fastest settings.

A batch is one tensor, as ours is. A contender NAME-list hands over a list of bytes instead, which saves the copy into one
tensor: a training loop has that copy still before it. A batch never is a view of the file, which would move no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .contenders import Contender, Task
from .samples import COLUMN, data_offset


def stack(samples: list[Any]) -> Any:
    """Return samples of bytes as one tensor, with one copy. In a worker process, the tensor is in shared memory."""
    import torch
    from torch.utils.data import default_collate, get_worker_info

    if get_worker_info() is None:  # torch's own copy starts threads for nothing here, and is slower
        return torch.frombuffer(b"".join(samples), dtype=torch.uint8).view(len(samples), -1)
    return default_collate([torch.from_numpy(np.frombuffer(sample, np.uint8)) for sample in samples])


def keep(samples: Any) -> Any:
    """Return the samples as bytes. litdata returns views of mapped files, which are copied here."""
    return [sample if isinstance(sample, bytes) else bytes(sample) for sample in samples]


def collated(batch: Any) -> Any:
    """Return a batch that its data set has collated already."""
    return batch


class Peer(Contender):
    """A loader that runs worker processes of torch's DataLoader."""

    collate = staticmethod(stack)

    @staticmethod
    def settings(task: Task, workers: list[int]) -> list[dict[str, Any]]:
        return [{"workers": n} for n in workers]

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a DataLoader."""
        n = self.task.setting["workers"]
        more = {"persistent_workers": True, "prefetch_factor": 4} if n else {}
        return {"num_workers": n, "pin_memory": self.task.device != "host", **more}

    def deliver(self, batches: Any) -> Iterator[Any]:
        """Yield batches in the memory of the device."""
        if self.task.device == "host":
            yield from batches
            return
        for batch in batches:
            yield batch.to(self.task.device, non_blocking=True)

    def each(self, batch: Any) -> Iterator[Any]:
        self.finish()
        yield from super().each(batch)


class Webdataset(Peer):
    """webdataset over tar shards. Its shuffle is a buffer of 1,000 samples."""

    form, package = "tar", "webdataset"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import webdataset

        urls = [str(path) for path in task.samples.files(self.form) if path.suffix == ".tar"]
        data = webdataset.WebDataset(urls, shardshuffle=len(urls) if task.shuffle else False, empty_check=False)
        if task.shuffle:
            data = data.shuffle(1000)
        data = data.map(column).batched(task.batch, collation_fn=self.collate)
        self.loader = webdataset.WebLoader(data, batch_size=None, **self.options)

    def epoch(self, number: int) -> Iterator[Any]:
        return self.deliver(self.loader)


def column(sample: dict[str, Any]) -> bytes:
    """Return the bytes of a sample."""
    return sample[COLUMN]


class Streaming(Peer):
    """StreamingDataset of mosaicml-streaming over MDS shards."""

    form, package = "mds", "streaming"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory
        from torch.utils.data import DataLoader

        clean_stale_shared_memory()
        data = StreamingDataset(local=str(task.samples.path(self.form)), shuffle=task.shuffle, batch_size=task.batch)
        self.loader = DataLoader(data, batch_size=task.batch, collate_fn=ListOf(self.collate), **self.options)

    def epoch(self, number: int) -> Iterator[Any]:
        return self.deliver(self.loader)


class ListOf:
    """Takes the column out of samples, then collates them. A class, because worker processes may have to pickle it."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, samples: list[dict[str, bytes]]) -> Any:
        return self.collate([sample[COLUMN] for sample in samples])


class Litdata(Peer):
    """StreamingDataset of litdata over its chunks."""

    form, package = "litdata", "litdata"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import litdata

        data = litdata.StreamingDataset(str(task.samples.path(self.form)), shuffle=task.shuffle, drop_last=False)
        self.loader = litdata.StreamingDataLoader(data, batch_size=task.batch, collate_fn=self.collate, **self.options)

    def epoch(self, number: int) -> Iterator[Any]:
        return self.deliver(self.loader)


class Files:
    """A map-style data set of torch over one file for each sample."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, n: int) -> bytes:
        with open(self.paths[n], "rb", buffering=0) as file:
            return file.read()


class Mapped:
    """A map-style data set of torch over one memory-mapped file. It gathers a whole batch at once."""

    def __init__(self, path: str, offset: int, count: int, size: int) -> None:
        self.array = np.memmap(path, np.uint8, "r", offset, (count, size))

    def __len__(self) -> int:
        return len(self.array)

    def __getitems__(self, chosen: list[int]) -> Any:
        import torch

        return torch.from_numpy(self.array[chosen])


class Torch(Peer):
    """torch's DataLoader over one file for each sample."""

    form, package = "files", "torch"

    def dataset(self) -> Any:
        return Files([str(path) for path in self.task.samples.files(self.form)])

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from torch.utils.data import DataLoader

        self.loader = DataLoader(self.dataset(), batch_size=task.batch, shuffle=task.shuffle, collate_fn=self.collate,
                                 **self.options)

    def epoch(self, number: int) -> Iterator[Any]:
        return self.deliver(self.loader)


class TorchMapped(Torch):
    """torch's DataLoader over one memory-mapped file, which people write by hand for speed."""

    form = "one.safetensors"
    collate = staticmethod(collated)

    def dataset(self) -> Any:
        samples, path = self.task.samples, self.task.samples.path(self.form)
        return Mapped(str(path), data_offset(path), samples.count, samples.size)


class WebdatasetList(Webdataset):
    """webdataset, with lists of bytes."""

    collate = staticmethod(keep)


class StreamingList(Streaming):
    """mosaicml-streaming, with lists of bytes."""

    collate = staticmethod(keep)


class LitdataList(Litdata):
    """litdata, with lists of bytes."""

    collate = staticmethod(keep)


class TorchList(Torch):
    """torch's DataLoader, with lists of bytes."""

    collate = staticmethod(keep)


PEERS: dict[str, type[Contender]] = {
    "webdataset": Webdataset, "streaming": Streaming, "litdata": Litdata, "torch": Torch, "torch-mmap": TorchMapped,
    "webdataset-list": WebdatasetList, "streaming-list": StreamingList, "litdata-list": LitdataList,
    "torch-list": TorchList,
}
