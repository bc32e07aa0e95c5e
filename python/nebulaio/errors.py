# SPDX-License-Identifier: Apache-2.0
"""Exceptions of this package: one class per kind of failure.

Every class derives from `NebulaioError`. If Python has a built-in exception for the
same failure, the class derives from that too: ``except FileNotFoundError`` also catches
a `nebulaio.errors.NotFoundError`. The message of an error names the failed operation, its
object, the reason and a fix.
"""

from __future__ import annotations

import errno as _errno
from typing import ClassVar

__all__ = [
    "AccessError",
    "ArgumentTypeError",
    "CancelledError",
    "ClosedError",
    "CorruptError",
    "DecodeError",
    "DeviceError",
    "ForkError",
    "InvalidError",
    "LibraryError",
    "NebulaioError",
    "NotFoundError",
    "OutOfMemoryError",
    "OutOfRangeError",
    "ReadError",
    "UnsupportedError",
    "from_status",
]


class NebulaioError(Exception):
    """The base class of all failures of this package, and the class of unclassified failures.

    `kind` is a stable lower-case name of the failure. `status` is the number of the same
    kind in the C interface (``NEBULAIO_ERR_*``). `kind` and `status` are attributes of the
    class and of its objects.
    """

    kind: str = "error"
    status: int = 1
    _errno: ClassVar[int | None] = None

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        if self._errno is not None:
            # OSError's own field: code that looks at e.errno keeps working.
            setattr(self, "errno", self._errno)  # noqa: B010 - only subclasses have the field


class InvalidError(NebulaioError, ValueError):
    """An argument or option is invalid. The call fails again until the argument is changed."""

    kind = "invalid"
    status = 2


class ArgumentTypeError(InvalidError, TypeError):
    """An argument has the wrong type."""


class OutOfRangeError(InvalidError, IndexError):
    """An index selects nothing of the tensor."""


class NotFoundError(NebulaioError, FileNotFoundError):
    """The named file, tensor or device does not exist."""

    kind = "not found"
    status = 3
    _errno = _errno.ENOENT


class AccessError(NebulaioError, PermissionError):
    """The operating system or the server denied access."""

    kind = "permission denied"
    status = 4
    _errno = _errno.EACCES


class CorruptError(NebulaioError, ValueError):
    """The content is damaged: a bad header, a short file, a wrong index, a wrong checksum."""

    kind = "corrupt"
    status = 5


class ReadError(NebulaioError, OSError):
    """A read failed or returned too few bytes."""

    kind = "i/o error"
    status = 6
    _errno = _errno.EIO


class DeviceError(NebulaioError, RuntimeError):
    """A device is missing or unusable, or a call of its driver failed."""

    kind = "device error"
    status = 7


class ForkError(DeviceError):
    """CUDA was requested in a forked child of a process that had used CUDA.

    A CUDA context does not survive fork. Start workers with multiprocessing's 'spawn'
    method, or load to the host in the child.
    """


class DecodeError(NebulaioError):
    """A decode or collate hook of a loader raised an exception, which is the `__cause__` of the error.

    The message names the sample. The loader can be iterated again and begins after the last
    batch that it delivered.
    """


class OutOfMemoryError(NebulaioError, MemoryError):
    """There is not enough host or device memory."""

    kind = "out of memory"
    status = 8


class UnsupportedError(NebulaioError, NotImplementedError):
    """The build, kernel, driver, device or framework does not support the operation."""

    kind = "unsupported"
    status = 9


class LibraryError(NebulaioError, ImportError):
    """The native library was not found, could not be loaded, or has another ABI version."""

    kind = "library"
    status = 9


class CancelledError(NebulaioError):
    """The operation was cancelled before it finished."""

    kind = "cancelled"
    status = 10


class ClosedError(NebulaioError):
    """An object of the package was used after it was closed, or in a process that did not open it."""

    kind = "closed"
    status = 11


_BY_STATUS: dict[int, type[NebulaioError]] = {
    c.status: c
    for c in (
        NebulaioError,
        InvalidError,
        NotFoundError,
        AccessError,
        CorruptError,
        ReadError,
        DeviceError,
        OutOfMemoryError,
        UnsupportedError,
        CancelledError,
        ClosedError,
    )
}


def from_status(status: int, message: str) -> NebulaioError:
    """Return the exception for a status of the C interface.

    For an unknown status, the result is a plain `NebulaioError` with the number in `status`.
    """
    known = _BY_STATUS.get(status)
    if known is not None:
        return known(message)
    error = NebulaioError(message)
    error.status = status
    return error
