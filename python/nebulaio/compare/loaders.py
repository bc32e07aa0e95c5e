# SPDX-License-Identifier: Apache-2.0
"""The ways to load a model directory into its module, each with seconds by stage.

Every loader takes a directory and a torch device name and returns the module in
eval mode and a profile: "seconds" by stage, "how" in words, "reports" of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import huggingface
from .._background import Source
from .files import weights_of

Loaded = tuple[Any, dict[str, Any]]


def nebulaio(folder: Path, device: str) -> Loaded:
    """Ours: `nebulaio.huggingface.load_pretrained`."""
    profile: huggingface.Profile = {}
    model = huggingface.load_pretrained(folder, device, profile=profile)
    return model, {**profile, "how": "nebulaio.huggingface.load_pretrained"}


def from_pretrained(folder: Path, device: str) -> Loaded:
    """Ours behind transformers' own loading: `nebulaio.huggingface.from_pretrained`, called as theirs is."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("transformers")
    profile: huggingface.Profile = {}
    options = _dtype(library, torch.bfloat16)
    is_spread = importlib.util.find_spec("accelerate") is not None
    if is_spread:
        options["device_map"] = device
    model = huggingface.from_pretrained(folder, cls=library.AutoModelForCausalLM, profile=profile, **options)
    how = f"nebulaio.huggingface.from_pretrained(dtype=bfloat16, device_map={device!r})"
    if not is_spread:
        how = f"nebulaio.huggingface.from_pretrained(dtype=bfloat16).to({device!r}): accelerate is not installed"
        model = model.to(device)
    return model, {"seconds": profile["seconds"], "reports": [profile["report"]], "how": how}


def transformers(folder: Path, device: str) -> Loaded:
    """Load with transformers: `from_pretrained` with a device map, or `.to` if accelerate is missing."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("transformers")
    auto = library.AutoModelForCausalLM
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    with _timed(library.PreTrainedModel, "_load_pretrained_model", "weights", seconds):
        with _timed(getattr(library, architecture(folder)), "__init__", "module", seconds):
            if importlib.util.find_spec("accelerate") is not None:
                how = f"from_pretrained(dtype=bfloat16, device_map={device!r})"
                model = auto.from_pretrained(folder, **_dtype(library, torch.bfloat16), device_map=device)
            else:
                how = f"from_pretrained(dtype=bfloat16).to({device!r}): accelerate is not installed"
                model = auto.from_pretrained(folder, **_dtype(library, torch.bfloat16))
                moving = time.perf_counter()
                model = model.to(device)
                seconds["to device"] = time.perf_counter() - moving
    seconds["total"] = time.perf_counter() - began
    seconds["rest"] = seconds["total"] - sum(seconds.get(stage, 0.0) for stage in ("module", "weights", "to device"))
    return model, {"seconds": seconds, "how": how, "reports": []}


def safetensors(folder: Path, device: str) -> Loaded:
    """Load with the package safetensors, file by file, into the same empty module as NebulaIO."""
    model, seconds, _ = huggingface.assemble(str(folder), lambda apart: _Reference(folder, device))
    how = f"safetensors.torch.load_file(device={device!r}) into an empty module"
    return model, {"seconds": seconds, "how": how, "reports": []}


class _Reference(Source):
    """Weights that the package safetensors reads."""

    def __init__(self, folder: Path, device: str) -> None:
        super().__init__()
        self._folder = folder
        self._device = device

    def wait(self) -> None:
        load_file = importlib.import_module("safetensors.torch").load_file
        began = time.perf_counter()
        for path in weights_of(self._folder):
            self.tensors.update(load_file(path, device=self._device))
        self.seconds = time.perf_counter() - began


LOADERS: dict[str, Callable[[Path, str], Loaded]] = {
    "nebulaio": nebulaio,
    "from_pretrained": from_pretrained,
    "transformers": transformers,
    "safetensors": safetensors,
}
"""The loaders by name."""


def architecture(folder: Path) -> str:
    """Return the name of the model's class, from its config.json."""
    return str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0])


def _dtype(library: Any, dtype: Any) -> dict[str, Any]:
    """The word for a dtype changed in transformers 4.56."""
    major, minor = (int(part) for part in str(library.__version__).split(".")[:2])
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": dtype}


@contextmanager
def _timed(owner: Any, name: str, stage: str, seconds: dict[str, float]) -> Iterator[None]:
    """Adds up the time in one method of a class, where this version has it."""
    plain = owner.__dict__.get(name)
    if plain is None:
        yield
        return
    call = plain.__func__ if isinstance(plain, (classmethod, staticmethod)) else plain

    def timed(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*arguments, **named)
        finally:
            seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start

    kind = type(plain) if isinstance(plain, (classmethod, staticmethod)) else None
    setattr(owner, name, kind(timed) if kind else timed)
    try:
        yield
    finally:
        setattr(owner, name, plain)
