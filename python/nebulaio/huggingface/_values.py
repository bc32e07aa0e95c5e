# SPDX-License-Identifier: Apache-2.0
"""Values of a state dict that are read from the files when transformers asks for them."""

from __future__ import annotations

import importlib
from typing import Any

from .. import _slices
from ..errors import InvalidError
from ._ahead import Ahead
from ._jobs import Ranges, Stored

torch: Any = importlib.import_module("torch")


class StoredTensor:
    """A tensor of the files, or a part of one, that is not in memory yet.

    Indexing it with slices gives a part and reads nothing. `to` reads it into memory of the wanted device, without a
    copy elsewhere. Every other method of a tensor, and every function of torch, reads it into memory of the device
    that similar tensors went to.
    """

    def __init__(self, ahead: Ahead, at: int, stored: Stored, box: _slices.Box | None = None) -> None:
        self._ahead = ahead
        self._at = at
        self._stored = stored
        self._box = box  # None: the whole tensor

    def get_shape(self) -> list[int]:
        """Return the shape of the whole tensor."""
        return list(self._stored.shape)

    def get_dtype(self) -> str:
        """Return the dtype as the file names it, such as "BF16"."""
        return self._stored.code

    @property
    def dtype(self) -> Any:
        """The torch.dtype."""
        return self._stored.dtype

    @property
    def shape(self) -> Any:
        """The shape of the tensor or part."""
        if self._box is None:
            return torch.Size(self._stored.shape)
        box = zip(self._box.lengths(), self._box.steps, self._box.kept)
        return torch.Size([-(-length // step) for length, step, kept in box if kept])

    def is_floating_point(self) -> bool:
        """Return whether its elements are floating-point numbers."""
        return bool(self._stored.dtype is not None and self._stored.dtype.is_floating_point)

    def __getitem__(self, index: Any) -> Any:
        if index is Ellipsis:
            return self
        if self._box is not None or self._stored.code == "F4":
            return self._read(None)[index]  # two values of F4 share a byte
        try:
            box = _slices.box(index, self._stored.shape, f"index {self._stored.name!r}")
        except InvalidError:
            return self._read(None)[index]  # torch knows more kinds of indexes
        return StoredTensor(self._ahead, self._at, self._stored, box)

    def to(self, *arguments: Any, **named: Any) -> Any:
        """Read the tensor, as torch.Tensor.to gives it."""
        device = named.get("device")
        for argument in arguments:
            if isinstance(argument, (str, int, torch.device)) and not isinstance(argument, bool):
                device = argument
                break
        return self._read(None if device is None else torch.device(device)).to(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._read(None), name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*_real(arguments), **_real(named or {}))

    def _read(self, device: Any) -> Any:
        box = self._box
        if device is not None and device.type == "meta":
            return torch.empty(self.shape, dtype=self.dtype, device=device)
        if box is None or box.whole(self._stored.shape):
            tensor = self._ahead.read(self._at, None, device)
        else:
            ranges: Ranges = tuple(box.ranges)
            tensor = self._ahead.read(self._at, ranges, device)
        return tensor if box is None else box.view(tensor)


def _real(value: Any) -> Any:
    """Return a structure of arguments with tensors in place of stored ones."""
    if isinstance(value, StoredTensor):
        return value._read(None)
    if isinstance(value, (list, tuple)):
        return type(value)(_real(one) for one in value)
    if isinstance(value, dict):
        return {key: _real(one) for key, one in value.items()}
    return value
