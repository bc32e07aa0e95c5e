# SPDX-License-Identifier: Apache-2.0
"""Cache states of a small file, measured with cachestat."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from held import hold
from nbench import cache


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a little more than 11 windows, on a file system that can drop pages."""
    path = tmp_path / "data"
    path.write_bytes(os.urandom(11 * cache.WINDOW + 12345))
    try:
        left = cache.drop(path, everything=False)
    except cache.CacheError as problem:
        pytest.skip(str(problem))
    if left > cache.COLD_LIMIT:
        pytest.skip("files in the temporary folder live in memory")
    return path


def test_cold_then_warm(file: Path) -> None:
    assert cache.resident(file) < cache.COLD_LIMIT
    assert cache.warm(file) > cache.WARM_LIMIT
    with hold(file):
        assert all(part == 1.0 for part in cache.resident_windows(file))
    assert cache.drop(file, everything=False) < cache.COLD_LIMIT


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages that were read stay in the page cache until the test ends. The kernel may take single ones at any time."""
    real = cache.read_ranges

    def read_ranges(path: Path, ranges: list[cache.Range], *arguments: Any, **named: Any) -> None:
        real(path, ranges, *arguments, **named)
        wanted = sum(-(-(end - start) // cache.PAGE) for start, end in ranges)
        with open(path, "rb") as read:
            assert cache.resident_pages(read.fileno(), 0, 0) > cache.WARM_LIMIT * wanted
        for start, end in ranges:
            pages.enter_context(hold(path, start, end))

    with contextlib.ExitStack() as pages:
        monkeypatch.setattr(cache, "read_ranges", read_ranges)
        yield


@pytest.mark.parametrize("pattern", cache.PATTERNS)
@pytest.mark.usefixtures("kept")
def test_pattern_is_what_was_meant(file: Path, pattern: str) -> None:
    made = cache.make_pattern(file, pattern, everything=False, threads=2)
    assert made.wrong == 0
    assert made.valid
    assert 0.45 < cache.resident(file) < 0.55
    windows = cache.resident_windows(file)
    if pattern == "first-half":
        assert windows[:5] == [1.0] * 5
        assert sum(windows[5:]) == 0
    if pattern == "alternate-2MiB":
        assert windows == [1.0 - index % 2 for index in range(len(windows))]


def test_another_state_is_not_taken_for_the_pattern(file: Path) -> None:
    cache.warm(file)
    ranges = cache.pattern_ranges("alternate-2MiB", file.stat().st_size)
    assert not cache.check_pattern(file, "alternate-2MiB", ranges).valid


@pytest.mark.parametrize("pattern", cache.PATTERNS)
def test_ranges_lie_in_the_file(pattern: str) -> None:
    size = 9 * cache.WINDOW + 1
    ranges = cache.pattern_ranges(pattern, size)
    assert ranges == cache.pattern_ranges(pattern, size)
    assert all(0 <= start < end <= size for start, end in ranges)
    assert len({start for start, _ in ranges}) == len(ranges)


def test_unknown_pattern() -> None:
    with pytest.raises(ValueError, match="not one of"):
        cache.pattern_ranges("stripes", 1)
