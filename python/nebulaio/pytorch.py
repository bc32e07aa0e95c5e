# SPDX-License-Identifier: Apache-2.0
"""A torch data set of the objects below a prefix, whose tensors are read straight to the GPU.

    >>> from nebulaio import GPUDirectClient
    >>> from nebulaio.pytorch import GPUDirectDataset
    >>> client = GPUDirectClient("http://localhost:9000")    # keys come from the environment
    >>> for number in range(3):
    ...     report = client.write_from_gpu("training-data", f"raw/{number}.bin", bytes([number] * 4))
    >>> dataset = GPUDirectDataset("training-data", "raw/", endpoint="http://localhost:9000", device="cpu")
    >>> len(dataset), dataset.names[2], dataset[2]
    (3, '2.bin', tensor([2, 2, 2, 2], dtype=torch.uint8))

A data set lists its prefix once, when it is made. A pickled data set carries the listing and the settings
and no connection: each worker of a DataLoader connects by itself at its first load. Importing this module
imports torch.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from . import _device, _load, _npy, _prefix, _process
from ._prefix import Tail
from .errors import (
    CorruptError,
    DeviceError,
    ForkError,
    InvalidError,
    NotFoundError,
    OutOfMemoryError,
    UnsupportedError,
)
from .gpudirect import GPUDirectClient, Report

try:
    torch: Any = importlib.import_module("torch")
except ImportError as cause:
    raise ImportError(f"import nebulaio.pytorch: torch cannot be imported: {cause} (fix: pip install torch)") from cause

if TYPE_CHECKING:

    class _Dataset:
        """torch.utils.data.Dataset, for type checkers without torch."""

else:
    from torch.utils.data import Dataset as _Dataset

__all__ = ["GPUDirectDataset", "Kind", "Tail"]

Kind = Literal["auto", "pt", "npy", "safetensors", "raw"]
"""The format of an object. "auto" decides by the suffix of the key."""

_SMALL = 4 << 20
"""Size of a .pt object up to which one request for all of it is faster than several for its parts."""

_KINDS = {".pt": "pt", ".pth": "pt", ".npy": "npy", ".safetensors": "safetensors"}


class _Found(NamedTuple):
    """What the first use of a data set finds out."""

    objects: _prefix.Objects
    share: _prefix.Share
    device: str


class GPUDirectDataset(_Dataset):
    """A map-style data set with one sample per object below a prefix.

    A subclass overrides `__getitem__` and calls `load_to_gpu`. Without a subclass, item `i` is the content
    of the object `names[i]`. All methods are thread-safe.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        device: _device.DeviceLike = "auto",
        suffix: str | Sequence[str] | None = None,
        rank: int = 0,
        world_size: int = 1,
        tail: Tail = "keep",
        **client_options: Any,
    ) -> None:
        """List the objects of the data set.

        Args:
            bucket, prefix: The objects: all objects of the bucket whose keys begin with the prefix. Keys that
                end with "/" are left out.
            endpoint, access_key, secret_key: Server and keys, as in `GPUDirectClient`. The defaults come
                from the environment.
            device: Device of the tensors. "auto" is torch's current GPU if torch and the library can use it,
                or else the host.
            suffix: Take only objects with this end of the key, such as ".pt", or with one of several ends.
            rank, world_size: This process takes each `world_size`-th object, from the object `rank` on.
            tail: What happens if the objects cannot be shared evenly. "keep": the first ranks have one object
                more. "drop": the last objects are left out. "pad": some ranks repeat objects.
            client_options: Further options of `GPUDirectClient`, such as door="require" or timeout=10.

        Raises:
            NotFoundError: There is no such bucket, or no object has the prefix and the suffix.
            AccessError: The server denies access.
            DeviceError: The device does not exist, or torch or the library cannot use it.
        """
        if not isinstance(prefix, str):
            raise InvalidError(f"prefix={prefix!r} is not text")
        self.bucket, self.prefix = bucket, prefix
        self.client = GPUDirectClient(endpoint, access_key, secret_key, **client_options)
        self._wanted = _device.canonical(device), suffix, rank, world_size, tail
        self._found: _Found | None = None
        # A spawned worker and a fork server import the program again, and make its data set without using it.
        if not getattr(multiprocessing.current_process(), "_inheriting", False):
            self._find()

    @property
    def device(self) -> str:
        """The device of the tensors: "host", or "cuda:N"."""
        return self._find().device

    @property
    def names(self) -> list[str]:
        """The names of this rank's objects, in the order of their keys. A name is a key without the prefix."""
        found = self._find()
        return [found.objects[at][len(self.prefix) :] for at in found.share]

    def __len__(self) -> int:
        """Return the number of this rank's objects."""
        return len(self._find().share)

    def __getitem__(self, index: int) -> Any:
        """Return the content of the object `names[index]`."""
        found = self._find()
        return self._load(found.objects[found.share[index]], "auto")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(s3://{self.bucket}/{self.prefix}, {len(self)} objects, {self.device})"

    def load_to_gpu(self, name: str, *, kind: Kind = "auto") -> Any:
        """Load the object `prefix + name` to the data set's device.

        Returns:
            For .npy, a tensor, which the bytes are read straight into. For .safetensors, a dict of tensors,
            which are views of one straight read. For .pt and .pth, what torch.save has saved: the bytes are
            read into host memory, torch.load(weights_only=True) copies them into tensors, and on a GPU torch
            copies these to the device. For every other suffix, and with kind="raw", the content as a uint8
            tensor, which the bytes are read straight into.

        On return the tensors are complete. `nebulaio.last_report()` has the report of the read.

        Raises:
            NotFoundError: There is no such object, or it was deleted after the data set was made.
            CorruptError: The content is damaged, or the object has changed during the read.
            UnsupportedError: The array or the pickle has something that is not a tensor or plain data.
            ForkError: The device is a GPU, and this process was forked. CUDA does not survive fork.
        """
        if not isinstance(name, str) or not name:
            raise InvalidError(
                f"name={name!r} is not the name of an object (expected a key without the prefix {self.prefix!r})"
            )
        if kind not in get_args(Kind):
            raise InvalidError(f"kind={kind!r} is not one of {', '.join(get_args(Kind))}")
        return self._load(self.prefix + name, kind)

    def close(self) -> None:
        """Wait for running reads and close the connections of this process. A second call does nothing."""
        self.client.close()

    def _find(self) -> _Found:
        """List the objects and choose the device at the first call."""
        if self._found is None:
            wanted, suffix, rank, world_size, tail = self._wanted
            if wanted != "host" and _process.current().cuda_is_lost():
                raise _forked(f"make a data set on {wanted}")
            objects = _prefix.list_objects(self.client, self.bucket, self.prefix, suffix)
            self._found = _Found(objects, _prefix.Share(len(objects), rank, world_size, tail), self._choose(wanted))
        return self._found

    def _load(self, key: str, kind: str) -> Any:
        what = f"load s3://{self.bucket}/{key}"
        if self.device != "host" and _process.current().cuda_is_lost():
            raise _forked(f"{what} to {self.device}")
        if kind == "auto":
            kind = next((known for end, known in _KINDS.items() if key.endswith(end)), "raw")
        try:
            if kind == "safetensors":
                return _load.load_tensors(f"s3://{self.bucket}/{key}", self.device, framework="pt", client=self.client)
            size = self._size(key)
            if kind == "npy":
                return self._array(key, size, what)
            if kind == "pt":
                return self._object(key, size, what)
            return self._read(key, self._empty((size,), torch.uint8, what), size, what)
        except NotFoundError as missing:
            self._check(key)
            first = self._find().objects[0][len(self.prefix) :]
            raise NotFoundError(
                f"{what}: there is no such object "
                f"(fix: pass a name that follows the prefix {self.prefix!r}, such as {first!r})"
            ) from missing

    def _size(self, key: str) -> int:
        objects = self._find().objects
        at = objects.find(key)
        return self.client.stat(self.bucket, key).size if at is None else objects.size(at)

    def _check(self, key: str) -> None:
        """Raise an error if an object of the listing is gone or has another size now."""
        objects = self._find().objects
        at = objects.find(key)
        if at is not None:
            _prefix.check_unchanged(self.client, self.bucket, objects, at)

    def _read(self, key: str, buffer: Any, size: int, what: str) -> Any:
        """Read an object of `size` bytes into a buffer of that size, and return the buffer."""
        self._part(key, buffer, 0, None, size, what)
        return buffer

    def _part(self, key: str, buffer: Any, offset: int, size: int | None, whole: int, what: str) -> Report:
        """Read a range of an object of `whole` bytes into a buffer."""
        try:
            report = self.client.read_to_gpu(self.bucket, key, buffer, offset, size)
        except InvalidError:
            self._check(key)
            raise
        if report["size"] != whole:
            self._check(key)
            raise CorruptError(f"{what}: it was replaced during the read (fix: load it again)")
        return report

    def _object(self, key: str, size: int, what: str) -> Any:
        """Return what torch.save has saved. A large object's tensors are read straight to the device."""
        from .torch import _ptfile

        if size > _SMALL:
            return _ptfile.load(f"s3://{self.bucket}/{key}", self._where(), client=self.client)
        content = bytearray(size)
        self._read(key, content, size, what)
        return _ptfile.load_content(content, f"s3://{self.bucket}/{key}", self._where())

    def _array(self, key: str, size: int, what: str) -> Any:
        head = bytearray(min(size, _npy.FIRST_READ))
        first = self._part(key, head, 0, len(head), size, what)
        if len(head) >= 12 and (whole := min(_npy.length(bytes(head), what), size)) > len(head):
            head = bytearray(whole)
            first = self._part(key, head, 0, len(head), size, what)
        header = _npy.parse(bytes(head), size, what)
        dtype = getattr(torch, header.dtype, None)
        if dtype is None:
            raise UnsupportedError(
                f"{what}: torch {torch.__version__} has no type {header.dtype} (fix: install torch 2.3 or newer)"
            )
        tensor = self._empty(header.shape, dtype, what)
        if header.size:
            second = self._part(key, tensor, header.offset, header.size, size, what)
            if first.etag != second.etag:
                raise CorruptError(f"{what}: it was replaced between two reads (fix: load it again)")
        return tensor

    def _empty(self, shape: tuple[int, ...], dtype: Any, what: str) -> Any:
        """Return a tensor of the data set's device whose content is not set."""
        try:
            return torch.empty(shape, dtype=dtype, device=self._where())
        except RuntimeError as cause:
            full = self.device == "host" or isinstance(cause, torch.cuda.OutOfMemoryError)
            raise (OutOfMemoryError if full else DeviceError)(
                f"{what}: allocate {dtype} of shape {shape} on {self.device}: {cause}"
            ) from cause

    def _where(self) -> str:
        return "cpu" if self.device == "host" else self.device

    def _choose(self, wanted: str) -> str:
        """Return the device for "auto", "host", "cuda" or "cuda:N", as "host" or "cuda:N"."""
        if wanted == "host":
            return wanted
        system = self.client._open().system
        found = system.devices()
        usable = torch.cuda.is_available()
        number = wanted.partition(":")[2] or str(
            torch.cuda.current_device() if usable and torch.cuda.is_initialized() else 0
        )
        device = f"cuda:{number}"
        if usable and any(one["id"] == device for one in found["devices"]) and int(number) < torch.cuda.device_count():
            system.cuda_used = True  # a forked child must not use CUDA, even if only the library has used it here
            return device
        if wanted == "auto":
            return "host"
        reason = found.get("no_gpu") or f"the library finds {', '.join(one['id'] for one in found['devices'])}"
        raise DeviceError(
            f"make a data set on {wanted}: {reason}; torch {'finds' if usable else 'finds no usable'} CUDA "
            "(fix: see nebulaio.devices() "
            "and torch.cuda.is_available(), or pass device='cpu')"
        )


def _forked(what: str) -> ForkError:
    return ForkError(
        f"{what}: this process was forked from one that has used CUDA, and CUDA does not survive fork "
        ""
        "(fix: pass multiprocessing_context='spawn' to the DataLoader, or num_workers=0, "
        "or make the data set with device='cpu')"
    )
