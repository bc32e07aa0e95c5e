# SPDX-License-Identifier: Apache-2.0
"""Checks the files that `make release` left in dist/, for this machine's architecture.

`make test-release` runs `make release` first. No test can use Go: each command runs with a PATH without it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
VERSION = (ROOT / "VERSION").read_text().strip()
MACHINE = os.uname().machine
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
GLIBC = (2, 17)
BINARIES = DIST / f"linux-{ARCH}"
WHEEL = DIST / f"nebulaio-{VERSION}-py3-none-manylinux_2_17_{MACHINE}.whl"
SDIST = DIST / f"nebulaio-{VERSION}.tar.gz"
DEB = DIST / f"nebulaio_{VERSION}_{ARCH}.deb"
WITHOUT_GO = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def run(*command: str | Path, **environment: str) -> str:
    """Run a command without Go on its PATH and return its output, or fail with the output."""
    done = subprocess.run(
        [str(part) for part in command], env={**WITHOUT_GO, **environment}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def no_go() -> None:
    """The PATH of these tests must not contain Go, or the tests prove nothing."""
    assert shutil.which("go", path=WITHOUT_GO["PATH"]) is None


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with only the wheel installed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", WHEEL)
    return folder


@pytest.mark.parametrize("name", ["nebulaio", "libnebulaio.so"])
def test_binaries_need_an_old_glibc_alone(name: str) -> None:
    versions = run("readelf", "--version-info", "--wide", BINARIES / name)
    found = {tuple(map(int, text.split("."))) for text in re.findall(r"GLIBC_([0-9.]+)", versions)}
    assert found or name == "nebulaio", "a library that needs no symbol of glibc was not read"
    assert all(each <= GLIBC for each in found), found
    dynamic = run("readelf", "--dynamic", "--wide", BINARIES / name)
    assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) == {"libc.so.6", "libpthread.so.0", "libdl.so.2"}
    assert not re.search(r" \.debug_\w+", run("readelf", "--sections", "--wide", BINARIES / name))


def test_command_without_cgo_opens_the_driver(tmp_path: Path) -> None:
    """The command is built without cgo and still opens libcuda: here the fake library of the tests."""
    run("cc", "-shared", "-fPIC", "-pthread", "-o", tmp_path / "libcuda.so.1",
        ROOT / "internal/device/fakegpu/csrc/libcuda.c")
    model = tmp_path / "tiny.safetensors"
    run(BINARIES / "nebulaio", "generate", "--shapes", "tiny", "--out", model)
    said = run(BINARIES / "nebulaio", "load", model, "--device", "cuda:0", "--json", LD_LIBRARY_PATH=str(tmp_path))
    assert json.loads(said)["loads"][0]["device"]["id"] == "cuda:0"


def test_checksums_cover_every_file() -> None:
    listed = {line.split(maxsplit=1)[1].strip() for line in (DIST / "SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(DIST)) for path in DIST.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    assert listed == there
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=DIST, check=True)


def test_licences_are_complete() -> None:
    """Each module in the command's build information has a licence and a line in the SBOM."""
    go = shutil.which("go")
    assert go is not None, "make test-release runs with Go on its PATH"
    text = (DIST / "THIRD_PARTY_LICENSES.txt").read_text()
    bill = json.loads((DIST / f"nebulaio-{VERSION}.sbom.json").read_text())
    components = {(each["name"], each["version"]) for each in bill["components"]}
    for name in ("nebulaio", "libnebulaio.so"):
        info = subprocess.run([go, "version", "-m", str(BINARIES / name)], check=True, stdout=subprocess.PIPE,
                              text=True).stdout
        modules = re.findall(r"^\tdep\t(\S+)\t(\S+)", info, re.MULTILINE)
        assert len(modules) > 3
        for path, version in modules:
            at = text.index(f"\n{path} {version}\n")
            section = text[at : text.find("=" * 100 + "\n", at + len(path) + 120)]
            assert len(section) > 400, f"{path} {version} has no licence text"
            assert (path, version) in components
    assert "The Go Authors" in text[: text.index("\nzig ")] and "\nzig " in text


def test_wheel_holds_everything() -> None:
    with zipfile.ZipFile(WHEEL) as content:
        names = set(content.namelist())
        info = f"nebulaio-{VERSION}.dist-info"
        assert {"nebulaio/_lib/libnebulaio.so", "nebulaio/_lib/nebulaio", "nebulaio/py.typed"} <= names
        assert {f"{info}/licenses/LICENSE", f"{info}/licenses/LICENSE.third-party.txt"} <= names
        assert f"Tag: py3-none-manylinux_2_17_{MACHINE}\n" in content.read(f"{info}/WHEEL").decode()
        assert not [name for name in names if "test" in name.split("/")[0] or name.endswith((".pyc", ".h"))]
        for name in ("nebulaio", "libnebulaio.so"):
            assert content.read(f"nebulaio/_lib/{name}") == (BINARIES / name).read_bytes()
            assert content.getinfo(f"nebulaio/_lib/{name}").external_attr >> 16 & 0o111, f"{name} cannot be executed"


def test_wheel_works_without_go(installed: Path, tmp_path: Path) -> None:
    """The package loads a file with its own library, its command runs, and NumPy is not imported."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    header += b" " * (-len(header) % 8)
    model = tmp_path / "m.safetensors"
    model.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<6f", *range(6)))
    code = (
        "import sys, nebulaio; assert not {'numpy', 'ctypes', 'dataclasses'} & set(sys.modules), sorted(sys.modules); "
        "(tensor,) = nebulaio.safetensors.inspect(sys.argv[1])['tensors']; print(tensor['name'], nebulaio.library_path())"
    )
    name, library = run(installed / "bin" / "python", "-c", code, model).split()
    assert name == "w" and library.startswith(str(installed))
    assert f"nebulaio {VERSION}" in run(installed / "bin" / "nebulaio", "version")
    assert "host" in run(installed / "bin" / "nebulaio", "load", model, "--device", "host")


def test_command_of_the_wheel_gives_its_exit_code(installed: Path) -> None:
    done = subprocess.run([installed / "bin" / "nebulaio", "load", "/nowhere"], env=WITHOUT_GO, stderr=subprocess.PIPE)
    assert done.returncode == 3 and b"/nowhere" in done.stderr


def test_sdist_holds_the_sources_and_says_that_it_needs_go(installed: Path, tmp_path: Path) -> None:
    with tarfile.open(SDIST) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {"setup.py", "LICENSE", "LICENSE.third-party.txt", "source/go.mod", "source/VERSION",
            "source/capi/export.map"} <= names
    assert "source/cmd/nebulaio/main.go" in names and not [name for name in names if name.endswith(("_test.go", ".so"))]
    # The environment of the tests has setuptools; the one with the wheel does not.
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir",
               str(tmp_path), str(SDIST)]
    done = subprocess.run(command, env=WITHOUT_GO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode != 0
    assert "the go command is not on PATH (fix: install Go" in done.stdout


def test_deb_holds_everything(tmp_path: Path) -> None:
    fields = run("dpkg-deb", "--field", DEB)
    for line in ("Package: nebulaio", f"Version: {VERSION}", f"Architecture: {ARCH}",
                 "Depends: libc6 (>= 2.17), adduser"):
        assert line + "\n" in fields
    run("dpkg-deb", "--raw-extract", DEB, tmp_path)
    libraries = tmp_path / "usr/lib" / f"{MACHINE}-linux-gnu"
    assert (tmp_path / "usr/bin/nebulaio").read_bytes() == (BINARIES / "nebulaio").read_bytes()
    assert (libraries / "libnebulaio.so").resolve().read_bytes() == (BINARIES / "libnebulaio.so").read_bytes()
    for name in (
        "usr/include/nebulaio/nebulaio.h",
        "usr/lib/systemd/system/nebulaio.service",
        "usr/lib/sysusers.d/nebulaio.conf",
        "usr/share/bash-completion/completions/nebulaio",
        "usr/share/doc/nebulaio/copyright",
        "usr/share/doc/nebulaio/THIRD_PARTY_LICENSES.txt",
        "usr/share/doc/nebulaio/README.md",
        "usr/share/doc/nebulaio/docs/README.md",
        "usr/share/doc/nebulaio/docs/server.md",
        "usr/share/doc/nebulaio/docs/design/store.md",
        "usr/share/doc/nebulaio/docs/guide/install.md",
        "etc/nebulaio/nebulaio.yaml",
    ):
        assert (tmp_path / name).stat().st_size > 0, name
    assert "ExecStart=/usr/bin/nebulaio server" in (tmp_path / "usr/lib/systemd/system/nebulaio.service").read_text()
    for script in ("postinst", "prerm", "postrm"):
        run("sh", "-n", tmp_path / "DEBIAN" / script)
    assert "usr/local" not in run("dpkg-deb", "--contents", DEB)


def test_archive_can_be_unpacked_anywhere(tmp_path: Path) -> None:
    name = f"nebulaio-{VERSION}-linux-{ARCH}"
    with tarfile.open(DIST / f"{name}.tar.gz") as content:
        content.extractall(tmp_path, filter="data")
    assert f"nebulaio {VERSION}" in run(tmp_path / name / "bin/nebulaio", "version")
    assert (tmp_path / name / "lib/libnebulaio.so.3").resolve().read_bytes() == (
        BINARIES / "libnebulaio.so").read_bytes()


def test_nothing_names_the_folder_of_the_build() -> None:
    for name in ("nebulaio", "libnebulaio.so"):
        assert str(ROOT).encode() not in (BINARIES / name).read_bytes(), name
