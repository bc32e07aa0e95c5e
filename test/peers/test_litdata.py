# SPDX-License-Identifier: Apache-2.0
"""We read the chunks that litdata writes: every sample is equal."""

from __future__ import annotations

from pathlib import Path

import litdata
import numpy as np
import ours
import pytest
from litdata.streaming.item_loader import TokensLoader
from litdata_packs import BLOBS, BLOCK, ROWS, leaves, tokens


@pytest.mark.parametrize("name", ["few", "small", "one"])
def test_we_read_litdata(litdata_packs: Path, name: str) -> None:
    path = litdata_packs / name
    assert ours.samples("litdata", path) == [ours.sample("", leaves(n)) for n in range(len(BLOBS))]
    chunks = len(list(path.glob("*.bin")))
    assert chunks == 1 if name == "one" else chunks > 3
    assert [found["image"] for found in litdata.StreamingDataset(str(path))] == BLOBS


def test_we_read_tokens_of_litdata(litdata_packs: Path) -> None:
    path = litdata_packs / "tokens"
    found = ours.samples("litdata", path)
    assert [part for _, parts in found for part in parts.values()] == [ours.digest(tokens(n).numpy().tobytes())
                                                                       for n in range(ROWS)]
    dataset = litdata.StreamingDataset(str(path), item_loader=TokensLoader(block_size=BLOCK))
    blocks = [ours.digest(np.asarray(block).astype(np.int32).tobytes()) for block in dataset]
    found = ours.samples("litdata", path, f"--block={BLOCK}")
    assert [part for _, parts in found for part in parts.values()] == blocks
    assert len(blocks) > ROWS


def test_compressed_chunks_are_refused(litdata_packs: Path) -> None:
    with pytest.raises(ours.Refused, match=r"zstd"):
        ours.samples("litdata", litdata_packs / "zstd")


def test_we_unpack_litdata(litdata_packs: Path, tmp_path: Path) -> None:
    found = ours.unpack_command(litdata_packs / "small", tmp_path / "out")
    expected = [leaves(n) for n in range(len(BLOBS))]
    for leaf in expected[0]:
        assert [data for name, data in sorted(found.items()) if name.endswith(f".{leaf}")] == [row[leaf]
                                                                                               for row in expected]
