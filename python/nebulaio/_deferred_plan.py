# SPDX-License-Identifier: Apache-2.0
"""The plan of a load: copies of deferred tensors are recorded, and one job reads them all.

While a plan records, it sees every operation of torch in its thread. An operation that would read or write memory of
a recorded copy runs after that copy, so that the order of a loader's program holds.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _arguments
from ._deferred import Deferred, defer, dispatch, is_deep, is_view, tensors_of
from ._deferred_copies import Copy, Runner, storage_view, summary
from ._deferred_files import Files
from ._deferred_geometry import Occupied
from ._handles import ProgressCallback

torch: Any = importlib.import_module("torch")
_overrides: Any = importlib.import_module("torch.overrides")
_modes: Any = importlib.import_module("torch.utils._python_dispatch")

if TYPE_CHECKING:

    class _Mode:
        """A mode of torch, for type checkers without torch."""

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    class _FunctionMode(_Mode):
        """TorchFunctionMode."""

    class _DispatchMode(_Mode):
        """TorchDispatchMode."""

else:
    _FunctionMode, _DispatchMode = _overrides.TorchFunctionMode, _modes.TorchDispatchMode

# Calls that take a tensor's memory without an operation of torch.
_RAW = {
    torch.Tensor.data_ptr,
    torch.Tensor.numpy,
    torch.Tensor.tolist,
    torch.Tensor.untyped_storage,
    torch.Tensor.__array__,
    torch.Tensor.__dlpack__,
    torch.Tensor.__repr__,
    torch.Tensor.share_memory_,
}
GAP = 4096
"""The default of the smallest number of unwanted bytes across which nothing is read: a page."""

_SET_DATA = torch.Tensor.data.__set__


class LoadPlan:
    """Copies of deferred tensors of some files, and the jobs that read them.

    Outside of `recording`, and in other threads, each copy is read at once. `verify` compares every block with its
    checksum. From `gap` unwanted bytes on, the rows of a tensor are read one by one. `progress` is called with (bytes done, bytes in total) of each job.
    """

    def __init__(
        self,
        device: Any,
        *,
        verify: bool = False,
        cache: str = "auto",
        gap: int = GAP,
        progress: ProgressCallback | None = None,
    ) -> None:
        _arguments.truth("verify", verify)
        _arguments.choices("auto", cache)
        self.device = torch.device(device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._verify = verify
        self._runner = Runner(verify, cache, gap, progress)
        self._files: list[Files] = []
        self._pending: dict[tuple[Any, int], Occupied] = {}
        self._thread: int | None = None
        self._lock = threading.RLock()
        self._began = time.perf_counter()
        self._eager: Counter[str] = Counter()
        self._eager_bytes = self._tensors = self._recorded = self._replaced = 0
        self._flushes: Counter[str] = Counter()

    def tensors(self, names: Sequence[str], client: Any = None) -> Iterator[tuple[str, Deferred]]:
        """Open files, and return an iterator of their tensors by name, in the order of the files. No value is read."""
        files = Files(names, client, self._verify)
        base = len(self._runner.names)
        self._runner.names += files.names
        self._runner.clients += [client] * len(files.names)
        self._files.append(files)
        return self._deferred(files, base)

    def _deferred(self, files: Files, base: int) -> Iterator[tuple[str, Deferred]]:
        layouts: dict[Any, Any] = {}
        for tensors in files.tensors:
            for stored in tensors:
                self._tensors += 1
                yield stored.name, defer(stored._replace(file=base + stored.file), self, self.device, layouts)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record copies in this thread, and read them at the end. An error in the block forgets the recorded copies."""
        self._thread = threading.get_ident()
        try:
            with _Functions(self), _Operations(self):
                yield
            self.flush("end")
        finally:
            self._thread = None
            self._pending.clear()
        for files in self._files:
            files.check_unchanged()

    def copy(self, target: Any, source: Deferred) -> bool:
        """Record or run the copy of a deferred tensor to a real one. See `_deferred.Plan`."""
        if target.is_meta:
            return True  # nothing to fill; the caller counts elements
        is_plain = type(target).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        if not is_plain or target.device.type not in ("cpu", "cuda") or target.layout is not torch.strided:
            return False
        if target.is_conj() or target.is_neg() or not _can_convert(source.inner.dtype, target.dtype):
            return False
        if target.numel() == 0:
            return True
        if any(n > 1 and stride == 0 for n, stride in zip(target.shape, target.stride())):
            return False  # torch refuses it
        part = source.inner if source.inner.shape == target.shape else source.inner.expand(target.shape)
        copy = Copy(target.detach(), source.root.stored, part)
        with self._lock:
            if threading.get_ident() == self._thread:
                self._record(copy)
            else:
                self._settle([target], "copy")
                self._runner.run([copy])
        return True

    def read(self, source: Deferred, why: str) -> Any:
        """Read the values of a deferred tensor at once. See `_deferred.Plan`."""
        with torch._C.DisableTorchFunction(), _modes._disable_current_modes(), self._lock:
            value = torch.empty_like(source.outer, device=source.root.device)
            if value.numel():
                self._runner.run([Copy(value, source.root.stored, source.inner)])
            self._eager[why] += 1
            self._eager_bytes += value.numel() * value.dtype.itemsize
            return value

    def touch(self, func: Any, args: Any, kwargs: Any) -> None:
        """Run the recorded copies that an operation on real tensors would see. See `_deferred.Plan`."""
        if self._pending and not is_view(func):
            self._settle(tensors_of(func, args, kwargs), str(func))

    def touch_memory(self, tensor: Any, why: str) -> None:
        """Run the recorded copies to the memory of a real tensor."""
        if self._pending and not isinstance(tensor, Deferred):
            with torch._C.DisableTorchFunction():
                self._settle([tensor], why)

    def flush(self, why: str) -> None:
        """Run all recorded copies."""
        with torch._C.DisableTorchFunction(), _modes._disable_current_modes(), self._lock:
            waiting = [copy for occupied in self._pending.values() for copy in occupied.values()]
            self._pending.clear()
            if waiting:
                self._flushes[why] += 1
                self._runner.run(waiting)

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of the engine's jobs so far."""
        return list(self._runner.reports)

    def report(self) -> dict[str, Any]:
        """Return what was read so far, and how."""
        runner, eager = self._runner, self._eager
        return {
            "op": "load",
            "device": str(self.device),
            "files": len(runner.names),
            "file_bytes": sum(files.size for files in self._files),
            "tensors": self._tensors,
            "seconds": time.perf_counter() - self._began,
            **summary(runner.reports),
            "segments": runner.segments,
            "recorded": {"copies": self._recorded, "replaced": self._replaced},
            "direct": {"copies": runner.direct, "bytes": runner.direct_bytes},
            "buffered": {"copies": runner.buffered, "bytes": runner.buffered_bytes},
            "eager": {"reads": sum(eager.values()), "bytes": self._eager_bytes, "by": dict(eager)},
            "flushes": dict(self._flushes),
            "verified": self._verify,
        }

    def _record(self, copy: Copy) -> None:
        key, view = _memory(copy.target), storage_view(copy.target)
        occupied = self._pending.get(key)
        near = occupied.near(view) if occupied else []
        self._recorded += 1
        if occupied and len(near) == 1 and near[0][0] == view:
            occupied.replace(view, copy)  # the later copy wins, and nobody has seen the earlier one
            self._replaced += 1
            return
        if near:
            self._flush_memory(key, "overlap")
        self._pending.setdefault(key, Occupied()).add(view, copy)

    def _settle(self, tensors: Sequence[Any], why: str) -> None:
        with _modes._disable_current_modes(), self._lock:
            for tensor in tensors:
                if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
                    continue
                try:
                    key = _memory(tensor)
                except RuntimeError:
                    continue  # a wrapper without memory: its parts are tensors of their own
                occupied = self._pending.get(key)
                if occupied and occupied.near(storage_view(tensor)):
                    self._flush_memory(key, why)

    def _flush_memory(self, key: tuple[Any, int], why: str) -> None:
        occupied = self._pending.pop(key)
        self._flushes[why] += 1
        self._runner.run(occupied.values())


def _memory(tensor: Any) -> tuple[Any, int]:
    return tensor.device, int(tensor.untyped_storage().data_ptr())


def _can_convert(source: Any, target: Any) -> bool:
    """Return whether a buffer of one dtype can be copied to a tensor of another by torch."""
    return source is target or (source.itemsize >= 1 and "x2" not in str(source) and "x2" not in str(target))


def _is_wrapper(kind: Any) -> bool:
    """Return whether tensors of a type handle operations themselves, as DTensor does."""
    return kind is not Deferred and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


class _Operations(_DispatchMode):
    """Sees every operation of torch in its thread."""

    def __init__(self, plan: LoadPlan) -> None:
        super().__init__()
        self._plan = plan

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(_is_wrapper(one) for one in types):
            # A wrapper runs operations on the tensors inside it, and torch does not bring these operations here.
            self._plan.flush(str(func))
        if Deferred in types or (is_deep(func) and Deferred in map(type, tensors_of(func, args, kwargs))):
            return dispatch(func, args, kwargs)
        with torch._C.DisableTorchFunction():
            self._plan.touch(func, args, kwargs)
            return func(*args, **kwargs)


class _Functions(_FunctionMode):
    """Sees the calls that take a tensor's memory, and assignments of a deferred tensor to `data`."""

    def __init__(self, plan: LoadPlan) -> None:
        super().__init__()
        self._plan = plan

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RAW:
            self._plan.touch_memory(args[0], func.__name__)
        elif func == _SET_DATA and isinstance(args[1], Deferred):
            args = args[0], args[1].real("data")
        return func(*args, **(kwargs or {}))
