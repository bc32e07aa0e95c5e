# SPDX-License-Identifier: Apache-2.0
"""Finding and loading libnebulaio.so.

Nothing here runs at import. The search order is: the file that the environment
variable NEBULAIO_LIBRARY names (and then nothing else), the copy inside the
installed package, build/libnebulaio.so of a source checkout, and last the
dynamic linker's own search.
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
    """A loaded libnebulaio.so: its declared functions and where it came from.

    `functions` has every function of the header as an attribute, with argument
    and result types declared; the calls release the GIL.
    """

    def __init__(self, functions: ctypes.CDLL, path: str, private: bool) -> None:
        self.functions = functions
        self.path = path
        self.private = private

    def version(self) -> str:
        """The version the library was built as, such as "0.1.0"."""
        return _abi.text(self.functions.nebulaio_version, errors=False).decode()


def find() -> str:
    """Return the path of the library, or its bare name when only the linker can know.

    Raises LibraryError when NEBULAIO_LIBRARY names a file that does not exist.
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

    With `private`, a copy is loaded that shares nothing with one already mapped
    into this process: what a forked child needs, since a Go runtime does not
    survive fork. `generation` is the number of forks between the first process
    and this one; it keeps the names of private copies apart.
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
    """Put back the soft limit on open files after loading the library.

    Go's runtime raises it to the hard limit when it starts, and lowers it again
    only for programs that Go itself starts. Children of this process would inherit
    the raised limit, with which select() and programs that close every possible
    descriptor fail. `declare` has called the library by then, so that its runtime
    has started.
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
        fix = f"build it for this machine with `make lib`, or name another one in {VARIABLE}"
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
    """Where the dynamic linker found a library that it has mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.endswith("/" + name) or path == name:
                return "/" + path
    return name


@contextmanager
def _copy(path: str, generation: int) -> Iterator[str]:
    """A name under which the dynamic linker sees a fresh copy of the file at path.

    The linker knows a library by name and by inode. The inode is new with every
    copy; the name repeats when a grandchild gets the same descriptor number, so
    the generation is written into it.
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
            # No memfd here (seccomp, an old kernel): a file whose name is removed once mapped.
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
