# SPDX-License-Identifier: Apache-2.0
"""One file, opened once, read tensor by tensor or part by part: safetensors' own safe_open."""

from __future__ import annotations

import os
from typing import Any

from . import _device, _frameworks, _handles, _slices
from ._load import Order, allocate
from .errors import ClosedError, InvalidError, NotFoundError, UnsupportedError

# What safetensors.safe_open calls frameworks, besides our own names.
_ALIASES = {"torch": "pt", "pytorch": "pt", "np": "numpy", "flax": "jax"}
_PACKED = ("F4", "F6_E2M3", "F6_E3M2")


class safe_open:
    """A .safetensors file whose tensors are read when they are asked for.

    A drop-in for `safetensors.safe_open`: a context manager, and usable without
    one. Each tensor has memory of its own on `device`; only its bytes are read.
    Each read is a load of its own: for all tensors of a file use `load_file` or `stream`.

    framework: "pt" (or "torch"), "numpy" ("np"), "cupy", "jax" ("flax") or "numba".
    backend: taken for compatibility ("mmap" or "pread") and without meaning here.
    verify, route, cache, lenient, client: as in `load_file`; verify checks the header
        with each tensor.

    What fails is one of `nebulaio.errors`, not a SafetensorError: a missing
    tensor is a NotFoundError, a bad index an InvalidError (a ValueError), a
    closed file a ClosedError. Any number of threads may read at once.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str = "pt",
        device: _device.DeviceLike = "cpu",
        *,
        backend: str | None = None,
        verify: bool = False,
        route: str = "auto",
        cache: str = "auto",
        lenient: bool = False,
        client: Any = None,
    ) -> None:
        if os.path.isdir(filename) or os.fsdecode(filename).endswith(".json"):
            raise InvalidError(f"safe_open {os.fsdecode(filename)!r}: not a .safetensors file (fix: use load_model or stream)")
        if backend not in (None, "mmap", "pread"):
            raise InvalidError(f"backend={backend!r} is not one of mmap, pread")
        self._path = os.fsdecode(filename)
        name = _ALIASES.get(framework, framework) if isinstance(framework, str) else framework
        self._order = Order(device, name, route=route, cache=cache, lenient=lenient, verify=verify, client=client)
        self._maker, options = self._order.prepare()
        self._model: _handles.Model | None = self._order.open([filename], options)
        layout = self._model.describe()
        self._tensors = {tensor["name"]: tensor for tensor in layout["tensors"]}
        self._metadata = layout["metadata"]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._model = None  # closed when the last read of another thread is done with it

    def keys(self) -> list[str]:
        """The tensors' names in alphabetical order."""
        self._open()
        return sorted(self._tensors)

    def offset_keys(self) -> list[str]:
        """The tensors' names in the order of the file."""
        self._open()
        return list(self._tensors)

    def metadata(self) -> dict[str, str] | None:
        """What the file's writer put beside the tensors, or None without any."""
        self._open()
        return dict(self._metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Read one tensor."""
        self._find(name)
        return self._read(name, None)

    def get_tensors(self) -> dict[str, Any]:
        """Read all tensors, together and into one allocation; in the order of the file."""
        model = self._open()
        places = model.files()
        destinations = allocate(self._maker, model.system, places)
        with _handles.Load(model, destinations, self._maker.stream(places["device"]), self._order.start) as running:
            tensors = list(self._tensors.values())
            views = self._maker.views(tensors, destinations, _frameworks.choose(self._maker, tensors, "error"))
            running.wait(None)
        return {name: self._maker.final(view) for name, view in views.items()}

    def get_slice(self, name: str) -> SafeSlice:
        """A tensor of which parts are read as they are indexed."""
        return SafeSlice(self, self._find(name))

    def _open(self) -> _handles.Model:
        if self._model is None:
            raise ClosedError(f"safe_open {self._path!r}: the file is closed")
        return self._model

    def _find(self, name: str) -> _handles.TensorLayout:
        self._open()
        if name not in self._tensors:
            raise NotFoundError(f"safe_open {self._path!r}: there is no tensor {name!r} (fix: see keys())")
        return self._tensors[name]

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

    def _empty(self, tensor: _handles.TensorLayout, shape: list[int]) -> Any:
        """A part without elements, for which nothing is read."""
        layout: _handles.TensorLayout = {**tensor, "shape": shape, "size": 0, "file": 0, "offset": 0}
        place = self._maker.allocate(0, 64, self._open().files()["device"])
        dtypes = _frameworks.choose(self._maker, [layout], "error")
        return self._maker.final(self._maker.views([layout], [place], dtypes)[tensor["name"]])


class SafeSlice:
    """A tensor of an open file; indexing it reads that part.

    Takes whole numbers, slices as Python counts them (from the end too, and cut
    off at it) and one Ellipsis. Of a slice with a step the whole range is read.
    """

    def __init__(self, file: safe_open, tensor: _handles.TensorLayout) -> None:
        self._file = file
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._tensor["shape"])

    def get_dtype(self) -> str:
        """The dtype as the file names it, such as "BF16"."""
        return self._tensor["dtype"]

    def __getitem__(self, index: Any) -> Any:
        name, shape = self._tensor["name"], self._tensor["shape"]
        wanted = _slices.box(index, shape, f"get_slice({name!r})")
        if wanted.whole(shape):
            return wanted.view(self._file._read(name, None))
        if self._tensor["dtype"] in _PACKED:
            raise UnsupportedError(
                f"get_slice({name!r}): elements of dtype {self._tensor['dtype']} do not begin at bytes "
                "(fix: read the whole tensor)"
            )
        if 0 in wanted.lengths():
            return wanted.view(self._file._empty(self._tensor, wanted.lengths()))
        return wanted.view(self._file._read(name, [list(part) for part in wanted.ranges]))
