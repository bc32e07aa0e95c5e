# SPDX-License-Identifier: Apache-2.0
"""Conversion of all accepted device names to the library's form."""

from __future__ import annotations

import re
from typing import Any, Union

from .errors import InvalidError

DeviceLike = Union[str, int, Any]
"""A device: "auto", "cpu", "host", "cuda", "cuda:1", 1, or a torch.device."""

_CUDA = re.compile(r"cuda:(0|[1-9]\d{0,3})", re.ASCII)


def canonical(device: DeviceLike) -> str:
    """Return "auto", "host", "cuda" or "cuda:N" for any accepted form.

    Raises InvalidError for everything else.
    """
    name = device
    if isinstance(device, int) and not isinstance(device, bool):
        name = f"cuda:{device}"
    elif not isinstance(device, str):
        # A torch.device, recognised by its attributes so that torch is not imported.
        kind, index = getattr(device, "type", None), getattr(device, "index", None)
        name = kind if index is None or kind == "cpu" else f"{kind}:{index}"
    if name in ("auto", "host", "cuda"):
        return str(name)
    if name in ("cpu", "cpu:0"):
        return "host"
    if isinstance(name, str) and _CUDA.fullmatch(name):
        return name
    raise InvalidError(
        f"device {device!r} is not known (expected 'auto', 'cpu', 'cuda', 'cuda:N', "
        "a device number, or a torch.device of type cpu or cuda)"
    )


def index(device: str) -> int:
    """Return the number N of "cuda:N"."""
    return int(device.partition(":")[2])
