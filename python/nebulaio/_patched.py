# SPDX-License-Identifier: Apache-2.0
"""NebulaIO's readers in the form in which `patch` puts them into other packages."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from . import _device, _prefetch, _process, _report, _safe_open
from .errors import InvalidError, NebulaioError

Tell = Callable[[Callable[[], dict[str, Any]]], None]
"""A function that receives a function that returns a report."""

_OURS = ("pt", "torch", "pytorch", "np", "numpy")


class Pair(NamedTuple):
    """A reader of the package safetensors, and NebulaIO's reader in its place."""

    theirs: Any
    ours: Any


def pairs(theirs: ModuleType, tell: Tell) -> list[Pair]:
    """Return the readers of the modules of safetensors that are imported. `tell` is called after each load."""
    found = [Pair(theirs.safe_open, opener(theirs.safe_open, theirs.SafetensorError, tell))]
    for name, framework in (("torch", "pt"), ("numpy", "numpy")):
        module = sys.modules.get(f"safetensors.{name}")
        if module is not None:
            found.append(Pair(module.load_file, _loader(module.load_file, framework, found[0].ours)))
    return found


def opener(theirs: Any, error: type[Exception], tell: Tell) -> Any:
    """Return a class like `safe_open` whose errors are also errors of safetensors."""

    inside = threading.local()

    @contextmanager
    def load() -> Iterator[None]:
        """Translate errors, and tell about the load if there was one. A call inside of a call changes nothing."""
        if getattr(inside, "called", False):
            yield
            return
        inside.called = True
        holder = _process.current()
        before = getattr(holder.reports, "last", None)
        holder.reports.last = None
        try:
            yield
        except NebulaioError as problem:
            raise _translated(problem, error) from problem
        finally:
            inside.called = False
            if holder.reports.last is None:
                holder.reports.last = before
            else:
                tell(lambda: _report.read(holder.last_raw() or b"{}"))

    def wrapped(method: Any) -> Any:
        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            with load():
                return method(*arguments, **named)

        return call

    class SafeSlice(_safe_open.SafeSlice):
        __doc__ = _safe_open.SafeSlice.__doc__

        __getitem__ = wrapped(_safe_open.SafeSlice.__getitem__)

    class PrefetchLoader(_prefetch.PrefetchLoader):
        __doc__ = _prefetch.PrefetchLoader.__doc__

        take = wrapped(_prefetch.PrefetchLoader.take)
        close = wrapped(_prefetch.PrefetchLoader.close)

        def __iter__(self) -> Iterator[tuple[str, Any]]:
            found = super().__iter__()
            while True:
                with load():
                    item = next(found, None)
                if item is None:
                    return
                yield item

    class safe_open(_safe_open.safe_open):
        __doc__ = _safe_open.safe_open.__doc__

        _slice_class = SafeSlice
        _loader_class = PrefetchLoader

        def __new__(cls, filename: Any, framework: Any = "pt", device: Any = "cpu", **named: Any) -> Any:
            if framework in _OURS and _is_ours(device):
                return super().__new__(cls)
            return theirs(filename, framework, device, **named)  # __init__ is not called for it

        @wrapped
        def __init__(self, filename: Any, framework: Any = "pt", device: Any = "cpu", **named: Any) -> None:
            super().__init__(filename, framework, device, **{"lenient": True, **named})

        keys = wrapped(_safe_open.safe_open.keys)
        offset_keys = wrapped(_safe_open.safe_open.offset_keys)
        metadata = wrapped(_safe_open.safe_open.metadata)
        get_tensor = wrapped(_safe_open.safe_open.get_tensor)
        get_tensors = wrapped(_safe_open.safe_open.get_tensors)
        get_tensor_meta = wrapped(_safe_open.safe_open.get_tensor_meta)
        get_slice = wrapped(_safe_open.safe_open.get_slice)
        prefetch = wrapped(_safe_open.safe_open.prefetch)

    for made in (safe_open, SafeSlice, PrefetchLoader):
        made.__module__, made.__qualname__ = __name__, made.__name__
    return safe_open


def _loader(theirs: Any, framework: str, opened: Any) -> Any:
    """Return `load_file` of safetensors.torch or safetensors.numpy."""
    if framework == "numpy":

        @functools.wraps(theirs)
        def load_arrays(filename: str | os.PathLike[str], *, backend: str = "mmap") -> Any:
            with opened(filename, "numpy", backend=backend) as file:
                return file.get_tensors()

        return load_arrays

    @functools.wraps(theirs)
    def load_file(filename: str | os.PathLike[str], device: Any = "cpu", *, backend: str = "mmap") -> Any:
        with opened(filename, framework, device, backend=backend) as file:
            return file.get_tensors()

    return load_file


def _is_ours(device: Any) -> bool:
    """Return whether a device is the host or a CUDA device. None is the host."""
    try:
        return device is None or _device.canonical(device) != "auto"
    except InvalidError:
        return False


def _translated(problem: NebulaioError, error: type[Exception]) -> Exception:
    """Return an error with the class of `problem` that is also an error of safetensors."""
    if isinstance(problem, error):
        return problem
    kinds: tuple[Any, Any] = (type(problem), error)
    found: NebulaioError = _joined(*kinds)(*problem.args)
    found.__dict__.update(problem.__dict__)
    return found


@functools.cache
def _joined(kind: Any, error: Any) -> Any:
    return type(kind.__name__, (kind, error), {"__module__": kind.__module__, "__doc__": kind.__doc__})
