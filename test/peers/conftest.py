# SPDX-License-Identifier: Apache-2.0
"""Checks the environment of the tests, and gives the peers a place for their files."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from packaging.requirements import Requirement


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a torchvision that was made for another torch. Such a torchvision fails with an unclear error."""
    have = importlib.metadata.version("torch")
    for text in importlib.metadata.requires("torchvision") or []:
        need = Requirement(text)
        if need.name == "torch" and not need.specifier.contains(have, prereleases=True):
            pytest.exit(f"torchvision needs {need}, and torch is {have}: rm -rf .venv-torch .venv-peers, then make test-peers", 3)


def pytest_report_header() -> str:
    """Name the versions of the peers."""
    names = ["webdataset", "mosaicml-streaming", "litdata", "megatron-core", "tfrecord", "tensorboard", "numpy", "torch"]
    return "peers: " + ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caches of the peers below the folder of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DATA_OPTIMIZER_CACHE_FOLDER", str(tmp_path / "litdata-cache"))
    monkeypatch.setenv("DATA_OPTIMIZER_DATA_CACHE_FOLDER", str(tmp_path / "litdata-data"))
    # Workers of litdata are other processes, and import the functions of these tests by name.
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
