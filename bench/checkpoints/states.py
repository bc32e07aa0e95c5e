# SPDX-License-Identifier: Apache-2.0
"""Makes the state that is saved: a model with the shapes of a language model and random bits.

Each rank of a world makes its own part from a seed. A process that loads the whole state makes all parts again, and
compares every bit with what it has loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

WIDTHS = (4096, 1024, 256, 64)  # the widest model with at least this many layers is taken
LAYERS = 4
STEP = 7  # the value beside the tensors, which is no tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Spec:
    """The tensors of a state: matrices in bfloat16, vectors in float32. `ranks` divides the rows of each tensor."""

    size: int
    ranks: int = 4

    def layer(self, width: int) -> dict[str, Shape]:
        """Return the tensors of a layer, in the proportions of Llama 2 7B."""
        wide = width * 43 // 16
        return {
            "q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width),
            "gate": (wide, width), "up": (wide, width), "down": (width, wide), "norm1": (width,), "norm2": (width,),
        }

    def tensors(self) -> dict[str, Shape]:
        """Return the shapes by name. All tensors together have at most `size` bytes, if this is at least one layer."""
        for width in WIDTHS:
            each = self.layer(width)
            count = self.size // sum(nbytes(shape) for shape in each.values())
            if count >= LAYERS or width == WIDTHS[-1]:
                break
        return {f"layers.{n}.{name}": shape for n in range(max(count, 1)) for name, shape in each.items()}

    @property
    def bytes(self) -> int:
        """Return the exact bytes of all tensors."""
        return sum(nbytes(shape) for shape in self.tensors().values())


def nbytes(shape: Shape) -> int:
    """Return the bytes of a tensor of the state."""
    return shape[0] * shape[1] * 2 if len(shape) == 2 else shape[0] * 4


def part(number: int, shape: Shape, rank: int, ranks: int) -> Any:
    """Return the rows of a rank of tensor `number`, in host memory. Equal arguments give equal bits."""
    import torch

    rows = -(-shape[0] // ranks)  # as torch.chunk divides
    mine = (max(0, min(rows, shape[0] - rank * rows)), *shape[1:])
    dtype = torch.bfloat16 if len(shape) == 2 else torch.float32
    length = nbytes(mine)
    words = torch.empty(-(-length // 8), dtype=torch.int64)
    words.random_(generator=torch.Generator().manual_seed(number * 1009 + rank + 1))
    return words.view(torch.uint8)[:length].view(dtype).view(mine)


def parts(spec: Spec, rank: int) -> Iterator[tuple[str, Shape, Any]]:
    """Yield name, whole shape and own rows of each tensor of a rank."""
    for number, (name, shape) in enumerate(spec.tensors().items()):
        yield name, shape, part(number, shape, rank, spec.ranks)


def whole(spec: Spec, device: str) -> dict[str, Any]:
    """Return the whole state on a device, as `dcp.save` takes it."""
    import torch

    def make(numbered: tuple[int, tuple[str, Shape]]) -> tuple[str, Any]:
        number, (name, shape) = numbered
        rows = [part(number, shape, rank, spec.ranks) for rank in range(spec.ranks)]
        return name, torch.cat(rows).to(device)

    with ThreadPoolExecutor(min(16, len(os.sched_getaffinity(0)))) as pool:
        return {"model": dict(pool.map(make, enumerate(spec.tensors().items()))), "step": STEP}


def blank(state: Any) -> Any:
    """Return a state of the same form on the same devices, with zeros and None."""
    import torch

    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state, requires_grad=False)
    if isinstance(state, Mapping):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(blank(value) for value in state)
    return type(state)() if isinstance(state, (int, float, str)) else None


def clear(state: Any) -> None:
    """Fill all tensors of a state with zeros, so that a comparison finds what a load has left out."""
    import torch

    if isinstance(state, torch.Tensor):
        state.zero_()
    elif isinstance(state, Mapping):
        for value in state.values():
            clear(value)


def difference(found: Any, expected: Any, path: str = "state") -> str:
    """Return where two states differ first, or "" if they are equal bit by bit."""
    import torch

    if isinstance(expected, torch.Tensor):
        return _tensors(found, expected, path)
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping) or set(found) != set(expected):
            return f"{path} has other keys"
        pairs = ((found[key], expected[key], f"{path}.{key}") for key in expected)
        return next(filter(None, (difference(*pair) for pair in pairs)), "")
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"{path} has another length"
        pairs = ((one, other, f"{path}.{n}") for n, (one, other) in enumerate(zip(found, expected)))
        return next(filter(None, (difference(*pair) for pair in pairs)), "")
    return "" if found == expected else f"{path} is {found!r}, not {expected!r}"


def _tensors(found: Any, expected: Any, path: str) -> str:
    import torch

    if not isinstance(found, torch.Tensor):
        return f"{path} is no tensor"
    said = [(one.dtype, one.shape, one.device) for one in (found, expected)]
    if said[0] != said[1]:
        return f"{path} is {said[0]}, not {said[1]}"
    one, other = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (found, expected))
    return "" if torch.equal(one, other) else f"{path} has other bits"


def bits(found: Any, expected: Any) -> str:
    """Return "equal", or where two states differ."""
    return difference(found, expected) or "equal"
