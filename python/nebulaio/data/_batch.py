# SPDX-License-Identifier: Apache-2.0
"""Batches of samples: a mapping from the names of the columns to tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidError

if TYPE_CHECKING:
    from ._handles import Column, Taken
    from ._views import Views


class Ragged:
    """Samples of different sizes: all values in one tensor, and where each sample begins.

    `values` is one tensor with one dimension on the device of the loader. Sample i is
    ``values[offsets[i]:offsets[i + 1]]``. `offsets` are numbers in host memory, one more
    than samples, and count elements of `values`.
    """

    __slots__ = ("_device", "_on_device", "_views", "offsets", "values")

    def __init__(self, values: Any, offsets: Any, views: Views | None = None, device: str = "host") -> None:
        self.values = values
        self.offsets = offsets
        self._views = views
        self._device = device
        self._on_device: Any = None

    @property
    def device_offsets(self) -> Any:
        """The offsets in a tensor on the device of the values. The first use copies them."""
        if self._on_device is None:
            views = self._views
            self._on_device = self.offsets if views is None else views.on_device(self.offsets, self._device)
        return self._on_device

    @property
    def lengths(self) -> Any:
        """The number of elements of each sample, in host memory."""
        return self.offsets[1:] - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, sample: int) -> Any:
        count = len(self)
        if not -count <= sample < count:
            raise IndexError(f"sample {sample} of {count}")
        sample %= count
        return self.values[int(self.offsets[sample]) : int(self.offsets[sample + 1])]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind())

    def unbind(self) -> list[Any]:
        """Return a tensor for each sample. The tensors share the memory of `values`."""
        ends = self.offsets.tolist()
        return [self.values[begin:end] for begin, end in zip(ends, ends[1:])]

    def to_list(self) -> list[Any]:
        """Return the samples as Python lists of numbers. The values are copied to the host."""
        ends, values = self.offsets.tolist(), self.values.tolist()
        return [values[begin:end] for begin, end in zip(ends, ends[1:])]

    def dense(self, shape: tuple[int, ...] | None = None) -> Any:
        """Return one tensor [samples, *shape] over the same memory. All samples must have the same size.

        Without `shape`, each sample is one row. Raises InvalidError if the sizes differ.
        """
        ends = self.offsets.tolist()
        sizes = {end - begin for begin, end in zip(ends, ends[1:])}
        if len(sizes) > 1:
            raise InvalidError(
                f"make one tensor of {len(self)} samples: they have {min(sizes)} to {max(sizes)} elements, expected "
                "equal sizes (fix: use .values and .offsets, or pad the samples)"
            )
        size = sizes.pop() if sizes else 0
        if shape is not None and math.prod(shape) != size:
            raise InvalidError(f"shape={shape} has {math.prod(shape)} elements, and each sample has {size}")
        return self.values.reshape(len(self), *((size,) if shape is None else shape))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} samples, {len(self.values)} values of {self.values.dtype})"

    def __reduce__(self) -> Any:
        return Ragged, (self.values, self.offsets)


class Batch(Mapping[str, Any]):
    """A batch of samples: a mapping from the names of the columns to tensors.

    A column of fixed shape is one tensor [samples, *shape]. Any other column is a `Ragged`.
    The tensors share the memory of the batch, which goes back to the loader when the batch
    and all tensors over it have died. A tensor stays valid after the loader is closed.

    `size` is the number of samples, `epoch` the number of the epoch, and `last` tells
    whether the batch is the last one of its epoch.
    """

    __slots__ = ("_base", "_columns", "_given", "_made", "_taken", "_views", "epoch", "last", "size")

    def __init__(self, taken: Taken, columns: list[Column], views: Views, base: dict[str, Any]) -> None:
        self._taken: Taken | None = taken
        self._columns = columns
        self._views = views
        self._base = base
        self._made: dict[str, Any] = {}
        self._given: tuple[Any, list[str], dict[str, Any]] | None = None
        self.size = taken.memory.count
        self.epoch = taken.epoch
        self.last = taken.last

    def __getitem__(self, name: str) -> Any:
        made = self._made
        if name not in made:
            if self._taken is None:
                raise KeyError(name)
            for i, column in enumerate(self._columns):
                if column["name"] == name:
                    made[name] = self._make(self._taken, i, column)
                    break
            else:
                raise KeyError(f"{name!r}: the columns are {', '.join(repr(c['name']) for c in self._columns)}")
        return made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made) if self._taken is None else (column["name"] for column in self._columns)

    def __len__(self) -> int:
        return len(self._made) if self._taken is None else len(self._columns)

    @property
    def indices(self) -> Any:
        """The numbers of the samples in the data, in host memory."""
        if self._taken is None:
            return self._stored[0]
        memory = self._taken.memory
        return self._views.integers(memory.samples, memory.count)

    @property
    def sample_keys(self) -> list[str]:
        """The keys of the samples, such as their names in an archive. A sample without a key has its number."""
        if self._taken is None:
            return self._stored[1]
        memory = self._taken.memory
        return memory.data.keys(memory.samples, memory.count)

    @property
    def state(self) -> dict[str, Any]:
        """The state with which another loader goes on after this batch, as `Loader.state_dict` returns it."""
        if self._taken is None:
            return dict(self._stored[2])
        return {**self._base, "epoch": self._taken.next_epoch, "position": self._taken.next_position}

    @property
    def device(self) -> str:
        """The device of the tensors: "host" or "cuda:N"."""
        return "host" if self._taken is None else self._taken.memory.device

    def record_stream(self, stream: Any) -> None:
        """Keep the memory until the work has ended that `stream` has when the batch dies.

        Call `record_stream` if kernels of another stream use the batch than the one that is
        current when its last tensor dies, as with torch.Tensor.record_stream.
        """
        if self._taken is not None and self._taken.memory.device != "host":
            self._taken.memory.record_stream(stream)

    def samples_of(self, name: str) -> list[Any]:
        """Return the value of each sample in a column, as a decode hook gets it. Nothing is copied.

        The value is a memoryview if the column has bytes in host memory, and else a tensor.
        """
        found = self[name]
        if not isinstance(found, Ragged):
            return [found[i] for i in range(self.size)]
        column = next(column for column in self._columns if column["name"] == name)
        if column.get("dtype") or self.device != "host":
            return found.unbind()
        whole, ends = self._views.bytes_of(found.values), found.offsets.tolist()
        return [whole[begin:end] for begin, end in zip(ends, ends[1:])]

    def replace(self, name: str, value: Any) -> None:
        """Put another value in the place of a column, such as the decoded samples."""
        self._made[name] = value

    def place_of(self, number: int) -> str:
        """Return the file of a sample of the loader, or ""."""
        if self._taken is None:
            return ""
        parts = self._taken.memory.data.sample(number)["parts"]
        return str(parts[0]["file"]) if parts else ""

    @property
    def _stored(self) -> tuple[Any, list[str], dict[str, Any]]:
        assert self._given is not None
        return self._given

    def _make(self, taken: Taken, number: int, column: Column) -> Any:
        address, size, offsets = taken.columns[number]
        views, name = self._views, column.get("dtype", "")
        flat = views.flat(taken.memory, address, size)
        dtype, width = views.dtype(name) if name and name != "uint8" else (None, 1)
        shape = (self.size, *column.get("shape", ()))
        if name and column.get("fixed") and math.prod(shape) * width == size:
            return flat.reshape(shape) if dtype is None else views.typed(flat, dtype, shape)
        places = views.integers(offsets, self.size + 1)
        if dtype is not None:
            flat, places = views.typed(flat, dtype, (size // width,)), places // width
        return Ragged(flat, places, views, taken.memory.device)

    def __repr__(self) -> str:
        return f"Batch({self.size} samples of epoch {self.epoch}: {', '.join(self)})"

    def __reduce__(self) -> Any:
        return _restored, (dict(self), self.size, self.epoch, self.last, (self.indices, self.sample_keys, self.state))


def _restored(values: dict[str, Any], size: int, epoch: int, last: bool, given: Any) -> Batch:
    """Return a batch with these columns, which no longer belongs to a loader."""
    out = Batch.__new__(Batch)
    out._taken, out._columns, out._base = None, [], {}
    out._made, out._given = values, given
    out.size, out.epoch, out.last = size, epoch, last
    return out
