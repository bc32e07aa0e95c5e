# SPDX-License-Identifier: Apache-2.0
"""Weights that travel in a thread of their own while the caller does something else."""

from __future__ import annotations

import ctypes
import glob
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from . import _process, safetensors
from ._slices import literally
from .errors import CancelledError

if TYPE_CHECKING:
    from typing_extensions import Self

_SYS_CACHESTAT = 451  # on every architecture


class Source:
    """Where a module's weights come from; this one has none and is there at once.

    `tensors` are the weights by name, `copies` those that were loaded apart from
    them; `seconds` is what they took. Used as a context manager: entering starts
    them, `wait` returns when they are there.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.copies: dict[str, Any] = {}
        self.seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait(self) -> None:
        """Return when all weights are there; raises what went wrong."""


class Weights(Source):
    """The weights of a model on their way to the device, in a thread of their own.

    Leaving the context before they have arrived cancels them and waits for that.
    """

    def __init__(self, folder: str, device: Any, apart: set[str], route: Any, cache: Any) -> None:
        super().__init__()
        self.raw: list[bytes] = []
        self.last: bytes | None = None
        self._load = {"path": folder, "device": device, "framework": "pt", "route": route, "cache": cache}
        self._apart = apart
        self._problem: BaseException | None = None
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="nebulaio-weights", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._thread.join()

    def wait(self) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        began = time.perf_counter()
        try:
            names: list[str] = []
            if self._apart:
                # Reading headers leaves what cache="auto" takes for a load before this one,
                # after which it keeps files. So what a first load does is asked for by name.
                first = self._load["cache"] == "auto" and not _seen_before(self._load["path"])
                names = [tensor["name"] for tensor in safetensors.inspect(self._load["path"])["tensors"]]
                if first:
                    self._load["cache"] = "bypass"
            copies = [name for name in names if name in self._apart]
            rest = [name for name in names if name not in self._apart]
            if copies and rest:
                self.tensors = self._some(rest)
                self.copies = self._some(copies)
            else:
                self.tensors = self._some(None)
        except BaseException as problem:  # noqa: BLE001 - raised by wait, in the caller's thread
            self._problem = problem
        self.seconds = time.perf_counter() - began

    def _some(self, names: list[str] | None) -> dict[str, Any]:
        globs = None if names is None else [literally(name) for name in names]
        try:
            return safetensors.load_model(**self._load, tensors=globs, progress=self._progress)
        finally:
            raw = _process.current().last_raw()
            if raw is not None:
                self.raw.append(raw)
                self.last = self.last or raw  # the report of the bulk, not of the copies

    def _progress(self, done: int, total: int) -> None:
        if self._stop:
            raise CancelledError("load model: the caller gave up")


def _seen_before(folder: str) -> bool:
    """Whether the first page of one of the model's files is cached, or the kernel does not tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path in glob.glob(os.path.join(glob.escape(folder), "*.safetensors")):
        fd = os.open(path, os.O_RDONLY)
        try:
            page, found = (ctypes.c_uint64 * 2)(0, 1), (ctypes.c_uint64 * 5)()
            told = libc.syscall(_SYS_CACHESTAT, ctypes.c_int(fd), page, found, ctypes.c_uint(0)) == 0
            if not told or found[0]:
                return True
        finally:
            os.close(fd)
    return False
