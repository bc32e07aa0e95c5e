# SPDX-License-Identifier: Apache-2.0
"""Resolves plain tensors as torch's own planner does.

The planner asks each tensor of each item whether it follows a protocol. For thousands of items this takes longer than
to begin their reads.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

torch: Any = importlib.import_module("torch")
_default: Any = importlib.import_module("torch.distributed.checkpoint.default_planner")

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
"""Types of tensors that are one part, the whole tensor."""

_METHODS = ("resolve_tensor", "lookup_tensor", "transform_tensor")


def is_stock(planner: Any) -> bool:
    """Return whether a planner resolves tensors as torch's default planner does."""
    return all(getattr(type(planner), name, None) is getattr(_default.DefaultLoadPlanner, name) for name in _METHODS)


def commits(planner: Any) -> bool:
    """Return whether a planner does something when a tensor has its values. Torch's default planner does nothing."""
    return getattr(type(planner), "commit_tensor", None) is not _default.DefaultLoadPlanner.commit_tensor


def narrowed(tensor: Any, offsets: Sequence[int], lengths: Sequence[int]) -> Any:
    """Return a part of a tensor."""
    for dimension, (begin, length) in enumerate(zip(offsets, lengths)):
        if begin or length != tensor.size(dimension):
            tensor = tensor.narrow(dimension, begin, length)
    return tensor
