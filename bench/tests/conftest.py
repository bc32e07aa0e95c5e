# SPDX-License-Identifier: Apache-2.0
"""Makes the harness importable, and provides small model files to tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "tests"))  # for `held`

from nbench import stfile

SHAPES = [("a.weight", (1024, 512)), ("b.bias", (7,)), ("c.weight", (4096, 1024)), ("empty", (0, 3)), ("scalar", ())]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A float16 safetensors file of about 9 MB."""
    path = tmp_path / "small.safetensors"
    stfile.write(path, SHAPES, dtype="F16", seed=3)
    return path
