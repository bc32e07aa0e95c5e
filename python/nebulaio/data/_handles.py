# SPDX-License-Identifier: Apache-2.0
"""Handles of the library for training data: opened data, a loader, and the memory of a batch."""

from __future__ import annotations

import ctypes
import json
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final, TypedDict

from .. import _abi, _process
from .._handles import SLICE_MS, Job, _Handle
from ..errors import ClosedError, from_status

FORKED: Final = (
    "use loader: this process was forked from the one that made the loader, and the library does not survive fork "
    "(fix: make a Loader in the child, or pass loader.as_iterable_dataset() to torch's DataLoader)"
)


def park() -> None:
    """Stop a daemon thread at the end of the process: Python ends it silently, and an error would be printed."""
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


class Column(TypedDict, total=False):
    """A column of the data as the library describes it."""

    name: str
    encoding: str
    dtype: str
    fixed: bool
    shape: list[int]


class Data(_Handle):
    """Opened training data. Opening waits in short slices, so that Ctrl-C ends it."""

    def __init__(self, system: _process.System, sources: Sequence[bytes], options: dict[str, Any]) -> None:
        super().__init__(system)
        names = (ctypes.c_char_p * len(sources))(*sources)
        functions = system.functions
        try:
            _abi.call(
                functions.nebulaio_data_open_start,
                system.handle,
                names,
                len(sources),
                json.dumps(options).encode(),
                ctypes.byref(self.number),
            )
            err = ctypes.create_string_buffer(4096)
            status = _abi.RUNNING
            while status == _abi.RUNNING:
                status = functions.nebulaio_wait(self.number.value, SLICE_MS, None, err, len(err))
            if status != _abi.OK:
                raise from_status(status, _abi.message(functions.nebulaio_wait, status, err))
            self.info: dict[str, Any] = json.loads(_abi.text(functions.nebulaio_report, self.number.value))
        except BaseException:
            self.release()  # ends the opening
            raise

    def checked(self) -> int:
        """Return the number of the handle. Raises ClosedError in a forked child."""
        if not self.system.usable():
            raise ClosedError(FORKED)
        if self.system.ended:
            park()
        return self.number.value

    def keys(self, samples: int, count: int) -> list[str]:
        """Return the keys of `count` samples, with their numbers at the address `samples`."""
        text = _abi.text(self.system.functions.nebulaio_data_keys, self.checked(), samples, count)
        found: list[str] = json.loads(text)
        return found

    def sample(self, number: int) -> dict[str, Any]:
        """Return the places of the parts of a sample."""
        text = _abi.text(self.system.functions.nebulaio_data_sample, self.checked(), number)
        found: dict[str, Any] = json.loads(text)
        return found

    def read(self, number: int, column: str) -> bytes:
        """Return the bytes of one part of a sample."""
        with _PartRead(self, number, column) as job:
            job.wait(None)
            return _abi.text(self.system.functions.nebulaio_report, job.number.value)


class _PartRead(Job):
    """A job that reads one part of a sample. The report of the job is the part."""

    def __init__(self, data: Data, number: int, column: str) -> None:
        super().__init__(data.system, data)
        self._data, self._sample, self._column = data, number, column.encode("utf-8", "surrogatepass")

    def _start(self) -> None:
        _abi.call(
            self.system.functions.nebulaio_data_read_start,
            self._data.checked(),
            self._sample,
            self._column,
            ctypes.byref(self.number),
        )

    def _keep_report(self) -> None:
        return  # the part is not a report


class Memory:
    """The memory of one batch. Tensors keep the object alive, and its end gives the memory back to the loader.

    GPU memory is used again only after the work that is queued on the current stream, when
    the last tensor dies, and on the streams of `record_stream`.
    """

    __slots__ = ("__weakref__", "_number", "_streams", "count", "data", "device", "samples", "views")

    def __init__(self, number: int, data: Data, views: Any, device: str, samples: int, count: int) -> None:
        self._number = number
        self.data = data
        self.views = views  # a Views object, which knows the current stream
        self.device = device
        self.samples = samples  # address of the sample numbers
        self.count = count
        self._streams: list[Any] = []

    def record_stream(self, stream: Any) -> None:
        """Remember a stream, other than the one that is current at the end, with work on the memory."""
        self._streams.append(stream)

    def __del__(self) -> None:
        number, self._number = getattr(self, "_number", 0), 0
        system = self.data.system if number else None
        # A forked child keeps its copy of the memory, and a closed system has freed it.
        if system is None or system.ended or not system.usable():
            return
        if self.device == "host":
            system.functions.nebulaio_release(number, None, 0)
        else:
            stream = self.views.last_stream(self.device, self._streams)
            system.functions.nebulaio_batch_free(number, stream, None, 0)


class Taken:
    """A batch that the library has handed over: its memory and the places of its columns."""

    __slots__ = ("columns", "epoch", "last", "memory", "next_epoch", "next_position")

    def __init__(self, out: _abi.Batch, columns: Any, memory: Memory) -> None:
        self.memory = memory
        self.columns = [(c.address, c.size, c.offsets) for c in columns.from_address(out.columns)]
        self.epoch: int = out.epoch
        self.last = bool(out.last)
        self.next_epoch: int = out.next_epoch
        self.next_position: int = out.next_position


class Engine(_Handle):
    """A loader of the library, which reads batches ahead. Only one thread at a time calls `take`."""

    def __init__(self, data: Data, options: dict[str, Any], views: Any) -> None:
        super().__init__(data.system)
        self.data = data
        self._views = views
        self._stopped = False
        self._taking = threading.RLock()
        self._err = ctypes.create_string_buffer(4096)
        self._out = _abi.Batch(struct_size=ctypes.sizeof(_abi.Batch))
        self._batch = ctypes.c_uint64(0)
        _abi.call(
            self.system.functions.nebulaio_loader_open,
            data.checked(),
            json.dumps(options).encode(),
            ctypes.byref(self.number),
        )
        described = json.loads(_abi.text(self.system.functions.nebulaio_loader_describe, self.number.value))
        self.device: str = described["device"]
        self.columns: list[Column] = described["columns"]
        self.batches: int = described["batches"]
        self.start: dict[str, Any] = described["state"]
        self._columns = _abi.BatchColumn * len(self.columns)
        if self.device != "host":
            self.system.cuda_used = True
        self.system.jobs[id(self)] = weakref.ref(self)

    def checked(self) -> int:
        """Return the number of the handle. Raises ClosedError in a forked child and after the release."""
        if not self.system.usable():
            raise ClosedError(FORKED)
        if not self.number.value:
            if self._stopped or self.system.ended:
                park()
            raise ClosedError("use loader: it is closed (fix: make a new Loader)")
        return self.number.value

    def take(self, wait: bool) -> Taken | None:
        """Return the next batch. Without `wait`, return None if it is not complete yet.

        Raises StopIteration after the last batch, and the error of a failed read. Ctrl-C
        ends a wait. A batch that the library has handed over then is freed by `release`.
        """
        take = self.system.functions.nebulaio_loader_next
        batch, out, err = self._batch, ctypes.byref(self._out), self._err
        with self._taking:
            while True:
                status = take(self.checked(), SLICE_MS if wait else 0, out, ctypes.byref(batch), err, len(err))
                if status == _abi.OK and self.number.value:
                    break
                if status not in (_abi.OK, _abi.RUNNING):
                    if self._stopped:
                        park()
                    raise from_status(status, _abi.message(take, status, err))
                if not wait:
                    return None
            if not batch.value:
                raise StopIteration
            found = self._out
            memory = Memory(batch.value, self.data, self._views, self.device, found.samples, found.count)
            batch.value = 0  # the memory owns the batch now
            return Taken(found, self._columns, memory)

    def report(self) -> dict[str, Any]:
        """Return the library's report."""
        text = _abi.text(self.system.functions.nebulaio_loader_report, self.checked())
        found: dict[str, Any] = json.loads(text)
        return found

    def release(self) -> None:
        """End all reads. Batches that were taken stay valid."""
        super().release()  # ends a wait in another thread
        self.system.jobs.pop(id(self), None)
        if self._stopped or not self.system.usable():
            return  # at the end of the process, another thread may never give the lock back
        with self._taking:  # a signal can arrive when the library has handed over a batch and nobody owns it yet
            number, self._batch.value = self._batch.value, 0
            if number:
                self.system.functions.nebulaio_release(number, None, 0)

    def stop(self, deadline: float) -> None:
        """End the loader at the end of the process."""
        self._stopped = True
        self.release()
