# SPDX-License-Identifier: Apache-2.0
"""nebulaio.safetensors.flax, tensorflow, paddle and mlx beside those of safetensors, where the framework is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import nebulaio.safetensors.numpy
import numpy
import pytest


@pytest.mark.parametrize(("module", "package"),
                         [("flax", "jax"), ("tensorflow", "tensorflow"), ("paddle", "paddle"), ("mlx", "mlx.core")])
def test_as_the_reference(module: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    theirs, ours = importlib.import_module(f"safetensors.{module}"), importlib.import_module(
        f"nebulaio.safetensors.{module}")
    arrays: dict[str, Any] = {
        "f": numpy.arange(6, dtype="f4").reshape(2, 3), "i": numpy.arange(4, dtype="i4"), "h": numpy.ones((2, 2), "f2"),
        "b": numpy.array([True, False]), "u": numpy.arange(3, dtype="u1"),
    }
    path = tmp_path / "t.safetensors"
    nebulaio.safetensors.numpy.save_file(arrays | {"bf": numpy.arange(4).astype(bfloat16)}, path)
    wanted, found = theirs.load_file(path), ours.load_file(path)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert type(found[name]) is type(tensor) and found[name].dtype == tensor.dtype
        assert ours.save({"t": found[name]}) == ours.save({"t": tensor})
    nebulaio.safetensors.numpy.save_file(arrays, path)  # the reference saves no bfloat16 from some frameworks
    data = path.read_bytes()
    assert ours.save(ours.load(data), {"k": "v"}) == theirs.save(theirs.load(data), {"k": "v"})
    ours.save_file(ours.load(data), tmp_path / "out.safetensors")
    assert ours.save(theirs.load_file(tmp_path / "out.safetensors")) == ours.save(ours.load(data))
