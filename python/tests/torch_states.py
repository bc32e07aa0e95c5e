# SPDX-License-Identifier: Apache-2.0
"""States of training for tests of checkpoints: random ones, and those of a small trained model."""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Any


def dtypes(torch: Any) -> list[Any]:
    """Every dtype of torch whose tensors torch.save takes."""
    names = (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128 "
        "complex32 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
    )
    return [getattr(torch, name) for name in names.split() if hasattr(torch, name)]


def random_tensor(torch: Any, rng: random.Random, dtype: Any) -> Any:
    """A tensor of random bytes, often a view with strides."""
    shape = [rng.choice([0, 1, 2, 3, 7, 16]) for _ in range(rng.randrange(4))]
    count = 1
    for extent in shape:
        count *= extent
    room = rng.choice([0, 0, 5, 1000])
    content = bytearray(rng.randbytes((count + room) * dtype.itemsize) or b"\0" * dtype.itemsize)
    if dtype is torch.bool:
        content = bytearray(one & 1 for one in content)
    whole = torch.frombuffer(content, dtype=torch.uint8).clone().view(dtype)
    start = rng.randrange(room + 1) if room else 0
    tensor = whole[start : start + count].view(shape)
    if rng.random() < 0.3 and len(shape) >= 2:
        tensor = tensor.transpose(0, -1)
    return tensor


def random_state(torch: Any, seed: int) -> Any:
    """A nested state with tensors of every dtype, views, ties, empty and scalar tensors, and plain values."""
    rng = random.Random(seed)
    tensors = [random_tensor(torch, rng, dtype) for dtype in dtypes(torch)]
    rng.shuffle(tensors)
    floats = [torch.tensor(3.5), torch.nn.Parameter(torch.rand(3, 2)), torch.eye(4).to_sparse(), torch.empty(0)]
    state: Any = {
        "model": OrderedDict((f"layer.{number}.weight", tensor) for number, tensor in enumerate(tensors[:8])),
        "optimizer": {"state": {number: {"step": torch.tensor(float(number)), "exp_avg": one}
                                for number, one in enumerate(tensors[8:12])}},
        "list": [*tensors[12:], *floats, (tensors[0], "text", None, 1 << 70)],
        "tied": tensors[1],
        "numbers": {"epoch": rng.randrange(100), "loss": rng.random(), "flags": [True, False], "raw": rng.randbytes(9)},
        7: {"ä" * 30: tensors[2][...], "": 0},
    }
    return state


def trained(torch: Any, seed: int = 1) -> tuple[Any, Any]:
    """A small model and its Adam optimizer after three steps."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(4, 8)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def assert_equal(torch: Any, found: Any, expected: Any, path: str = "state") -> None:
    """Fail unless two states are equal to the bit, in types, strides and offsets too."""
    assert type(found) is type(expected), f"{path}: {type(found)} and {type(expected)}"
    if isinstance(expected, torch.Tensor):
        said = [(one.dtype, one.shape, one.layout, one.requires_grad) for one in (found, expected)]
        assert said[0] == said[1], f"{path}: {said}"
        if expected.layout is not torch.strided:
            found, expected = found.to_dense(), expected.to_dense()
        else:
            assert (found.stride(), found.storage_offset()) == (expected.stride(), expected.storage_offset()), path
        assert bits(torch, found) == bits(torch, expected), path
    elif isinstance(expected, dict):
        assert list(found) == list(expected), path
        for key in expected:
            assert_equal(torch, found[key], expected[key], f"{path}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), path
        for number, (one, other) in enumerate(zip(found, expected)):
            assert_equal(torch, one, other, f"{path}.{number}")
    else:
        assert found == expected, path


def bits(torch: Any, tensor: Any) -> bytes:
    """The bytes of a tensor's values in order."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
