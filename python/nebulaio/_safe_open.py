# SPDX-License-Identifier: Apache-2.0
"""`safe_open` opens one file and reads it tensor by tensor, or part by part."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections.abc import Mapping
from typing import Any

from . import _cached, _device, _frameworks, _handles, _process, _slices
from ._load import Order, allocate, is_url, require_file
from ._modules import checked_backend
from ._prefetch import PACKED, PrefetchLoader, PrefetchPlan, TensorMeta, plan_of
from .errors import (
    ArgumentTypeError,
    ClosedError,
    CorruptError,
    InvalidError,
    NotFoundError,
    OutOfRangeError,
    UnsupportedError,
)

# Names of frameworks in safetensors.safe_open that differ from ours.
_ALIASES = {"torch": "pt", "pytorch": "pt", "np": "numpy", "flax": "jax"}


class safe_open(_handles.OfThisProcess):
    """An open .safetensors file that reads tensors on demand.

    `safe_open` replaces `safetensors.safe_open`, and works with and without a `with` block.
    Each tensor gets its own memory on `device`, and only its bytes are read. On the host, a
    tensor of up to 1 MiB in the page cache is copied at once. Any other read is a separate
    load. To read all tensors of a file, use `load_file` or `stream`.

    Args:
        filename: Path of the file, or the URL of an object.
        framework: Framework of the tensors: "pt" (or "torch"), "numpy" ("np"), "cupy", "jax" ("flax") or "numba".
        backend: Accepted for compatibility ("mmap" or "pread") and ignored.
        verify, route, cache, lenient, client: The arguments of `load_file`. With verify,
            each read also checks the header.

    Raises:
        NotFoundError: The file or the tensor does not exist.
        InvalidError: An index is wrong.
        ClosedError: The file is closed.

    Errors are classes of `nebulaio.errors`, not the SafetensorError of the package safetensors.
    Any number of threads may read from one `safe_open` at once.
    """

    _slice_class: type[SafeSlice]
    _loader_class: type[PrefetchLoader] = PrefetchLoader

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str = "pt",
        device: _device.DeviceLike | None = "cpu",
        *,
        backend: str = "mmap",
        verify: bool = False,
        route: str = "auto",
        cache: str = "auto",
        lenient: bool = False,
        client: Any = None,
    ) -> None:
        require_file(filename, "safe_open", "load_model or stream")
        checked_backend(backend)
        if framework is not None and not isinstance(framework, str):
            raise ArgumentTypeError(f"framework={framework!r} is not text, expected a name such as 'pt'")
        self._path = os.fsdecode(filename)
        name = _ALIASES.get(framework, framework)
        self._order = Order("cpu" if device is None else device, name, route=route, cache=cache, lenient=lenient,
                            verify=verify, client=client)
        self._maker, options = self._order.prepare()
        self._device = options["device"]
        self._offsets: dict[str, int] | None = None
        self._holder = _process.current()
        cached = self._beside(self._device)
        self._model: _handles.Model | None = self._order.open([filename], options)
        self._header = None if cached is None else cached.settle()
        self._cached = None if self._header is None else cached
        self._layout: dict[str, _handles.TensorLayout] | None = None

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._model = self._cached = None  # closed when no thread reads any more

    def keys(self) -> list[str]:
        """Return the tensors' names in alphabetical order."""
        return sorted(self._tensors())

    def offset_keys(self) -> list[str]:
        """Return the tensors' names in the order of the file."""
        entries: Any = self._tensors()
        if self._header is None:
            return list(entries)
        return sorted(entries, key=lambda name: entries[name]["data_offsets"])

    def metadata(self) -> dict[str, str] | None:
        """Return the metadata in the file's header, or None if there is none."""
        model = self._open()
        metadata = model.describe()["metadata"] if self._header is None else self._header[1]
        return dict(metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Read one tensor and return it."""
        cached = self._cached
        if cached is not None and self._header is not None and _process.current() is self._holder:
            entry = self._header[0].get(name)
            if entry is not None:
                found = cached.read(entry)
                if found is not None:
                    return found
        self._find(name)
        return self._read(name, None)

    def get_tensors(self) -> dict[str, Any]:
        """Read all tensors into one allocation, and return them by name in the order of the file."""
        model = self._open()
        places = model.files()
        destinations = allocate(self._maker, model.system, places)
        with _handles.Load(model, destinations, self._maker.stream(places["device"]), self._order.start) as running:
            tensors = model.describe()["tensors"]
            views = self._maker.views(tensors, destinations, _frameworks.choose(self._maker, tensors, "error"))
            running.wait(None)
        return self._maker.finals(views)

    def get_slice(self, name: str) -> SafeSlice:
        """Return an object that reads parts of a tensor when it is indexed, also after the file was closed."""
        tensor = self._find(name)
        kept = object.__new__(type(self))  # has the open file, whether or not this object is closed
        kept.__dict__.update(self.__dict__)
        return self._slice_class(kept, name, tensor)

    def get_tensor_meta(self, name: str) -> TensorMeta:
        """Return a tensor's entry in the header. No tensor data is read."""
        entry: Any = self._find(name)
        if self._header is not None:
            begin, end = entry["data_offsets"]
            return TensorMeta(entry["dtype"], list(entry["shape"]), (begin, end))
        if self._offsets is None:
            # The format allows no holes, so the offsets are the sums of the sizes in the order of the file.
            at, offsets = 0, {}
            for other, tensor in self._tensors().items():
                size: Any = tensor
                offsets[other] = at
                at += size["size"]
            self._offsets = offsets
        return TensorMeta(entry["dtype"], list(entry["shape"]),
                          (self._offsets[name], self._offsets[name] + entry["size"]))

    def prefetch(
        self, plan: PrefetchPlan | None = None, *, device: _device.DeviceLike | None = None, threads: int = 8
    ) -> PrefetchLoader:
        """Start to load tensors, and return a loader that hands out each tensor as soon as it is complete.

        Args:
            plan: The tensors to load by name: None for the whole tensor, or a slice of its first
                dimension with step 1. Without a plan, all tensors are loaded.
            device: Device of the tensors. None is the device of the file.
            threads: Accepted for compatibility, from 1. The engine shares its threads among all
                loads; `nebulaio.configure` sets their number.

        The whole plan is one job of the engine, with memory for all its tensors. Several
        loaders of one file may run at once, also on several devices. A loader stays usable
        after its file was closed.

        Raises:
            NotFoundError: A tensor of the plan does not exist.
            InvalidError: A slice has a step, or its tensor has no dimension.
            UnsupportedError: The framework has no type for a tensor's dtype.
        """
        where = f"prefetch {self._path!r}"
        if operator.index(threads) < 1:
            raise InvalidError(f"{where}: threads={threads} is less than 1")
        model, maker = self._open(), self._maker
        work = None if plan is None else plan_of(plan, self, where)
        if device is not None:
            model, maker = self._on(device, where)
        return self._loader_class(model, maker, self._order.start, work, where)

    def _on(self, device: _device.DeviceLike, where: str) -> tuple[_handles.Model, _frameworks.Framework]:
        """Return the file opened for a device."""
        mine = self._open()
        order = dataclasses.replace(self._order, device=device)
        maker, options = order.prepare()
        if options["device"] == self._device:
            return mine, maker
        other = order.open([self._path], options)
        if _headers(other) != _headers(mine):
            raise CorruptError(f"{where}: the file was replaced after it was opened (fix: open it again)")
        return other, maker

    def _beside(self, device: str) -> _cached.CachedFile | None:
        """Return the file for page-cache reads, or None if the options need the engine."""
        if device != "host" or self._order.start or is_url(self._path):
            return None
        return _cached.open_beside(self._path, self._maker)

    def _open(self) -> _handles.Model:
        if self._model is None:
            raise ClosedError(f"safe_open {self._path!r}: the file is closed")
        return self._model

    def _tensors(self) -> Mapping[str, _cached.Entry | _handles.TensorLayout]:
        """Return the tensors by name. The library describes them at the first call, because thousands take 10 ms."""
        model = self._open()
        if self._header is not None:
            return self._header[0]
        if self._layout is None:
            self._layout = {tensor["name"]: tensor for tensor in model.describe()["tensors"]}
        return self._layout

    def _find(self, name: str) -> _cached.Entry | _handles.TensorLayout:
        tensors = self._tensors()
        if not isinstance(name, str):
            raise ArgumentTypeError(f"safe_open {self._path!r}: {name!r} is not the name of a tensor")
        if name not in tensors:
            raise NotFoundError(f"safe_open {self._path!r}: there is no tensor {name!r} (fix: see keys())")
        return tensors[name]

    def _read(self, name: str, ranges: list[list[int]] | None) -> Any:
        options: dict[str, Any] = {"names": [name]}
        if ranges is not None:
            options["slices"] = [{"tensor": _slices.literally(name), "ranges": ranges}]
        with _handles.Selection(self._open(), options) as chosen:
            layout = chosen.describe()
            tensors = [tensor for tensor in layout["tensors"] if tensor["name"] == name]
            dtypes = _frameworks.choose(self._maker, tensors, "error")
            places = allocate(self._maker, chosen.system, layout)
            with _handles.Load(chosen, places, self._maker.stream(layout["device"]), self._order.start) as running:
                views = self._maker.views(tensors, places, dtypes)
                running.wait(None)
            return self._maker.final(views[name])

    def _part(self, name: str, tensor: _cached.Entry | _handles.TensorLayout, wanted: _slices.Box) -> Any:
        """Read a part of a tensor: from the page cache if the part is small and contiguous, else by the engine."""
        cached, run = self._cached, wanted.run(tensor["shape"])
        if cached is not None and run is not None and _process.current() is self._holder:
            entry: Any = tensor
            begin, end = entry["data_offsets"]
            width = (end - begin) // math.prod(entry["shape"])
            found = cached.part(entry["dtype"], wanted.lengths(), begin + run[0] * width, run[1] * width)
            if found is not None:
                return found
        return self._read(name, [list(part) for part in wanted.ranges])

    def _empty(self, name: str, dtype: str, shape: list[int]) -> Any:
        """Return a part without elements. Nothing is read."""
        layout: _handles.TensorLayout = {"name": name, "dtype": dtype, "shape": shape, "size": 0, "file": 0,
                                         "offset": 0}
        place = self._maker.allocate(0, 64, self._open().files()["device"])
        dtypes = _frameworks.choose(self._maker, [layout], "error")
        return self._maker.final(self._maker.views([layout], [place], dtypes)[name])


def _headers(model: _handles.Model) -> list[Any]:
    """Return the files' sizes and the tensors without their places, which depend on the device."""
    layout = model.describe()
    return [
        [file["size"] for file in layout["files"]],
        [(tensor["name"], tensor["dtype"], tensor["shape"], tensor["size"]) for tensor in layout["tensors"]],
    ]


class SafeSlice(_handles.OfThisProcess):
    """A tensor of an open file. Indexing it reads the selected part.

    An index has whole numbers, Python slices (negative and out-of-range ends too) and at
    most one Ellipsis. A slice with a step reads its whole range. With torch, an index may
    also be a list, a mask, None or anything else that torch accepts. An index
    that only torch accepts reads the whole tensor.
    """

    def __init__(self, file: safe_open, name: str, tensor: _cached.Entry | _handles.TensorLayout) -> None:
        self._file = file
        self._name = name
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        """Return the shape of the whole tensor."""
        return list(self._tensor["shape"])

    def get_dtype(self) -> str:
        """Return the dtype as the file names it, such as "BF16"."""
        return self._tensor["dtype"]

    def __getitem__(self, index: Any) -> Any:
        name, shape = self._name, self._tensor["shape"]
        try:
            wanted = _slices.box(index, shape, f"get_slice({name!r})")
        except InvalidError as refused:
            if self._file._maker.name != "pt":
                raise
            try:
                return self._file.get_tensor(name)[index]
            except (TypeError, ValueError, IndexError) as cause:
                kind = {IndexError: OutOfRangeError, TypeError: ArgumentTypeError}.get(type(cause), InvalidError)
                raise kind(*refused.args) from cause
        if wanted.whole(shape):
            return wanted.view(self._file.get_tensor(name))
        if self._tensor["dtype"] in PACKED:
            raise UnsupportedError(
                f"get_slice({name!r}): elements of dtype {self._tensor['dtype']} are not aligned to bytes "
                "(fix: read the whole tensor)"
            )
        if 0 in wanted.lengths():
            return wanted.view(self._file._empty(name, self._tensor["dtype"], wanted.lengths()))
        return wanted.view(self._file._part(name, self._tensor, wanted))


safe_open._slice_class = SafeSlice
