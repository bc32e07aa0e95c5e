# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the real library, which must be there, and a fake one for what it cannot be made to do."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nebulaio import _library, _process
from support import ROOT

# Without it JAX takes three quarters of a GPU's memory at its first use, also where a test uses the host alone.
# Several processes of tests share the card. JAX reads the variable when its backend starts, so it is set before the
# import, and child processes inherit it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Ctrl-C works in the tests, also where they run in the background of a shell, which lets its jobs ignore it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def library() -> str:
    """The path of the real libnebulaio.so; the tests fail without it."""
    path = _library.find()
    if path == _library.NAME:
        pytest.fail("libnebulaio.so is not built (fix: `make lib`, or set NEBULAIO_LIBRARY)", pytrace=False)
    return path


@pytest.fixture(scope="session")
def build_fake(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the fake library with extra flags; returns its path."""

    def build(*flags: str) -> Path:
        target = tmp_path_factory.mktemp("fake") / "libnebulaio.so"
        source = Path(__file__).with_name("fake_nebulaio.c")
        subprocess.run(
            ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'include'}", *flags]
            + ["-o", str(target), str(source)],
            check=True,
        )
        return target

    return build


@pytest.fixture(scope="session")
def fake_library(build_fake: Callable[..., Path]) -> Path:
    """The fake library as it comes."""
    return build_fake()


@pytest.fixture
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[_process.Holder]:
    """A holder as in a process that has not used the library yet."""
    holder = _process.Holder()
    monkeypatch.setattr(_process, "_holder", holder)
    yield holder


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, fake_library: Path, fresh_process: _process.Holder) -> _process.Holder:
    """A process that uses the fake library, whose log is empty."""
    monkeypatch.setenv(_library.VARIABLE, str(fake_library))
    functions = fresh_process.load().functions
    functions.fake_log.restype = ctypes.c_char_p
    functions.fake_forget()
    return fresh_process
