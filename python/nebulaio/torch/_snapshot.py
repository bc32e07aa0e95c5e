# SPDX-License-Identifier: Apache-2.0
"""Copies of a training state, which a save in the background reads while the training changes the state."""

from __future__ import annotations

import copy
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import DeviceError, InvalidError, OutOfMemoryError
from ._staging import Staging

torch: Any = importlib.import_module("torch")

_PAGE = 4096
_LINE = 64

SMALL = 1 << 20
"""Bytes of a tensor up to which its copy is made before the training goes on.

Forward changes some tensors too, such as the running means of BatchNorm. They are small.
"""


class Part(NamedTuple):
    """A tensor of a state: its plain tensors in this process, and a function that makes it of their copies."""

    value: Any
    tensors: tuple[Any, ...]
    make: Callable[[Sequence[Any]], Any]


class Choice(NamedTuple):
    """The kind of a snapshot, "device" or "staging", and the reason for it."""

    kind: str
    reason: str


def find(state: Any) -> list[Part]:
    """Return the tensors in the dictionaries, lists and tuples of a state. Each object appears once."""
    seen: set[int] = set()
    found = []
    stack = [state]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor) or type(value).__name__ == "ShardedTensor":
            part = _part(value)
            if part is not None:
                found.append(part)
        elif isinstance(value, Mapping):
            stack.extend(reversed(list(value.values())))
        elif isinstance(value, (list, tuple)):
            stack.extend(reversed(value))
    return found


def size_of(tensor: Any) -> int:
    """Return the bytes of a tensor's values."""
    return int(tensor.numel() * tensor.element_size())


def needs(parts: Sequence[Part]) -> dict[str, int]:
    """Return the bytes of all plain tensors by device, such as {"cpu": 4096, "cuda:0": 1 << 30}."""
    found: dict[str, int] = {}
    for tensor in _plain(parts):
        device = str(tensor.device)
        found[device] = found.get(device, 0) + size_of(tensor)
    return found


def free_memory(device: str) -> tuple[int, int]:
    """Return the free and the total bytes of a GPU. Memory that torch keeps for later does not count as free."""
    free, total = torch.cuda.mem_get_info(device)
    return int(free), int(total)


def choose(asked: str, wanted: Mapping[str, int], memory: int, reserve: int | None) -> Choice:
    """Return the kind of a snapshot for "auto", "device" or "staging".

    `wanted` are the bytes by device, `memory` is the limit of host memory, and `reserve` are the bytes that stay
    free on each GPU (None: a twentieth of the GPU's memory). Raises OutOfMemoryError if "device" was asked for
    and a GPU is too full.
    """
    if asked == "staging":
        return Choice("staging", "it was asked for")
    fits = []
    for device, size in wanted.items():
        if device == "cpu":
            if asked == "auto" and size > memory:
                return Choice("staging", f"{size} bytes of CPU tensors exceed the limit of {memory} bytes")
            continue
        free, total = free_memory(device)
        kept = total // 20 if reserve is None else reserve
        if size + kept > free:
            text = f"{device} has {free} free bytes, and a copy needs {size} with a reserve of {kept}"
            if asked == "device":
                raise OutOfMemoryError(f"snapshot on the device: {text} (fix: pass snapshot='staging' or 'auto')")
            return Choice("staging", text)
        fits.append(f"{size} bytes fit into the {free} free bytes of {device} with a reserve of {kept}")
    if asked == "device":
        return Choice("device", "it was asked for")
    return Choice("device", "; ".join(fits) or f"all tensors are on the CPU, within the limit of {memory} bytes")


class Snapshot:
    """A copy of a state. Tensors that fit nowhere are not copied: `direct` counts their bytes.

    `begin` starts the copies in the training's thread. `finish` ends them in the thread of the save. After `finish`,
    only the tensors of `direct` still belong to the training.
    """

    def __init__(self, state: Any, parts: Sequence[Part], choice: Choice, staging: Staging) -> None:
        self.state: Any = state
        self.choice = choice
        self.on_device = 0
        self.staged = 0
        self.direct = 0
        self.seconds = 0.0
        self._parts: Sequence[Part] = parts
        self._staging = staging
        self._later: list[tuple[Any, Any]] = []  # copies of CPU tensors that `finish` makes
        self._owned: list[Any] = []  # copies on GPUs
        self.streams: list[Any] = []  # of the GPUs, for all work of the save: it must not wait for later steps
        self._events: list[tuple[Any, Any]] = []  # begin and end of the copies on each GPU

    def begin(self) -> None:
        """Start all copies. Copies of small tensors, and all of the kind "device", are ordered before later work."""
        began = time.perf_counter()
        copies = self._copies()
        memo = {id(part.value): part.make([copies[_key(one)] for one in part.tensors]) for part in self._parts}
        try:
            self.state = copy.deepcopy(self.state, memo)
        except Exception as cause:  # deepcopy runs the methods of any class
            raise InvalidError(f"snapshot: an object of the state cannot be copied: {cause}") from cause
        self._copy_host(now=True)
        self.seconds = time.perf_counter() - began

    def reserve(self) -> None:
        """Allocate the staging memory without copying."""
        tensors = {_key(one): one for one in _plain(self._parts)}
        self._take(tensors)
        self._staging.give_back()

    def finish(self) -> None:
        """Wait for all copies, without the GIL."""
        began = time.perf_counter()
        self._copy_host()
        for _, end in self._events:
            end.synchronize()
        self._parts = ()
        self.seconds += time.perf_counter() - began

    def is_copied(self) -> bool:
        """Return whether the training may change all tensors at once, on its current stream."""
        gpus = self._events and self.choice.kind != "device"
        return not self.direct and not self._later and not gpus

    def gpu_seconds(self) -> float:
        """Return the longest time that one GPU took for its copies. Call it after `finish`."""
        return max((float(begin.elapsed_time(end)) / 1000 for begin, end in self._events), default=0.0)

    def release(self) -> None:
        """Free the copies, also if a planner still refers to them."""
        for tensor in self._owned:
            tensor.untyped_storage().resize_(0)
        self._owned = []
        self.state = None
        self._parts = ()
        self._later = []
        self._events = []
        self._staging.give_back()

    def _copies(self) -> dict[Any, Any]:
        """Return a tensor for each plain tensor: a copy that is under way, or the tensor itself."""
        # Small tensors come first: they have first claim on the staging memory, and are copied first.
        order = sorted(_plain(self._parts), key=lambda one: size_of(one) > SMALL)
        tensors = {_key(one): one for one in order}
        places, region = self._take(tensors)
        found: dict[Any, Any] = {}
        by_device: dict[Any, list[tuple[Any, Any]]] = {}
        for device in {one.device for one in order if one.device.type == "cuda"}:
            self.streams.append(self._staging.stream(device))
            self.streams[-1].wait_stream(torch.cuda.current_stream(device))
        for key, tensor in tensors.items():
            if key in places:
                at = places[key]
                found[key] = region[at : at + size_of(tensor)].view(tensor.dtype).view(tensor.shape)
                self.staged += size_of(tensor)
            elif tensor.device.type == "cuda" and self.choice.kind == "device":
                found[key] = None  # allocated on the stream that copies
                self.on_device += size_of(tensor)
            else:
                found[key] = tensor
                self.direct += size_of(tensor)
                continue
            if tensor.device.type == "cuda":
                by_device.setdefault(tensor.device, []).append((key, tensor))
            else:
                self._later.append((found[key], tensor))
        for device, pairs in by_device.items():
            self._copy_gpu(device, pairs, found)
        return found

    def _take(self, tensors: Mapping[Any, Any]) -> tuple[dict[Any, int], Any]:
        """Return the offsets of the tensors that go to staging memory, and the memory. What does not fit is left out."""
        places: dict[Any, int] = {}
        at = 0
        for key, tensor in tensors.items():
            size = size_of(tensor)
            if tensor.device.type == "cuda" and self.choice.kind == "device":
                continue
            align = _PAGE if size >= _PAGE else _LINE
            start = -(-at // align) * align
            if start + size <= self._staging.limit:
                places[key] = start
                at = start + size
        pinned = any(tensors[key].device.type == "cuda" for key in places)
        return places, self._staging.take(at, pinned)

    def _copy_gpu(self, device: Any, pairs: Sequence[tuple[Any, Any]], found: dict[Any, Any]) -> None:
        """Queue copies on the copying stream of a GPU."""
        stream = self._staging.stream(device)
        current = torch.cuda.current_stream(device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        early: Any = None
        try:
            with torch.cuda.stream(stream):
                begin.record(stream)
                for key, tensor in pairs:
                    if size_of(tensor) > SMALL and early is None:
                        early = stream.record_event()
                    if found[key] is None:
                        found[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                        self._owned.append(found[key])
                    found[key].copy_(tensor, non_blocking=True)
                end.record(stream)
        except torch.cuda.OutOfMemoryError as cause:
            stream.synchronize()
            raise OutOfMemoryError(f"snapshot on {device}: {cause} (fix: pass snapshot='staging')") from cause
        except RuntimeError as cause:
            raise DeviceError(f"snapshot on {device}: {cause}") from cause
        # The next kernel of the training may change the tensors.
        current.wait_event(end if self.choice.kind == "device" or early is None else early)
        self._events.append((begin, end))

    def _copy_host(self, now: bool = False) -> None:
        """Copy CPU tensors: with `now` those that must not wait, otherwise all that are left."""
        early = [pair for pair in self._later if not now or self.choice.kind == "device" or size_of(pair[1]) <= SMALL]
        for target, tensor in early:
            copy_tensor(target, tensor)
        done = {id(target) for target, _ in early}
        self._later = [pair for pair in self._later if id(pair[0]) not in done]


def copy_tensor(target: Any, tensor: Any) -> None:
    """Copy the values of a CPU tensor. Torch releases the GIL meanwhile."""
    target.copy_(tensor)


def _plain(parts: Sequence[Part]) -> Iterator[Any]:
    """Yield each plain tensor once, also if several parts share it."""
    seen = set()
    for part in parts:
        for tensor in part.tensors:
            key = _key(tensor)
            if key not in seen:
                seen.add(key)
                yield tensor


def _key(tensor: Any) -> tuple[Any, ...]:
    """Return what tells one view of memory from another. Empty tensors have no memory, but a shape."""
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()


def _part(value: Any) -> Part | None:
    """Return how to copy a tensor, or None if its own deepcopy does it."""
    if type(value).__name__ == "ShardedTensor":
        return _sharded(value)
    if hasattr(value, "device_mesh") and hasattr(value, "placements"):
        return _distributed(value)
    if hasattr(value, "__tensor_flatten__") or value.layout is not torch.strided or value.is_nested:
        return None
    if value.device.type not in ("cpu", "cuda") or value.is_quantized:
        return None
    return Part(value, (value.detach(),), lambda copies: copies[0])


def _distributed(value: Any) -> Part:
    """Return how to copy a DTensor: its local tensor is copied."""
    with torch.no_grad():
        local = value.detach().to_local()

    def make(copies: Sequence[Any]) -> Any:
        return type(value).from_local(
            copies[0], value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
        )

    return Part(value, (local,), make) if isinstance(local, torch.Tensor) else Part(value, (), lambda _: value)


def _sharded(value: Any) -> Part:
    """Return how to copy a ShardedTensor: its local shards are copied."""
    shards = value.local_shards()

    def make(copies: Sequence[Any]) -> Any:
        made = [type(shard)(one, shard.metadata) for shard, one in zip(shards, copies)]
        return type(value)._init_from_local_shards_and_global_metadata(
            made, sharded_tensor_metadata=value.metadata(), process_group=value._process_group
        )

    return Part(value, tuple(shard.tensor.detach() for shard in shards), make)
