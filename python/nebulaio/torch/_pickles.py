# SPDX-License-Identifier: Apache-2.0
"""Reads the layout of a tensor from the pickle that torch.save wrote, without making a tensor."""

from __future__ import annotations

import importlib
import io
import pickle
from typing import Any, NamedTuple

from ..errors import CorruptError
from . import _opcodes

torch: Any = importlib.import_module("torch")


class NotPlainError(Exception):
    """An item holds something else than one plain tensor. torch itself has to read it."""


class TensorUnpickler(pickle.Unpickler):
    """Reads the layout of a tensor from a data.pkl. It makes no tensor, and runs nothing that the pickle names."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self._pickled = pickled

    def layout(self) -> tuple[Any, ...]:
        """Return what Layouts.of returns. Raises NotPlainError if the pickle is not that of one plain tensor."""
        try:
            _opcodes.check(self._pickled)
            found = self.load()
        except NotPlainError:
            raise
        except Exception as cause:
            raise CorruptError(f"its data.pkl is damaged: {type(cause).__name__}: {cause!s:.100}") from cause
        if not isinstance(found, _Rebuilt):
            raise NotPlainError
        return found.layout

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Rebuilt
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return _RebuiltV3
        if (module, name) == ("collections", "OrderedDict"):
            return _no_hooks
        if module in ("torch", "torch.storage"):
            dtype = torch.storage._storage_type_to_dtype_map().get(name)
            if dtype is not None:
                return _Storage(dtype)
            if isinstance(getattr(torch, name, None), torch.dtype):
                return getattr(torch, name)
            if name == "UntypedStorage":
                return _Storage(torch.uint8)
        raise NotPlainError

    def persistent_load(self, key: Any) -> Any:
        kind, storage, name, _, count = key
        if kind != "storage" or not isinstance(storage, _Storage) or not isinstance(name, str):
            raise NotPlainError
        return storage.dtype, name, int(count)


class _Storage(NamedTuple):
    """A class of storages, which stands for its dtype."""

    dtype: Any


class _Rebuilt:
    """The arguments of torch._utils._rebuild_tensor_v2."""

    def __init__(self, storage: Any, first: int, shape: Any, strides: Any, grad: Any = None, hooks: Any = None,
                 more: Any = None) -> None:
        if more:
            raise NotPlainError  # such as a view of conjugated values
        dtype, name, count = storage
        self.layout = self._checked(name, dtype, count, first, tuple(shape), tuple(strides))

    @staticmethod
    def _checked(name: str, dtype: Any, count: int, first: int, shape: tuple[int, ...],
                 strides: tuple[int, ...]) -> tuple[Any, ...]:
        if len(shape) != len(strides) or min((*shape, *strides, first, count), default=0) < 0:
            raise ValueError(f"a tensor of shape {shape} with strides {strides}")
        last = first + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        if 0 not in shape and last >= count:
            raise ValueError(
                f"a tensor of shape {shape} with strides {strides} from {first} is larger than {count} elements")
        return name, dtype, count, first, shape, None if first == 0 and _is_contiguous(shape, strides) else strides


class _RebuiltV3(_Rebuilt):
    """The arguments of torch._utils._rebuild_tensor_v3, which names the dtype of dtypes without a storage class."""

    def __init__(self, storage: Any, first: int, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any,
                 more: Any = None) -> None:
        _, name, count = storage
        if more or not isinstance(dtype, torch.dtype):
            raise NotPlainError
        self.layout = self._checked(name, dtype, count // dtype.itemsize, first, tuple(shape), tuple(strides))


def _no_hooks(*_: Any) -> None:
    """Stands for the empty dictionary of backward hooks."""


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a tensor of these strides has its elements in order and without gaps."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected and 0 not in shape:
            return False
        expected *= extent
    return True
