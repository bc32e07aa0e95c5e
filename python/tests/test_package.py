# SPDX-License-Identifier: Apache-2.0
"""The package itself: a wheel with its own library, documented public names, small modules."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nebulaio
import pytest
import serving
from nebulaio.__main__ import main as command
from support import PACKAGE, ROOT, python


def _wheel(target: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Build a wheel from a copy of the package, so that the checkout stays clean."""
    for package, least in (("pip", 1), ("setuptools", 77)):
        found = importlib.util.find_spec(package) and importlib.metadata.version(package)
        if not found or int(found.partition(".")[0]) < least:
            pytest.skip(f"{package} {least} is not installed")
    checkout = target / "checkout"
    ignored = shutil.ignore_patterns("build", "tests", "_lib", "__pycache__", "*.egg-info", ".*")
    shutil.copytree(PACKAGE, checkout / "python", ignore=ignored, dirs_exist_ok=True)
    shutil.copy(ROOT / "VERSION", checkout)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    return subprocess.run(
        [*command, "--wheel-dir", str(target), str(checkout / "python")],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


def test_wheel_holds_the_library_and_works_alone(tmp_path: Path, library: str) -> None:
    done = _wheel(tmp_path, {"NEBULAIO_LIBRARY": library, "NEBULAIO_CLI": serving.program()})
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    name, version, tag, abi, platform = wheel.stem.split("-")
    assert (name, version, tag, abi) == ("nebulaio", nebulaio.__version__, "py3", "none")
    assert platform.startswith("linux_")
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
        content.extractall(tmp_path / "site")
    assert {"nebulaio/py.typed", "nebulaio/_lib/libnebulaio.so", "nebulaio/_lib/nebulaio",
            "nebulaio/_frameworks/torch.py", "nebulaio/data/_loader.py"} <= names
    out = python(
        "import nebulaio; print(nebulaio.__file__, nebulaio.library_path(), nebulaio.__version__)",
        env={"PYTHONPATH": str(tmp_path / "site"), "NEBULAIO_LIBRARY": ""},
    )
    package, path, found = out.split()
    assert package.startswith(str(tmp_path)) and path.startswith(str(tmp_path))
    assert found == version


def test_wheel_without_go_or_library_says_so(tmp_path: Path) -> None:
    done = _wheel(tmp_path, {"NEBULAIO_LIBRARY": "", "PATH": str(Path(sys.executable).parent)})
    assert done.returncode != 0
    assert "NEBULAIO_LIBRARY" in done.stdout + done.stderr
    done = _wheel(tmp_path, {"NEBULAIO_LIBRARY": "/nowhere.so"})
    assert done.returncode != 0
    assert "/nowhere.so" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "module", [nebulaio, nebulaio.data, nebulaio.data.decode, nebulaio.errors, nebulaio.gpudirect, nebulaio.safetensors]
)
def test_public_names_are_documented(module: object) -> None:
    assert inspect.getdoc(module)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value) and str(getattr(value, "__module__", "")).startswith("nebulaio"):
            assert inspect.getdoc(value), f"{name} says nothing about itself"


def test_modules_are_small() -> None:
    for module in (PACKAGE / "nebulaio").rglob("*.py"):
        lines = module.read_text().splitlines()
        assert len(lines) <= 350, module
        assert lines[0] == "# SPDX-License-Identifier: Apache-2.0", module


def test_command_reads_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """``python -m nebulaio`` explains itself and refuses what it does not know."""
    for arguments, code in ((["--help"], 0), (["--bogus"], 2), (["word"], 2)):
        with pytest.raises(SystemExit) as ended:
            command(arguments)
        assert ended.value.code == code, arguments
        assert "usage: python -m nebulaio" in "".join(capsys.readouterr()), arguments
