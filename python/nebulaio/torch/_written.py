# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a save tell each other, and the tensors of one data file."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import InvalidError
from . import _items, _manifest

torch: Any = importlib.import_module("torch")
_planner: Any = importlib.import_module("torch.distributed.checkpoint.planner")
_filesystem: Any = importlib.import_module("torch.distributed.checkpoint.filesystem")

COPIES = 256 << 20
"""Bytes of copies that one data file holds at most, unless one tensor alone is larger."""


class Assignment(NamedTuple):
    """What the coordinator tells a rank: its number, the checkpoint's id, and the token that the rank has sent."""

    rank: int
    id: str
    token: str
    world: int


class WrittenFile(NamedTuple):
    """A data file that a rank has written."""

    name: str
    size: int
    crc64nvme: str


class Written(NamedTuple):
    """An item that a rank has written, as the coordinator needs it for the metadata and the manifest."""

    file: WrittenFile
    offset: int
    length: int
    values: int
    size: int
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, source: Source, item: _items.Item, file: WrittenFile) -> Written:
        """Describe an item of a file."""
        if source.tensor is None:
            return cls(file, item.offset, item.length, item.offset, item.length, "bytes", ())
        return cls(
            file, item.offset, item.length, item.values, item.size,
            _manifest.code_of(source.tensor.dtype), tuple(source.tensor.shape),
        )

    def info(self) -> Any:
        """Return the place of the item as torch's metadata has it."""
        return _filesystem._StorageInfo(self.file.name, self.offset, self.length)

    def entry(self, index: Any) -> _manifest.ItemEntry:
        """Return the entry of the item in the manifest."""
        at = () if self.dtype == "bytes" or index.offset is None else tuple(index.offset)
        if self.dtype != "bytes" and index.offset is None:
            at = (0,) * len(self.shape)
        return _manifest.ItemEntry(index.fqn, self.file.name, self.values, self.size, self.dtype, self.shape, at)


class Source(NamedTuple):
    """An item to write: a tensor whose memory is its values, or bytes."""

    item: Any
    tensor: Any = None
    data: Any = b""
    copied: bool = False
    by_torch: bool = False


class Batches:
    """The items of each data file of a rank. All tensors that need no copy share the first file.

    The copies of a file live until the caller empties its list, so that all copies together stay bounded.
    """

    def __init__(self, items: Sequence[Any], planner: Any) -> None:
        self._planner = planner
        self._direct: list[Source] = []
        self._copied: list[list[Any]] = []
        size = 0
        for item in items:
            if item.type == _planner.WriteItemType.BYTE_IO:
                self._direct.append(Source(item, data=_bytes(planner.resolve_data(item), item.index.fqn)))
                continue
            tensor = _resolve(planner, item)
            if not _items.is_plain(tensor):
                self._direct.append(Source(item, data=_by_torch(tensor), by_torch=True))
            elif _items.is_direct(tensor):
                self._direct.append(Source(item, tensor))
            else:
                more = tensor.numel() * tensor.itemsize
                if not self._copied or size + more > COPIES:
                    self._copied.append([])
                    size = 0
                self._copied[-1].append(item)
                size += more

    def __len__(self) -> int:
        """Return the number of data files."""
        return bool(self._direct) + len(self._copied)

    def __iter__(self) -> Iterator[list[Source]]:
        if self._direct:
            yield self._direct
        for items in self._copied:
            yield [Source(item, _copy(_resolve(self._planner, item)), copied=True) for item in items]


def _resolve(planner: Any, item: Any) -> Any:
    tensor = planner.resolve_data(item)
    _items.check(tensor, item.index.fqn)
    return tensor.detach()


def _copy(tensor: Any) -> Any:
    """Return the values of a tensor in order, on a device of the library."""
    if tensor.device.type not in ("cpu", "cuda"):
        tensor = tensor.cpu()
    return tensor.resolve_conj().resolve_neg().contiguous()


def _by_torch(tensor: Any) -> Any:
    file = io.BytesIO()
    torch.save(tensor.cpu(), file)
    return file.getbuffer()


def _bytes(data: Any, fqn: str) -> Any:
    if not isinstance(data, io.BytesIO):
        raise InvalidError(f"save {fqn!r}: the planner gave a {type(data).__name__}, expected io.BytesIO")
    return data.getbuffer()


def device_of(tensor: Any) -> str:
    """Return the library's name of the device of a tensor on the CPU or on a GPU."""
    return "host" if tensor.device.type == "cpu" else f"cuda:{tensor.device.index}"


def streams_of(tensors: Iterable[Any]) -> dict[str, int]:
    """Return the current stream of each GPU that holds a tensor."""
    return {
        device: int(torch.cuda.current_stream(number).cuda_stream)
        for device, number in sorted({(device_of(one), one.device.index) for one in tensors
                                      if one.device.type == "cuda"})
    }


def done(value: Any) -> Any:
    """Return a torch future that has the value already."""
    future = torch.futures.Future()
    future.set_result(value)
    return future
