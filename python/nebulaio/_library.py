# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libnebulaio.so.

Nothing here runs at import. If the environment variable NEBULAIO_LIBRARY is set, only
that file is tried. Otherwise the search order is: the copy inside the installed package,
build/libnebulaio.so of a source checkout, and the dynamic linker's search path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import _abi
from .errors import LibraryError

NAME = "libnebulaio.so"
VARIABLE = "NEBULAIO_LIBRARY"


class Library:
    """A loaded libnebulaio.so.

    `functions` has every function of the header as an attribute, with declared argument
    and result types. Calls release the GIL.
    """

    def __init__(self, functions: ctypes.CDLL, path: str, private: bool) -> None:
        self.functions = functions
        self.path = path
        self.private = private

    def version(self) -> str:
        """Return the version of the library, such as "0.1.0"."""
        return _abi.text(self.functions.nebulaio_version, errors=False).decode()


def find() -> str:
    """Return the path of the library, or its bare name if the linker must search for it.

    Raises LibraryError if NEBULAIO_LIBRARY names a file that does not exist.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.path.isfile(named):
            raise LibraryError(
                f"load library {named}: no such file (fix: {VARIABLE} must name {NAME}; "
                "unset it to search the package, the checkout and the system)"
            )
        return os.path.abspath(named)
    for candidate in _candidates():
        if candidate.is_file():
            return str(candidate)
    return NAME


def load(*, private: bool = False, generation: int = 0) -> Library:
    """Find and load the library, and check its ABI.

    With `private`, a separate copy is loaded that shares nothing with an already loaded
    one. A forked child needs a private copy, because a Go runtime does not survive fork.
    `generation` is the number of forks since the first process; it makes the names of
    private copies unique.
    """
    with _descriptor_limit_kept():
        return _load(private, generation)


def _load(private: bool, generation: int) -> Library:
    path = find()
    if path == NAME:
        functions, path = _load_from_system()
        if not private:
            _abi.declare(functions, path)
            return Library(functions, path, False)
    if private:
        with _copy(path, generation) as name:
            functions = _dlopen(name, path)
    else:
        functions = _dlopen(path, path)
    _abi.declare(functions, path)
    return Library(functions, path, private)


@contextmanager
def _descriptor_limit_kept() -> Iterator[None]:
    """Restore the soft limit on open files after loading the library.

    Go's runtime raises it to the hard limit when it starts, and lowers it again only for
    programs that Go starts. Children of this process would inherit the raised limit, with
    which select() and programs that close every possible descriptor fail. The runtime has
    started by then, because `declare` has called the library.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        yield
    finally:
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] != soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _candidates() -> Iterator[Path]:
    package = Path(__file__).resolve().parent
    yield package / "_lib" / NAME
    checkout = package.parent.parent
    if (checkout / "go.mod").is_file():
        yield checkout / "build" / NAME


def _dlopen(name: str, path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as cause:
        fix = f"build it for this machine with `make lib`, or set {VARIABLE} to another file"
        if os.strerror(errno.EMFILE) in str(cause):
            fix = "close files, or raise the limit of open files (ulimit -n)"
        raise LibraryError(f"load library {path}: {cause} (fix: {fix})") from cause


def _load_from_system() -> tuple[ctypes.CDLL, str]:
    try:
        functions = ctypes.CDLL(NAME, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as cause:
        tried = "".join(f", {candidate}" for candidate in _candidates())
        raise LibraryError(
            f"load library {NAME}: not found; tried ${VARIABLE} (not set){tried}, and the "
            f"system's search path ({cause}) (fix: `make lib` in a source checkout, "
            f"`pip install` the package, or set {VARIABLE} to the file)"
        ) from cause
    return functions, _mapped_path(NAME)


def _mapped_path(name: str) -> str:
    """Return the path of a library that the dynamic linker has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.endswith("/" + name) or path == name:
                return "/" + path
    return name


@contextmanager
def _copy(path: str, generation: int) -> Iterator[str]:
    """Yield a name under which the dynamic linker loads a fresh copy of the file at path.

    The linker identifies a library by name and inode. Every copy has a new inode. The name
    can repeat if a grandchild gets the same descriptor number, so it contains the
    generation.
    """
    try:
        source = open(path, "rb")
    except OSError as cause:
        raise LibraryError(
            f"load library {path}: a forked process needs a copy of its own, and the file "
            f"cannot be read: {cause} (fix: start workers with multiprocessing's 'spawn')"
        ) from cause
    with source:
        try:
            target = open(os.memfd_create("libnebulaio", os.MFD_CLOEXEC), "wb")
            name = f"/proc/self/fd/{'./' * generation}{target.fileno()}"
        except OSError:
            # Without memfd (seccomp, old kernel), use a temporary file and remove it after loading.
            handle, name = tempfile.mkstemp(prefix="libnebulaio-", suffix=".so")
            target = open(handle, "wb")
        with target:
            try:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                yield name
            finally:
                if not name.startswith("/proc/self/fd/"):
                    os.unlink(name)
