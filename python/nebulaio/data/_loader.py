# SPDX-License-Identifier: Apache-2.0
"""The loader of training data."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _arguments, _device, _process
from ..errors import ClosedError, InvalidError, UnsupportedError
from ._feed import Feed
from ._handles import FORKED, Data
from ._hooks import Collate, Decode, Hooks
from ._settings import FrameworkName, Shuffle, Source, State, Tail, checked_state, settings, whole

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._connection import Connection


class Loader:
    """Delivers batches of samples in device memory. The threads of the library read ahead of their use.

    Each ``for batch in loader`` loop delivers one epoch, or the rest of an epoch that was
    begun. The next loop delivers the next epoch, in another order.

    Args:
        source: A file, folder, bucket prefix, pattern such as "train/*.tar" or name with
            braces such as "s3://bucket/train-{0000..0099}.tar", or a list of them.
        batch_size: The number of samples in a batch of this process.
        device: "auto", "cpu", "cuda", "cuda:N", a device number or a torch.device.
        shuffle: "full" (or True), a random order of all samples; "blocks", a random order
            of blocks of neighbouring samples, for storage that is slow at random reads; or
            "stored" (or False), the order of the files.
        seed: Chooses the random order. All ranks must have the same seed.
        columns: Names of the columns to read; None means all.
        epochs: The number of epochs of the whole job; None means no end. After the last
            epoch, a loop ends at once.
        rank, world: The number of this process, and the number of processes that share the
            samples. By default they are those of torch.distributed if it is initialised, or
            else of the environment variables RANK and WORLD_SIZE, or else 0 and 1.
        tail: What happens at the end of an epoch if the samples do not fill a batch of every
            rank: "drop" leaves them out, "pad" repeats samples, "short" makes smaller batches.
        drop_last: True means tail="drop", False means tail="short".
        format: The format of the data; "auto" recognises it.
        block: Makes samples of so many tokens from the formats megatron and litdata.
        decode: A mapping from columns to functions of one sample, or a function of a `Batch`.
        collate: A function of a list of samples, each a dictionary. Its result is delivered.
        threads: The number of threads that run the hooks of several batches ahead. With 0,
            the hooks run in the thread that takes the batches.
        framework: "torch", "numpy" or "cupy"; "auto" means torch if it is installed.
        skip_bad: Leave out missing and damaged files and samples. `info` and `report` count them.
        max_sample: The most bytes of one part of a sample, such as "64MiB".
        verify: Read all data once at the start, and compare it with its checksums.
        ahead: The most bytes of batches that are read ahead, such as "2GiB"; None means 1 GiB.
        route, cache: As in `nebulaio.safetensors.load_file`.
        shuffle_block, shuffle_window: For shuffle="blocks": samples in a block, and blocks
            that are mixed with each other.
        worker, workers: The number of this process, and the number of processes that share
            the batches of one rank.
        state: A state of `state_dict` with which the loader begins.
        endpoint, access_key, secret_key: Server and keys for data in a bucket; by default
            they come from the environment.
        client: A GPUDirectClient whose server and keys are used for data in a bucket.

    Raises:
        NotFoundError: There is no such file, folder or prefix, or no sample in it.
        CorruptError: A file is damaged.
        InvalidError: An argument is wrong, or `state` is of other data.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        device: _device.DeviceLike = "auto",
        shuffle: Shuffle | bool = "full",
        seed: int = 0,
        columns: Sequence[str] | None = None,
        epochs: int | None = None,
        rank: int | None = None,
        world: int | None = None,
        tail: Tail | None = None,
        drop_last: bool | None = None,
        format: str = "auto",  # noqa: A002 - the word that users expect
        block: int | None = None,
        decode: Decode | None = None,
        collate: Collate | None = None,
        threads: int = 0,
        framework: FrameworkName = "auto",
        skip_bad: bool = False,
        max_sample: int | str | None = None,
        verify: bool = False,
        ahead: int | str | None = None,
        route: _arguments.Route = "auto",
        cache: _arguments.Cache = "auto",
        shuffle_block: int | None = None,
        shuffle_window: int | None = None,
        worker: int = 0,
        workers: int = 1,
        state: Mapping[str, Any] | None = None,
        endpoint: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        client: Connection | None = None,
    ) -> None:
        self._arguments = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        self._lock = threading.Lock()
        self._closed = True  # until there is something to close
        hooks = Hooks(decode, collate)
        found = settings(self._arguments)
        self.rank, self.world, self.batch_size = found.rank, found.world, batch_size
        self._data = Data(_process.current().open(), found.sources, found.opening)
        self._feed = Feed(self._data, found, hooks)
        self._state: State = {} if state is None else checked_state(state)
        self._closed = False
        try:
            self._feed.restart(self._state, False)
            self._state = self._state or self._feed.described.start
            unknown = [name for name in hooks.columns if name not in self.columns]
            if unknown:
                raise InvalidError(
                    f"decode names the column {unknown[0]!r}, and the columns are {', '.join(self.columns)}")
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> dict[str, Any]:
        """The description of the data: format, number of samples, files, bytes, columns, fingerprint, bad files."""
        return dict(self._data.info)

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the batches."""
        return [column["name"] for column in self._feed.described.columns]

    @property
    def device(self) -> str:
        """The device of the batches: "host" or "cuda:N"."""
        return self._feed.described.device

    @property
    def epoch(self) -> int:
        """The number of the epoch of the next batch."""
        return int(self._state["epoch"])

    @property
    def closed(self) -> bool:
        """Whether the loader is closed."""
        return self._closed

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch of this process."""
        return self._feed.described.batches

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the rest of the epoch."""
        self._check()
        return _Epoch(self)

    def state_dict(self) -> State:
        """Return the state after the last delivered batch: seed, epoch and position, and what they refer to.

        All ranks have the same state after the same number of batches. The state is plain
        data that json and torch.save can store. It does not depend on batch_size or world.
        """
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_changed: bool = False) -> None:
        """Go on after the batch at which `state` was made.

        The seed becomes that of the state. Raises InvalidError if the data or the shuffle is
        not that of the state. With `allow_changed`, the content of the files may have changed, but not the number of
        samples.
        """
        self._check()
        wanted = checked_state(state)
        with self._lock:
            self._feed.restart(wanted, allow_changed)
            self._state = wanted

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. In the epoch of the next batch, `set_epoch` does nothing.

        Loops need no `set_epoch`: each loop delivers the next epoch by itself.
        """
        self._check()
        if whole("epoch", epoch, 0) == self._state["epoch"]:
            return
        with self._lock:
            wanted = {**self._state, "epoch": epoch, "position": 0}
            self._feed.restart(wanted, True)
            self._state = wanted

    def report(self) -> dict[str, Any]:
        """Return the bytes by route, the time that the loop waited, and what limited it: in total and by epoch.

        Reports begin anew with `load_state_dict` and `set_epoch`, and after an error.
        """
        self._check()
        return self._feed.report()

    def sample(self, number: int) -> dict[str, Any]:
        """Return the key of a sample, and the file, offset and size of each of its parts."""
        return self._data.sample(whole("number", number, 0))

    def read(self, number: int, column: str) -> bytes:
        """Return the bytes of one part of a sample."""
        return self._data.read(whole("number", number, 0), column)

    def close(self) -> None:
        """End all reads and hooks. Delivered tensors stay valid. A second call does nothing."""
        self._closed = True
        self._feed.pause()

    def as_iterable_dataset(self) -> Any:
        """Return a torch IterableDataset with the arguments of this loader.

        Pass it to a DataLoader with batch_size=None. Each worker process makes a loader of
        its own and reads a part of the batches.
        """
        self._feed.pause()
        module = _shell("_torch", "torch")
        return module.dataset(self._arguments, (self.rank, self.world), self._state)

    def as_node(self) -> Any:
        """Return a torchdata BaseNode that delivers the batches of this loader."""
        return _shell("_torchdata", "torchdata").node(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Any thread can collect garbage, also one that a wait for hooks would wait for.
        if not getattr(self, "_closed", True) and not self._data.system.ended:
            self._feed.pause(wait=False)

    def __repr__(self) -> str:
        info = self._data.info
        ranks = f", rank {self.rank} of {self.world}" if self.world > 1 else ""
        place = "closed" if self._closed else f"epoch {self._state['epoch']}, position {self._state['position']}"
        return (
            f"Loader({info['samples']} samples of {info['format']}, columns {', '.join(self.columns)}, "
            f"batches of {self.batch_size} on {self.device}{ranks}, {place})"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "pickle Loader: it holds open files and memory of this process "
            "(fix: pass loader.as_iterable_dataset(), or make a Loader in each process)"
        )

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("use loader: it is closed (fix: make a new Loader)")
        if not self._data.system.usable():
            raise ClosedError(FORKED)

    def _deliver(self) -> tuple[Any, bool]:
        """Return what the loop gets next, and whether it is the last of the epoch. Raises StopIteration."""
        self._check()  # before the lock, which a thread of the parent process may hold after a fork
        with self._lock:
            self._check()
            item, self._state, last = self._feed.take(self._state)
            return item, last


class _Epoch:
    """An iterator over the rest of an epoch."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Loader | None = loader

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        if self._loader is None:
            raise StopIteration
        try:
            item, last = self._loader._deliver()
        except Exception:
            self._loader = None
            raise
        if last:
            self._loader = None
        return item


def _shell(module: str, package: str) -> Any:
    """Import a module of this package that needs another package."""
    try:
        return importlib.import_module(f".{module}", __package__)
    except ImportError as cause:
        raise UnsupportedError(
            f"use the loader with {package}: the package cannot be imported: {cause} (fix: install {package})"
        ) from cause
