# SPDX-License-Identifier: Apache-2.0
"""The arithmetic behind every figure."""

from __future__ import annotations

import pytest
from nbench import stats


def test_spread_of_odd_even_and_none() -> None:
    odd = stats.spread([5, 1, 3])
    assert odd is not None
    assert (odd.n, odd.median, odd.min, odd.max, odd.q1, odd.q3, odd.iqr) == (3, 3, 1, 5, 2, 4, 2)
    even = stats.spread([4, 1, 2, 3])
    assert even is not None
    assert (even.median, even.q1, even.q3) == (2.5, 1.75, 3.25)
    one = stats.spread([2.0])
    assert one is not None
    assert (one.median, one.iqr) == (2.0, 0.0)
    assert stats.spread([]) is None
    assert stats.median([]) is None
    assert even.as_dict()["iqr"] == 1.5


def test_rate_is_decimal() -> None:
    assert stats.rate(15e9, 3) == 5.0
    assert stats.rate(1, 0) == 0.0


@pytest.mark.parametrize(
    ("cold", "warm", "expected"),
    [(4e9, 4e9, 1.0), (0, 8e9, 0.2), (8e9, 0, 2.0), (1e8, 8e9, 0.2)],
)
def test_half_takes_the_longer_part(cold: float, warm: float, expected: float) -> None:
    assert stats.half_expected(cold, 4.0, warm, 40.0) == pytest.approx(expected)


def test_fit_is_exact_with_two_points() -> None:
    truth = stats.Cost(per_tensor=0.0003, per_byte=1e-10)
    points = [(t, b, truth.seconds(t, b)) for t, b in ((311, 1.5e9), (339, 15.2e9))]
    found = stats.fit_cost(points)
    assert found is not None
    assert found.per_tensor == pytest.approx(truth.per_tensor)
    assert found.per_byte == pytest.approx(truth.per_byte)
    assert found.gbps == pytest.approx(10.0)


def test_fit_refuses_what_cannot_be_told_apart() -> None:
    assert stats.fit_cost([(10, 1e9, 1.0)]) is None
    assert stats.fit_cost([(10, 1e9, 1.0), (20, 2e9, 2.0)]) is None
    assert stats.Cost(0.1, -1e-12).gbps is None


def test_setup_is_the_first_against_the_later() -> None:
    assert stats.setup_cost([0.5, 0.1, 0.3, 0.1]) == pytest.approx(0.4)
    assert stats.setup_cost([0.5]) is None
