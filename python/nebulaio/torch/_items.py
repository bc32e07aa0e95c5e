# SPDX-License-Identifier: Apache-2.0
"""Lays out the items of a data file: each is an archive that torch.load reads, with its values on a page of their own.

torch's own serializer writes the archive around the values. It runs without values, so that it costs no memory and no
time, and leaves the checksum of the values in the archive at 0. torch.load never compares that checksum; `unzip` does.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, NamedTuple

from ..errors import InvalidError, UnsupportedError

torch: Any = importlib.import_module("torch")

PAGE = 4096
"""Values begin at multiples of this many bytes of the file, so that O_DIRECT reads nothing beside them."""


class Template(NamedTuple):
    """The bytes of an item before and after its values."""

    before: bytes
    size: int
    after: bytes

    @property
    def length(self) -> int:
        """The number of bytes of the whole item."""
        return len(self.before) + self.size + len(self.after)


class Templates:
    """The templates of one save. Tensors of equal dtype and shape share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, tuple[int, ...]], Template] = {}

    def of(self, dtype: Any, shape: tuple[int, ...], fqn: str) -> Template:
        """Return the template of a contiguous tensor. `fqn` names the tensor in errors."""
        found = self._known.get((dtype, shape))
        if found is None:
            found = self._known[dtype, shape] = _make(dtype, shape, fqn)
        return found


def _make(dtype: Any, shape: tuple[int, ...], fqn: str) -> Template:
    """Let torch write an archive around values that do not exist."""
    sink = _Sink()
    try:
        with torch.serialization.skip_data(materialize_fake_tensors=True):
            torch.save(_untouched(dtype, shape), sink)
    except (RuntimeError, TypeError, NotImplementedError) as cause:
        raise UnsupportedError(f"save tensor {fqn!r}: torch cannot save {dtype}: {cause!s:.200}") from cause
    size = math.prod(shape) * dtype.itemsize
    if sink.skipped != size:
        raise UnsupportedError(
            f"save tensor {fqn!r}: torch {torch.__version__} left {sink.skipped} bytes for its values, expected {size}"
        )
    return Template(bytes(sink.before), size, bytes(sink.after))


def _untouched(dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return a tensor of memory that is never read or written, so that the kernel gives no pages for it."""
    try:
        storage = torch.UntypedStorage(math.prod(shape) * dtype.itemsize)
    except (RuntimeError, MemoryError):
        # The machine has less address space than the tensor has bytes. A fake tensor needs none, and more time.
        fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
        with fake.FakeTensorMode():
            return torch.empty(shape, dtype=dtype)
    strides = [max(math.prod(shape[place + 1 :]), 1) for place in range(len(shape))]
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape, strides)


class _Sink:
    """A file that keeps what torch writes, and counts the bytes that it skips for the values."""

    def __init__(self) -> None:
        self.before = bytearray()
        self.after = bytearray()
        self.skipped = 0
        self._jumped = False

    def write(self, data: Any) -> int:
        """Keep the data."""
        (self.after if self._jumped else self.before).extend(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Skip the values. torch skips once in the archive of one tensor."""
        if whence != 1 or self._jumped:
            raise UnsupportedError(f"save: torch {torch.__version__} skips the values of a tensor in another way")
        self._jumped = True
        self.skipped = offset
        return self.tell()

    def tell(self) -> int:
        """Return the size so far."""
        return len(self.before) + self.skipped + len(self.after)

    def flush(self) -> None:
        """Do nothing: everything is in memory."""


class Item(NamedTuple):
    """An item of a data file: where it is, and where its values are."""

    offset: int
    length: int
    values: int  # offset of the values in the file
    size: int  # bytes of the values


class Part(NamedTuple):
    """A part of a data file in order: host bytes at `begin` of the layout's `host`, or the values of a tensor."""

    begin: int
    size: int
    tensor: Any = None  # None: host bytes


class Layout:
    """A data file before it is written: its parts in order, and its items."""

    def __init__(self) -> None:
        self.host = bytearray()
        """All bytes of the file that are not values of tensors, in order."""
        self.parts: list[Part] = []
        self.size = 0

    def add_bytes(self, data: Any) -> Item:
        """Add an item that is in memory."""
        offset = self.size
        self._add_host(data)
        return Item(offset, self.size - offset, offset, self.size - offset)

    def add_tensor(self, tensor: Any, template: Template) -> Item:
        """Add an item around the values of a contiguous tensor."""
        self._add_host(bytes(-(self.size + len(template.before)) % PAGE))
        offset = self.size
        self._add_host(template.before)
        values = self.size
        if template.size:
            self.parts.append(Part(0, template.size, tensor))
            self.size += template.size
        self._add_host(template.after)
        return Item(offset, self.size - offset, values, template.size)

    def _add_host(self, data: Any) -> None:
        if not len(data):
            return
        if self.parts and self.parts[-1].tensor is None:
            last = self.parts[-1]
            self.parts[-1] = Part(last.begin, last.size + len(data))
        else:
            self.parts.append(Part(len(self.host), len(data)))
        self.host += data
        self.size += len(data)


def check(tensor: Any, fqn: str) -> None:
    """Raise an error that names the tensor unless its values are plain memory."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidError(f"save tensor {fqn!r}: the planner gave a {type(tensor).__name__}, expected a tensor")
    if tensor.is_quantized:
        raise UnsupportedError(
            f"save tensor {fqn!r}: it is quantised ({tensor.dtype}), and its values mean nothing without its scales "
            "(fix: save .int_repr() and the scales, or .dequantize())"
        )
    if tensor.is_nested:
        raise InvalidError(
            f"save tensor {fqn!r}: it is nested, expected one of one shape (fix: save its .unbind() one by one)")
    if tensor.layout is not torch.strided:
        raise InvalidError(
            f"save tensor {fqn!r}: its layout is {tensor.layout}, expected a dense one (fix: .to_dense())")
    if tensor.device.type == "meta":
        raise InvalidError(f"save tensor {fqn!r}: it is on meta, which has no bytes (fix: load or initialise it first)")


def is_plain(tensor: Any) -> bool:
    """Return whether the values of a tensor are its memory, which is not so for wrappers such as quantised weights."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_direct(tensor: Any) -> bool:
    """Return whether the memory of a tensor is exactly its values in order, on a device of the library."""
    return (
        tensor.device.type in ("cpu", "cuda")
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
