# SPDX-License-Identifier: Apache-2.0
"""Ranges of strided copies and overlaps of views, against what single bytes say."""

from __future__ import annotations

import random
from itertools import product

import pytest
from nebulaio._deferred_geometry import MOST_SEGMENTS, Occupied, View, overlap, ranges


def random_view(rng: random.Random, itemsize: int, lengths: list[int] | None = None) -> View:
    """A part of a contiguous tensor with its dimensions in some order, perhaps with a step."""
    shape = lengths or [rng.randint(1, 4) for _ in range(rng.randint(0, 4))]
    steps = [rng.choice([1, 1, 1, 2]) for _ in shape]
    extents = [n * step + rng.randint(0, 2) for n, step in zip(shape, steps)]
    order = list(range(len(shape)))
    rng.shuffle(order)
    stride, strides, offset = itemsize, [0] * len(shape), 0
    for place in order:
        strides[place] = stride * steps[place]
        offset += stride * rng.randint(0, extents[place] - (shape[place] - 1) * steps[place] - 1)
        stride *= extents[place]
    return View(tuple(shape), tuple(strides), offset, itemsize)


def places(view: View) -> list[int]:
    """The offset of each element, in the order of the elements."""
    return [
        view.offset + sum(at * stride for at, stride in zip(index, view.strides))
        for index in product(*map(range, view.shape))
    ]


def bytes_of(view: View) -> set[int]:
    return {at + byte for at in places(view) for byte in range(view.itemsize)}


@pytest.mark.parametrize("seed", range(300))
def test_ranges_copy_each_element(seed: int) -> None:
    rng = random.Random(seed)
    itemsize = rng.choice([1, 2, 4, 8])
    source = random_view(rng, itemsize)
    target = random_view(rng, itemsize, list(source.shape))._replace(itemsize=itemsize)
    found = ranges(source, target)
    if found is None:
        return  # more than a few small pieces
    moved = {}
    for one in found:
        to = one.address
        for row in range(0, one.size, one.stride or one.size):
            for at in range(one.offset + row, one.offset + row + (one.width or one.size)):
                assert to not in moved
                moved[to] = at
                to += 1
    expected = {
        there + byte: here + byte
        for here, there in zip(places(source), places(target))
        for byte in range(itemsize)
    }
    assert moved == expected


def test_a_column_is_one_strided_range() -> None:
    found = ranges(View((100, 32), (256, 2), 64, 2), View((100, 32), (64, 2), 5000, 2))
    assert found == [(64, 99 * 256 + 64, 5000, 64, 256)]


def test_a_transposed_matrix_and_a_repeated_row_need_a_buffer() -> None:
    assert ranges(View((512, 512), (2, 1024), 0, 2), View((512, 512), (1024, 2), 0, 2)) is None
    assert ranges(View((4, 8), (0, 2), 0, 2), View((4, 8), (16, 2), 0, 2)) is None
    many = MOST_SEGMENTS + 1
    assert ranges(View((many, 4096), (4096, 1), 0, 1), View((many, 4096), (8192, 1), 0, 1)) is None


@pytest.mark.parametrize("seed", range(500))
def test_overlaps_of_views_of_one_tensor(seed: int) -> None:
    rng = random.Random(seed)
    itemsize = rng.choice([1, 2, 4])
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]

    def part() -> View:
        offsets = [rng.randint(0, n - 1) for n in shape]
        lengths = [rng.randint(0 if rng.random() < 0.1 else 1, n - at) for n, at in zip(shape, offsets)]
        stride, strides, offset = itemsize, [], 0
        for n, at in zip(reversed(shape), reversed(offsets)):
            strides.insert(0, stride)
            offset += at * stride
            stride *= n
        return View(tuple(lengths), tuple(strides), offset, itemsize)

    one, other = part(), part()
    assert overlap(one, other) == bool(bytes_of(one) & bytes_of(other))


@pytest.mark.parametrize("seed", range(300))
def test_overlaps_are_never_missed(seed: int) -> None:
    rng = random.Random(seed)
    one = random_view(rng, rng.choice([1, 2, 4]))
    other = random_view(rng, rng.choice([1, 2, 4]))
    if bytes_of(one) & bytes_of(other):
        assert overlap(one, other)


def test_occupied_finds_all_neighbours() -> None:
    rng = random.Random(1)
    occupied, known = Occupied(), []
    for number in range(200):
        at, length = rng.randrange(0, 10_000), rng.choice([1, 5, 300])
        view = View((length,), (2,), at * 2, 2)
        expected = [value for other, value in known if overlap(other, view)]
        assert sorted(value for _, value in occupied.near(view)) == sorted(expected)
        if not expected:
            occupied.add(view, number)
            known.append((view, number))
    assert occupied.values() == [value for _, value in known]
    occupied.replace(known[3][0], -1)
    assert occupied.near(known[3][0]) == [(known[3][0], -1)]
