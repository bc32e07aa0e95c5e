# SPDX-License-Identifier: Apache-2.0
"""Futures of object transfers. A thread per process completes a future when the library reports its end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import logging
import threading
from collections.abc import Callable, Generator
from typing import Any

from . import _abi, _handles, _objects, _process
from ._report import Report
from .errors import CancelledError, ClosedError, InvalidError, UnsupportedError


class TransferCancelled(CancelledError, concurrent.futures.CancelledError):
    """The transfer was cancelled before it finished. The buffer of a cancelled transfer is free again."""


class Transfer(concurrent.futures.Future[Report]):
    """A running read or write, returned by `async_read` and `async_write`.

    A `Transfer` is a `concurrent.futures.Future` with the report as its result, and can be
    awaited in any event loop. Dropping a `Transfer` neither cancels the read or write nor
    frees its buffer. Callbacks run in a thread of the package, or at once if the transfer has
    ended. Callbacks must not wait for other transfers.
    """

    def __init__(self, job: _objects.ObjectJob) -> None:
        super().__init__()
        self._job = job
        self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """Ask the transfer to stop. Returns False if the transfer has already ended.

        When the future is done, the transfer has stopped and its buffer is free again.
        """
        self._check()
        if self.done():
            return False
        self._job.cancel()
        return True

    def cancelled(self) -> bool:
        """Return whether the transfer was cancelled."""
        return self.done() and isinstance(super().exception(0), TransferCancelled)

    def done(self) -> bool:
        """Return whether the transfer has ended."""
        self._check()
        return super().done()

    def result(self, timeout: float | None = None) -> Report:
        """Wait for the end and return the report. Raises the move's error.

        Ctrl-C interrupts the wait, not the move. Raises TimeoutError after `timeout` seconds.
        """
        self._may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the transfer and return its error, or None."""
        self._may_wait()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call fn with this future when the move has ended. Exceptions of fn are logged.

        Even exceptions such as SystemExit are logged: the library's thread must continue.
        """
        super().add_done_callback(_shielded(fn))

    def progress(self) -> tuple[int, int]:
        """Return the bytes moved so far and the bytes in total."""
        return self._job.counted()

    def __await__(self) -> Generator[Any, None, Report]:
        return (yield from asyncio.wrap_future(self).__await__())

    def _check(self) -> None:
        if not self._job.system.usable():
            # After a fork, the thread that held the future's lock may not exist.
            raise ClosedError("use a transfer: it was started in another process (fix: start it again in the child)")

    def _may_wait(self) -> None:
        self._check()
        watcher = _process.current().watcher
        if watcher is not None and watcher.thread is threading.current_thread() and not self.done():
            raise InvalidError(
                "wait for a transfer inside the callback of another: this is the thread that would complete it "
                "(fix: add a callback to the second transfer, or wait in another thread)"
            )

    def _end(self, outcome: Report | Exception) -> None:
        if isinstance(outcome, CancelledError):
            outcome = TransferCancelled(str(outcome))
        if isinstance(outcome, Exception):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)


def _shielded(fn: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a callback that cannot end the library's thread. The base class logs only Exception."""

    def call(future: Any) -> None:
        try:
            fn(future)
        except Exception:
            raise
        except BaseException:
            watcher = _process.current().watcher
            if watcher is None or watcher.thread is not threading.current_thread():
                raise
            logging.getLogger("concurrent.futures").exception("exception calling callback for %r", future)

    return call


class Watcher:
    """The futures of one process and the thread that completes them."""

    def __init__(self, system: _process.System) -> None:
        self.functions: Any = system.functions
        self.pending: dict[int, Transfer] = {}
        self.lock = threading.Lock()
        self.idle = threading.Condition(self.lock)
        self._queue = ctypes.c_uint64()
        _abi.call(self.functions.nebulaio_queue_open, ctypes.byref(self._queue))
        self.thread = threading.Thread(target=self._run, name="nebulaio-transfers", daemon=True)
        self.thread.start()

    def start(self, job: _objects.ObjectJob, callback: Callable[[Any], object] | None) -> Transfer:
        """Start a job and return its future."""
        job.__enter__()
        future = Transfer(job)
        if callback is not None:
            future.add_done_callback(callback)
        number = job.number.value
        with self.lock:
            self.pending[number] = future
        try:
            _abi.call(self.functions.nebulaio_queue_add, self._queue.value, number)
        except BaseException:
            # Interrupted: the job ends here, and nobody waits for its future.
            with self.lock:
                self.pending.pop(number, None)
                self.idle.notify_all()
            job._finish()
            raise
        return future

    def wait(self, client: _objects.Client | None, cancel: bool = False) -> None:
        """Wait until no transfer of the client runs; None means any client. Ctrl-C cancels the transfers first."""
        try:
            while self._left(client, cancel):
                with self.lock:
                    self.idle.wait(_handles.SLICE_MS / 1000)
        except BaseException:
            while self._left(client, True):
                with self.lock:
                    self.idle.wait(_handles.SLICE_MS / 1000)
            raise

    def stop(self) -> None:
        """End the thread when the process or its interpreter ends."""
        if self.thread is threading.current_thread() or not self._queue.value:
            return
        self.functions.nebulaio_release(self._queue.value, None, 0)
        self._queue.value = 0
        self.thread.join(_process.PATIENCE)

    def _left(self, client: _objects.Client | None, cancel: bool) -> bool:
        with self.lock:
            left = [one for one in self.pending.values() if client is None or one._job.client is client]
        if cancel:
            for one in left:
                one._job.cancel()
        return bool(left) and self.thread is not threading.current_thread()

    def _run(self) -> None:
        ended = ctypes.c_uint64()
        err = ctypes.create_string_buffer(1)
        queue = self._queue.value
        while True:
            status = self.functions.nebulaio_queue_next(queue, -1, ctypes.byref(ended), err, 1)
            if status != _abi.OK:
                return
            with self.lock:
                future = self.pending.get(ended.value)
            if future is None:
                continue
            outcome: Report | Exception
            try:
                outcome = future._job.collect()
            except Exception as cause:  # noqa: BLE001 - the future reports it
                outcome = cause
            try:
                future._end(outcome)
            finally:
                with self.lock:
                    self.pending.pop(ended.value, None)
                    self.idle.notify_all()
            del future, outcome  # do not keep buffers until the next move ends


def _in_main_interpreter() -> bool:
    python = ctypes.pythonapi
    python.PyInterpreterState_Get.restype = python.PyInterpreterState_Main.restype = ctypes.c_void_p
    return bool(python.PyInterpreterState_Get() == python.PyInterpreterState_Main())


def watcher(system: _process.System) -> Watcher:
    """Return the watcher of this process, which the first call makes.

    The watcher's thread lives as long as the process. Raises UnsupportedError in a sub-interpreter,
    because Python cannot end an interpreter that has a thread.
    """
    if not _in_main_interpreter():
        raise UnsupportedError(
            "start a transfer: futures need a thread that outlives them, and a sub-interpreter cannot have one "
            "(fix: use read_to_gpu and write_from_gpu here, or start the transfer in the main interpreter)"
        )
    holder = _process.current()
    with holder.lock:
        if holder.closed:
            raise ClosedError(
                "start a transfer: this process is ending and has closed the library (fix: start it earlier)")
        found: Watcher | None = holder.watcher
        if found is None:
            found = holder.watcher = Watcher(system)
        return found
