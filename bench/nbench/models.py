# SPDX-License-Identifier: Apache-2.0
"""Provides the model files that the rows load.

Files have the tensor names and shapes of real models and random content. They are made once per working directory: by
`nebulaio generate` if the program is found, else by the small writer of this harness. Methods that need `.pt` copies
get them on demand. The copies are removed when the disk is short of space.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import stfile
from .device import Device

Shapes = list[tuple[str, tuple[int, ...]]]


def _qwen(layers: int, hidden: int, inner: int, vocab: int, q: int, kv: int, *,
          bias: bool = False, head_norm: int = 0) -> Shapes:
    """Return the tensors of a Qwen decoder; q and kv are the widths of the projections."""
    shapes: Shapes = [("lm_head.weight", (vocab, hidden)), ("model.embed_tokens.weight", (vocab, hidden))]
    for layer in range(layers):
        base = f"model.layers.{layer}"
        shapes += [
            (f"{base}.input_layernorm.weight", (hidden,)),
            (f"{base}.mlp.down_proj.weight", (hidden, inner)),
            (f"{base}.mlp.gate_proj.weight", (inner, hidden)),
            (f"{base}.mlp.up_proj.weight", (inner, hidden)),
            (f"{base}.post_attention_layernorm.weight", (hidden,)),
        ]
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            if bias:
                shapes.append((f"{base}.self_attn.{part}_proj.bias", (width,)))
            shapes.append((f"{base}.self_attn.{part}_proj.weight", (width, hidden)))
        if head_norm:
            shapes += [(f"{base}.self_attn.{part}_norm.weight", (head_norm,)) for part in ("q", "k")]
        shapes.append((f"{base}.self_attn.o_proj.weight", (hidden, q)))
    return [*shapes, ("model.norm.weight", (hidden,))]


def _experts(layers: int, experts: int, rows: int, columns: int) -> Shapes:
    """Return the tensors of a mixture of experts: thousands of equal, small matrices."""
    return [
        (f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight", (rows, columns))
        for layer in range(layers)
        for expert in range(experts)
        for part in ("down", "gate", "up")
    ]


@dataclass(frozen=True)
class Model:
    """A model, by its name in rows."""

    name: str
    generator: str  # its name for `nebulaio generate --shapes`; "" if only this harness makes it
    shapes: Callable[[], Shapes]

    def bytes(self) -> int:
        """Return the size of its tensors in bytes, as 16-bit floats."""
        return sum(2 * _product(shape) for _, shape in self.shapes())


MODELS = {
    "tiny": Model("tiny", "tiny", lambda: _qwen(4, 512, 1536, 16384, 512, 256, head_norm=128)),
    "0.6b": Model("0.6b", "qwen3-0.6b", lambda: _qwen(28, 1024, 3072, 151936, 2048, 1024, head_norm=128)),
    "moe": Model("moe", "", lambda: _experts(24, 128, 512, 512)),  # 9,216 tensors of 512 KiB
    "7b": Model("7b", "qwen2.5-7b", lambda: _qwen(28, 3584, 18944, 152064, 3584, 512, bias=True)),
}


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


class Library:
    """The model files of a working directory."""

    def __init__(self, workdir: Path, device: Device, cli: str | None, log: Callable[[str], None]) -> None:
        self.workdir = workdir
        self.device = device
        self.cli = cli
        self.log = log
        workdir.mkdir(parents=True, exist_ok=True)

    def file(self, name: str, seed: int = 1) -> Path:
        """Return the safetensors file of a model, which is made if it is missing."""
        model = MODELS[name]
        path = self.workdir / f"{name}-{seed}.safetensors"
        if path.exists():
            return path
        self._room(model.bytes(), path)
        self.log(f"making {path.name} ({model.bytes() / 1e9:.2f} GB)")
        # numpy has no bfloat16: without torch the harness writes float16 itself.
        if self.cli is None or self.device.torch is None or not model.generator:
            stfile.write(path, model.shapes(), seed=seed, dtype="F16" if self.device.torch is None else "BF16")
            return path
        part = path.with_name(path.name.replace(".safetensors", ".part.safetensors"))
        command = [self.cli, "generate", "--shapes", model.generator, "--seed", str(seed), "--out", str(part)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            part.unlink(missing_ok=True)
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        fd = os.open(part, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        part.rename(path)
        return path

    def pickled(self, path: Path) -> Path:
        """Return the .pt copy of a safetensors file, which is made if it is missing."""
        copy = path.with_suffix(".pt")
        if copy.exists():
            return copy
        self._room(path.stat().st_size, copy)
        self.log(f"making {copy.name}")
        from safetensors.torch import load_file

        part = copy.with_suffix(".pt.part")
        self.device.torch.save(load_file(str(path)), part)
        fd = os.open(part, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        part.rename(copy)
        return copy

    def trim(self, need: int = 0) -> None:
        """Remove .pt copies if less than a tenth of the disk, or less than need, is free."""
        usage = shutil.disk_usage(self.workdir)
        if usage.free < max(need, usage.total // 10):
            for copy in self.workdir.glob("*.pt"):
                self.log(f"removing {copy.name}: the disk is short")
                copy.unlink()

    def _room(self, nbytes: int, path: Path) -> None:
        self.trim(nbytes + (1 << 30))
        free = shutil.disk_usage(self.workdir).free
        if free < nbytes + (256 << 20):
            raise RuntimeError(f"{path}: needs {nbytes / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")
