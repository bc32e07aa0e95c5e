# SPDX-License-Identifier: Apache-2.0
"""Ceilings read and copy everything, and the right one is chosen as binding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbench import ceilings, digest
from nbench.ceilings import Setting, Slots
from nbench.device import Device

MIB = 1 << 20


def test_settings_by_name() -> None:
    assert [str(Setting(8, 4 * MIB)), str(Setting(2, 65536))] == ["8x4M", "2x64K"]


def test_best_settings_come_first() -> None:
    a, b, c = Setting(1, MIB), Setting(2, MIB), Setting(3, MIB)
    assert ceilings.best_settings([(a, 1.0), (b, 3.0), (c, 2.0)]) == [b, c]


def test_slots_are_aligned_and_apart() -> None:
    slots = Slots(3, 3 * MIB)
    try:
        slots.views[0][:] = b"\1" * (3 * MIB)
        assert not any(slots.views[1][::4096])
        assert [len(view) for view in slots.views] == [3 * MIB] * 3
    finally:
        slots.close()


@pytest.mark.parametrize("setting", [Setting(1, MIB), Setting(3, MIB), Setting(8, 4 * MIB)])
def test_direct_read_reads_every_byte(small: Path, setting: Setting) -> None:
    slots = Slots(setting.threads, setting.block)
    try:
        try:
            assert ceilings.direct_read(small, setting, slots) == small.stat().st_size
        except OSError as problem:
            pytest.skip(f"no O_DIRECT here: {problem}")
        assert ceilings.direct_read(small, setting, slots, 2 * MIB) == 2 * MIB
        assert ceilings.direct_read(small, setting, slots, 2 * MIB, 4 * MIB) == 2 * MIB
    finally:
        slots.close()


def test_direct_read_sees_the_content(small: Path) -> None:
    slots = Slots(1, MIB)
    try:
        ceilings.direct_read(small, Setting(1, MIB), slots, MIB)
        assert bytes(slots.views[0]) == small.read_bytes()[:MIB]
    except OSError as problem:
        pytest.skip(f"no O_DIRECT here: {problem}")
    finally:
        slots.close()


def test_copy_on_host_runs() -> None:
    assert ceilings.CopyCeiling(Device("host", use_torch=False), 20 * MIB).run() is None


def sample(method: str, index: int, gbps: float, variant: str = "", **more: Any) -> dict[str, Any]:
    """Return a sample as in a results file."""
    return {"method": method, "round": index, "variant": variant, "gbps": gbps, "seconds": 10 / gbps,
            "nbytes": 10**10, "valid": True, **more}


def test_binding_is_the_slowest_ceiling_at_its_best_setting() -> None:
    row = {"kind": "cold", "samples": [
        sample("ceiling_pinned", 0, 55), sample("ceiling_raw", 0, 3.0, "8x4M"), sample("ceiling_raw", 0, 4.0, "16x1M"),
        sample("ceiling_pinned", 1, 2.0), sample("ceiling_raw", 1, 3.5, "8x4M"),
        sample("ceiling_pinned", 2, 55),
    ]}
    assert digest.binding(row) == {0: ("ceiling_raw", 4.0), 1: ("ceiling_pinned", 2.0)}


def test_ratios_pair_runs_of_the_same_round() -> None:
    row = {"kind": "warm", "memory": {}, "samples": [
        sample("ceiling_pinned", 0, 50), sample("nebulaio", 0, 45), sample("safetensors", 0, 5),
        sample("ceiling_pinned", 1, 40), sample("nebulaio", 1, 40), sample("safetensors", 1, 8),
        sample("nebulaio", 2, 1, valid=False),
    ]}
    entry = digest.rate_rows(row)[0]
    assert entry["method"] == "nebulaio"
    assert entry["of_ceiling"] == pytest.approx((0.9 + 1.0) / 2)
    assert entry["of_safetensors"] == pytest.approx((9 + 5) / 2)
    assert entry["invalid"] == 1
    assert entry["gbps"].n == 2
