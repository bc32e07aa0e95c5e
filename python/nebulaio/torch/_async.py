# SPDX-License-Identifier: Apache-2.0
"""`AsyncSaver` and `async_save`: checkpoints that become durable while the training goes on."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import ClosedError, InvalidError, NebulaioError
from . import _snapshot
from ._saving import AsyncSave, Work
from ._staging import Staging, default_limit
from ._telling import TellingWriter

if TYPE_CHECKING:
    from typing_extensions import Self

dist: Any = importlib.import_module("torch.distributed")

Kind = Literal["auto", "device", "staging"]
"""Where the snapshot of a save is made."""


class AsyncSaver:
    """Saves checkpoints in the background.

        saver = AsyncSaver()
        for step, batch in enumerate(batches):
            loss(model(batch)).backward()
            saver.wait_before_step()
            optimizer.step()
            if step % 100 == 0:
                saver.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"run/step-{step}")
        saver.close()

    In a world of several ranks, every rank makes a saver, and all ranks call `save` in the same order. The first
    `save` makes a process group of gloo for the background, so that no collective of the training is disturbed.
    A saver is a context manager that is closed at the end of the block.

    Args:
        snapshot: "device" copies each tensor on its own device, and the step may go on at once. "staging" copies to
            pinned host memory while forward and backward run, and needs `wait_before_step`. "auto" takes "device"
            if the memory suffices.
        memory: Most bytes of host memory for snapshots, pinned if tensors are on a GPU. Default: a quarter of the
            available memory. Tensors that do not fit are written from the parameters themselves:
            `wait_before_step` then waits for the write, and forward must not change them.
        reserve: Bytes that a snapshot leaves free on each GPU. Default: a twentieth of the GPU's memory.
        in_flight: Most saves that are not durable yet. A further `save` waits for the oldest one.
        process_group: Group of the ranks that save together. Default: all ranks.
    """

    def __init__(
        self,
        *,
        snapshot: Kind = "auto",
        memory: int | None = None,
        reserve: int | None = None,
        in_flight: int = 1,
        process_group: Any = None,
    ) -> None:
        if snapshot not in get_args(Kind):
            raise InvalidError(f"snapshot={snapshot!r} is not one of {', '.join(get_args(Kind))}")
        for name, value in (("memory", memory), ("reserve", reserve)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise InvalidError(f"{name}={value!r} is not a number of bytes")
        if not isinstance(in_flight, int) or isinstance(in_flight, bool) or in_flight < 1:
            raise InvalidError(f"in_flight={in_flight!r} is not a number of at least 1")
        self._kind = snapshot
        self._memory = default_limit() if memory is None else memory
        self._reserve = reserve
        self._in_flight = in_flight
        self._ranks = process_group
        self._group: Any
        self._closed = False
        self._hooks: list[Any] = []
        self._start_anew()
        _savers.add(self)

    def save(
        self,
        state_dict: Mapping[str, Any],
        checkpoint_id: str | os.PathLike[str],
        *,
        step: int | None = None,
        checksum: bool = True,
        planner: Any = None,
        client: Any = None,
    ) -> AsyncSave:
        """Start to save a state dictionary as a checkpoint of torch.distributed.checkpoint, and return at once.

        The call first waits for older saves, if `in_flight` of them are not durable yet. The state may be changed in
        place after `wait_before_step`. `checkpoint_id` is a directory or s3://bucket/prefix.

        Raises:
            NebulaioError: An earlier save failed. The error names its checkpoint, and this save was not started.
            OutOfMemoryError: The snapshot does not fit.
        """
        writer = TellingWriter(checkpoint_id, checksum=checksum, step=step, client=client)
        return self._start(state_dict, os.fsdecode(checkpoint_id), step, writer, planner, None)

    def wait_before_step(self) -> None:
        """Wait until the last byte of every started save has left the parameters. Call it before each optimizer step.

        Without a running save, the call costs nothing. Raises the error of an earlier save.
        """
        self._enter()
        for one in self._running():
            if not one._copied.is_set():
                began = time.perf_counter()
                one._copied.wait()
                one._count("before_step", time.perf_counter() - began)
        self._raise_errors()

    def guard(self, optimizer: Any) -> None:
        """Let each step of a torch optimizer call `wait_before_step` by itself, until the saver is closed."""
        self._hooks.append(optimizer.register_step_pre_hook(lambda *_: self.wait_before_step()))

    def wait(self) -> dict[str, Any] | None:
        """Wait until all saves are durable, and return the report of the last one, or None. Raises their errors."""
        self._enter()
        for one in self._running():
            one._ended.wait()
        self._raise_errors()
        return self.report

    @property
    def report(self) -> dict[str, Any] | None:
        """The report of the save that was started last, or None. It is complete when the save is done."""
        return None if self._last is None else self._last.report

    def prepare(self, state_dict: Mapping[str, Any]) -> None:
        """Allocate the memory for snapshots of this state now, so that the first save does not wait for it."""
        self._enter()
        parts = _snapshot.find(_states(state_dict))
        choice = _snapshot.choose(self._kind, _snapshot.needs(parts), self._share, self._reserve)
        for staging in self._stagings:
            if not staging.taken:
                _snapshot.Snapshot(None, parts, choice, staging).reserve()

    def close(self) -> None:
        """Wait for all saves, and free memory and process group. Raises the error of a failed save. A second call does nothing."""
        if self._closed:
            return
        try:
            self.wait()
        finally:
            if not self._running():  # an interrupt may end the wait; the saves then go on
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except NebulaioError as problem:
            if kind is None:
                raise
            print(f"nebulaio: {problem}", file=sys.stderr)  # the block's own error goes on

    def _release(self) -> None:
        self._closed = True
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for staging in self._stagings:
            staging.free()
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _start_anew(self) -> None:
        """Forget all saves, at the begin and in a forked child, which has no threads."""
        self._pid = os.getpid()
        self._group = None
        self._lock = threading.Lock()
        self._saves: list[AsyncSave] = []
        self._last: AsyncSave | None = None
        self._share = self._memory // self._in_flight
        self._stagings = [Staging(self._share) for _ in range(self._in_flight)]

    def _enter(self) -> None:
        if self._closed:
            raise ClosedError("use saver: it is closed")
        if self._pid != os.getpid():
            self._start_anew()

    def _running(self) -> list[AsyncSave]:
        return [one for one in self._saves if not one._ended.is_set()]

    def _raise_errors(self) -> None:
        """Forget saves that have ended, and raise the first error that no call has raised yet."""
        with self._lock:
            self._saves = [one for one in self._saves if not one.done() or one._has_news()]
            failed = next((one for one in self._saves if one._has_news()), None)
            if failed is not None:
                self._saves.remove(failed)
                failed._told = True
        if failed is not None and failed._error is not None:
            raise failed._error

    def _start(
        self,
        state_dict: Mapping[str, Any],
        name: str,
        step: int | None,
        writer: Any,
        planner: Any,
        then: Callable[[], object] | None,
    ) -> AsyncSave:
        """Make the snapshot and start the thread of a save. `then` runs in this thread after success."""
        self._enter()
        save = AsyncSave(name, step)
        began = time.perf_counter()
        while len(self._running()) >= self._in_flight:
            self._running()[0]._ended.wait()
        save._count("back_pressure", time.perf_counter() - began)
        self._raise_errors()
        group = self._own_group()
        previous = self._last
        work = Work(save, writer, planner, group, None if previous is None or previous.done() else previous, then)
        began = time.perf_counter()
        problem: BaseException | None = None
        try:
            state = _states(state_dict)
            parts = _snapshot.find(state)
            choice = _snapshot.choose(self._kind, _snapshot.needs(parts), self._share, self._reserve)
            staging = next(one for one in self._stagings if not one.taken)
            work.snapshot = _snapshot.Snapshot(state, parts, choice, staging)
            work.snapshot.begin()
            if work.snapshot.is_copied():
                save._copied.set()
        except BaseException as cause:
            problem = cause
            work.refuse(cause)
            if group is None:
                work.abandon()
                raise
        save._count("snapshot", time.perf_counter() - began)
        with self._lock:
            self._saves.append(save)
            self._last = save
        # Not a daemon: the interpreter waits for the thread, so the last checkpoint of a program becomes durable.
        threading.Thread(target=work.run, name="nebulaio-save").start()
        if problem is not None:
            save._told = True  # the other ranks hear of it in their threads
            raise problem
        return save

    def _own_group(self) -> Any:
        """Return the process group of the background. The first call makes it, on all ranks together."""
        if not dist.is_available() or not dist.is_initialized():
            return None
        if self._group is None:
            ranks = None if self._ranks is None else dist.get_process_group_ranks(self._ranks)
            self._group = dist.new_group(ranks, backend="gloo", use_local_synchronization=ranks is not None)
        return self._group


def _states(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state with `state_dict()` of its Stateful objects, as torch.distributed.checkpoint saves it."""
    if not isinstance(state_dict, Mapping):
        raise InvalidError(f"save: state_dict is a {type(state_dict).__name__}, expected a dict")
    stateful = importlib.import_module("torch.distributed.checkpoint.stateful").Stateful
    return {key: one.state_dict() if isinstance(one, stateful) else one for key, one in state_dict.items()}


_savers: weakref.WeakSet[AsyncSaver] = weakref.WeakSet()


@atexit.register
def _tell() -> None:
    """Print errors that no call has raised, when the interpreter ends."""
    for saver in list(_savers):
        for one in saver._saves:
            if saver._pid == os.getpid() and one._has_news():
                print(f"nebulaio: {one._error} (no later call has raised this error)", file=sys.stderr)


class _Default:
    """The saver of `async_save`. Each process makes its own at first use."""

    saver: AsyncSaver | None = None
    lock = threading.Lock()


def _after_fork() -> None:
    """Let a forked child begin without saves: their threads are the parent's."""
    _Default.saver, _Default.lock = None, threading.Lock()
    for saver in list(_savers):
        saver._start_anew()


os.register_at_fork(after_in_child=_after_fork)


def default_saver() -> AsyncSaver:
    """Return the saver of `async_save`, for `wait_before_step` and `wait`. The first call makes it."""
    with _Default.lock:
        if _Default.saver is None or _Default.saver._closed:
            _Default.saver = AsyncSaver()
        return _Default.saver


def async_save(
    state_dict: Mapping[str, Any],
    checkpoint_id: str | os.PathLike[str],
    *,
    step: int | None = None,
    checksum: bool = True,
    planner: Any = None,
    client: Any = None,
) -> AsyncSave:
    """Start to save a checkpoint with the process's default saver. `AsyncSaver.save` documents the arguments.

    Call `default_saver().wait_before_step()` before each optimizer step, or `default_saver().guard(optimizer)` once.
    """
    return default_saver().save(
        state_dict, checkpoint_id, step=step, checksum=checksum, planner=planner, client=client
    )
