# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: the typed package and its own libnebulaio.so.

The library is compiled from the checkout that this folder lies in
(``go build -buildmode=c-shared ./capi``), or copied from the file that the
environment variable NEBULAIO_LIBRARY names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIBRARY = "libnebulaio.so"


def version() -> str:
    """The project's version, from the VERSION file at the root of the checkout."""
    try:
        return (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise SystemExit(
            f"nebulaio: {ROOT / 'VERSION'} is missing: the package is built inside a checkout "
            "of the whole project (fix: pip install ./python from the root of the checkout)"
        ) from None


def place_library(target: Path) -> None:
    """Put libnebulaio.so at target: a copy of $NEBULAIO_LIBRARY, else a fresh build."""
    target.parent.mkdir(parents=True, exist_ok=True)
    prebuilt = os.environ.get("NEBULAIO_LIBRARY")
    if prebuilt:
        if not Path(prebuilt).is_file():
            raise SystemExit(f"nebulaio: NEBULAIO_LIBRARY names {prebuilt}, which is not a file")
        shutil.copyfile(prebuilt, target)
        target.chmod(0o755)
        return
    go = shutil.which("go")
    if go is None or not (ROOT / "capi").is_dir():
        why = "the go command is not on PATH" if go is None else f"{ROOT / 'capi'} is missing"
        raise SystemExit(
            f"nebulaio: cannot build {LIBRARY}: {why} (fix: install Go and a C compiler and build inside a "
            f"checkout, or set NEBULAIO_LIBRARY to a prebuilt {LIBRARY})"
        )
    # The map hides every symbol that is not in the header.
    exports = f"'-Wl,--version-script={ROOT / 'capi' / 'export.map'}'"
    command = [go, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false"]
    command.append(f'-ldflags=-s -w -extldflags "{exports}"')
    done = subprocess.run([*command, "-o", str(target), "./capi"], cwd=ROOT, env={**os.environ, "CGO_ENABLED": "1"})
    if done.returncode != 0:
        raise SystemExit(f"nebulaio: {' '.join(command)} ./capi failed in {ROOT}; its messages are above")
    target.with_suffix(".h").unlink(missing_ok=True)  # cgo's generated header; ours is include/nebulaio


class BuildWithLibrary(build_py):
    """build_py that also places the native library inside the package."""

    def run(self) -> None:
        super().run()
        parent = HERE if self.editable_mode else Path(self.build_lib).resolve()
        place_library(parent / "nebulaio" / "_lib" / LIBRARY)


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
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
