# SPDX-License-Identifier: Apache-2.0
"""Megatron reads our .bin and .idx files, and we read its files: every sequence and document is equal."""

from __future__ import annotations

from pathlib import Path

import made
import numpy as np
import ours
import pytest
import torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

DTYPES = ["uint8", "int8", "int16", "uint16", "int32", "int64"]


def documents(dtype: str, count: int = 40, seed: int = 1) -> list[list[np.ndarray]]:
    """Return documents of one to four sequences. Some sequences are empty, and one is big."""
    rng = np.random.default_rng(seed)
    high = min(np.iinfo(dtype).max, 60_000)
    found = [
        [rng.integers(0, high, rng.choice([0, 1, 2, 100, 4097])).astype(dtype) for _ in range(rng.integers(1, 5))]
        for _ in range(count)
    ]
    found[3][0] = rng.integers(0, high, made.BIG // np.dtype(dtype).itemsize).astype(dtype)
    return found


def expected(found: list[list[np.ndarray]]) -> list[tuple[int, tuple[int, str]]]:
    """Return the number of the document and the digest of each sequence."""
    return [(n, ours.digest(sequence.tobytes())) for n, document in enumerate(found) for sequence in document]


def listed(path: Path) -> list[tuple[int, tuple[int, str]]]:
    """Return the same, as our reader finds it."""
    return [
        (line["document"], (line["parts"]["tokens"]["size"], line["parts"]["tokens"]["sha256"]))
        for line in ours.lines("bin", path)
    ]


def theirs(prefix: Path, **options: bool) -> list[tuple[int, tuple[int, str]]]:
    """Return the same, as Megatron finds it."""
    dataset = IndexedDataset(str(prefix), **options)
    ends = dataset.document_indices
    return [
        (n, ours.digest(np.asarray(dataset[sequence]).tobytes()))
        for n in range(len(ends) - 1)
        for sequence in range(ends[n], ends[n + 1])
    ]


def build(prefix: Path, found: list[list[np.ndarray]], dtype: str) -> None:
    """Write a data set with Megatron."""
    prefix.parent.mkdir(exist_ok=True)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.dtype(dtype).type)
    for document in found:
        for sequence in document:
            builder.add_item(torch.from_numpy(sequence))
        builder.end_document()
    builder.finalize(f"{prefix}.idx")


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_megatron_reads_ours(tmp_path: Path, dtype: str, mmap: bool) -> None:
    found = documents(dtype)
    source = ours.write(
        tmp_path / "source",
        [(f"{n:04d}/{m}", {"tok": sequence.tobytes()}) for n, document in enumerate(found)
         for m, sequence in enumerate(document)],
    )
    out = ours.pack("bin", source, tmp_path / "out", dtype=dtype)
    assert theirs(out / "data", mmap=mmap) == expected(found) == listed(out)
    assert IndexedDataset(str(out / "data")).index.dtype == np.dtype(dtype).type


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_read_megatron(tmp_path: Path, dtype: str) -> None:
    found = documents(dtype)
    build(tmp_path / "in" / "data", found, dtype)
    assert listed(tmp_path / "in") == expected(found) == theirs(tmp_path / "in" / "data")


@pytest.mark.parametrize("dtype", DTYPES)
def test_our_files_are_theirs_byte_by_byte(tmp_path: Path, dtype: str) -> None:
    found = documents(dtype)
    build(tmp_path / "in" / "data", found, dtype)
    source = ours.write(
        tmp_path / "source",
        [(f"{n:04d}/{m}", {"tok": sequence.tobytes()}) for n, document in enumerate(found)
         for m, sequence in enumerate(document)],
    )
    out = ours.pack("bin", source, tmp_path / "out", dtype=dtype)
    for name in ("data.bin", "data.idx"):
        assert (out / name).read_bytes() == (tmp_path / "in" / name).read_bytes()


def test_we_read_several_and_merged_files(tmp_path: Path) -> None:
    shards = [documents("uint16", 10, seed) for seed in range(5)]
    for n, found in enumerate(shards):
        build(tmp_path / "in" / f"shard-{n}", found, "uint16")
    assert listed(tmp_path / "in") == [line for found in shards for line in expected(found)]
    (tmp_path / "merged").mkdir()
    builder = IndexedDatasetBuilder(str(tmp_path / "merged" / "all.bin"), dtype=np.uint16)
    for n in range(5):
        builder.add_index(str(tmp_path / "in" / f"shard-{n}"))
    builder.finalize(str(tmp_path / "merged" / "all.idx"))
    assert listed(tmp_path / "merged") == expected([document for found in shards for document in found])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_refused(tmp_path: Path, dtype: str) -> None:
    """Forks of Megatron give the codes of float32 and float64 other meanings."""
    build(tmp_path / "in" / "data", [[np.ones(3, dtype)]], dtype)
    with pytest.raises(ours.Refused, match=r"data\.idx.*[67]"):
        ours.samples("bin", tmp_path / "in")


def test_a_truncated_bin_is_refused(tmp_path: Path) -> None:
    build(tmp_path / "in" / "data", documents("int32"), "int32")
    tokens = tmp_path / "in" / "data.bin"
    tokens.write_bytes(tokens.read_bytes()[:-1])
    with pytest.raises(ours.Refused, match=r"data\.(bin|idx)"):
        ours.samples("bin", tmp_path / "in")
