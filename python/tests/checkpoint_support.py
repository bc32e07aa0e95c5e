# SPDX-License-Identifier: Apache-2.0
"""What the tests of checkpoints share: states, comparisons, and worlds of gloo processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from nebulaio.errors import NebulaioError
from support import PATIENCE
from torch.distributed.checkpoint.api import CheckpointException

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]


def random_tensor(generator: random.Random, dtype: Any, shape: tuple[int, ...]) -> Any:
    """A tensor of random bytes that are valid values of its dtype."""
    count = 1
    for extent in shape:
        count *= extent
    if not count:
        return torch.empty(shape, dtype=dtype)
    data = bytearray(generator.randbytes(count * dtype.itemsize))
    if dtype is torch.bool:
        data = bytearray(byte & 1 for byte in data)
    return torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype).reshape(shape)


def raw(tensor: Any) -> bytes:
    """The bytes of a tensor in order. NaNs of equal bits are equal here."""
    if not tensor.numel():
        return b""
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and (one.dtype, one.shape, raw(one)) == (other.dtype, other.shape,
                                                                                        raw(other))
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def blank(state: Any) -> Any:
    """A state of the same form with other values."""
    if isinstance(state, torch.Tensor):
        return torch.zeros(state.shape, dtype=state.dtype)
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list):
        return [blank(value) for value in state]
    return None


def every_dtype(seed: int) -> dict[str, Any]:
    """A state with every dtype in several shapes, and objects that are no tensors."""
    generator = random.Random(seed)
    shapes = [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 2), (1000,)]
    tensors = {
        f"{str(dtype).removeprefix('torch.')}.{number}": random_tensor(generator, dtype, shape)
        for dtype in DTYPES
        for number, shape in enumerate(shapes)
    }
    return {"model": tensors, "step": 12, "rates": [0.1, 0.2], "name": "run",
            "nested": {"lr": 1e-3, "t": torch.arange(5)}}


def save(state: Any, writer: Any, **options: Any) -> Any:
    """dcp.save in one process, without its warning about that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dcp.save(state, storage_writer=writer, no_dist=True, **options)


def load(state: Any, reader: Any, **options: Any) -> Any:
    """dcp.load in one process; returns the state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, storage_reader=reader, no_dist=True, **options)
    return state


def cause_of(problem: BaseException) -> str:
    """The text of what the ranks of a failed save or load have raised."""
    failures = getattr(problem, "failures", None)
    if not failures:
        return str(problem)
    return "\n".join(f"{type(cause).__name__}: {cause}" for cause, _ in failures.values())


@contextmanager
def refused(pattern: str) -> Iterator[None]:
    """Expect a failed save or load whose error matches a pattern."""
    try:
        yield
    except (CheckpointException, NebulaioError) as problem:
        assert re.search(pattern, cause_of(problem)), cause_of(problem)
    else:
        raise AssertionError(f"nothing was refused, expected {pattern}")


def _enter(
    work: Callable[..., Any], rank: int, world: int, store: str, arguments: tuple[Any, ...], settings: dict[str, str],
    results: Any
) -> None:
    os.environ.update(settings)  # the server of forks has the environment of its own start
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        results.put((rank, work(rank, world, *arguments), None))
    except BaseException as problem:
        results.put((rank, None, f"{type(problem).__name__}: {cause_of(problem)}"))
        raise
    finally:
        torch.distributed.destroy_process_group()


def servers() -> Any:
    """The context of processes that are forked from a server, which has imported torch and has done nothing with it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.checkpoint", "torch.distributed.fsdp",
                                    "torch.distributed.tensor"])
    return context


def in_world(world: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run work(rank, world, *arguments) in as many gloo processes, and return what each returned."""
    context = servers()
    results = context.SimpleQueue()
    settings = {name: value for name, value in os.environ.items() if name.startswith("NEBULAIO_")}
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        ranks = [
            context.Process(target=_enter, args=(work, rank, world, store, arguments, settings, results))
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        try:
            for process in ranks:
                process.join(PATIENCE)
                assert process.exitcode is not None, "a rank hangs"
        finally:
            for process in ranks:
                process.kill()
    found: dict[int, Any] = {}
    problems = []
    while not results.empty():
        rank, value, problem = results.get()
        found[rank] = value
        if problem is not None:
            problems.append(f"rank {rank}: {problem}")
    if problems or len(found) != world:
        raise RuntimeError("\n".join(problems) or f"only ranks {sorted(found)} have ended")
    return [found[rank] for rank in range(world)]
