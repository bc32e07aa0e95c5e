# SPDX-License-Identifier: Apache-2.0
"""Loads a Hugging Face model directory into its transformers module, by assigning its weights.

`load_pretrained` builds the module without weights while the weights are loaded from the
files to the device. Then the module takes over the loaded weights, so no weight is copied
a second time.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from .. import _process, safetensors
from .._background import Source, Weights
from ..errors import InvalidError, NotFoundError, UnsupportedError

Profile = dict[str, Any]
"""Measurements of a load: seconds by stage under "seconds", the library's reports under "reports"."""


def load_pretrained(
    path: str | os.PathLike[str],
    device: safetensors.DeviceLike = "auto",
    *,
    dtype: Any = None,
    auto_class: Any = None,
    route: safetensors.Route = "auto",
    cache: safetensors.Cache = "auto",
    profile: Profile | None = None,
) -> Any:
    """Load the model directory at path and return its transformers module in eval mode.

    Args:
        path: Path of the model directory.
        device: Device of parameters and buffers, as in `nebulaio.safetensors.load_file`.
        dtype: torch.dtype of floating-point weights; None keeps the types of the checkpoint.
            Weights of another type are converted on the device.
        auto_class: One of transformers' AutoModel classes; None means AutoModelForCausalLM.
        route, cache: Route and cache policy, as in `nebulaio.safetensors.load_file`.
        profile: A dictionary that receives the measurements; see `Profile`.

    Tied weights (such as lm_head and embed_tokens) are one tensor, as in transformers. If
    the files hold different values for tied weights, the weights stay separate, with a
    RuntimeWarning. Parameters are parts of one allocation per file.
    `nebulaio.last_report()` of the calling thread returns the library's report.

    Raises:
        NotFoundError: The directory or its config.json does not exist.
        UnsupportedError: The model is quantised or needs its own code, which is never run. Or
            the weights have other names than the module's parameters.

    Errors of `load_model` are raised unchanged.
    """
    model, seconds, weights = assemble(
        os.fsdecode(path), lambda apart: Weights(os.fsdecode(path), device, apart, route, cache), dtype, auto_class
    )
    if weights.last is not None:
        _process.current().reports.last = weights.last
    if profile is not None:
        profile["seconds"] = seconds
        profile["reports"] = [json.loads(raw) for raw in weights.raw]
    return model


def assemble(
    folder: str, start: Callable[[set[str]], Source], dtype: Any = None, auto_class: Any = None
) -> tuple[Any, dict[str, float], Any]:
    """Build the module of a directory around the weights of a source.

    Returns the module, the seconds by stage, and the source. `start` receives the names to
    load separately (see `_declared_ties`) and returns the source. The source is entered
    before the module is built and waited for afterwards.
    """
    torch, transformers = _imports()
    clock = _Clock()
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InvalidError(
            f"load model {folder!r}: dtype={dtype!r} is not a floating-point torch.dtype, such as torch.bfloat16")
    if not os.path.isfile(os.path.join(folder, "config.json")):
        why = "it has no config.json" if os.path.isdir(folder) else "there is no such directory"
        raise NotFoundError(
            f"load model {folder!r}: {why}, expected a local Hugging Face model directory "
            "(fix: correct the path; nothing is downloaded: `hf download NAME --local-dir DIR` gets a model of the Hub)"
        )
    auto = auto_class or transformers.AutoModelForCausalLM
    config = _config(transformers, folder)
    if getattr(config, "quantization_config", None) is not None:
        raise UnsupportedError(
            f"load model {folder!r}: it is quantised, and its weights need transformers' own conversion "
            "(fix: use from_pretrained, or load the tensors with nebulaio.safetensors.load_model)"
        )
    clock.lap("config")
    apart = _declared_ties(auto, config)
    clock.lap("code")  # imports the modelling code of this architecture
    with start(apart) as weights:
        # The weights are loaded from here on, while the module is built.
        model = _empty_module(torch, transformers, auto, config, dtype)
        clock.lap("module")
        weights.wait()
    clock.lap("wait")
    placed = _place(torch, model, weights, folder, dtype)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.device != placed:
                setattr(module, name, buffer.to(placed))
    clock.lap("assign")
    model.eval()
    if os.path.isfile(os.path.join(folder, "generation_config.json")):
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    clock.lap("finish")
    return model, {**clock.seconds, "weights": weights.seconds, "total": clock.total()}, weights


def _config(transformers: Any, folder: str) -> Any:
    """Return the directory's configuration by transformers' own classes. Code beside the weights is never run."""
    try:
        return transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as cause:
        raise UnsupportedError(
            f"load model {folder!r}: transformers {transformers.__version__} cannot read its config.json, or the model "
            f"needs its own code, which is never run here: {cause} (fix: use from_pretrained, or load the tensors with "
            "nebulaio.safetensors.load_model)"
        ) from cause


def _imports() -> tuple[Any, Any]:
    try:
        return importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as cause:
        raise UnsupportedError(f"load a Hugging Face model: {cause} (fix: pip install torch transformers)") from cause


class _Clock:
    """Seconds of successive stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._first = self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now

    def total(self) -> float:
        return self._last - self._first


def _declared_ties(auto: Any, config: Any) -> set[str]:
    """Return the names that the model's class declares as copies of others, or {}.

    Declared copies are loaded separately, so that their memory can be freed if they prove to
    be copies.
    """
    if not getattr(config, "tie_word_embeddings", False):
        return set()
    mapping = getattr(auto, "_model_mapping", None)
    known = mapping[type(config)] if mapping is not None and type(config) in mapping else None
    classes = known if isinstance(known, (list, tuple)) else [known]
    return {name for one in classes for name in (getattr(one, "_tied_weights_keys", None) or ())}


def _empty_module(torch: Any, transformers: Any, auto: Any, config: Any, dtype: Any) -> Any:
    """Return the module with parameters without memory. The module's buffers are computed as usual."""
    wanted = dtype or _stored_dtype(torch, config)
    word = "dtype" if _version(transformers) >= (4, 56) else "torch_dtype"
    # Transformers 4 would compute initial values for parameters without memory.
    skip = getattr(transformers.modeling_utils, "no_init_weights", nullcontext)
    with _without_memory(torch), skip():
        model = auto.from_config(config, trust_remote_code=False, **({} if wanted is None else {word: wanted}))
    model.tie_weights()
    return model


def _stored_dtype(torch: Any, config: Any) -> Any:
    found = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return getattr(torch, found.removeprefix("torch."), None) if isinstance(found, str) else found


def _version(module: Any) -> tuple[int, int]:
    major, minor = str(module.__version__).split(".")[:2]
    return int(major), int(minor)


@contextmanager
def _without_memory(torch: Any) -> Iterator[None]:
    """Make parameters that this thread registers meta tensors. Buffers stay real.

    A hook at registration tells parameters from buffers. A default device of "meta" would
    also empty buffers such as rotary frequencies, which no checkpoint holds.
    """
    mine = threading.get_ident()

    def to_meta(module: Any, name: str, parameter: Any) -> Any:
        if threading.get_ident() != mine or parameter is None or parameter.is_meta:
            return None
        empty = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        empty._is_hf_initialized = True  # transformers 5 then skips the needless initial values
        return empty

    hook = torch.nn.modules.module.register_module_parameter_registration_hook(to_meta)
    try:
        yield
    finally:
        hook.remove()


def _place(torch: Any, model: Any, weights: Source, folder: str, dtype: Any) -> Any:
    """Assign the weights to the module and tie its tied weights. Returns the device of the weights."""
    state = {**weights.tensors, **weights.copies}
    weights.tensors, weights.copies = {}, {}
    if not state:
        raise InvalidError(f"load model {folder!r}: its files hold no tensor")
    placed = next(iter(state.values())).device
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    tied = []
    for first, *others in groups.values():
        held = [name for name in (first, *others) if name in state]
        if not others or not held:
            continue
        keep = first if first in state else held[0]
        differing = [name for name in held if name != keep and not torch.equal(state[name], state[keep])]
        if differing:
            warnings.warn(
                f"load model {folder!r}: the config ties {', '.join(differing)} to {keep}, but the files hold "
                "different values: they stay separate (fix: set tie_word_embeddings to false in config.json)",
                RuntimeWarning,
                stacklevel=3,
            )
            _untie(torch, model, differing)
        same = [name for name in (first, *others) if name not in differing]
        tied += [(name, keep) for name in same if name != keep]
        state = {name: value for name, value in state.items() if name == keep or name not in same}
    if dtype is not None:
        full = _kept_in_fp32(torch, model, dtype)
        for name, value in state.items():
            target = torch.float32 if any(part in name for part in full) else dtype
            state[name] = value.to(target) if value.is_floating_point() else value
    _check(model, state, tied, folder)
    model.load_state_dict(state, strict=False, assign=True)
    for name, source in tied:
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, model.get_parameter(source))
    return placed


def _untie(torch: Any, model: Any, names: list[str]) -> None:
    for name in names:
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner)
        setattr(module, leaf, torch.nn.Parameter(getattr(module, leaf).detach().clone()))


def _kept_in_fp32(torch: Any, model: Any, dtype: Any) -> list[str]:
    """Return parts of names that the architecture always keeps in float32."""
    parts = list(getattr(model, "_keep_in_fp32_modules", None) or ()) if dtype is torch.float16 else []
    if dtype in (torch.float16, torch.bfloat16):
        parts += list(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    return parts


def _check(model: Any, state: dict[str, Any], tied: list[tuple[str, str]], folder: str) -> None:
    """Check that every parameter and kept buffer has its weight with the right shape, and no weight is left over.

    Left-over weights that the architecture declares harmless are removed from state.
    """
    wanted = model.state_dict()
    for pattern in getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ():
        for name in [name for name in state if name not in wanted and re.search(pattern, name)]:
            del state[name]
    missing = sorted(wanted.keys() - state.keys() - {name for name, _ in tied})
    extra = sorted(state.keys() - wanted.keys())
    if missing or extra:
        raise UnsupportedError(
            f"load model {folder!r}: the files and {type(model).__name__} differ in names: {len(missing)} missing "
            f"({', '.join(missing[:3]) or 'none'}), {len(extra)} left over ({', '.join(extra[:3]) or 'none'}) "
            "(fix: use from_pretrained, which converts such checkpoints)"
        )
    for name, value in state.items():
        if wanted[name].shape != value.shape:
            raise InvalidError(
                f"load model {folder!r}: {name} has shape {list(value.shape)}, "
                f"expected {list(wanted[name].shape)} (fix: use the config.json of this model)"
            )
