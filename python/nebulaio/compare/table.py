# SPDX-License-Identifier: Apache-2.0
"""Formats figures as text, in the form of the mini-gds study."""

from __future__ import annotations

from typing import Any

from .figures import Figures
from .stats import Spread, bytes_text, seconds_text, times_text

TITLES = {
    "nebulaio": "NebulaIO",
    "from_pretrained": "NebulaIO from_pretrained",
    "transformers": "HF from_pretrained",
    "safetensors": "safetensors load_file",
    "serving": "NebulaIO in vLLM and SGLang",
    "get_slice": "safetensors get_slice",
}
"""Names of the loaders in the output."""

BASE = "transformers"
"""The loader that others are compared with."""


def model_lines(model: dict[str, Any], device: dict[str, Any]) -> list[str]:
    """Return the heading of a model: its name, its size, and the changes that make it fit."""
    average = model["bytes"] / model["tensors"]
    lines = [
        f"{model['like']} shapes ({model['tensors']} tensors, {bytes_text(average)} avg, {bytes_text(model['bytes'])} "
        f"in {model['files']} file{'s' if model['files'] > 1 else ''}) on {device['name']}"
    ]
    return lines + [f"  note: {note}" for note in model["notes"]]


def rank_lines(found: dict[str, Any], device: dict[str, Any]) -> list[str]:
    """Return the heading, the figures and the checks of the loads of one rank's part."""
    rank = found["rank"]
    lines = [
        f"{found['like']} shapes, rank {rank['index']} of {rank['world']} ({bytes_text(found['bytes'])} of "
        f"{bytes_text(found['model_bytes'])} in {found['files']} file{'s' if found['files'] > 1 else ''}) on "
        f"{device['name']}"
    ]
    lines += [f"  note: {note}" for note in found["notes"]]
    for state, result in found["states"].items():
        figures, same = result["figures"], result["digests"]
        lines += ["", f"{state}:"]
        for name, one in figures.items():
            base = None if name == "get_slice" else figures["get_slice"]
            lines += [f"  {line}" for line in loader_lines(name, one, base)]
        for name, times in result["read"].items():
            lines.append(f"  {TITLES[name]} read {times:.3f} times the bytes of the rank")
        verdict = "the same values" if same["digests"] == 1 else "DIFFERENT VALUES"
        lines.append(f"  {same['loads']} loads by {same['loaders']} loaders gave {verdict}")
    return lines


def loader_lines(name: str, figures: Figures, base: Figures | None) -> list[str]:
    """Return time, memory and routes of one loader, and the comparison with the base loader."""
    first, again = figures["first"], figures["again"]
    if first is None:
        return [f"{TITLES[name]}: no load succeeded"]
    lines = [f"{TITLES[name]}:  ({figures['how']})"]
    lines.append(f"  Time:        {_times(first)}{_against(base, 'first', first)}, first load of a fresh process")
    if again is not None:
        lines.append(f"  Again:       {_times(again)}{_against(base, 'again', again)}, later loads of a process")
    if figures["ready"] is not None:
        ready = figures["ready"]
        lines.append(f"  To logits:   {_times(ready)}{_against(base, 'ready', ready)}, load and first forward pass")
    parts = []
    for key, word in (("rss_growth", "resident after"), ("rss_peak", "peak"), ("anonymous_growth", "anonymous")):
        if figures[key] is not None:
            parts.append(f"{word} {_signed(figures[key]['median'])}")
    if figures["anonymous_peak"] is not None:
        parts.append(f"anonymous peak {_signed(figures['anonymous_peak'])}")
    if figures["machine_peak"] is not None:
        parts.append(f"machine {_signed(figures['machine_peak'])}")
    lines.append(f"  CPU memory:  {', '.join(parts)}")
    on_device = {key: value for key, value in figures["device"].items() if value is not None}
    if on_device:
        words = [f"{key} {_signed(value['median'])}" for key, value in on_device.items()]
        lines.append(f"  GPU memory:  {', '.join(words)}")
    if figures["routes"]:
        shares = ", ".join(f"{route} {share:.1%}" for route, share in figures["routes"].items())
        lines.append(f"  Routes:      {shares}")
    if figures["invalid"]:
        lines.append(f"  ATTENTION:   {figures['invalid']} of {figures['loads']} loads found another cache state")
    return lines


def stage_lines(name: str, figures: Figures) -> list[str]:
    """Return the medians of a loader's stages in fresh and in later loads."""
    later = figures["stages_again"]
    lines = [f"  {TITLES[name]:<24}{'first':>12}{'again' if later else '':>12}"]
    for stage, found in figures["stages"].items():
        again = seconds_text(later[stage]["median"]) if stage in later else ""
        lines.append(f"    {stage:<22}{seconds_text(found['median']):>12}{again:>12}")
    return lines


def crowd_lines(found: dict[str, Any], like: str) -> list[str]:
    """Return the rates of many processes: of each, of all, and the ratio to one alone."""
    head = f"{found['processes']} processes, {found['models']} different models of {like} shapes, {found['state']}"
    lines = [head] + [f"  note: {note}" for note in found.get("notes", ())]
    for failure in found["failures"]:
        lines.append(f"  FAILED: process {failure['process']} ({failure['model']}): {failure['why']}")
    for number, one in enumerate(found["rounds"], 1):
        if "gbps" not in one["alone"] or "gbps" not in one["together"]:
            lines.append(f"  round {number}: incomplete")
            continue
        each = " ".join(f"{process['gbps']:.2f}" for process in one["together"]["processes"])
        lines.append(
            f"  round {number}: alone {one['alone']['gbps']:.2f} GB/s; together {one['together']['gbps']:.2f} GB/s "
            f"({bytes_text(one['together']['bytes'])} in {seconds_text(one['together']['seconds'])}; each {each})"
        )
    if found["ratio"] is not None:
        lines.append(
            f"  median: alone {found['alone_gbps']['median']:.2f} GB/s, together "
            f"{found['together_gbps']['median']:.2f} GB/s: ratio {found['ratio']:.2f}; "
            f"{len(found['failures'])} failures"
        )
    return lines


def _times(found: Spread) -> str:
    median = seconds_text(found["median"])
    if found["n"] == 1:
        return f"{median} (one load)"
    return f"{median} ({seconds_text(found['min'])} to {seconds_text(found['max'])}, {found['n']} loads)"


def _against(base: Figures | None, key: str, found: Spread) -> str:
    if base is None or base[key] is None:
        return ""
    return f", {times_text(base[key]['median'], found['median'])}"


def _signed(nbytes: float) -> str:
    return bytes_text(nbytes) if nbytes < 0 else f"+{bytes_text(nbytes)}"
