# SPDX-License-Identifier: Apache-2.0
"""Makes the samples of the tests. Equal seeds make equal samples."""

from __future__ import annotations

import random

BIG = (2 << 20) + 4321  # bytes; larger than the buffers of all readers

# Keys of WebDataset samples: folders, dots in folders, spaces, several alphabets, and a name above 100 bytes.
KEYS = ["000", "plain", "train/n01440764/0001", "v1.2/part.a/0002", "with space/a b", "größe/ключ-鍵-🙂",
        "deep/" + "x" * 120]


def sizes(count: int, seed: int) -> list[int]:
    """Return sizes of parts: empty ones, odd ones, and sizes around blocks of 512 bytes."""
    rng = random.Random(seed)
    return [rng.choice([0, 1, 2, 7, 511, 512, 513, 1024, 4095, 4096, rng.randrange(20_000)]) for _ in range(count)]


def blobs(count: int, seed: int) -> list[bytes]:
    """Return random bytes of sizes(count, seed)."""
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes(count, seed)]


def columns(keys: list[str], seed: int = 1) -> list[tuple[str, dict[str, bytes]]]:
    """Return samples of two or three parts, sorted as files are. One sample is big, and one has only empty parts."""
    rng = random.Random(seed)
    samples = []
    for n, (key, blob) in enumerate(zip(keys, blobs(len(keys), seed))):
        parts = {"cls": str(n).encode(), "seg.png": blob}  # a column with a dot
        if n % 2:
            parts["jpg"] = rng.randbytes(n)
        samples.append((key, parts))
    samples[1][1]["seg.png"] = rng.randbytes(BIG)
    samples[2] = (samples[2][0], {"cls": b"", "seg.png": b""})
    return samples
