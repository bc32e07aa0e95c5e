# SPDX-License-Identifier: Apache-2.0
"""The model directory: config.json, safetensors files and index, as Hugging Face lays them out.

Weights are random, as large as freshly initialised weights, and depend only on seed and
name. Each weight consists of pieces from random offsets of one pool of random values.
Copying from the pool makes writing as fast as the disk.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..errors import InvalidError
from .fit import Plan
from .shapes import shard_name, shards, size_of

MARK = "nebulaio-compare.json"
"""Name of the file that marks a complete directory of this tool and holds its recipe."""

_POOL = 1 << 24  # values
_PIECE = 8 << 20  # bytes that are copied from one offset of the pool
_SCALE = 0.02


def recipe(plan: Plan, seed: int) -> dict[str, Any]:
    """Return the recipe of a model directory. A directory with the same recipe is used again."""
    return {"version": 1, "seed": seed, **plan.recipe()}


def ready(folder: Path, plan: Plan, seed: int) -> bool:
    """Return whether the folder already holds this model. Raises InvalidError for a folder of other origin."""
    if not folder.exists():
        return False
    try:
        found = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InvalidError(
            f"make model in {str(folder)!r}: it exists and was not made by this tool (fix: another --dir)"
        ) from None
    return bool(found == json.loads(json.dumps(recipe(plan, seed))))


def make(folder: Path, plan: Plan, seed: int) -> None:
    """Make the model directory, or replace one with another recipe. After a failure there is no half directory."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        spec = plan.spec
        config = getattr(transformers, spec.config_class)(**spec.config())
        config.architectures = [spec.architecture()]
        raw = {**config.to_dict(), "dtype": "bfloat16", "torch_dtype": "bfloat16"}  # the old and the new word for it
        (part / "config.json").write_text(json.dumps(raw, indent=2), encoding="utf-8")
        torch.manual_seed(seed)
        weights, norms = _pool(torch, 0.0), _pool(torch, 1.0)
        files = shards(spec.tensors())
        names = {}
        for index, tensors in enumerate(files):
            name = shard_name(index, len(files))
            _write(part / name, tensors, plan, seed, weights, norms)
            names.update(dict.fromkeys(tensors, name))
        if len(files) > 1:
            index_file = {"metadata": {"total_size": spec.nbytes()}, "weight_map": dict(sorted(names.items()))}
            (part / "model.safetensors.index.json").write_text(json.dumps(index_file, indent=2), encoding="utf-8")
        (part / MARK).write_text(json.dumps(recipe(plan, seed)), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def weights_of(folder: Path) -> list[str]:
    """Return the safetensors files of a model directory, in order."""
    return sorted(str(path) for path in folder.glob("*.safetensors"))


def _pool(torch: Any, middle: float) -> bytes:
    values = torch.randn(_POOL).mul_(_SCALE).add_(middle).to(torch.bfloat16)
    return ctypes.string_at(values.data_ptr(), _POOL * 2)


def _write(
    path: Path, tensors: dict[str, tuple[int, ...]], plan: Plan, seed: int, weights: bytes, norms: bytes
) -> None:
    """Write one file. Tensors without content in the plan become holes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in tensors.items():
        size = size_of(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    start = 8 + len(head)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.ftruncate(fd, start + at)
        _all(fd, len(head).to_bytes(8, "little") + head, 0)

        def fill(name: str) -> None:
            begin, end = header[name]["data_offsets"]
            # A tied head is a copy of the embedding, as in published files.
            source = "model.embed_tokens.weight" if plan.spec.tied and name == "lm_head.weight" else name
            chosen = random.Random(f"{seed} {source}")
            pool = memoryview(norms if "norm" in name else weights)
            places = [
                chosen.randrange(0, len(pool) - min(_PIECE, end - offset) + 1, 2) for offset in range(begin, end, _PIECE)
            ]
            for at, stop in plan.content(name, tensors[name]):
                while at < stop:
                    piece, inside = divmod(at, _PIECE)
                    size = min(_PIECE - inside, stop - at)
                    _all(fd, pool[places[piece] + inside :][:size], start + begin + at)
                    at += size

        with ThreadPoolExecutor(8) as workers:
            list(workers.map(fill, tensors))
        os.fsync(fd)
    finally:
        os.close(fd)


def _all(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
