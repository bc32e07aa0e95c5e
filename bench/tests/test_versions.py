# SPDX-License-Identifier: Apache-2.0
"""The comparison of two builds distinguishes a slower build from the noise of the machine."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "door"))

import versions


def rounds(new: float) -> list[dict[str, dict[str, float]]]:
    return [{"new": {"read": new}, "before": {"read": 1.0}, "before again": {"read": again}}
            for again in (0.95, 1.0, 1.02)]


def test_a_build_inside_the_spread_holds():
    assert versions.table(rounds(1.04)).endswith("| yes |")


def test_a_slower_build_does_not_hold():
    assert versions.table(rounds(1.2)).endswith("| **no** |")


def test_only_our_own_methods_are_compared():
    result = {"seconds": {"read, warm": {"ceiling pinned copy": [1.0], "nebulaio door": [2.0]}}}
    assert versions.ours(result) == {"read, warm: nebulaio door": 2.0}
