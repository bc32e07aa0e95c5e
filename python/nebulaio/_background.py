# SPDX-License-Identifier: Apache-2.0
"""Loads of weights in a separate thread while the caller continues."""

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
    """The base class of sources of a module's weights. A plain `Source` has no weights and is ready at once.

    `tensors` are the weights by name. `copies` are the weights that were loaded
    separately. `seconds` is the time of the load. A source is a context manager: entering
    it starts the load, and `wait` returns when the load is done.
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
        """Wait until all weights are loaded. Raises the error of a failed load."""


class Weights(Source):
    """The weights of a model, loaded in a separate thread.

    Leaving the context early cancels the load and waits for its end.
    """

    def __init__(self, folder: str, device: Any, apart: set[str], route: Any, cache: Any) -> None:
        super().__init__()
        self.raw: list[bytes] = []
        self.last: bytes | None = None
        self._load = {"path": folder, "device": device, "framework": "pt", "route": route, "cache": cache,
                      "lenient": True}
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
                # Reading the headers puts pages into the page cache. cache="auto" would take these pages
                # for those of an earlier load and keep the files. A first load therefore sets "bypass".
                first = self._load["cache"] == "auto" and not seen_before(self._load["path"])
                names = [tensor["name"] for tensor in safetensors.inspect(self._load["path"], lenient=True)["tensors"]]
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
            raise CancelledError("load model: the caller cancelled it")


def seen_before(folder: str) -> bool:
    """Return whether the first page of a model file is cached, or the kernel does not tell."""
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
