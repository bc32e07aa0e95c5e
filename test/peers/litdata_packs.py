# SPDX-License-Identifier: Apache-2.0
"""Writes data sets with litdata: `python litdata_packs.py FOLDER`.

litdata forks worker processes. This program has a process of its own, because a fork of a process with threads can hang.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import litdata
import made
import numpy as np
import torch
from litdata.streaming.item_loader import TokensLoader

BLOBS = [b"", *made.blobs(60, 11), b"b" * made.BIG, b""]
BLOCK = 11  # tokens of a block
ROWS = 20  # rows of tokens

# The options of each data set of items.
ITEMS: dict[str, dict[str, Any]] = {
    "few": {"chunk_size": 4}, "small": {"chunk_bytes": 60_000}, "one": {"chunk_bytes": "64MB"},
    "zstd": {"chunk_size": 4, "compression": "zstd"},
}


def item(n: int) -> dict[str, Any]:
    """Return item n: leaves of several types, some of them empty."""
    return {"image": BLOBS[n], "label": n, "caption": "größe 鍵" * (n % 3),
            "box": {"corners": np.arange(n % 5, dtype=np.int16)}}


def leaves(n: int) -> dict[str, bytes]:
    """Return the bytes of each leaf of item n, written from the description of the format."""
    value = item(n)
    return {
        "image": value["image"],
        "label": struct.pack("<q", n),
        "caption": value["caption"].encode(),
        "box.corners": value["box"]["corners"].tobytes(),
    }


def tokens(n: int) -> torch.Tensor:
    """Return a row of tokens."""
    return torch.arange(n, n + 10 + n, dtype=torch.int32)


def optimize(fn: Any, count: int, out: Path, **options: Any) -> None:
    """Write a data set."""
    litdata.optimize(
        fn=fn, inputs=list(range(count)), output_dir=str(out), num_workers=1, reorder_files=False, verbose=False,
        start_method="fork", **options,
    )


def main(folder: Path) -> None:
    """Write all data sets."""
    for name, options in ITEMS.items():
        optimize(item, len(BLOBS), folder / name, **options)
    optimize(tokens, ROWS, folder / "tokens", chunk_size=77, item_loader=TokensLoader(block_size=BLOCK))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
