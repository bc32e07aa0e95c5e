# SPDX-License-Identifier: Apache-2.0
"""Measures the Python package tokenizers on the texts of BenchmarkEncode, with one thread, in processor time.

Run: python bench.py FOLDER (a folder of make.py), then
`go test ./internal/data/tokens -run - -bench Encode -golden FOLDER`
"""

import os
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

folder = Path(sys.argv[1])
raw = (folder / "corpus.txt").read_bytes()[:4_000_000]
parts = [raw[i : i + 10_000].decode("utf-8", "ignore") for i in range(0, len(raw), 10_000)]
size = sum(len(p.encode()) for p in parts)
for path in sorted(folder.glob("*.ids")):
    t = Tokenizer.from_file(str(path.with_suffix(".json")))
    t.no_truncation()
    t.no_padding()
    best = 0.0
    for _ in range(3):
        start = time.process_time()
        for p in parts:
            t.encode(p, add_special_tokens=False)
        best = max(best, size / (time.process_time() - start))
    start = time.process_time()
    t.encode_batch_fast(parts, add_special_tokens=False)
    fast = size / (time.process_time() - start)
    print(f"{path.stem:12} encode {best / 1e6:7.2f} MB/cpu-s, encode_batch_fast {fast / 1e6:7.2f} MB/cpu-s", flush=True)
