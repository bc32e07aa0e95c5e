# SPDX-License-Identifier: Apache-2.0
"""`load` for the files of torch.save: torch reads the pickle, and the engine reads the tensors."""

from __future__ import annotations

import importlib
import io
import os
import pickle
import warnings
from collections.abc import Callable
from typing import Any

from .. import _process
from .._handles import ProgressCallback
from ..errors import CorruptError, DeviceError, InvalidError, NebulaioError, OutOfMemoryError, UnsupportedError
from . import _skeleton
from ._ranges import MOST, Content, Part, Ranges, RangesFile, Source

torch: Any = importlib.import_module("torch")

MapLocation = Any
"""Where tensors go, as torch.load takes it: None, text, a torch.device, a dict, or a function."""


def load(
    path: str | os.PathLike[str],
    map_location: MapLocation = None,
    *,
    weights_only: bool = True,
    verify: bool = False,
    client: Any = None,
    mmap: bool | None = None,
    progress: ProgressCallback | None = None,
) -> Any:
    """Return the object in a .pt or .bin file of torch.save, with the same bits as torch.load.

    The tensors are read straight to their devices. Tensors that shared memory share it again.

    Args:
        path: Path of the file, or s3://bucket/key. Of an object, only the pickle and the tensors are read.
        map_location: Where tensors go, as torch.load takes it. A function gets each storage with its content.
        weights_only: Whether to allow only tensors and plain data. False runs code of the file.
        verify: Whether to compare the content with the checksums in FILE.crc64nvme, or those of the server.
        client: A GPUDirectClient for s3:// paths. Default: the settings of the environment.
        mmap: Ignored. Code that calls torch.load(mmap=True) may call this function unchanged.
        progress: Called with (bytes done, bytes in total) during the read.

    Torch itself reads files of the legacy format, TorchScript archives, compressed files, and files with tensors
    that have no storage. A UserWarning gives the reason. `nebulaio.last_report()` has the report of the read.

    Raises:
        NotFoundError: There is no such file or object.
        CorruptError: The file is damaged, or was changed during the load. With `verify`, the error names the tensor.
        UnsupportedError: With `weights_only`, the file needs a class that torch does not allow.
        DeviceError, OutOfMemoryError: A device is missing or full.
    """
    del mmap
    if not isinstance(weights_only, bool):
        raise InvalidError(f"weights_only={weights_only!r} is not True or False")
    with Ranges(path, verify, client) as ranges:
        return _load_or_leave(ranges, map_location, weights_only, progress)


def load_content(content: bytearray, name: str, map_location: MapLocation) -> Any:
    """Return the object in the content of a file that was read before, as `load`. Errors name the file `name`."""
    return _load_or_leave(Content(content, name), map_location, True, None)


def _load_or_leave(
    ranges: Source, map_location: MapLocation, weights_only: bool, progress: ProgressCallback | None
) -> Any:
    try:
        return _load(ranges, map_location, weights_only, progress)
    except _skeleton.Foreign as reason:
        return _by_torch(ranges, map_location, weights_only, str(reason))


def _load(ranges: Source, map_location: MapLocation, weights_only: bool, progress: ProgressCallback | None) -> Any:
    """Return the object of a file. Raises Foreign if torch has to read the file."""
    file = RangesFile(ranges)
    try:
        records = _skeleton.read(ranges, file)
    except CorruptError:
        ranges.confirm()  # a wrong checksum is a better reason
        raise
    if weights_only:
        _refuse_classes(file, ranges.name)
    storages = _Filled(records, map_location, ranges.name)
    storages.read(ranges, progress)
    ranges.confirm()  # before torch uses the pickle
    file.seek(0)
    with torch.serialization.skip_data():
        found = _translated(
            lambda: torch.load(file, map_location=storages.give, weights_only=weights_only, mmap=False), ranges.name
        )
    ranges.confirm()
    ranges.check_unchanged()
    storages.check()
    return found


class _Filled:
    """The storages of a file on their devices. Torch takes them one by one, in the order of the records."""

    def __init__(self, records: list[_skeleton.Record], map_location: MapLocation, name: str) -> None:
        self._name = name
        self._records = records
        self._function: Callable[[Any, str], Any] | None = None
        if callable(map_location) and not isinstance(map_location, (dict, str, bytes)):
            self._function = map_location
        self._map = map_location
        self._known: dict[str, Any] = {}  # devices by location
        self._given = 0
        self._report: bytes | None = None
        self._storages = [self._allocate(record) for record in records]

    def read(self, ranges: Source, progress: ProgressCallback | None) -> None:
        """Fill all storages, with one job for each device."""
        by_device: dict[str, list[Part]] = {}
        for record, storage in zip(self._records, self._storages):
            kind = storage.device.type
            if record.size and kind != "meta":
                device = "host" if kind == "cpu" else f"cuda:{storage.device.index}"
                by_device.setdefault(device, []).append(Part(record.offset, storage, record.label))
        for device, parts in by_device.items():
            stream = 0
            if device != "host":
                _process.current().require_cuda_after_fork(device)
                stream = int(torch.cuda.current_stream(device).cuda_stream)
            ranges.fill(device, stream, parts, progress)
            self._report = _process.current().last_raw()

    def give(self, storage: Any, location: str) -> Any:
        """Return the storage that torch asks for next. `storage` is an empty one, whose size says what torch expects."""
        if self._given == len(self._records):
            raise CorruptError(f"load {self._name}: torch finds more storages in it than its pickle names")
        record, filled = self._records[self._given], self._storages[self._given]
        self._given += 1
        if record.location != location or record.size != storage.nbytes():
            raise _skeleton.corrupt(
                self._name,
                f"storage {record.label!r} has {storage.nbytes()} bytes on {location}, "
                f"and its record has {record.size} on {record.location}",
            )
        if self._function is not None:
            chosen = self._function(filled, location)
            return torch.serialization.default_restore_location(filled, location) if chosen is None else chosen
        return filled

    def check(self) -> None:
        """Raise an error if torch has not taken all storages, because then they may be in the wrong places.

        The report of the tensors becomes the thread's last report: reads of the pickle came behind it.
        """
        if self._given != len(self._records):
            raise CorruptError(
                f"load {self._name}: torch takes {self._given} of {len(self._records)} storages of its pickle"
            )
        if self._report is not None:
            _process.current().reports.last = self._report

    def _allocate(self, record: _skeleton.Record) -> Any:
        device = torch.device("cpu") if self._function is not None else self._device(record.location)
        try:
            storage = torch.UntypedStorage(record.size, device=device)
            if device.type == "meta":
                storage._checkpoint_offset = record.offset  # as torch.load(map_location="meta") does
            return storage
        except RuntimeError as cause:
            full = device.type == "cpu" or isinstance(cause, torch.cuda.OutOfMemoryError)
            raise (OutOfMemoryError if full else DeviceError)(
                f"load {self._name}: allocate {record.size} bytes for {record.label} on {device}: {cause}"
            ) from cause

    def _device(self, location: str) -> Any:
        """Return the device for a location. Torch's own rules decide, on a storage without bytes."""
        wanted: Any = location
        if isinstance(self._map, dict):
            wanted = self._map.get(location, location)
        elif self._map is not None:
            wanted = self._map
        key = wanted.decode() if isinstance(wanted, bytes) else str(wanted)
        if key not in self._known:
            try:
                device = torch.serialization.default_restore_location(torch.UntypedStorage(0), key).device
            except (RuntimeError, AttributeError, ValueError) as cause:
                raise DeviceError(f"load {self._name}: to {key!r}: {cause}") from cause
            if device.type not in ("cpu", "cuda", "meta"):
                raise _skeleton.Foreign(f"its tensors go to {device}, and the engine reaches only the CPU and CUDA")
            self._known[key] = device
        return self._known[key]


def _by_torch(ranges: Source, map_location: MapLocation, weights_only: bool, reason: str) -> Any:
    """Let torch read a file, and warn with the reason."""
    content: Any
    if ranges.is_url or ranges.verify or isinstance(ranges, Content):
        pieces = [(at, min(MOST, ranges.size - at)) for at in range(0, ranges.size, MOST)]
        content = io.BytesIO(b"".join(ranges.read(pieces)))
        ranges.confirm()
    else:
        content = ranges.name
    found = _translated(
        lambda: torch.load(content, map_location=map_location, weights_only=weights_only, mmap=False), ranges.name
    )
    ranges.check_unchanged()
    warnings.warn(
        f"load {ranges.name}: torch has read it, without the engine: {reason} (fix: save it again with nebulaio.torch.save)",
        stacklevel=5,
    )
    return found


def _refuse_classes(file: RangesFile, name: str) -> None:
    """Raise UnsupportedError before tensors are read, if weights_only will refuse the file."""
    file.seek(0)
    unsafe = _translated(lambda: torch.serialization.get_unsafe_globals_in_checkpoint(file), name)
    if unsafe:
        raise _refused(name, f"it needs {', '.join(sorted(unsafe))}")


def _refused(name: str, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"load {name}: torch's weights_only reader refuses it: {reason:.300} (fix: save only tensors and plain data, "
        "allow the class with torch.serialization.add_safe_globals, or pass weights_only=False if you trust the file)"
    )


def _translated(work: Callable[[], Any], name: str) -> Any:
    """Return the result of a function of torch. Its errors become those of this package."""
    try:
        return work()
    except (NebulaioError, _skeleton.Foreign):
        raise
    except pickle.UnpicklingError as cause:
        # torch raises this error for a refused class and for bytes that are no pickle.
        lines = [line.strip() for line in str(cause).splitlines()]
        reason = next((line for line in lines if "GLOBAL" in line or "allowed" in line), None)
        raise (_skeleton.corrupt(name, str(cause)) if reason is None else _refused(name, reason)) from cause
    except torch.cuda.OutOfMemoryError as cause:
        raise OutOfMemoryError(f"load {name}: {cause}") from cause
    except RuntimeError as cause:
        if "CUDA" in str(cause):
            raise DeviceError(f"load {name}: {cause}") from cause
        raise _skeleton.corrupt(name, str(cause)) from cause
    except (EOFError, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError) as cause:
        raise _skeleton.corrupt(name, str(cause) or type(cause).__name__) from cause
