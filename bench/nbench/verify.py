# SPDX-License-Identifier: Apache-2.0
"""Compares a loaded model with a reference, bit by bit.

The safetensors package loads the reference once per row, and the reference stays on the device. Every timed result is
compared with it outside of the timing.
"""

from __future__ import annotations

import os
from typing import Any

from .device import Device

_SLICE = 256 << 20  # bounds the temporary that an equality test makes


class Reference:
    """The correct content of one file, on the device."""

    def __init__(self, device: Device, path: str | os.PathLike[str]) -> None:
        self.device = device
        if device.torch is not None:
            from safetensors.torch import load_file

            self.tensors: dict[str, Any] = load_file(str(path), device=device.torch_name)
            if not device.is_cuda:  # views of a mapping, which would keep the file's pages in memory
                self.tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        else:
            from safetensors.numpy import load_file as load_numpy

            self.tensors = load_numpy(str(path))
        device.sync()

    def differs(self, result: dict[str, Any]) -> str:
        """Return "" if the result is equal to the last bit, else a description of the first difference."""
        if self.tensors.keys() != result.keys():
            missing = sorted(self.tensors.keys() - result.keys())[:3]
            extra = sorted(result.keys() - self.tensors.keys())[:3]
            return f"names differ: missing {missing}, extra {extra}"
        for name, right in self.tensors.items():
            given = result[name]
            if given.dtype != right.dtype:
                return f"{name}: dtype {given.dtype}, not {right.dtype}"
            if tuple(given.shape) != tuple(right.shape):
                return f"{name}: shape {tuple(given.shape)}, not {tuple(right.shape)}"
            if not self._same_bytes(given, right):
                return f"{name}: content differs"
        return ""

    def _same_bytes(self, given: Any, right: Any) -> bool:
        torch = self.device.torch
        if torch is None:
            numpy = self.device.numpy
            left, other = (numpy.ascontiguousarray(a).reshape(-1).view("uint8") for a in (given, right))
            return bool(numpy.array_equal(left, other))
        if given.device != right.device:
            return False
        left, other = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (given, right))
        return all(
            torch.equal(left[at : at + _SLICE], other[at : at + _SLICE]) for at in range(0, left.numel(), _SLICE)
        )
