# SPDX-License-Identifier: Apache-2.0
"""NebulaIO loads files and objects into GPU memory.

    >>> import numpy, nebulaio.safetensors
    >>> report = nebulaio.safetensors.save_file({"w": numpy.ones((2, 3))}, "model.safetensors")
    >>> tensors = nebulaio.safetensors.load_file("model.safetensors", device="cpu", framework="numpy")
    >>> tensors["w"].shape
    (2, 3)
    >>> nebulaio.last_report()["device"]["id"]
    'host'

With torch, `load_file("model.safetensors")` returns torch tensors on the best device.

`import nebulaio` loads no native library, no framework and no module of the package.
The first use of a name loads what it needs. A process may fork at any time: the child
loads a private copy of the library. CUDA does not survive a fork: if the parent has used
CUDA, using CUDA in the child raises `nebulaio.errors.ForkError`.
"""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import cufile as cufile
    from . import data as data
    from . import errors, safetensors
    from . import gpudirect as gpudirect
    from ._patch import patch
    from .cufile import CuFile
    from .gpudirect import GPUDirectClient

__all__ = ["CuFile", "GPUDirectClient", "__version__", "configure", "data", "devices", "errors", "last_report",
           "library_path", "patch", "safetensors", "version"]


def _close() -> None:
    """Close the library, if the process has used it."""
    process = sys.modules.get("nebulaio._process")
    if process is not None:
        process.current().close()


# _close is registered at import, not at first use, because callbacks run in reverse order.
# A callback that saves at exit is usually registered after the import and before the first use.
atexit.register(_close)


def version() -> str:
    """Return the version of the native library, such as "0.1.0". The call loads the library."""
    from . import _process

    return _process.current().load().version()


def library_path() -> str:
    """Return the path of the native library. The call loads the library."""
    from . import _process

    return _process.current().load().path


def devices() -> dict[str, Any]:
    """Return the devices that the library found, the missing ones, and advice on how to enable them.

    The call loads the library and opens its system with the options of `configure`.
    """
    from . import _process

    return _process.current().open().devices()


def last_report() -> dict[str, Any] | None:
    """Return the report of the last load or save that ended in the calling thread, or None.

    Each thread has its own last report. Failed and cancelled loads leave a report too.
    The caller may change the returned dictionary. docs/report.md lists the keys of a report. A forked child
    starts with no report.
    """
    from . import _process, _report

    raw = _process.current().last_raw()
    if raw is None:
        return None
    return _report.read(raw)


def configure(
    *,
    buffer_pool_size: int | str | None = None,
    workers: int | None = None,
    queue_depth: int | None = None,
    max_transfer_size: int | str | None = None,
    io: str | None = None,
    cufile: str | None = None,
    devices: str | None = None,
    write_block_size: int | str | None = None,
    write_depth: int | None = None,
    verify_on: str | None = None,
) -> None:
    """Set options of the native library. Call `configure` before the first use of the library.

    Args:
        buffer_pool_size: Bytes of staging memory (default 128 MiB), or text such as "256MiB".
        workers: Number of threads that copy from the page cache; 0 lets the library choose.
        queue_depth: Number of direct reads in flight; 0 lets the library choose.
        max_transfer_size: Largest single read or copy in bytes (default 2 MiB).
        io: System calls for direct reads: "auto", "uring" or "pread".
        cufile: libcufile interface for the route "cufile": "sync", "async" or "batch".
        devices: Whether to use CUDA: "auto", "require" (fail without CUDA) or "off".
        write_block_size: Largest single write of a save in bytes (default 1 MiB).
        write_depth: Number of writes of a save in flight; 0 lets the library choose.
        verify_on: Processor that computes checksums: "auto" (the GPU if it can), "host"
            or "device".

    Options that are not given come from the environment variables NEBULAIO_<NAME>, such
    as NEBULAIO_BUFFER_POOL_SIZE, or else from the library's defaults. Repeated calls of
    `configure` add options. A forked child inherits the options and may change them.

    Raises:
        InvalidError: A value is wrong, or this process has already used the library.
    """
    from . import _options, _process

    given = {
        "buffer_pool_size": buffer_pool_size,
        "workers": workers,
        "queue_depth": queue_depth,
        "max_transfer_size": max_transfer_size,
        "io": io,
        "cufile": cufile,
        "devices": devices,
        "write_block_size": write_block_size,
        "write_depth": write_depth,
        "verify_on": verify_on,
    }
    _process.current().configure(
        {key: _options.check(key, value, f"configure {key}") for key, value in given.items() if value is not None}
    )


# Names that __getattr__ imports at first use, and the module of each: an import of everything takes tens of
# milliseconds.
_LATE = {
    "CuFile": "cufile",
    "GPUDirectClient": "gpudirect",
    "cufile": "cufile",
    "data": "data",
    "errors": "errors",
    "gpudirect": "gpudirect",
    "patch": "_patch",
    "safetensors": "safetensors",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, or read `__version__`."""
    if name == "__version__":
        return _read_version()
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_LATE[name]}")
    value = module if name == _LATE[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return every public name, imported or not."""
    return sorted({*globals(), *_LATE, "__version__"})


def _read_version() -> str:
    """Return the version in the checkout's file VERSION, else that of the installed package."""
    from importlib import metadata
    from pathlib import Path

    checkout = Path(__file__).resolve().parents[2] / "VERSION"
    if checkout.is_file() and (checkout.parent / "go.mod").is_file():
        return checkout.read_text(encoding="utf-8").strip()
    return metadata.version("nebulaio")
