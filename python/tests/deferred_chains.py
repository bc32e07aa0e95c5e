# SPDX-License-Identifier: Apache-2.0
"""Random chains of views and copies of a tensor, applied to a real tensor and to a deferred one alike."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

Step = Callable[[Any], Any]


def step(rng: random.Random, tensor: torch.Tensor) -> Step:
    """One operation that is valid for a tensor."""
    shape, dims = tensor.shape, tensor.dim()
    kinds = ["unsqueeze", "clone", "contiguous", "flatten", "detach"]
    if dims:
        kinds += ["narrow", "narrow", "slice", "slice", "select", "chunk", "split", "transpose", "permute", "reshape",
                  "unbind", "movedim"]
    if dims == 2:
        kinds += ["t", "t"]
    if 1 in shape:
        kinds += ["squeeze", "expand"]
    kind = rng.choice(kinds)
    place = rng.randrange(dims) if dims else 0
    if kind == "unsqueeze":
        at = rng.randint(0, dims)
        return lambda one: one.unsqueeze(at)
    if kind == "squeeze":
        return lambda one: one.squeeze()
    if kind == "expand":
        wanted = [n if n != 1 else rng.choice([1, 3]) for n in shape]
        return lambda one: one.expand(wanted)
    if kind == "narrow" and shape[place]:
        begin = rng.randrange(shape[place])
        length = rng.randint(1, shape[place] - begin)
        return lambda one: one.narrow(place, begin, length)
    if kind == "slice" and shape[place]:
        begin, stop = sorted((rng.randint(0, shape[place]), rng.randint(0, shape[place])))
        index = (slice(None),) * place + (slice(begin, max(stop, begin + 1), rng.choice([1, 1, 2])),)
        return lambda one: one[index]
    if kind == "select" and shape[place] and dims > 1:
        at = rng.randrange(shape[place])
        return lambda one: one.select(place, at)
    if kind in ("chunk", "split") and shape[place]:
        count = rng.randint(1, 3)
        pick = rng.random()
        if kind == "chunk":
            return lambda one: (parts := one.chunk(count, place))[int(pick * len(parts))]
        return lambda one: (parts := one.split(count, place))[int(pick * len(parts))]
    if kind == "unbind" and shape[place] and dims > 1:
        return lambda one: one.unbind(place)[-1]
    if kind == "transpose":
        other = rng.randrange(dims)
        return lambda one: one.transpose(place, other)
    if kind == "movedim":
        other = rng.randrange(dims)
        return lambda one: one.movedim(place, other)
    if kind == "permute":
        order = list(range(dims))
        rng.shuffle(order)
        return lambda one: one.permute(order)
    if kind == "reshape":
        factors = [n for n in shape if n > 1] or [1]
        rng.shuffle(factors)
        return lambda one: one.reshape(-1, factors[0]) if one.numel() else one
    return {
        "t": lambda one: one.t(),
        "clone": lambda one: one.clone(),
        "contiguous": lambda one: one.contiguous(),
        "flatten": lambda one: one.flatten(),
    }.get(kind, lambda one: one.detach())


def chain(rng: random.Random, tensor: torch.Tensor, length: int) -> list[Step]:
    """Several operations, each valid for the result of those before."""
    steps = []
    for _ in range(length):
        one = step(rng, tensor)
        steps.append(one)
        tensor = one(tensor)
    return steps


def target(rng: random.Random, like: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of the shape of another, perhaps a part of a larger one or with dimensions in another order; and its base."""
    order = list(range(like.dim()))
    if rng.random() < 0.3:
        rng.shuffle(order)
    margins = [rng.choice([0, 0, 1, 5]) for _ in order]
    base = torch.full([like.shape[place] + margin for place, margin in zip(order, margins)], 77, dtype=dtype)
    part = base
    for place, margin in enumerate(margins):
        part = part.narrow(place, rng.randint(0, margin), like.shape[order[place]])
    return part.permute([order.index(place) for place in range(len(order))]), base
