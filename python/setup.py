# SPDX-License-Identifier: Apache-2.0
"""Builds the package: typed Python, its own libnebulaio.so and the nebulaio command.

The library and the command are compiled with Go from the sources of the project:
the checkout that this folder lies in, or the folder `source` of an sdist. The
environment can name finished files instead: NEBULAIO_LIBRARY and NEBULAIO_CLI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
ROOT = HERE / "source" if (HERE / "source").is_dir() else HERE.parent
LIBRARY = "libnebulaio.so"
COMMAND = "nebulaio"
# An sdist holds what `go build` needs of the checkout, without tests.
SOURCES = ("VERSION", "LICENSE", "go.mod", "go.sum", "*.go", "capi", "cmd", "include", "internal")
LEFT_OUT = ("*_test.go", "testdata", "__pycache__", "*.so")


def version() -> str:
    """The project's version, from the VERSION file at the root of the checkout."""
    try:
        return (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise SystemExit(
            f"nebulaio: {ROOT / 'VERSION'} is missing: the package is built inside a checkout "
            "of the whole project (fix: pip install ./python from the root of the checkout)"
        ) from None


def place(target: Path, variable: str, package: str, flags: list[str], cgo: str) -> None:
    """Put a native file at target: a copy of the file that variable names, else a fresh build of package."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prebuilt = os.environ.get(variable)
    if prebuilt:
        if not Path(prebuilt).is_file():
            raise SystemExit(f"nebulaio: {variable} names {prebuilt}, which is not a file")
        shutil.copyfile(prebuilt, target)
        target.chmod(0o755)
        return
    go = shutil.which("go")
    if go is None or not (ROOT / package).is_dir():
        why = "the go command is not on PATH" if go is None else f"{ROOT / package} is missing"
        raise SystemExit(
            f"nebulaio: cannot build {target.name}: {why} (fix: install Go 1.26 or newer and a C compiler, or install "
            f"a wheel, which needs neither, or set {variable} to a finished {target.name})"
        )
    command = [go, "build", "-trimpath", "-buildvcs=false", *flags, "-o", str(target), f"./{package}"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CGO_ENABLED": cgo})
    if done.returncode != 0:
        raise SystemExit(f"nebulaio: {' '.join(command)} failed in {ROOT}; its messages are above")


def place_library(target: Path) -> None:
    """Put libnebulaio.so at target."""
    # The map hides every symbol that is not in the header.
    exports = f"'-Wl,--version-script={ROOT / 'capi' / 'export.map'}'"
    flags = ["-buildmode=c-shared", f'-ldflags=-s -w -extldflags "{exports}"']
    place(target, "NEBULAIO_LIBRARY", "capi", flags, cgo="1")
    target.with_suffix(".h").unlink(missing_ok=True)  # cgo's generated header; ours is include/nebulaio


def place_command(target: Path) -> None:
    """Put the command at target. It needs no C compiler."""
    place(target, "NEBULAIO_CLI", "cmd/nebulaio", ["-ldflags=-s -w"], cgo="0")


class BuildWithLibrary(build_py):
    """build_py that also places the native files inside the package."""

    def run(self) -> None:
        super().run()
        parent = HERE if self.editable_mode else Path(self.build_lib).resolve()
        place_library(parent / "nebulaio" / "_lib" / LIBRARY)
        place_command(parent / "nebulaio" / "_lib" / COMMAND)


class SourcesOfGo(sdist):
    """sdist that takes the Go sources along, in the folder `source`."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = Path(base_dir) / "source"
        target.mkdir()
        for pattern in SOURCES:
            for path in sorted(ROOT.glob(pattern)):
                if path.is_dir():
                    shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns(*LEFT_OUT))
                elif not path.name.endswith("_test.go"):
                    shutil.copy2(path, target / path.name)


class PlatformWheel(bdist_wheel):
    """A wheel for one platform and every Python 3: the library is plain C to ctypes."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """A distribution that says that it holds native code."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    version=version(),
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel, "sdist": SourcesOfGo},
)
