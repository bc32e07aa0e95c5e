# SPDX-License-Identifier: Apache-2.0
"""Rounds, budget, order, and the rows that an option selects."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbench import cli
from nbench.context import Clock, Context, NoTime, Row, rotated
from nbench.device import Device
from nbench.measure import Sample, judge
from nbench.models import Library
from nbench.rows_half import add_factor


def test_rotation_gives_everyone_every_place() -> None:
    assert [rotated("abc", n) for n in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated([], 3) == []


def test_budget_stops_before_a_round_that_would_not_fit(tmp_path: Path) -> None:
    now = [0.0]
    clock = Clock(budget=25.0, now=lambda: now[0])
    device = Device("host", use_torch=False)
    context = Context(device, Library(tmp_path, device, None, print), clock, log=lambda _: None)
    row = Row("r", "warm", rounds_asked=5)
    for _ in context.each_round(row):
        now[0] += 10.0
    assert row.rounds_done == 2
    assert row.stopped.startswith("time")


def test_a_row_that_cannot_fit_is_not_begun(tmp_path: Path) -> None:
    device = Device("host", use_torch=False)
    clock = Clock(budget=10.0, now=lambda: 0.0)
    context = Context(device, Library(tmp_path, device, None, print), clock, log=lambda _: None)
    context.begin(Row("r", "warm"), 5, per_round=4.0, setup=6.0)
    with pytest.raises(NoTime, match="10 s were left"):
        context.begin(Row("r", "warm"), 5, per_round=20.0, setup=10.0)


def test_row_limit_counts_from_the_row() -> None:
    now = [0.0]
    clock = Clock(budget=None, row_limit=100, now=lambda: now[0])
    now[0] = 70.0
    assert clock.left() == 30
    clock.begin_row()
    assert clock.left() == 100


def test_plan_expands_kinds_and_refuses_unknown_rows() -> None:
    models = ["0.6b", "7b"]
    assert cli.plan("warm,first", models) == [("warm", "0.6b"), ("warm", "7b"), ("first", "")]
    assert cli.plan("half-7b,half", models) == [("half", "7b"), ("half", "0.6b")]
    assert len(cli.plan("", models)) == 20
    with pytest.raises(ValueError, match="no such row"):
        cli.plan("warm-70b", models)


@pytest.mark.parametrize(
    ("state", "cached", "valid"),
    [("cold", 0.0, True), ("cold", 0.02, False), ("warm", 1.0, True), ("warm", 0.98, False), ("first-half", 0.5, True)],
)
def test_a_wrong_cache_state_makes_a_run_invalid(state: str, cached: float, valid: bool) -> None:
    sample = Sample("m", 0, 1, state=state, cached_before=cached)
    judge(sample)
    assert sample.valid is valid
    assert bool(sample.note) is not valid


def test_half_factor_uses_rates_of_the_same_round() -> None:
    size = 8 * 10**9
    half = Sample("m", 1, size, state="first-half", seconds=1.1, extra={"cached_bytes": size // 2})
    samples = [
        Sample("m", 0, size, state="cold", seconds=9.0),
        Sample("m", 1, size, state="cold", seconds=2.0),
        Sample("m", 1, size, state="warm", seconds=0.2),
        half,
    ]
    add_factor(half, samples)
    assert half.extra["expected_s"] == pytest.approx(1.0)
    assert half.extra["factor"] == pytest.approx(1.1)
