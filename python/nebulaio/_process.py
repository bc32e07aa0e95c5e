# SPDX-License-Identifier: Apache-2.0
"""The process-wide holder of the loaded library and the open system.

The first thread that needs library and system makes both under a lock. Fork takes the same
lock, so a child never sees a half-made state. The child's holder starts empty, because neither a Go
runtime nor a CUDA context survives fork.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
import weakref
from typing import Any

from . import _abi, _library, _options
from .errors import ClosedError, ForkError, InvalidError

_UVM_DEVICE = "/dev/nvidia-uvm"
PATIENCE = 5.0
"""Seconds that the process waits at its end for a thread that opens the library and for cancelled jobs."""


class System:
    """An open system of the library, which opens models, files and clients.

    `cuda_used` becomes true when a model is opened for a CUDA device. `generation` is the
    number of forks before its process. A handle of another generation must not be used,
    because its library does not work in this process.

    `ended` becomes true when the process or its interpreter has closed the system, and in
    a forked child. Finalizers check `ended` first, because they may run after Python has
    emptied this package's modules.
    """

    def __init__(self, library: _library.Library, options: _options.Options, generation: int) -> None:
        handle = ctypes.c_uint64()
        _abi.call(
            library.functions.nebulaio_system_open,
            json.dumps(options).encode() if options else None,
            ctypes.byref(handle),
        )
        self.library = library
        self.functions: Any = library.functions
        self.handle = int(handle.value)
        self.generation = generation
        self.pid = os.getpid()
        self.cuda_used = False
        self.ended = False
        self.jobs: dict[int, weakref.ref[Any]] = {}  # running jobs by identity

    def usable(self) -> bool:
        """Return whether the system belongs to this process."""
        return self.pid == os.getpid() and self.generation == current().generation

    def close(self) -> None:
        """Close the system at the end of its process.

        libcufile can crash at exit while it counts operations, so it is closed before. Running jobs
        are cancelled and waited for, because Python is about to free the memory that they
        write to.
        """
        if self.usable():
            deadline = time.monotonic() + PATIENCE
            for known in list(self.jobs.values()):
                job = known()
                if job is not None:
                    job.stop(deadline)
            self.ended = True
            err = ctypes.create_string_buffer(1)
            self.functions.nebulaio_release(self.handle, err, 1)
        self.ended = True

    def devices(self) -> dict[str, Any]:
        """Return the library's description of devices."""
        found: dict[str, Any] = json.loads(_abi.text(self.functions.nebulaio_devices, self.handle))
        return found


class Holder:
    """The state of one process: options, library, system, and whether its parent has used CUDA."""

    def __init__(self, parent: Holder | None = None) -> None:
        self.lock = threading.RLock()
        self.library: _library.Library | None = None
        self.system: System | None = None
        self.others: dict[str, System] = {}  # systems of clients with their own options
        self.watcher: Any = None  # _futures.Watcher: the thread that completes futures
        self.closed = False
        self.mapped = False  # a library was loaded here or in an ancestor
        self.options: _options.Options = {}
        self.parent_cuda = False
        self.generation = 0
        self.pid = os.getpid()
        self.reports = threading.local()
        if parent is not None:
            self.mapped = parent.mapped
            self.options = dict(parent.options)
            self.generation = parent.generation + 1
            for system in parent.systems():
                system.ended = True  # only here: the parent has its own copy of the object
            used = any(system.cuda_used for system in parent.systems())
            self.parent_cuda = parent.parent_cuda or used or _holds_cuda()
        self.inherited = self.mapped  # a library loaded here belongs to an ancestor

    def load(self) -> _library.Library:
        """Return the library. The first call loads it, as a private copy if an ancestor had loaded it."""
        with self.lock:
            if self.library is None:
                private = self.inherited
                self.mapped = True
                self.library = _library.load(private=private, generation=self.generation)
            return self.library

    def open(self) -> System:
        """Return the system. The first call opens it with the options of configure() and the environment."""
        system = self.system
        if system is not None:
            return system
        with self.lock:
            if self.system is None:
                self.system = self._make({})
            return self.system

    def open_with(self, options: _options.Options) -> System:
        """Return a system with extra options. Equal options share one system."""
        if not options:
            return self.open()
        key = json.dumps(options, sort_keys=True)
        with self.lock:
            if key not in self.others:
                self.others[key] = self._make(options)
            return self.others[key]

    def _make(self, more: _options.Options) -> System:
        options = {**_options.from_environment(), **self.options, **more}
        if self.cuda_is_lost():
            # Do not even probe: the driver may hang in such a child.
            options["devices"] = "off"
        if self.closed:
            raise ClosedError(
                "use the library: this process is ending and has closed it (fix: use it earlier, or register the "
                "atexit callback after importing nebulaio)"
            )
        return System(self.load(), options, self.generation)

    def last_raw(self) -> bytes | None:
        """Return the last report of the calling thread as JSON, or None."""
        last = getattr(self.reports, "last", None)
        if isinstance(last, tuple):
            file, size, seconds = last  # a _cached.CachedFile, which makes its report on demand
            last = file.report(size, seconds)
        found: bytes | None = last
        return found

    def systems(self) -> list[System]:
        """Return all open systems."""
        return [*([] if self.system is None else [self.system]), *self.others.values()]

    def close(self) -> None:
        """Close the systems at the end of the process, after running moves. Nothing is opened afterwards."""
        if self.watcher is not None:
            self.watcher.wait(None)
            self.watcher.stop()
        if not self.lock.acquire(timeout=PATIENCE):
            for system in self.systems():  # a daemon thread is still in its first use
                system.ended = True
            return
        try:
            self.closed = True
            systems = self.systems()
            self.system, self.others = None, {}
            for system in systems:
                system.close()
        finally:
            self.lock.release()

    def configure(self, options: _options.Options) -> None:
        """Add options for the system, which must not be open yet."""
        with self.lock:
            if self.system is not None:
                raise InvalidError(
                    "configure: the library is already in use in this process "
                    "(fix: call configure before the first load, devices() or inspect())"
                )
            self.options.update(options)

    def cuda_is_lost(self) -> bool:
        """Return whether this is a forked child of a process that had used CUDA."""
        if self.parent_cuda:
            return True
        torch = sys.modules.get("torch")
        bad_fork = getattr(getattr(torch, "cuda", None), "_is_in_bad_fork", None)
        return bool(bad_fork is not None and bad_fork())

    def require_cuda_after_fork(self, device: str) -> None:
        """Raise ForkError if CUDA is unusable after a fork."""
        if self.cuda_is_lost():
            raise ForkError(
                f"load to {device}: this process was forked from one that had used CUDA, and CUDA "
                "does not survive fork (fix: start the process with multiprocessing's 'spawn' "
                "method, or load with device='cpu' here)"
            )


_holder = Holder()


def current() -> Holder:
    """Return the holder of this process."""
    if _holder.pid != os.getpid():
        _after_fork_in_child()  # forked by C code that skips Python's hooks
    return _holder


def _holds_cuda(descriptors: str = "/proc/self/fd", device: str = _UVM_DEVICE) -> bool:
    """Return whether this process has CUDA's memory device open, or inherited it from its parent."""
    if not os.path.exists(device):
        return False
    try:
        names = os.listdir(descriptors)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{descriptors}/{name}") == device:
                return True
        except OSError:
            continue  # the descriptor of the directory listing
    return False


def _before_fork() -> None:
    _holder.lock.acquire()


def _after_fork_in_parent() -> None:
    _holder.lock.release()


def _after_fork_in_child() -> None:
    global _holder
    _holder = Holder(_holder)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
