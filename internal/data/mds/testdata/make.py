# SPDX-License-Identifier: Apache-2.0
"""Writes the files next to it with mosaicml-streaming 0.13.0: `python make.py`.

Each directory is a dataset, and samples.txt has the encoded values of every sample, in JSON with hexadecimal digits.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
from streaming import MDSWriter
from streaming.base.format.mds.encodings import mds_encode
from streaming.base.util import merge_index


def write(directory: Path, columns: dict, count: int, **options) -> None:
    """Write a dataset of random samples, and the list of its samples."""
    rng = random.Random(directory.name)

    def value(encoding: str):
        size = rng.choice([0, 1, 2, 17, 40])
        if encoding == "str":
            return "é" * size
        if encoding == "int":
            return rng.randint(-(2**63), 2**63 - 1)
        if encoding.startswith("ndarray:float32:2,3"):
            return np.arange(6, dtype=np.float32).reshape(2, 3)
        if encoding == "uint8":
            return np.uint8(size)
        return rng.randbytes(size)

    samples = [{name: value(e) for name, e in columns.items()} for _ in range(count)]
    shutil.rmtree(directory, ignore_errors=True)
    with MDSWriter(columns=columns, out=str(directory), **options) as out:
        for sample in samples:
            out.write(sample)
    encoded = [{name: mds_encode(e, s[name]).hex() for name, e in columns.items()} for s in samples]
    (directory / "samples.txt").write_text(json.dumps(encoded, indent=0) + "\n")


here = Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/..").resolve()
mixed = {"text": "str", "image": "bytes", "naïve 🙂": "int", "box": "ndarray:float32:2,3"}
write(here / "mixed", mixed, 12, size_limit=700, hashes=["sha1", "sha256"])
write(here / "fixed", {"b": "uint8", "a": "int"}, 5, size_limit=None)
write(here / "zstd", {"image": "bytes"}, 3, compression="zstd:7", hashes=["sha1", "xxh64"])
shutil.rmtree(here / "merged", ignore_errors=True)  # merge_index takes every .json file below
for part in ("00000", "00001"):
    write(here / "merged" / part, {"image": "bytes"}, 2)
merge_index(str(here / "merged"))
