# SPDX-License-Identifier: Apache-2.0
"""Handles of the library as context managers: an open model, a running load.

A handle is released exactly once, and never in a process that was forked after it was
opened.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _abi, _process
from ._collector import without_collections
from ._layouts import Destination as Destination
from ._layouts import Layout as Layout
from ._layouts import Places as Places
from ._layouts import TensorLayout as TensorLayout
from .errors import ClosedError, InvalidError, NebulaioError, from_status

if TYPE_CHECKING:
    from typing_extensions import Self

SLICE_MS = 50
"""Longest single wait inside the library in milliseconds. Ctrl-C is handled after each wait."""

ProgressCallback = Callable[[int, int], object]


class OfThisProcess:
    """An open object that cannot move to another process. Pickling the object raises an error with a fix."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        raise TypeError(
            f"pickle {type(self).__name__}: it holds open files of this process, which no other process can use "
            "(fix: pass the path, and open it in the other process)"
        )


class _Handle:
    """A handle number of the library, and its release."""

    def __init__(self, system: _process.System) -> None:
        self.system = system
        self.number = ctypes.c_uint64(0)

    def usable(self) -> bool:
        """Return whether the handle is open and belongs to this process."""
        return self.number.value != 0 and self.system.usable()

    def checked(self) -> int:
        """Return the number. Raises ClosedError in a forked child, where a call would hang."""
        if not self.system.usable():
            raise ClosedError(
                "use handle: this process was forked from the one that opened it, and the library does not "
                "survive fork (fix: open the file, or start the load, again in the child)"
            )
        return self.number.value

    def release(self) -> None:
        """Release the handle. A second call does nothing."""
        if self.usable():
            err = ctypes.create_string_buffer(1)
            self.system.functions.nebulaio_release(self.number.value, err, 1)
        self.number.value = 0

    def __del__(self) -> None:
        system = getattr(self, "system", None)
        if system is not None and not system.ended:
            self.release()


class Model(_Handle):
    """An open model with headers that have been read and checked."""

    _layout: Layout | None = None

    def __init__(self, system: _process.System, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        super().__init__(system)
        name = os.fsencode(path)
        if not name or b"\0" in name:
            raise InvalidError(f"open model {os.fspath(path)!r}: a path must not be empty or contain NUL")
        _abi.call(
            system.functions.nebulaio_model_open,
            system.handle,
            name,
            json.dumps(options).encode(),
            ctypes.byref(self.number),
        )

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def files(self) -> Places:
        """Return the sizes of the memory to allocate, which is all that a load needs to start."""
        found: Places = json.loads(_abi.text(self.system.functions.nebulaio_model_files, self.checked()))
        return found

    def describe(self) -> Layout:
        """Return the offset of each tensor, which the caller must not change.

        The description can be long, so read it while the load runs. It is parsed once.
        """
        self.checked()
        if self._layout is None:
            with without_collections():
                self._layout = json.loads(_abi.text(self.system.functions.nebulaio_model_describe, self.checked()))
        return self._layout


class Selection(Model):
    """Another choice of tensors from the files of an open model. A selection keeps its model alive."""

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        _Handle.__init__(self, model.system)
        self._from = model
        _abi.call(
            self.system.functions.nebulaio_model_select,
            model.checked(),
            json.dumps(options).encode(),
            ctypes.byref(self.number),
        )


class Job(_Handle):
    """A job of the library: a load, a save, or a read or write of a file.

    Entering the context starts the job, and leaving it ends the job. If the block is left
    early, the job is cancelled and waited for, so that the library no longer touches the
    memory it was given.
    """

    def __init__(self, system: _process.System, kept: object) -> None:
        super().__init__(system)
        self._kept = kept  # memory that the library may use until the job has ended
        self._progress = _abi.Progress()
        self._err = ctypes.create_string_buffer(4096)
        self._ended = False
        self._stopped = False  # at the end of the process

    def _start(self) -> None:
        """Call the library's start function, which fills `number`."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            # An interrupt can arrive after the library has started the job.
            self._finish()
            raise
        self.system.jobs[id(self)] = weakref.ref(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._finish()

    def wait(self, progress: ProgressCallback | None) -> None:
        """Wait in short slices until the job has ended. Raises the error of a failed job.

        `progress` is called in this thread with (bytes done, bytes in total) at least once,
        and a last time after success.
        """
        wait = self.system.functions.nebulaio_wait
        counted = ctypes.byref(self._progress)
        timeout = SLICE_MS if progress is None else 0
        self.checked()
        while True:
            status = wait(self.number.value, timeout, counted, self._err, len(self._err))
            if status != _abi.RUNNING:
                break
            timeout = SLICE_MS
            if progress is not None:
                progress(self._progress.bytes_done, self._progress.bytes_total)
                if not self.usable():
                    raise ClosedError(
                        "wait: the progress callback forked, and this is the child; a job ends only in the "
                        "process that started it (fix: leave the child with os._exit)"
                    )
        self._ended = True
        if self._stopped and threading.current_thread() is not threading.main_thread():
            # Python ends a daemon thread silently, so do not raise an error that it would print.
            threading.Event().wait()
        if status != _abi.OK:
            raise from_status(status, _abi.message(wait, status, self._err))
        if progress is not None:
            progress(self._progress.bytes_done, self._progress.bytes_total)

    def counted(self) -> tuple[int, int]:
        """Return the bytes moved so far and the bytes in total."""
        if not self._ended and self.usable():
            counted = ctypes.byref(self._progress)
            self.system.functions.nebulaio_wait(self.number.value, 0, counted, self._err, len(self._err))
        return self._progress.bytes_done, self._progress.bytes_total

    def cancel(self) -> None:
        """Ask the job to stop. The job has stopped when `wait` returns."""
        if self.usable() and not self._ended:
            self.system.functions.nebulaio_cancel(self.number.value, self._err, len(self._err))

    def stop(self, deadline: float) -> None:
        """Cancel the job at the end of the process, and wait for it until the deadline."""
        self._stopped = True
        while self.number.value and not self._ended and time.monotonic() < deadline:
            functions, number = self.system.functions, self.number.value
            functions.nebulaio_cancel(number, None, 0)
            # Another thread that waits for the job sees its end too, and releases it.
            if functions.nebulaio_wait(number, SLICE_MS, None, None, 0) != _abi.RUNNING:
                return

    def _finish(self) -> None:
        """Wait for the end of the job, keep its report, and release it.

        An exception of a signal handler is delayed: the memory may only be freed after the
        library has finished with it.
        """
        put_off: BaseException | None = None
        for _ in range(100):
            try:
                if self.usable():
                    self._drain()
                    self._keep_report()
                    self.release()
                self.system.jobs.pop(id(self), None)
                break
            except BaseException as interrupt:  # noqa: BLE001
                put_off = interrupt
        if put_off is not None:
            raise put_off

    def _drain(self) -> None:
        functions = self.system.functions
        while not self._ended:
            functions.nebulaio_cancel(self.number.value, self._err, len(self._err))
            status = functions.nebulaio_wait(self.number.value, SLICE_MS, None, self._err, len(self._err))
            self._ended = status != _abi.RUNNING

    def _keep_report(self) -> None:
        try:
            report = _abi.text(self.system.functions.nebulaio_report, self.number.value)
        except NebulaioError:
            return  # report the job's own error
        _process.current().reports.last = report

    def __del__(self) -> None:
        system = getattr(self, "system", None)
        if system is not None and not system.ended:
            self._finish()


class Load(Job):
    """A load into destinations, one per file of its model."""

    def __init__(
        self, model: Model, destinations: Sequence[Destination], stream: int, options: dict[str, Any]
    ) -> None:
        super().__init__(model.system, (model, destinations))
        self._model = model
        self._buffers = (_abi.Buffer * len(destinations))(*[_abi.Buffer(d.address, d.size) for d in destinations])
        self._stream = stream
        self._options = json.dumps(options).encode() if options else None

    def _start(self) -> None:
        _abi.call(
            self.system.functions.nebulaio_load_start,
            self._model.checked(),
            self._buffers,
            len(self._buffers),
            self._stream,
            self._options,
            ctypes.byref(self.number),
        )

    def ready(self, known: int, idle: Callable[[], object]) -> int:
        """Wait in short slices until more than `known` tensors are complete. Returns their number.

        `idle` is called in this thread after each slice without progress. Raises the load's
        error if no more tensors will come.
        """
        ready = self.system.functions.nebulaio_load_ready
        count = ctypes.c_uint64(0)
        while True:
            status = ready(self.checked(), known, SLICE_MS, ctypes.byref(count), self._err, len(self._err))
            if status == _abi.OK and count.value > known:
                return int(count.value)
            if status != _abi.RUNNING:
                message = "wait: the load has ended and tensors are missing; this is a defect"
                if status != _abi.OK:
                    message = _abi.message(ready, status, self._err)
                raise from_status(status or 1, message)
            idle()
