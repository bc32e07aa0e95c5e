# SPDX-License-Identifier: Apache-2.0
"""The loader as a torch IterableDataset. This module imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from .. import _device
from ..errors import InvalidError
from ._batch import Batch
from ._loader import Loader
from ._settings import State

_torch: Any = importlib.import_module("torch.utils.data")


class LoaderDataset(_torch.IterableDataset):  # type: ignore[misc] # torch's types are unknown here
    """An IterableDataset that delivers the batches of a loader. Each process makes a loader of its own.

    Each iteration delivers one epoch, or the rest of an epoch that was begun. An item is a
    dictionary of the columns with "__key__", the keys of the samples, and "__index__", their
    numbers; with a hook that returns something else, an item is the result of the hook. A
    DataLoader without persistent_workers starts new workers for each epoch. Call `set_epoch`
    before each epoch then, or all epochs have the same order.
    """

    def __init__(self, arguments: dict[str, Any], state: State) -> None:
        super().__init__()
        self._arguments = arguments
        self._state = state
        self._loader: Loader | None = None

    def __iter__(self) -> Iterator[Any]:
        loader = self._open()
        if loader is None:
            return
        for item in loader:
            self._state = loader.state_dict()
            if isinstance(item, Batch):
                item = {**item, "__key__": item.sample_keys, "__index__": item.indices}
            yield item

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. In the epoch of the next batch, `set_epoch` does nothing."""
        if epoch != self._state["epoch"]:
            self.load_state_dict({**self._state, "epoch": epoch, "position": 0})

    def state_dict(self) -> State:
        """Return the state after the last delivered batch. Each worker has a state of its own."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the batch at which `state` was made."""
        self._state = dict(state)
        if self._loader is not None and self._loader._data.system.usable():
            self._loader.load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loader": None}

    def _open(self) -> Loader | None:
        """Return the loader of this process, or None if there are more workers than batches."""
        if self._loader is not None and self._loader._data.system.usable():
            return self._loader
        arguments = dict(self._arguments)
        worker = _torch.get_worker_info()
        if worker is not None:
            device = _device.canonical(arguments["device"])
            if device not in ("auto", "host"):
                raise InvalidError(
                    f"load batches to {device} in a worker process: its GPU memory cannot move to the main process "
                    "(fix: num_workers=0, because the library's threads read ahead; or device='cpu')"
                )
            arguments.update(device="cpu", worker=worker.id, workers=worker.num_workers)
            if worker.id > 0 and worker.id >= self._steps(arguments):
                return None
        self._loader = Loader(**arguments, state=self._state)
        return self._loader

    def _steps(self, arguments: dict[str, Any]) -> int:
        """Return the number of batches of one rank in an epoch."""
        samples, wide = self._state["samples"], arguments["batch_size"] * arguments["world"]
        dropped = arguments["tail"] in (None, "drop") and arguments["drop_last"] is not False
        return int(samples // wide if dropped else -(-samples // wide))


def dataset(arguments: dict[str, Any], place: tuple[int, int], state: State) -> LoaderDataset:
    """Return the dataset of a loader with these arguments, for its place in the training job."""
    if arguments["workers"] != 1:
        raise InvalidError("as_iterable_dataset: worker and workers are given (fix: leave them to the DataLoader)")
    rank, world = place
    return LoaderDataset({**{k: v for k, v in arguments.items() if k != "state"}, "rank": rank, "world": world}, state)
