# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained`: transformers' own loading with NebulaIO's engine as the reader of its files."""

from __future__ import annotations

import inspect
import json
import os
import time
from typing import Any

from .. import _arguments, _process
from ..errors import CorruptError, UnsupportedError
from . import _classes
from ._ahead import Ahead, natural
from ._assembled import Profile, _imports, _version
from ._jobs import Files
from ._place import Directory, Place, index_metadata, open_place, read_headers, weights_of

_RANKS = ("distributed_config", "tp_plan", "tp_size", "device_mesh")
_OF_FILES = ("variant", "use_safetensors", "disable_mmap")


def from_pretrained(
    path: str | os.PathLike[str],
    *model_args: Any,
    cls: Any = None,
    cache: _arguments.Cache = "auto",
    verify: bool = False,
    client: Any = None,
    profile: Profile | None = None,
    **theirs: Any,
) -> Any:
    """Load any transformers model from safetensors files, and return what transformers' from_pretrained returns.

    Transformers builds the module, renames, merges, converts and quantises the weights, and spreads them over devices
    and ranks. NebulaIO reads the weights: each goes from the files straight into memory of its device.

    Args:
        path: Path of the model directory, or the URL of a prefix of a bucket, "s3://bucket/model".
        model_args: Further arguments of the model's class.
        cls: An auto class or a model class of transformers. None means the class that config.json names.
        cache: Cache policy, as in `nebulaio.safetensors.load_file`.
        verify: Whether to check every block that is read against FILE.crc64nvme or the server's checksums.
        client: Client for the server of a URL. Default: `nebulaio.GPUDirectClient()`, which uses the environment.
        profile: A dictionary that receives the measurements: "seconds" by stage, "report" with bytes by route and
            notes (`nebulaio.last_report()` returns it too), and "reports" of all jobs.
        theirs: The arguments of transformers' from_pretrained: dtype, device_map, quantization_config,
            distributed_config, attn_implementation, output_loading_info, trust_remote_code and all others. Without
            device_map the model is in host memory, as theirs.

    Memory for a weight is allocated when it is read. At most 1 GiB is read ahead of transformers' requests, so at most
    that much is read in vain for weights that the model does not use. A slice of a rank reads only its bytes.

    If transformers has to read the files itself (pickled .bin weights, stored torchao weights, adapters, target_lang,
    model classes that read further files, disk offload, DeepSpeed ZeRO-3), it does so, and the report's notes say why.

    Raises:
        NotFoundError: The directory or its config.json does not exist.
        CorruptError: A file is damaged, or was changed during the load.
        UnsupportedError: Transformers would have to read the files itself, and they are objects. Or the weights are
            a gguf_file or a state_dict.

    Errors of transformers are raised unchanged. On an error, everything that was read is freed.
    """
    torch, transformers = _imports()
    began = time.perf_counter()
    _arguments.choices("auto", cache)
    verify = _arguments.truth("verify", verify)
    subfolder = theirs.pop("subfolder", None) or ""
    given = "the weights are a GGUF file" if theirs.get("gguf_file") is not None else None
    given = "the weights are given as state_dict" if theirs.get("state_dict") is not None else given
    if given is not None:
        raise UnsupportedError(
            f"load model {os.fsdecode(path)!r}: {given}, and there is nothing for NebulaIO to read "
            "(fix: call transformers' from_pretrained)"
        )
    with open_place(path, subfolder, client) as place:
        chosen = _classes.choose(transformers, place.folder, cls, theirs)
        weights = weights_of(place, getattr(chosen.config, "transformers_weights", None), theirs.get("variant"))
        reason = _why_theirs(place, weights, chosen.config, theirs) or _further(transformers, chosen, model_args, theirs)
        if reason is not None:
            if not isinstance(place, Directory):
                raise UnsupportedError(
                    f"load model {place.name!r}: {reason}, so transformers has to read its files, and cannot read objects "
                    "(fix: copy the model to a local directory with `nebulaio cp`)"
                )
            if subfolder:
                theirs["subfolder"] = subfolder
            found = (cls or chosen.model).from_pretrained(place.name, *model_args, **theirs)
            report = {"op": "load", "path": place.name, "bytes": 0, "routes": [],
                      "notes": [f"read by transformers: {reason}"]}
            _keep(report, [], {"total": time.perf_counter() - began}, profile)
            return found
        assert weights is not None
        loading = _Loading(torch, transformers, place, weights, cache, verify)
        configured = time.perf_counter()
        try:
            found = loading.run(chosen, model_args, any(theirs.get(name) is not None for name in _RANKS))
        finally:
            loading.close()
        seconds = {"config": configured - began, **loading.seconds(configured), "total": time.perf_counter() - began}
        _keep(loading.report(), [dict(one) for one in loading.files.reports], seconds, profile)
        return found


class _Loading:
    """One load: the stored tensors, and the reader behind them."""

    def __init__(self, torch: Any, transformers: Any, place: Place, weights: str, cache: str, verify: bool) -> None:
        self._torch = torch
        self._transformers = transformers
        self._place = place
        self._weights = weights
        self.files: Files
        self.files, self._stored = read_headers(place, weights, verify, cache)
        self._marks = [place.mark(file) for file in self.files.names]
        self._ahead: Ahead | None = None

    def run(self, chosen: _classes.Chosen, model_args: tuple[Any, ...], is_rank: bool) -> Any:
        """Let transformers load, and return its result."""
        from ._values import StoredTensor

        order = sorted(self._stored, key=lambda stored: natural(stored.name))
        ahead = self._ahead = Ahead(self.files, order, bold=not is_rank)
        state = {stored.name: StoredTensor(ahead, at, stored) for at, stored in enumerate(order)}
        rest = {name: value for name, value in chosen.rest.items() if name not in _OF_FILES}
        rest.update(self._dtype(chosen.config, rest))
        found = chosen.model.from_pretrained(None, *model_args, config=chosen.config, state_dict=state, **rest)
        self.close()
        for file, mark in zip(self.files.names, self._marks):
            if self._place.mark(file) != mark:
                raise CorruptError(f"load {file}: it was changed during the load (fix: load it again)")
        model = found[0] if isinstance(found, tuple) else found
        self._finish(model, rest)
        return found

    def close(self) -> None:
        """End all reads and free what nobody has taken. A second call does nothing."""
        if self._ahead is not None:
            self._ahead.close()

    def _dtype(self, config: Any, rest: dict[str, Any]) -> dict[str, Any]:
        """Return the dtype for "auto" if the configuration has none: transformers looks into the first file."""
        word = "dtype" if _version(self._transformers) >= (4, 56) else "torch_dtype"
        given = rest.get("dtype", None) or rest.get("torch_dtype", None)
        is_auto = given == "auto" or (given is None and _version(self._transformers) >= (5, 0))
        stored = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        if not is_auto or stored is not None:
            return {}
        told = index_metadata(self._place, self._weights).get("dtype")
        if isinstance(told, str):
            return {word: told.removeprefix("torch.")}
        first = sorted((stored for stored in self._stored if stored.file == 0), key=lambda stored: stored.name)
        floats = [one for one in first if one.dtype is not None and one.dtype.is_floating_point
                  and one.dtype.itemsize > 1]
        return {word: next((one.dtype for one in floats), first[0].dtype if first else self._torch.float32)}

    def _finish(self, model: Any, rest: dict[str, Any]) -> None:
        """Set what transformers takes from the path of a model: its name, and how it generates text."""
        model.config._name_or_path = model.name_or_path = self._place.name
        if not model.can_generate() or rest.get("generation_config") is not None:
            return
        configs, folder = self._transformers.GenerationConfig, self._place.folder
        if self._place.has("generation_config.json"):
            model.generation_config = configs.from_pretrained(folder)
        else:
            model.generation_config = configs.from_pretrained(folder, config_file_name="config.json",
                                                              _from_model_config=True)
        if rest.get("trust_remote_code") and hasattr(model, "load_custom_generate"):
            try:
                custom = model.load_custom_generate(folder, trust_remote_code=True)
            except OSError:
                return  # there is no such function
            model.generate = _Generate(custom, model)

    def seconds(self, began: float) -> dict[str, float]:
        """Return the seconds of the stages: until the first weight is asked for, until the last is there, and the rest."""
        ahead = self._ahead
        assert ahead is not None
        if not ahead.began:
            return {"module": time.perf_counter() - began}
        ended = {"weights": ahead.ended - ahead.began, "finish": time.perf_counter() - ahead.ended}
        return {"module": ahead.began - began, **ended}

    def report(self) -> dict[str, Any]:
        """Return the report of the whole load."""
        ahead = self._ahead
        assert ahead is not None
        return merged(self.files, self._place.name, ahead)


class _Generate:
    """A `generate` method of the model's own code."""

    def __init__(self, custom: Any, model: Any) -> None:
        self._custom = custom
        self._model = model

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._custom(*arguments, model=self._model, **named)


def merged(files: Files, path: str, ahead: Ahead) -> dict[str, Any]:
    """Return one report of all jobs of a load. Its seconds are those from the first request to the last tensor."""
    seconds = ahead.ended - ahead.began
    routes: dict[str, int] = {}
    refusals: list[Any] = []
    notes = list(ahead.notes)
    for job in files.reports:
        for entry in job.get("routes") or ():
            routes[entry["route"]] = routes.get(entry["route"], 0) + entry["bytes"]
        refusals += [one for one in job.get("refusals") or () if one not in refusals]
        notes += [note for note in job.get("notes") or () if note not in notes]
    if ahead.unused:
        notes.append(f"{ahead.unused} bytes were read ahead for tensors that transformers did not ask for")
    if ahead.counts["moved"]:
        notes.append(f"{ahead.counts['moved']} tensors were read ahead to another device than theirs, and copied")
    size = sum(int(job["bytes"]) for job in files.reports)
    return {
        "op": "load",
        "path": path,
        "bytes": size,
        "wanted_bytes": ahead.wanted,
        "unused_bytes": ahead.unused,
        "tensors": dict(ahead.counts),
        "jobs": len(files.reports),
        "seconds": seconds,
        "gbps": size / seconds / 1e9 if seconds else 0.0,
        "routes": [{"route": route, "bytes": count} for route, count in routes.items()],
        "refusals": refusals,
        "notes": notes,
    }


def _keep(report: dict[str, Any], reports: list[Any], seconds: dict[str, float], profile: Profile | None) -> None:
    _process.current().reports.last = json.dumps(report).encode()
    if profile is not None:
        profile["seconds"] = seconds
        profile["report"] = report
        profile["reports"] = reports


def _why_theirs(place: Place, weights: str | None, config: Any, theirs: dict[str, Any]) -> str | None:
    """Return why transformers has to read the files itself, or None."""
    if theirs.get("use_safetensors") is False or weights is None:
        return "there are no safetensors weights" if weights is None else "use_safetensors=False"
    if place.has("adapter_config.json"):
        return "there is an adapter"
    stored = getattr(config, "quantization_config", None) or {}
    method = stored.get("quant_method") if isinstance(stored, dict) else getattr(stored, "quant_method", None)
    if str(getattr(method, "value", method)) == "torchao":
        return "torchao's quantizer reads the metadata of the files"
    spread = theirs.get("device_map")
    if isinstance(spread, dict) and "disk" in spread.values():
        return "device_map offloads to disk"
    from importlib import import_module

    try:
        deepspeed = import_module("transformers.integrations.deepspeed")
    except ImportError:
        return None
    return "DeepSpeed ZeRO-3 is on" if deepspeed.is_deepspeed_zero3_enabled() else None


def _further(
    transformers: Any, chosen: _classes.Chosen, model_args: tuple[Any, ...], theirs: dict[str, Any]
) -> str | None:
    """Return why the model's class reads files beside its weights, or None.

    Such a class finds the files by its path, and NebulaIO passes no path to transformers.
    """
    further = getattr(type(chosen.config), "extra_files", ())  # transformers ignores extra_files of config.json
    if further:
        return f"{chosen.model.__name__} reads further files: {', '.join(map(str, further))}"
    usual = transformers.PreTrainedModel.from_pretrained.__func__
    if getattr(chosen.model.from_pretrained, "__func__", None) is not usual:
        return f"{chosen.model.__name__} has its own from_pretrained, which may read further files"
    if theirs.get("target_lang") is not None:
        return f"{chosen.model.__name__} reads the weights of target_lang from a further file"
    if model_args and "target_lang" in inspect.signature(chosen.model).parameters:
        return f"{chosen.model.__name__} may read the weights of a language from a further file"
    return None
