# SPDX-License-Identifier: Apache-2.0
"""We read the chunks that litdata writes: every sample is equal."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import litdata
import made
import numpy as np
import ours
import pytest
import torch
from litdata.streaming.item_loader import TokensLoader

BLOBS = [b"", *made.blobs(60, 11), b"b" * made.BIG, b""]


def item(n: int) -> dict[str, Any]:
    """Return item n: leaves of several types, some of them empty."""
    return {"image": BLOBS[n], "label": n, "caption": "größe 鍵" * (n % 3), "box": {"corners": np.arange(n % 5, dtype=np.int16)}}


def leaves(n: int) -> dict[str, bytes]:
    """Return the bytes of each leaf of item n, written from the description of the format."""
    value = item(n)
    corners = value["box"]["corners"]
    return {
        "image": value["image"],
        "label": struct.pack("<q", n),
        "caption": value["caption"].encode(),
        "box.corners": corners.tobytes(),
    }


def tokens(n: int) -> torch.Tensor:
    """Return a row of tokens."""
    return torch.arange(n, n + 10 + n, dtype=torch.int32)


def optimize(fn: Any, count: int, out: Path, **options: Any) -> None:
    litdata.optimize(
        fn=fn, inputs=list(range(count)), output_dir=str(out), num_workers=1, reorder_files=False, verbose=False,
        start_method="fork", **options,
    )


@pytest.mark.parametrize("limit", [{"chunk_size": 4}, {"chunk_bytes": 60_000}, {"chunk_bytes": "64MB"}])
def test_we_read_litdata(tmp_path: Path, limit: dict[str, Any]) -> None:
    optimize(item, len(BLOBS), tmp_path / "in", **limit)
    found = ours.samples("litdata", tmp_path / "in")
    assert found == [ours.sample("", leaves(n)) for n in range(len(BLOBS))]
    chunks = len(list((tmp_path / "in").glob("*.bin")))
    assert chunks == 1 if limit == {"chunk_bytes": "64MB"} else chunks > 3
    dataset = litdata.StreamingDataset(str(tmp_path / "in"))
    assert [found["image"] for found in dataset] == BLOBS


def test_we_read_tokens_of_litdata(tmp_path: Path) -> None:
    optimize(tokens, 20, tmp_path / "in", chunk_size=77, item_loader=TokensLoader(block_size=11))
    found = ours.samples("litdata", tmp_path / "in")
    assert [part for _, parts in found for part in parts.values()] == [ours.digest(tokens(n).numpy().tobytes()) for n in range(20)]
    dataset = litdata.StreamingDataset(str(tmp_path / "in"), item_loader=TokensLoader(block_size=11))
    blocks = [ours.digest(np.asarray(block).astype(np.int32).tobytes()) for block in dataset]
    found = ours.samples("litdata", tmp_path / "in", "--block=11")
    assert [part for _, parts in found for part in parts.values()] == blocks
    assert len(blocks) > 20


def test_compressed_chunks_are_refused(tmp_path: Path) -> None:
    optimize(item, 8, tmp_path / "in", chunk_size=4, compression="zstd")
    with pytest.raises(ours.Refused, match=r"zstd"):
        ours.samples("litdata", tmp_path / "in")
