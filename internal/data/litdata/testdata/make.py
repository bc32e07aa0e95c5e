# SPDX-License-Identifier: Apache-2.0
"""Writes the files next to it with litdata: `python make.py new` with 0.2.76, and `python make.py old` with 0.2.17.

Each directory is a dataset. samples.txt has the leaves of every item in hexadecimal digits. blocks.txt has the blocks of
5 tokens that StreamingDataset returns.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from litdata import StreamingDataset
from litdata.streaming.item_loader import TokensLoader
from litdata.streaming.serializers import _SERIALIZERS
from litdata.streaming.writer import BinaryWriter

here = Path(__file__).resolve().parent


def leaves(value) -> list:
    """Return the bytes of each leaf of an item, in order."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for element in value for leaf in leaves(element)]
    if isinstance(value, np.ndarray) or isinstance(value, torch.Tensor) and value.ndim == 1:
        return [value.tobytes() if isinstance(value, np.ndarray) else value.numpy().tobytes()]
    name = next(n for n, s in _SERIALIZERS.items() if s.can_serialize(value))
    return [bytes(_SERIALIZERS[name].serialize(value)[0])]


def write(name: str, items: list, **options) -> None:
    """Write a dataset, and the list of its items."""
    directory = here / name
    shutil.rmtree(directory, ignore_errors=True)
    writer = BinaryWriter(str(directory), **options)
    for i, item in enumerate(items):
        writer[i] = item
    writer.done()
    writer.merge()
    rows = [[leaf.hex() for leaf in leaves(item)] for item in items]
    (directory / "samples.txt").write_text(json.dumps(rows, indent=0) + "\n")


def tokens(name: str, items: list) -> None:
    """Write a dataset of tokens, and the list of its blocks of 5 tokens."""
    write(name, items, chunk_size=40, **({"item_loader": TokensLoader(5)} if sys.argv[1] == "new" else {}))
    blocks = [leaves(np.asarray(b))[0].hex() for b in StreamingDataset(str(here / name), item_loader=TokensLoader(5))]
    (here / name / "blocks.txt").write_text(json.dumps(blocks, indent=0) + "\n")


def tree(i: int) -> dict:
    """Return an item with nested leaves, some of them empty."""
    return {"image": bytes([i]) * i, "label": i, "meta": (str(i) * i, [np.arange(i, dtype=np.int16), 1.5])}


def main() -> None:
    """Write the datasets of one version."""
    rows = [torch.arange(i * 7, dtype=torch.int32) for i in range(1, 7)]
    if sys.argv[1] == "old":
        write("old-tree", [tree(i) for i in range(7)], chunk_size=3)
        tokens("old-tokens", rows)
        return
    write("tree", [tree(i) for i in range(7)], chunk_size=3)
    write("tuple", [(bytes([i]) * i, i, torch.ones(2, i)) for i in range(4)], chunk_size=3)
    write("bytes", [bytes([i]) * i for i in range(4)], chunk_size=3)
    tokens("tokens", rows)
    tokens("numpy", [np.arange(i * 7, dtype=np.uint16) for i in range(1, 7)])
    write("arrow", [{"image": bytes([i]) * i, "label": i} for i in range(2)], chunk_size=3)
    write("zstd-batch", [bytes([i]) * i for i in range(4)], chunk_size=3, compression="zstd")
    write("zstd-file", [bytes([i]) * i for i in range(4)], chunk_size=3, compression="zstd", compression_level="chunk")


if __name__ == "__main__":
    main()
