# SPDX-License-Identifier: Apache-2.0
"""Saving and filling torch modules with shared tensors, as safetensors.torch does."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from . import _device, _load, _save
from .errors import ArgumentTypeError, InvalidError

__all__ = ["load_model", "save_model"]


def save_model(
    model: Any, filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True
) -> None:
    """Save a module's state. nebulaio.safetensors.save_model documents the behaviour."""
    state = dict(model.state_dict())
    words = None if metadata is None else dict(metadata)
    for kept, others in shared_names(state).items():
        words = {} if words is None else words
        for name in others:
            words.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    _save.write(_save.prepare(state), filename, words, True, None)


def load_model(
    model: Any, filename: str | os.PathLike[str], strict: bool = True, device: _device.DeviceLike = "cpu", *,
    backend: str = "mmap"
) -> tuple[set[str], list[str]]:
    """Fill a module from a file. Returns the missing names and the unexpected names.

    With `strict`, missing or unexpected names raise a RuntimeError. `backend` is accepted and
    ignored.
    """
    state = _load.load(filename, _load.Order(device, "pt"), None)
    shared = shared_names(dict(model.state_dict()), preferred=state.keys())
    found = model.load_state_dict(state, strict=False)
    missing, unexpected = set(found[0]), list(found[1])
    for others in shared.values():
        for name in others:
            if name in missing:
                missing.remove(name)  # filled through the tensor that it shares memory with
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        told = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for word, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                told.append(f"    {word} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in sorted(names)))
        raise RuntimeError("\n".join(told))
    return missing, unexpected


def shared_names(state: Mapping[str, Any], preferred: Collection[str] = ()) -> dict[str, list[str]]:
    """Return for each group of tensors that share memory the name to keep and the others.

    The kept tensor covers its whole storage. Raises InvalidError if a group has none.
    """
    storages: dict[tuple[Any, int, int], list[str]] = {}
    for name, tensor in state.items():
        if tensor.device.type != "meta" and storage_ptr(tensor) and storage_size(tensor):
            storages.setdefault((tensor.device, storage_ptr(tensor), storage_size(tensor)), []).append(name)
    out: dict[str, list[str]] = {}
    for names in storages.values():
        for group in _overlapping(state, names):
            if len(group) < 2:
                continue
            complete = sorted(name for name in group if _covers_its_storage(state[name]))
            if not complete:
                raise _save.SharedMemoryError(
                    f"save module: tensors {sorted(group)} share memory, and none covers all of it, so the file would "
                    "be larger than needed (fix: save copies of them with .clone())"
                )
            kept = next((name for name in complete if name in preferred), complete[0])
            out[kept] = sorted(name for name in group if name != kept)
    return out


def storage_ptr(tensor: Any) -> int:
    """Return the address of a tensor's storage, or 0 without memory."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0


def storage_size(tensor: Any) -> int:
    """Return the bytes of a tensor's storage."""
    return int(tensor.untyped_storage().nbytes())


def _overlapping(state: Mapping[str, Any], names: list[str]) -> list[list[str]]:
    """Return groups of names whose tensors, all of one storage, overlap."""
    areas = sorted((*_area(state[name]), name) for name in names)
    groups: list[list[str]] = []
    end = -1
    for begin, stop, name in areas:
        if begin < end:
            groups[-1].append(name)
        else:
            groups.append([name])
        end = max(end, stop)
    return groups


def _area(tensor: Any) -> tuple[int, int]:
    """Return the first byte and the end of a tensor's memory."""
    begin = int(tensor.data_ptr())
    if not tensor.numel():
        return begin, begin
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * int(tensor.itemsize)


def _covers_its_storage(tensor: Any) -> bool:
    return bool(tensor.data_ptr() == storage_ptr(tensor) and tensor.numel() * tensor.itemsize == storage_size(tensor))


def checked_backend(backend: str) -> None:
    """Raise InvalidError for a backend that the reference does not have."""
    if not isinstance(backend, str):
        raise ArgumentTypeError(f"backend={backend!r} is not text, expected mmap or pread")
    if backend not in ("mmap", "pread"):
        raise InvalidError(f"backend={backend!r} is not one of mmap, pread")
