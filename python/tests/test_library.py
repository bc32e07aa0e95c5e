# SPDX-License-Identifier: Apache-2.0
"""The library: search order, ABI check, declared types, private copies."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nebulaio
import pytest
from nebulaio import _abi, _library, _process
from nebulaio.errors import LibraryError
from support import ROOT, python


def test_import_loads_nothing() -> None:
    code = """
import sys
before = open('/proc/self/maps').read()
import nebulaio, nebulaio.safetensors
maps = open('/proc/self/maps').read()
assert 'nebulaio.so' not in maps
assert not {'torch', 'numpy', 'cupy', 'ml_dtypes'} & set(sys.modules)
"""
    python(code)


def test_named_library_that_is_missing(fresh_process: _process.Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_library.VARIABLE, "/nowhere/libnebulaio.so")
    with pytest.raises(LibraryError, match=r"/nowhere/libnebulaio\.so: no such file .*NEBULAIO_LIBRARY"):
        nebulaio.version()


def test_error_names_everything_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_library.VARIABLE, raising=False)
    monkeypatch.setattr(_library, "_candidates", lambda: iter([Path("/a/_lib/x.so"), Path("/b/build/x.so")]))
    with pytest.raises(LibraryError) as caught:
        _library.load()
    for part in ("NEBULAIO_LIBRARY", "/a/_lib/x.so", "/b/build/x.so", "system", "fix:"):
        assert part in str(caught.value)


def test_candidates_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(nebulaio.__file__).parent
    assert list(_library._candidates()) == [package / "_lib" / _library.NAME, ROOT / "build" / _library.NAME]


def test_not_a_library(fresh_process: _process.Holder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "libnebulaio.so"
    text.write_text("not ELF")
    monkeypatch.setenv(_library.VARIABLE, str(text))
    with pytest.raises(LibraryError, match=re.escape(str(text))):
        nebulaio.version()


def test_foreign_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "libother.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(other)], input=b"int x;", check=True)
    monkeypatch.setenv(_library.VARIABLE, str(other))
    with pytest.raises(LibraryError, match=r"nebulaio_abi_version.*not libnebulaio"):
        _library.load()


def test_abi_mismatch(build_fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_library.VARIABLE, str(build_fake("-DFAKE_ABI=99")))
    with pytest.raises(LibraryError, match="ABI version is 99, this package needs 6"):
        _library.load()


def test_missing_symbol(build_fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_library.VARIABLE, str(build_fake("-Dnebulaio_report=gone")))
    with pytest.raises(LibraryError, match="nebulaio_report is missing"):
        _library.load()


def test_system_search(fake_library: Path) -> None:
    code = """
import sys
from pathlib import Path
from nebulaio import _library
_library._candidates = lambda: iter(())
loaded = _library.load()
print(loaded.version(), loaded.path)
private = _library.load(private=True, generation=1)
assert private.functions._handle != loaded.functions._handle
"""
    env = {"LD_LIBRARY_PATH": str(fake_library.parent), _library.VARIABLE: ""}
    assert python(code, env=env).split() == ["0.0.0-fake", str(fake_library)]


def test_private_copies_are_apart(fake: _process.Holder) -> None:
    first = fake.load()
    copies = [_library.load(private=True, generation=generation) for generation in (1, 2, 3)]
    handles = {library.functions._handle for library in (first, *copies)}
    assert len(handles) == 4
    assert all(copy.private and copy.path == first.path for copy in copies)


def test_private_copy_without_memfd(fake: _process.Holder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError("seccomp")

    monkeypatch.setattr("os.memfd_create", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    copy = _library.load(private=True, generation=1)
    assert copy.version() == "0.0.0-fake"
    assert not list(tmp_path.iterdir())


def _header_functions() -> dict[str, int]:
    """Function names of the header with their number of arguments."""
    text = (ROOT / "include/nebulaio/nebulaio.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = re.findall(r"^int32_t (nebulaio_\w+)\(([^)]*)\);", text, flags=re.MULTILINE)
    return {name: 0 if arguments.strip() == "void" else arguments.count(",") + 1 for name, arguments in found}


def test_every_function_of_the_header_is_declared() -> None:
    assert {name: len(arguments) for name, (_, arguments) in _abi.PROTOTYPES.items()} == _header_functions()
    assert all(result is ctypes.c_int32 for result, _ in _abi.PROTOTYPES.values())


def test_status_codes_are_the_headers() -> None:
    text = (ROOT / "include/nebulaio/nebulaio.h").read_text()
    codes = {int(number) for number in re.findall(r"NEBULAIO_ERR_\w+ = (\d+)", text)}
    known = {status for status in range(1, 1000) if nebulaio.errors._BY_STATUS.get(status)}
    assert codes == known
    assert f"#define NEBULAIO_ABI_VERSION {_abi.ABI_VERSION}\n" in text


def test_real_library_says_its_version(library: str) -> None:
    assert nebulaio.version() == nebulaio.__version__ == (ROOT / "VERSION").read_text().strip()
    assert nebulaio.library_path() == library


def test_real_devices_name_the_host() -> None:
    assert "host" in str(nebulaio.devices())


def test_module_prints_what_is_there(library: str) -> None:
    out = python("import runpy; runpy.run_module('nebulaio', run_name='__main__', alter_sys=True)")
    assert nebulaio.__version__ in out
    assert library in out
    assert "host" in out


def test_texts_do_not_mix() -> None:
    """A text keeps its bytes when the memory of its call is used again, also within another call."""

    def says(words: bytes, meanwhile: Callable[[], None] = lambda: None) -> Callable[..., int]:
        def function(out: Any, capacity: int, need: Any) -> int:
            size = ctypes.cast(need, ctypes.POINTER(ctypes.c_size_t))
            meanwhile()
            size[0] = len(words)
            if len(words) >= capacity:
                return 1
            ctypes.memmove(out, words + b"\0", len(words) + 1)
            return _abi.OK

        return function

    long = b"l" * 200_000
    found: list[bytes] = []

    def inside() -> None:
        found.append(_abi.text(says(b"inner"), errors=False))

    first = _abi.text(says(b"first"), errors=False)
    outer = _abi.text(says(b"outer", inside), errors=False)
    assert (first, outer, found) == (b"first", b"outer", [b"inner"])
    assert _abi.text(says(long), errors=False) == long
    assert _abi.text(says(b"last"), errors=False) == b"last"
