# SPDX-License-Identifier: Apache-2.0
"""Converts tensors to the bytes of a .safetensors file and back, with the names of the safetensors package."""

from __future__ import annotations

import ctypes
import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from . import _load, _save
from ._frameworks.held import Held, hold
from .errors import ArgumentTypeError, InvalidError, UnsupportedError

# dtype in a TensorSpec -> dtype in a file.
_CODES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn_x2": "F4", "complex64": "C64",
}

# All dtypes of the format with their bits, in the order of the format. Files begin with the last.
_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
_ORDER = {dtype: -place for place, dtype in enumerate(_BITS)}

# Limits of a header. The library has the same limits.
_LONGEST_HEADER = 100_000_000
_LONGEST_NAME = 4096
_MOST_DIMENSIONS = 64


class TensorSpec:
    """A tensor for `serialize` and `serialize_file`: its type, its shape, and its host memory.

    The memory belongs to the caller and must stay valid until `serialize` has returned.
    """

    __slots__ = ("_data_len", "_data_ptr", "_dtype", "_shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        """`dtype` is a NumPy or torch name, such as "float32". A shape of "float4_e2m1fn_x2" counts pairs of values."""
        if not isinstance(dtype, str):
            raise ArgumentTypeError(f"TensorSpec: dtype={dtype!r} is not text, expected a name such as 'float32'")
        if dtype not in _CODES:
            raise InvalidError(f"TensorSpec: unknown dtype {dtype!r} (expected one of {', '.join(_CODES)})")
        self._dtype = _CODES[dtype]
        try:
            self._shape = [operator.index(extent) for extent in shape]
        except TypeError:
            raise ArgumentTypeError(f"TensorSpec: shape={shape!r} is not a list of whole numbers") from None
        if any(not 0 <= extent < 1 << 64 for extent in self._shape):
            raise InvalidError(f"TensorSpec: shape={shape!r} has a number outside of 0 to 2^64-1")
        if self._dtype == "F4" and self._shape:
            self._shape[-1] *= 2
        self._data_ptr, self._data_len = _unsigned("data_ptr", data_ptr), _unsigned("data_len", data_len)

    @property
    def dtype(self) -> str:
        """The dtype in the notation of the file, such as "F32"."""
        return self._dtype

    @property
    def shape(self) -> list[int]:
        """The shape in elements, as in the file's header."""
        return list(self._shape)

    @property
    def data_ptr(self) -> int:
        """The address of the tensor's first byte."""
        return self._data_ptr

    @property
    def data_len(self) -> int:
        """The number of bytes of the tensor."""
        return self._data_len

    def __repr__(self) -> str:
        return f"TensorSpec(dtype={self._dtype!r}, shape={self._shape}, data_ptr={self._data_ptr:#x}, data_len={self._data_len})"


def _unsigned(name: str, value: Any) -> int:
    """Return a whole number of 64 bits without sign."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"TensorSpec: {name}={value!r} is not a whole number") from None
    if not 0 <= number < 1 << 64:
        raise InvalidError(f"TensorSpec: {name}={value!r} is out of range, expected a number from 0 to 2^64-1")
    return number


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a .safetensors file with the given tensors and metadata."""
    return encode(_held(tensor_dict), metadata)


def serialize_file(
    tensor_dict: Mapping[str, TensorSpec], filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a .safetensors file without checksums. On return the file is complete and durable."""
    _save.write(_held(tensor_dict), filename, metadata, checksum=False, progress=None)


def deserialize(bytes: bytes) -> list[tuple[str, dict[str, Any]]]:  # noqa: A002 - the reference's name
    """Return the tensors in the bytes of a .safetensors file as (name, {"shape", "dtype", "data"}), in file order.

    Raises CorruptError if the bytes are not a .safetensors file.
    """
    data = memoryview(bytes).cast("B")
    length = int.from_bytes(data[:8], "little")
    with _as_file(data, min(8 + length, len(data))) as path, _load.open_model([path],
                                                                              _load.model_options("host", None,
                                                                                                  False)) as model:
        order = [tensor["name"] for tensor in model.describe()["tensors"]]
    header = json.loads(str(data[8 : 8 + length], "utf-8"))
    out = []
    for name in order:
        entry = header[name]
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        out.append((name, {"shape": entry["shape"], "dtype": entry["dtype"], "data": bytearray(data[begin:end])}))
    return out


def load(data: bytes, framework: str | None = None) -> dict[str, Any]:
    """Return the tensors in the bytes of a file, in new host memory."""
    view = memoryview(data).cast("B")
    with _as_file(view, len(view)) as path:
        return _load.load(path, _load.Order("cpu", framework), None)


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a file with tensors of torch or NumPy. GPU tensors are copied to the host first."""
    held = [hold(name, tensor) for name, tensor in _save.named(tensors)]
    _save.refuse_shared(held)
    return encode([_on_host(one) for one in held], metadata)


def encode(held: Sequence[Held], metadata: Mapping[str, str] | None) -> bytes:
    """Return the bytes of a file with tensors in host memory."""
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": _save.texts(metadata)}
    for one in held:
        _refuse_unreadable(one)
    ordered = sorted(held, key=lambda one: (_ORDER[one.dtype], one.name.encode()))
    at = 0
    for one in ordered:
        entries[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, at + one.size]}
        at += one.size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise InvalidError(
            f"save: the header has {len(text)} bytes, expected at most {_LONGEST_HEADER} (fix: shorten the metadata)")
    out = bytearray(8 + len(text) + at)
    out[:8] = len(text).to_bytes(8, "little")
    out[8 : 8 + len(text)] = text
    place = 8 + len(text)
    whole = ctypes.addressof((ctypes.c_char * len(out)).from_buffer(out))
    for one in ordered:
        if one.size:
            ctypes.memmove(whole + place, one.address, one.size)
        place += one.size
    return bytes(out)


def _refuse_unreadable(one: Held) -> None:
    """Raise InvalidError for a tensor that no reader would accept, as `save_file` does."""
    if one.name == "__metadata__":
        raise InvalidError(f"save: the tensor name {one.name!r} is reserved, expected another")
    if len(one.name.encode()) > _LONGEST_NAME:
        raise InvalidError(
            f"save: the tensor name {one.name[:64]!r}... has {len(one.name.encode())} bytes, expected at most {_LONGEST_NAME}"
        )
    if len(one.shape) > _MOST_DIMENSIONS:
        raise InvalidError(
            f"save tensor {one.name!r}: it has {len(one.shape)} dimensions, expected at most {_MOST_DIMENSIONS}")


def _held(specs: Mapping[str, TensorSpec]) -> list[Held]:
    out = []
    for name, spec in _save.named(specs):
        if not isinstance(spec, TensorSpec):
            raise ArgumentTypeError(f"serialize tensor {name!r}: it is a {type(spec).__name__}, expected a TensorSpec")
        bits = _BITS[spec.dtype]
        for extent in spec.shape:
            bits *= extent
        if bits % 8 or bits // 8 != spec.data_len or any(extent < 0 for extent in spec.shape):
            raise InvalidError(
                f"serialize tensor {name!r}: {spec.data_len} bytes of dtype {spec.dtype} are not of shape {spec.shape}, "
                f"expected {bits / 8:g}"
            )
        if spec.data_len and not spec.data_ptr:
            raise InvalidError(f"serialize tensor {name!r}: data_ptr is 0, expected the address of {spec.data_len} bytes")
        out.append(Held(name, spec.dtype, tuple(spec.shape), "host", spec.data_ptr, spec.data_len, spec))
    return out


def _on_host(one: Held) -> Held:
    if one.device == "host":
        return one
    if not hasattr(one.kept, "cpu"):
        raise UnsupportedError(
            f"save tensor {one.name!r}: a {type(one.kept).__name__} on {one.device} cannot be converted to bytes "
            "(fix: copy it to the host first, or use save_file, which reads it in place)"
        )
    return hold(one.name, one.kept.cpu())


@contextmanager
def _as_file(data: memoryview, filled: int) -> Iterator[str]:
    """Yield the path of an in-memory file with the length and first bytes of data, because the library reads files."""
    with open(os.memfd_create("nebulaio-bytes", os.MFD_CLOEXEC), "wb") as file:
        file.write(data[:filled])
        file.truncate(len(data))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
