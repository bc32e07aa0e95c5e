# SPDX-License-Identifier: Apache-2.0
"""The small writer and the header reader."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from nbench import models, stfile


def test_header_and_file_agree(small: Path) -> None:
    header = stfile.read_header(small)
    assert header.size == small.stat().st_size == header.tensors[-1].end
    assert header.data_start % 8 == 0
    by_name = {t.name: t for t in header.tensors}
    assert by_name["c.weight"].shape == (4096, 1024)
    assert by_name["c.weight"].end - by_name["c.weight"].start == 4096 * 1024 * 2
    assert by_name["empty"].start == by_name["empty"].end


def test_seed_decides_content(tmp_path: Path) -> None:
    files = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(files)}.safetensors"
        stfile.write(path, [("w", (1000,))], seed=seed)
        files.append(path.read_bytes())
    assert files[0] == files[1] != files[2]


def test_values_are_finite(tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    stfile.write(path, [("w", (50_000,))], dtype="F16")
    tensor = stfile.read_header(path).tensors[0]
    raw = path.read_bytes()[tensor.start : tensor.end]
    assert all(abs(value) < 65504 for (value,) in struct.iter_unpack("<e", raw))
    high = raw[1::2]  # the same bytes as bfloat16: its exponent is never all ones
    assert all((byte & 0x7F) != 0x7F for byte in high)


@pytest.mark.parametrize("content", [b"", b"\xff" * 16])
def test_not_a_safetensors_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        stfile.read_header(path)


def test_shapes_are_those_of_the_models() -> None:
    assert len(models.MODELS["0.6b"].shapes()) == 311
    assert len(models.MODELS["7b"].shapes()) == 339
    assert models.MODELS["7b"].bytes() == 15_231_233_024
