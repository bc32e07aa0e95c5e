# SPDX-License-Identifier: Apache-2.0
"""Checks the environment of the tests, and gives the peers a place for their files."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a torchvision that was made for another torch. Such a torchvision fails with an unclear error."""
    have = importlib.metadata.version("torch")
    for text in importlib.metadata.requires("torchvision") or []:
        need = Requirement(text)
        if need.name == "torch" and not need.specifier.contains(have, prereleases=True):
            pytest.exit(
                f"torchvision needs {need}, and torch is {have}: rm -rf .venv-torch .venv-peers, then make test-peers",
                3)


def pytest_report_header() -> str:
    """Name the versions of the peers."""
    names = ["webdataset", "mosaicml-streaming", "litdata", "megatron-core", "tfrecord", "tensorboard", "numpy",
             "torch"]
    return "peers: " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


@pytest.fixture(scope="session")
def litdata_packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data sets of litdata_packs.py."""
    folder = tmp_path_factory.mktemp("litdata")
    env = os.environ | {"HOME": str(folder), "DATA_OPTIMIZER_CACHE_FOLDER": str(folder / "cache"),
                        "DATA_OPTIMIZER_DATA_CACHE_FOLDER": str(folder / "data")}
    program = Path(__file__).with_name("litdata_packs.py")
    done = subprocess.run([sys.executable, "-W", "ignore", str(program), str(folder)], env=env, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caches of the peers below the folder of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "litdata-cache"))
    monkeypatch.setenv("DATA_OPTIMIZER_DATA_CACHE_FOLDER", str(tmp_path / "litdata-data"))
