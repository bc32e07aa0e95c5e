# SPDX-License-Identifier: Apache-2.0
"""The package as pip would install it, as far as entry points go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let importlib.metadata find the entry points of python/pyproject.toml."""
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
    info = folder / "nebulaio-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nebulaio\nVersion: 0.0\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    assert str(folder) in sys.path
