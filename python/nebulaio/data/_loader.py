# SPDX-License-Identifier: Apache-2.0
"""The loader of training data."""

from __future__ import annotations

import importlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, get_args

from .. import _arguments, _device, _load, _options, _process
from .._connection import with_environment
from ..errors import ClosedError, InvalidError, UnsupportedError
from . import _views
from ._batch import Batch
from ._handles import FORKED, Data, Engine
from ._hooks import Collate, Decode, Hooks, Inline, Pool
from ._job import place

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._connection import Connection

Source = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
Shuffle = Literal["full", "blocks", "stored"]
Tail = Literal["drop", "pad", "short"]
FrameworkName = Literal["auto", "torch", "numpy", "cupy"]
State = dict[str, Any]
_ORDERS: dict[Any, str] = {True: "full", False: "stored"}


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
        self._closed = False
        self._engine: Engine | None = None
        self._runner: Inline | Pool | None = None
        self._started: deque[tuple[Batch, Any]] = deque()  # batches that the hooks work on
        sources = _sources(source)
        self._hooks = Hooks(decode, collate)
        self._threads = _whole("threads", threads, 0)
        self._epochs = None if epochs is None else _whole("epochs", epochs, 0)
        wanted = _device.canonical(device)
        if wanted != "host" and framework != "numpy":
            _process.current().require_cuda_after_fork(wanted)
        self._views = _views.choose(framework)
        self.rank, self.world = place(rank, world)
        self.batch_size = _whole("batch_size", batch_size, 1)
        self._options: dict[str, Any] = {
            "batch": self.batch_size,
            "device": self._views.prefer(wanted),
            "shuffle": _choice("shuffle", _ORDERS.get(shuffle, shuffle), Shuffle),
            "seed": _whole("seed", seed, 0),
            "rank": self.rank,
            "world": self.world,
            "worker": _whole("worker", worker, 0),
            "workers": _whole("workers", workers, 1),
            "tail": _tail(tail, drop_last),
            "skip_bad": _arguments.truth("skip_bad", skip_bad),
            "shuffle_block": 0 if shuffle_block is None else _whole("shuffle_block", shuffle_block, 1),
            "shuffle_window": 0 if shuffle_window is None else _whole("shuffle_window", shuffle_window, 1),
            "ahead": 0 if ahead is None else _options.size("ahead", ahead),
            **_arguments.choices(route, cache),
        }
        if columns is not None:
            if isinstance(columns, str) or not all(isinstance(name, str) for name in columns) or not columns:
                raise InvalidError(f"columns={columns!r} is not a list of names, such as ['jpg', 'cls'] (None: all columns)")
            self._options["columns"] = list(columns)
        opening: dict[str, Any] = {
            "format": format,
            "block": 0 if block is None else _whole("block", block, 0),
            "max_sample": 0 if max_sample is None else _options.size("max_sample", max_sample),
            "verify": _arguments.truth("verify", verify),
            "skip_bad": self._options["skip_bad"],
        }
        if any(_load.is_url(os.fsdecode(one)) for one in sources):
            opening["client"] = _account(endpoint, access_key, secret_key, client)
        self._data = Data(_process.current().open(), sources, opening)
        self._state: State = {} if state is None else _checked(state)
        try:
            self._restart(self._state, False)
            self._state = self._state or self._require().start
            unknown = [name for name in self._hooks.columns if name not in self.columns]
            if unknown:
                raise InvalidError(f"decode names the column {unknown[0]!r}, and the columns are {', '.join(self.columns)}")
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
        return [column["name"] for column in self._described.columns]

    @property
    def device(self) -> str:
        """The device of the batches: "host" or "cuda:N"."""
        return self._described.device

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
        return self._described.batches

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
        wanted = _checked(state)
        with self._lock:
            self._restart(wanted, allow_changed)
            self._state = wanted

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. In the epoch of the next batch, `set_epoch` does nothing.

        Loops need no `set_epoch`: each loop delivers the next epoch by itself.
        """
        self._check()
        if _whole("epoch", epoch, 0) == self._state["epoch"]:
            return
        with self._lock:
            wanted = {**self._state, "epoch": epoch, "position": 0}
            self._restart(wanted, True)
            self._state = wanted

    def report(self) -> dict[str, Any]:
        """Return the bytes by route, the time that the loop waited, and what limited it: in total and by epoch.

        Reports begin anew with `load_state_dict` and `set_epoch`.
        """
        self._check()
        return self._require().report()

    def sample(self, number: int) -> dict[str, Any]:
        """Return the key of a sample, and the file, offset and size of each of its parts."""
        return self._data.sample(_whole("number", number, 0))

    def read(self, number: int, column: str) -> bytes:
        """Return the bytes of one part of a sample."""
        return self._data.read(_whole("number", number, 0), column)

    def close(self) -> None:
        """End all reads and hooks. Delivered tensors stay valid. A second call does nothing."""
        self._closed = True
        self._pause()

    def as_iterable_dataset(self) -> Any:
        """Return a torch IterableDataset with the arguments of this loader.

        Pass it to a DataLoader with batch_size=None. Each worker process makes a loader of
        its own and reads a part of the batches.
        """
        self._pause()
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
        if not getattr(self, "_closed", True):
            self.close()

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

    def _require(self) -> Engine:
        """Return the engine, which is started again after a failed hook."""
        if self._engine is None:
            self._restart(self._state, True)
        assert self._engine is not None
        return self._engine

    def _pause(self) -> None:
        """End all reads and hooks. The next batch starts them again."""
        engine, self._engine = self._engine, None
        runner, self._runner = self._runner, None
        self._started.clear()
        if engine is not None:
            engine.release()
        if runner is not None and self._data.system.usable():
            runner.close()

    def _restart(self, state: State, allow_changed: bool) -> None:
        """Start the reads at a state. If the state is refused, the loader stays as it is."""
        options = dict(self._options)
        if state:
            options.update(state=state, seed=0, allow_changed=allow_changed)
        if self._epochs is not None:
            # A loader of the library needs an epoch. The iterator ends before the first batch of one too many.
            options["epochs"] = max(self._epochs - int(state.get("epoch", 0)), 1)
        engine = Engine(self._data, options, self._views)
        try:
            self._views.require(engine.device)
        except BaseException:
            engine.release()
            raise
        self._pause()
        self._engine = self._described = engine
        self._base = {**engine.start, **({} if not state else {"seed": state["seed"]})}
        if self._hooks:
            self._runner = Pool(self._hooks, self._threads) if self._threads else Inline(self._hooks)

    def _deliver(self) -> tuple[Any, bool]:
        """Return what the loop gets next, and whether it is the last of the epoch. Raises StopIteration."""
        self._check()  # before the lock, which a thread of the parent process may hold after a fork
        with self._lock:
            if self._epochs is not None and self._state["epoch"] >= self._epochs:
                raise StopIteration
            engine = self._require()
            if self._runner is None:
                taken = engine.take(wait=True)
                assert taken is not None
                batch = Batch(taken, engine.columns, self._views, self._base)
                self._state = batch.state
                return batch, batch.last
            return self._decoded(engine, self._runner)

    def _decoded(self, engine: Engine, runner: Inline | Pool) -> tuple[Any, bool]:
        started = self._started
        while len(started) < runner.depth:
            try:
                taken = engine.take(wait=not started)
            except StopIteration:
                if not started:
                    raise
                break
            if taken is None:
                break
            batch = Batch(taken, engine.columns, self._views, self._base)
            started.append((batch, runner.start(batch)))
        batch, begun = started[0]
        try:
            result = runner.finish(begun)
        except Exception:
            self._pause()  # a new loop begins at the batch that failed
            raise
        self._state = batch.state
        started.popleft()
        return result, batch.last


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


def _sources(source: Source) -> list[bytes]:
    """Return the sources as bytes."""
    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not given:
        raise InvalidError("open data: the list of sources is empty")
    found = []
    for one in given:
        if not isinstance(one, (str, os.PathLike)) or not os.fspath(one) or "\0" in os.fspath(one):
            raise InvalidError(f"open data {one!r}: expected a path, a URL or a pattern")
        found.append(os.fsencode(one))
    return found


def _account(endpoint: Any, access_key: Any, secret_key: Any, client: Any) -> dict[str, Any]:
    """Return the options of a client for data in a bucket."""
    if client is not None:
        if endpoint is not None or access_key is not None or secret_key is not None:
            raise InvalidError("client is given together with endpoint, access_key or secret_key (fix: give one of them)")
        return with_environment(client._options, os.environ)
    if (access_key is None) != (secret_key is None):
        raise InvalidError("access_key and secret_key: only one of them is given (fix: give both, or neither)")
    given = {"endpoint": endpoint, "access_key": access_key, "secret_key": secret_key}
    words = {key: _arguments.word(key, value) for key, value in given.items() if value is not None}
    return with_environment(words, os.environ)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 63:
        return value
    raise InvalidError(f"{name}={value!r} is not a whole number of {least} or more")


def _choice(name: str, value: Any, kind: Any) -> str:
    if value in get_args(kind):
        return str(value)
    raise InvalidError(f"{name}={value!r} is not one of {', '.join(get_args(kind))}")


def _tail(tail: Any, drop_last: Any) -> str:
    if drop_last is None:
        return _choice("tail", "drop" if tail is None else tail, Tail)
    meant = "drop" if _arguments.truth("drop_last", drop_last) else "short"
    if tail is not None and tail != meant:
        raise InvalidError(f"tail={tail!r} and drop_last={drop_last}: they contradict each other (fix: give one of them)")
    return meant


_NUMBERS = ("seed", "epoch", "position", "samples", "shuffle_block", "shuffle_window")


def _checked(state: Mapping[str, Any]) -> State:
    """Return a state in plain numbers and text. Raises InvalidError if it is not a state."""
    if not isinstance(state, Mapping) or not {"seed", "epoch", "position"} <= state.keys():
        raise InvalidError(f"state {state!r:.200} is not a state of Loader.state_dict(), with seed, epoch and position")
    found: State = {}
    for key, value in state.items():
        if key in _NUMBERS:
            found[key] = _whole(f"state[{key!r}]", value, 0)
        else:
            found[key] = value
    return found
