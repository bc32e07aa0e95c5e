# SPDX-License-Identifier: Apache-2.0
"""Errors: one class per status of the header, each also the natural built-in."""

from __future__ import annotations

import errno
import pickle

import pytest
from nebulaio import errors

BUILTINS = [
    (1, errors.NebulaioError, Exception),
    (2, errors.InvalidError, ValueError),
    (3, errors.NotFoundError, FileNotFoundError),
    (4, errors.AccessError, PermissionError),
    (5, errors.CorruptError, ValueError),
    (6, errors.ReadError, OSError),
    (7, errors.DeviceError, RuntimeError),
    (8, errors.OutOfMemoryError, MemoryError),
    (9, errors.UnsupportedError, NotImplementedError),
    (10, errors.CancelledError, Exception),
    (11, errors.ClosedError, Exception),
]


@pytest.mark.parametrize(("status", "ours", "builtin"), BUILTINS)
def test_status_becomes_its_class(status: int, ours: type[errors.NebulaioError], builtin: type[Exception]) -> None:
    error = errors.from_status(status, "load x: broken")
    assert type(error) is ours
    assert isinstance(error, builtin)
    assert isinstance(error, errors.NebulaioError)
    assert (error.status, str(error)) == (status, "load x: broken")
    assert error.kind == ours.kind


def test_unknown_status_keeps_its_number() -> None:
    error = errors.from_status(77, "new")
    assert type(error) is errors.NebulaioError
    assert error.status == 77


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.NotFoundError("no such file")))
    assert (type(error), str(error), error.errno) == (errors.NotFoundError, "no such file", errno.ENOENT)


def test_fork_error_is_a_device_error() -> None:
    assert issubclass(errors.ForkError, errors.DeviceError)
    assert issubclass(errors.LibraryError, ImportError)
