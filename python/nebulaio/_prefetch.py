# SPDX-License-Identifier: Apache-2.0
"""Loads the tensors of a plan as one job and hands out each tensor as soon as it is complete."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from . import _abi, _frameworks, _handles, _process, _report, _slices
from ._load import allocate
from .errors import ArgumentTypeError, ClosedError, InvalidError, NebulaioError, NotFoundError, UnsupportedError

PrefetchPlan = Mapping[str, slice | None]
"""The tensors to load by name: None for a whole tensor, or a slice of its first dimension with step 1."""

PACKED = ("F4", "F6_E2M3", "F6_E3M2")
"""Dtypes whose elements share bytes. Parts of such tensors cannot be read."""


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The entry of a tensor in the header of its file. `safe_open.get_tensor_meta` returns it."""

    dtype: str
    """The dtype in the notation of the file, such as "F32"."""
    shape: list[int]
    """The shape in elements."""
    data_offsets: tuple[int, int]
    """The first byte of the tensor and the end, relative to the start of the file's data."""


class Tensors(Protocol):
    """The header of an open file, as `plan_of` needs it."""

    def offset_keys(self) -> list[str]:
        """Return the tensors' names in the order of the file."""

    def get_tensor_meta(self, name: str) -> TensorMeta:
        """Return a tensor's entry in the header."""


@dataclass
class Work:
    """The parts of a plan."""

    names: list[str]
    """All tensors in the order of the file."""
    choice: dict[str, Any]
    """Options of nebulaio_model_select for the tensors to read."""
    empty: list[_handles.TensorLayout]
    """Slices without elements, of which nothing is read."""


def plan_of(wanted: PrefetchPlan, file: Tensors, where: str) -> Work:
    """Check a plan against the header of its file. `where` names the file in errors."""
    names = file.offset_keys()
    if not isinstance(wanted, Mapping):
        raise ArgumentTypeError(
            f"{where}: plan={wanted!r} is not a dictionary of slices by tensor name (None: all tensors)")
    known = set(names)
    whole: list[str] = []
    slices: list[dict[str, Any]] = []
    empty: list[_handles.TensorLayout] = []
    for name, part in wanted.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{where}: {name!r} in the plan is not a tensor name")
        if name not in known:
            raise NotFoundError(f"{where}: there is no tensor {name!r} (fix: see keys())")
        rows = None if part is None else _rows(part, name, file.get_tensor_meta(name), where)
        if rows is not None and rows[0] == rows[1]:
            meta = file.get_tensor_meta(name)
            empty.append({"name": name, "dtype": meta.dtype, "shape": [0, *meta.shape[1:]], "size": 0, "file": 0,
                          "offset": 0})
            continue
        whole.append(name)
        if rows is not None:
            slices.append({"tensor": _slices.literally(name), "ranges": [list(rows)]})
    choice: dict[str, Any] = {"names": whole}
    if slices:
        choice["slices"] = slices
    return Work([name for name in names if name in wanted], choice, empty)


def _rows(part: Any, name: str, meta: TensorMeta, where: str) -> tuple[int, int] | None:
    """Return the first row of a slice and the end, or None for all rows."""
    if not isinstance(part, slice):
        raise ArgumentTypeError(
            f"{where}: {part!r} in the plan of {name!r} is not a slice of dimension 0 or None (the whole tensor)")
    if part.step not in (None, 1):
        raise InvalidError(f"{where}: {part!r} in the plan of {name!r} has a step, expected 1")
    if not meta.shape:
        raise InvalidError(
            f"{where}: the tensor {name!r} has no dimension, so it has no rows (fix: plan the whole tensor with None)")
    start, stop, _ = part.indices(meta.shape[0])
    rows = (start, max(start, stop))
    if rows == (0, meta.shape[0]):
        return None
    if meta.dtype in PACKED:
        raise UnsupportedError(
            f"{where}: rows of {name!r} cannot be read, because elements of dtype {meta.dtype} share bytes "
            "(fix: plan the whole tensor with None)"
        )
    return rows


class _Load(_handles.Load):
    """A load that keeps its report."""

    raw: bytes | None = None

    def _keep_report(self) -> None:
        try:
            self.raw = _abi.text(self.system.functions.nebulaio_report, self.number.value)
        except NebulaioError:
            return  # report the load's own error
        _process.current().reports.last = self.raw


class PrefetchLoader(_handles.OfThisProcess):
    """The tensors of a plan, which arrive while the caller continues. `safe_open.prefetch` returns a loader.

    Each tensor is handed out once, by `take` or by iteration, as soon as its last byte has
    arrived. A tensor that was handed out is complete, on every stream. The engine reads the
    file from front to back, so tensors arrive in the order of the file.

    All tensors of a loader are parts of one allocation, which is freed with the last of
    them. `close` drops the tensors that were not handed out.

    An error of the load is raised by `take` and by iteration, after the tensors that arrived
    before the error. A change of the file during the load is detected at the end of the
    load, by the call that asks for the last tensor.

    Any number of threads may use one loader at once.
    """

    def __init__(self, model: _handles.Model, maker: _frameworks.Framework, start: dict[str, Any], work: Work | None,
                 where: str) -> None:
        """Start the load.

        `start` are options of nebulaio_load_start. `work` is None for all tensors of the file.
        `where` names the file in errors.
        """
        self._changed = threading.Condition()
        self._maker, self._where = maker, where
        self._names = [] if work is None else work.names
        self._left = set(self._names)
        self._views: dict[str, Any] = {}  # tensors that are complete and were not handed out
        self._queue: deque[str] = deque()  # their names, and names that `take` has handed out since
        self._tensors: Sequence[_handles.TensorLayout] = ()
        self._ready = 0  # the number of complete tensors
        self._waits = False  # whether a thread waits in the library and will wake the others
        self._closed = False
        self._problem: NebulaioError | None = None
        self._places: list[Any] = []
        self._load: _Load | None = None
        self._raw: bytes | None = None
        self._dtypes: dict[str, Any] = {}
        if work is not None and work.empty:
            place = maker.allocate(0, 64, model.files()["device"])
            self._views = maker.views(work.empty, [place], _frameworks.choose(maker, work.empty, "error"))
            self._queue.extend(self._views)
        if work is not None and not work.choice["names"]:
            return
        chosen = model if work is None else _handles.Selection(model, work.choice)
        places = chosen.files()
        self._places = list(allocate(maker, chosen.system, places))
        self._load = _Load(chosen, self._places, maker.stream(places["device"]), start)
        self._load.__enter__()
        try:
            self._tensors = chosen.describe()["tensors"]
            self._dtypes = _frameworks.choose(maker, self._tensors, "error")
            if work is None:
                self._names = [tensor["name"] for tensor in self._tensors]
                self._left = set(self._names)
            if not self._left:
                self._settle()  # a file without tensors
        except BaseException:
            self.close()
            raise

    def names(self) -> list[str]:
        """Return the names of the plan's tensors in the order of the file, handed out or not."""
        return list(self._names)

    def __len__(self) -> int:
        """Return the number of the plan's tensors, handed out or not."""
        return len(self._names)

    def take(self, name: str) -> Any:
        """Wait for a tensor and return it. A tensor that was handed out before raises InvalidError."""
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{self._where}: take({name!r}): expected the name of a tensor")
        with self._changed:
            while name not in self._views:
                self._check()
                if name not in self._left:
                    if name in self._names:
                        raise InvalidError(f"{self._where}: the tensor {name!r} was already handed out (fix: keep it, or prefetch it again)")
                    raise NotFoundError(f"{self._where}: the tensor {name!r} is not in the plan (fix: see names())")
                self._advance()
            return self._hand_out(name)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, tensor) for each tensor that was not handed out, as the tensors arrive."""
        while True:
            with self._changed:
                self._check()
                while self._left and not self._queue:
                    self._advance()
                    self._check()
                if not self._left:
                    return
                name = self._queue.popleft()
                if name not in self._views:
                    continue  # `take` has handed it out
                found = self._hand_out(name)
            yield name, found

    def close(self) -> None:
        """Stop the load and drop the tensors that were not handed out. Tensors that were handed out stay valid.

        The call returns when nothing is in flight. A thread that waits for a tensor receives ClosedError.
        A second call does nothing.
        """
        with self._changed:
            self._closed = True
            if self._load is not None:
                self._load.cancel()
            while self._waits:
                self._changed.wait()
            self._views.clear()
            self._queue.clear()
            self._finish()

    def __enter__(self) -> PrefetchLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        load = getattr(self, "_load", None)
        if load is not None and not load.system.ended:
            self.close()

    @property
    def report(self) -> dict[str, Any] | None:
        """The report of the load, or None until the last tensor was handed out, an error was raised, or `close` was called."""
        return None if self._raw is None else _report.read(self._raw)

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._where}: the loader is closed")

    def _advance(self) -> None:
        """Wait until another tensor is complete. Only one thread waits in the library; the others wait for this thread."""
        if self._problem is not None:
            raise type(self._problem)(*self._problem.args)
        if self._waits:
            self._changed.wait()
            return
        assert self._load is not None
        load, known = self._load, self._ready
        self._waits = True
        self._changed.release()
        ready = known
        problem: NebulaioError | None = None
        try:
            ready = load.ready(known, lambda: None)
        except NebulaioError as error:
            problem = error
        finally:
            self._changed.acquire()
            self._waits = False
            self._changed.notify_all()
        self._check()
        if problem is not None:
            self._problem = problem
            self._finish()
            raise problem
        tensors = self._tensors[known:ready]
        self._views.update(self._maker.views(tensors, self._places, self._dtypes))
        self._queue.extend(tensor["name"] for tensor in tensors)
        self._ready = ready

    def _hand_out(self, name: str) -> Any:
        if len(self._left) == 1:
            self._settle()
        self._left.discard(name)
        return self._maker.final(self._views.pop(name))

    def _settle(self) -> None:
        """Wait for the end of the load, which proves that the file has not changed."""
        if self._load is None:
            return
        try:
            self._load.wait(None)
        except NebulaioError as error:
            self._problem = error
            self._views.clear()
            raise
        finally:
            self._finish()

    def _finish(self) -> None:
        """Release the load and the memory. A second call does nothing."""
        load, self._load = self._load, None
        if load is not None:
            load.__exit__(None, None, None)
            load._kept = None  # an exception that somebody keeps must not keep the memory
            self._raw = load.raw
        self._places, self._tensors = [], ()
