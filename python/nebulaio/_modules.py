# SPDX-License-Identifier: Apache-2.0
"""Torch modules whose tensors may share memory, saved and filled as safetensors.torch does."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from . import _device, _load, _save
from .errors import InvalidError

__all__ = ["load_model", "save_model"]


def save_model(
    model: Any, filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Save a module's state; see nebulaio.safetensors.save_model for the contract."""
    state = dict(model.state_dict())
    words = None if metadata is None else dict(metadata)
    for kept, others in shared_names(state).items():
        words = {} if words is None else words
        for name in others:
            words.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    _save.save(state, filename, words, True, None)


def load_model(
    model: Any, filename: str | os.PathLike[str], strict: bool = True, device: _device.DeviceLike = "cpu", *, backend: str = "mmap"
) -> tuple[set[str], list[str]]:
    """Fill a module from a file; returns the names that it misses and those that it has no place for.

    With `strict` either of them is a RuntimeError. `backend` is taken and has no meaning here.
    """
    state = _load.load(filename, _load.Order(device, "pt"), None)
    shared = shared_names(dict(model.state_dict()), preferred=state.keys())
    found = model.load_state_dict(state, strict=False)
    missing, unexpected = set(found[0]), list(found[1])
    for others in shared.values():
        for name in others:
            if name in missing:
                missing.remove(name)  # it is filled with the one that it shares memory with
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
    """Of each group of tensors that share memory: the name to keep, and the others.

    The kept one covers all of its storage. Raises InvalidError for a group without such a one.
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
                    f"save module: tensors {sorted(group)} share memory, and none covers all of it: the file would hold more "
                    "than is needed (fix: save copies of them with .clone())"
                )
            kept = next((name for name in complete if name in preferred), complete[0])
            out[kept] = sorted(name for name in group if name != kept)
    return out


def storage_ptr(tensor: Any) -> int:
    """The address of a tensor's storage; 0 without memory."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0


def storage_size(tensor: Any) -> int:
    """The bytes of a tensor's storage."""
    return int(tensor.untyped_storage().nbytes())


def _overlapping(state: Mapping[str, Any], names: list[str]) -> list[list[str]]:
    """Groups of names whose tensors, all of one storage, overlap."""
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
    """The first byte and the end of what a tensor covers."""
    begin = int(tensor.data_ptr())
    if not tensor.numel():
        return begin, begin
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * int(tensor.itemsize)


def _covers_its_storage(tensor: Any) -> bool:
    return bool(tensor.data_ptr() == storage_ptr(tensor) and tensor.numel() * tensor.itemsize == storage_size(tensor))


def checked_backend(backend: str) -> None:
    """Raise InvalidError for a backend that the reference does not have."""
    if backend not in ("mmap", "pread"):
        raise InvalidError(f"backend={backend!r} is not one of mmap, pread")
