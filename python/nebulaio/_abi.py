# SPDX-License-Identifier: Apache-2.0
"""The C interface of libnebulaio.so for ctypes. It mirrors include/nebulaio/nebulaio.h."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from .errors import LibraryError, from_status

ABI_VERSION: Final = 6
RUNNING: Final = -1
OK: Final = 0

_ERROR_CAPACITY: Final = 4096
_TEXT_CAPACITY: Final = 1 << 16
_kept = threading.local()  # has the buffer of the last text, of _TEXT_CAPACITY bytes


class Buffer(ctypes.Structure):
    """nebulaio_buffer: a destination in the caller's memory."""

    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class Progress(ctypes.Structure):
    """nebulaio_progress: bytes done and bytes in total."""

    _fields_ = [("bytes_done", ctypes.c_uint64), ("bytes_total", ctypes.c_uint64)]


class Tensor(ctypes.Structure):
    """nebulaio_tensor: a tensor of the caller to save."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("device", ctypes.c_char_p),
    ]


class Segment(ctypes.Structure):
    """nebulaio_segment: a range of a file and its destination in the caller's memory."""

    _fields_ = [
        ("file", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("stride", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("label", ctypes.c_char_p),
    ]


class Piece(ctypes.Structure):
    """nebulaio_piece: memory of the caller that a write puts into a file."""

    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_uint64), ("device", ctypes.c_char_p)]


class Peer(ctypes.Structure):
    """nebulaio_peer: memory on a further device that receives the same bytes."""

    _fields_ = [("address", ctypes.c_uint64), ("device", ctypes.c_char_p)]


class ObjectRead(ctypes.Structure):
    """nebulaio_object_read: a read of one object, or of a range of it, into the caller's memory."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("bucket", ctypes.c_char_p),
        ("key", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_int64),
        ("address", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("device", ctypes.c_char_p),
        ("stream", ctypes.c_uint64),
        ("peers", ctypes.POINTER(Peer)),
        ("npeers", ctypes.c_size_t),
    ]


class ObjectWrite(ctypes.Structure):
    """nebulaio_object_write: a write of one object from the caller's memory."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("bucket", ctypes.c_char_p),
        ("key", ctypes.c_char_p),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("device", ctypes.c_char_p),
        ("stream", ctypes.c_uint64),
    ]


class BatchColumn(ctypes.Structure):
    """nebulaio_batch_column: the samples of one column of a batch."""

    _fields_ = [("address", ctypes.c_uint64), ("size", ctypes.c_uint64), ("offsets", ctypes.c_uint64)]


class Batch(ctypes.Structure):
    """nebulaio_batch: a batch of samples in memory of the library."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("count", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("columns", ctypes.c_uint64),
        ("ncolumns", ctypes.c_uint64),
        ("epoch", ctypes.c_int64),
        ("next_epoch", ctypes.c_int64),
        ("next_position", ctypes.c_int64),
        ("last", ctypes.c_int32),
    ]


_i32, _u64, _size = ctypes.c_int32, ctypes.c_uint64, ctypes.c_size_t
_text, _out = ctypes.c_char_p, ctypes.c_void_p
_u64_p, _size_p = ctypes.POINTER(_u64), ctypes.POINTER(_size)
_err = (_out, _size)

# Every function of the header: name -> (result, arguments).
PROTOTYPES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "nebulaio_abi_version": (_i32, ()),
    "nebulaio_version": (_i32, (_out, _size, _size_p)),
    "nebulaio_system_open": (_i32, (_text, _u64_p, *_err)),
    "nebulaio_devices": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_model_open": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_model_files": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_model_describe": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_model_count": (_i32, (_u64, _u64_p, _u64_p, *_err)),
    "nebulaio_model_destination": (_i32, (_u64, _u64, _out, *_err)),
    "nebulaio_model_tensor": (_i32, (_u64, _u64, _out, _out, _size, _size_p, *_err)),
    "nebulaio_model_find": (_i32, (_u64, _text, _u64_p, *_err)),
    "nebulaio_model_select": (_i32, (_u64, _text, _u64_p, *_err)),
    "nebulaio_load_start": (
        _i32,
        (_u64, ctypes.POINTER(Buffer), _size, _u64, _text, _u64_p, *_err),
    ),
    "nebulaio_load_ready": (_i32, (_u64, _u64, _i32, _u64_p, *_err)),
    "nebulaio_checksum_start": (_i32, (_u64, _u64_p, *_err)),
    "nebulaio_save_start": (
        _i32,
        (_u64, _text, ctypes.POINTER(Tensor), _size, _u64, _text, _u64_p, *_err),
    ),
    "nebulaio_gather_start": (
        _i32,
        (_u64, ctypes.POINTER(_text), _size, ctypes.POINTER(Segment), _size, _u64, _text, _u64_p, *_err),
    ),
    "nebulaio_write_start": (
        _i32,
        (_u64, _text, ctypes.POINTER(Piece), _size, _u64, _text, _u64_p, *_err),
    ),
    "nebulaio_file_open": (_i32, (_u64, _text, _text, _text, _u64_p, *_err)),
    "nebulaio_file_size": (_i32, (_u64, _u64_p, *_err)),
    "nebulaio_file_read_start": (_i32, (_u64, _u64, _u64, _u64, _u64, _text, _u64_p, *_err)),
    "nebulaio_file_write_start": (_i32, (_u64, _u64, _u64, _u64, _u64, _text, _u64_p, *_err)),
    "nebulaio_file_sync": (_i32, (_u64, *_err)),
    "nebulaio_client_open": (_i32, (_u64, _text, _u64_p, *_err)),
    "nebulaio_client_status_start": (_i32, (_u64, _u64_p, *_err)),
    "nebulaio_client_model_open": (_i32, (_u64, _text, _text, _text, _u64_p, *_err)),
    "nebulaio_object_read_start": (_i32, (_u64, ctypes.POINTER(ObjectRead), _size, _text, _u64_p, *_err)),
    "nebulaio_object_write_start": (_i32, (_u64, ctypes.POINTER(ObjectWrite), _text, _u64_p, *_err)),
    "nebulaio_object_stat_start": (_i32, (_u64, _text, _text, _text, _u64_p, *_err)),
    "nebulaio_object_delete_start": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_object_list_start": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_object_open": (_i32, (_u64, _text, _text, _text, _text, _out, _u64_p, *_err)),
    "nebulaio_object_create": (_i32, (_u64, _text, _text, _u64, _text, _out, _u64_p, *_err)),
    "nebulaio_object_edit": (_i32, (_u64, _text, _out, _u64_p, *_err)),
    "nebulaio_object_draft": (_i32, (_u64, _text, _text, _text, _text, _out, _u64_p, *_err)),
    "nebulaio_object_extend": (_i32, (_u64, _u64, *_err)),
    "nebulaio_object_wrote": (_i32, (_u64, _u64, _u64, *_err)),
    "nebulaio_object_commit_start": (_i32, (_u64, _u64, _u64_p, *_err)),
    "nebulaio_data_open_start": (_i32, (_u64, ctypes.POINTER(_text), _size, _text, _u64_p, *_err)),
    "nebulaio_data_sample": (_i32, (_u64, _u64, _out, _size, _size_p, *_err)),
    "nebulaio_data_keys": (_i32, (_u64, _out, _size, _out, _size, _size_p, *_err)),
    "nebulaio_data_read_start": (_i32, (_u64, _u64, _text, _u64_p, *_err)),
    "nebulaio_loader_open": (_i32, (_u64, _text, _u64_p, *_err)),
    "nebulaio_loader_describe": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_loader_next": (_i32, (_u64, _i32, ctypes.POINTER(Batch), _u64_p, *_err)),
    "nebulaio_loader_report": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_batch_state": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_batch_free": (_i32, (_u64, _u64, *_err)),
    "nebulaio_checkpoint_commit_start": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_checkpoint_list_start": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_checkpoint_verify_start": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_checkpoint_prune_start": (_i32, (_u64, _text, _text, _u64_p, *_err)),
    "nebulaio_queue_open": (_i32, (_u64_p, *_err)),
    "nebulaio_queue_add": (_i32, (_u64, _u64, *_err)),
    "nebulaio_queue_next": (_i32, (_u64, _i32, _u64_p, *_err)),
    "nebulaio_wait": (_i32, (_u64, _i32, ctypes.POINTER(Progress), *_err)),
    "nebulaio_cancel": (_i32, (_u64, *_err)),
    "nebulaio_report": (_i32, (_u64, _out, _size, _size_p, *_err)),
    "nebulaio_release": (_i32, (_u64, *_err)),
    "nebulaio_judge_loop": (_i32, (_text, _out, _size, _size_p, *_err)),
}


def declare(library: ctypes.CDLL, name: str) -> None:
    """Check the library's ABI and declare every function of the header on it.

    `name` names the library in messages. Raises LibraryError if a symbol is missing or
    the ABI differs. No other function has been called by then.
    """
    try:
        library.nebulaio_abi_version.restype = _i32
        library.nebulaio_abi_version.argtypes = ()
    except AttributeError:
        raise LibraryError(
            f"load library {name}: it has no symbol nebulaio_abi_version, so it is not "
            "libnebulaio.so (fix: point NEBULAIO_LIBRARY at libnebulaio.so)"
        ) from None
    abi = int(library.nebulaio_abi_version())
    if abi != ABI_VERSION:
        raise LibraryError(
            f"load library {name}: its ABI version is {abi}, this package needs {ABI_VERSION} "
            "(fix: build or install the library and the package from the same release)"
        )
    for symbol, (result, arguments) in PROTOTYPES.items():
        try:
            function = getattr(library, symbol)
        except AttributeError:
            raise LibraryError(
                f"load library {name}: symbol {symbol} is missing "
                "(fix: build or install the library and the package from the same release)"
            ) from None
        function.restype = result
        function.argtypes = arguments


def call(function: Any, *arguments: Any) -> None:
    """Call a function that ends in (err, errcap), and raise its error."""
    err = ctypes.create_string_buffer(_ERROR_CAPACITY)
    status = function(*arguments, err, _ERROR_CAPACITY)
    if status != OK:
        raise from_status(status, message(function, status, err))


def text(function: Any, *arguments: Any, errors: bool = True) -> bytes:
    """Call a function with a text result and return the text, whatever its length.

    `errors` tells whether the function ends in (err, errcap).
    """
    capacity = _TEXT_CAPACITY
    need = _size()
    err = ctypes.create_string_buffer(_ERROR_CAPACITY)
    tail: tuple[Any, ...] = (err, _ERROR_CAPACITY) if errors else ()
    # New memory for each call costs 40 µs, a part of which is before the first byte of a load. A signal handler that
    # calls this function meanwhile finds no buffer, and makes its own.
    out = _kept.__dict__.pop("buffer", None) or ctypes.create_string_buffer(capacity)
    while True:
        need.value = 0
        status = function(*arguments, out, capacity, ctypes.byref(need), *tail)
        if status == OK and need.value < capacity:
            found = ctypes.string_at(out, need.value)
            if capacity == _TEXT_CAPACITY:
                _kept.buffer = out
            return found
        if need.value < capacity:
            raise from_status(status, message(function, status, err))
        capacity = need.value + 1
        out = ctypes.create_string_buffer(capacity)


def message(function: Any, status: int, err: ctypes.Array[ctypes.c_char]) -> str:
    """Return the library's message for a failed call, or a generic one if it gave none."""
    said = err.value.decode("utf-8", "backslashreplace")
    return said or f"{function.__name__}: failed with status {status} and no message"
