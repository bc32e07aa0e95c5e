# SPDX-License-Identifier: Apache-2.0
"""We read the arrays that NumPy saves: every row is equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ours
import pytest


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64",
                                   "bool"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 2, 3), (2, 1 << 20)])
def test_we_read_numpy(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).integers(0, 2, shape).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    assert ours.samples("npy", tmp_path / "a.npy") == [ours.sample("", {"row": row.tobytes()}) for row in array]


@pytest.mark.parametrize(
    "array", [np.array([{}], object), np.ones((2, 3), order="F"), np.ones(3, ">f4"), np.array(["text"])],
    ids=["objects", "fortran", "big-endian", "text"],
)
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ours.Refused, match=r"a\.npy"):
        ours.samples("npy", tmp_path / "a.npy")
