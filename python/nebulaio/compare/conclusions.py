# SPDX-License-Identifier: Apache-2.0
"""Answers the three questions of the mini-gds study and checks its claims with the figures of this run.

The study loaded Qwen3-0.6B and Qwen2.5-7B through NIXL and cuFile in compatibility mode.
The numbers of the study are repeated in this module, so that each can be confirmed or
contradicted. Every sentence rests on a measurement of this run.
"""

from __future__ import annotations

from typing import Any

from .stats import bytes_text, seconds_text, times_text

# Seconds and MB of CPU memory in the study: of Hugging Face, then of the study's own loader.
_STUDY = {"0.6b": (1.23, 3.03, 252, 1287), "7b": (8.12, 5.70, 252, 1287)}
_STUDY_OVERHEAD = 2.7e-3  # per tensor
_SMALL = 3e9  # parameters; the study recommends against smaller models
_VERY_LARGE = 7e10
_SAME = 0.03  # smaller relative differences count as none

Case = dict[str, Any]
"""A model in one state: "model", "state", "parameters", "bytes", "tensors", "holes", "device", "loaders"."""


def faster(case: Case) -> float | None:
    """Return how many times as fast NebulaIO was as from_pretrained in fresh processes; None if one is missing."""
    ours, theirs = _pair(case)
    if not ours or not theirs or not ours["first"] or not theirs["first"] or ours["first"]["median"] <= 0:
        return None
    return float(theirs["first"]["median"] / ours["first"]["median"])


def questions(cases: list[Case], crowds: list[dict[str, Any]]) -> list[str]:
    """Answer the study's three questions from the measured cases."""
    lines = ["Q1 Can it accelerate loading?"]
    lines += _indented(_speed(case) for case in cases)
    lines.append("Q2 What is the real-world performance: which way did the bytes go?")
    lines += _indented(_path(case) for case in cases)
    lines.append("Q3 When is there an advantage?")
    lines += _indented(_advantage(cases))
    lines += _indented(_crowd(found) for found in crowds)
    return lines


def claims(cases: list[Case], crowds: list[dict[str, Any]]) -> list[str]:
    """Return the study's claims, each with a verdict and the figures that support it."""
    found = []
    for case in cases:
        found += [_claim_speed(case), _claim_memory(case), _claim_overhead(case)]
    lines = [line for line in found if line]
    asked = [case for case in cases if case["model"] == "70b"]
    whole = [case for case in asked if case["parameters"] >= _VERY_LARGE and faster(case) is not None]
    if whole:
        holes = f", {whole[0]['holes']:.0%} of it holes" if whole[0]["holes"] > 0 else ""
        size = f"{whole[0]['parameters'] / 1e9:.1f}B parameters, {bytes_text(whole[0]['bytes'])}{holes}"
        lines.append(f'"Did not test very large models (70B+)": measured here ({size}), see above.')
    elif asked:
        size = f"{asked[0]['parameters'] / 1e9:.1f}B parameters"
        lines.append(f'"Did not test very large models (70B+)": not answered here either, {size} were measured.')
    done = [one for one in crowds if one["ratio"] is not None]
    if done:
        lines.append('"Did not test concurrent loading": measured here, see Q3.')
    return lines


def _pair(case: Case) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return case["loaders"].get("nebulaio"), case["loaders"].get("transformers")


def _indented(sentences: Any) -> list[str]:
    return [f"   {sentence}" for sentence in sentences if sentence]


def _name(case: Case) -> str:
    return f"{case['model']} {case['state']}"


def _speed(case: Case) -> str:
    factor = faster(case)
    ours, theirs = _pair(case)
    if factor is None or ours is None or theirs is None:
        return f"{_name(case)}: not answered, one of the two loaders gave no figure."
    word = "Yes" if factor > 1 + _SAME else "No" if factor < 1 - _SAME else "No difference"
    text = (
        f"{word} ({_name(case)}): {seconds_text(ours['first']['median'])} against "
        f"{seconds_text(theirs['first']['median'])}, {times_text(theirs['first']['median'], ours['first']['median'])}"
    )
    if ours["again"] and theirs["again"]:
        text += f"; in a process that loads again {times_text(theirs['again']['median'], ours['again']['median'])}"
    if ours["ready"] and theirs["ready"]:
        text += f"; until the first logits {times_text(theirs['ready']['median'], ours['ready']['median'])}"
    held = theirs["anonymous_growth"]
    if case["device"] == "host" and held is not None and held["median"] < case["bytes"] / 10:
        text += (
            f". The weights of from_pretrained stayed pages of the files (memory of its own grew by "
            f"{bytes_text(held['median'])}); ours are copies in memory"
        )
    return text + "."


def _path(case: Case) -> str:
    ours, _ = _pair(case)
    if ours is None or not ours["routes"]:
        return f"{_name(case)}: no report of ours."
    ways = ", ".join(f"{share:.1%} by {route}" for route, share in ours["routes"].items())
    text = f"{_name(case)}: {ways}; {ours['gbps']:.2f} GB/s from call to module"
    if case["ceiling"] > 0:
        text += f", {ours['gbps'] / case['ceiling']:.0%} of a plain copy of memory ({case['ceiling']:.1f} GB/s)"
    if case["holes"] > 0:
        text += f". {case['holes']:.0%} of the bytes are holes that no storage read, so this is no rate of storage"
    if case["device"] == "host":
        text += ". The device is host memory: no GPU took part"
    for refusal in ours["refusals"]:
        text += f". Not open: {refusal['what']} ({refusal['reason']})"
    return text + "."


def _advantage(cases: list[Case]) -> list[str]:
    lines = []
    for kind, chosen in (
        ("small models (under 3B)", [case for case in cases if case["parameters"] < _SMALL]),
        ("large models", [case for case in cases if case["parameters"] >= _SMALL]),
    ):
        factors = [(case, factor) for case in chosen if (factor := faster(case)) is not None]
        if not factors:
            continue
        best, worst = max(factor for _, factor in factors), min(factor for _, factor in factors)
        which = ", ".join(f"{_name(case)} {factor:.2f}" for case, factor in factors)
        if worst > 1 + _SAME:
            lines.append(f"For {kind}: an advantage in every case measured (times as fast: {which}).")
        elif best < 1 - _SAME:
            lines.append(f"For {kind}: none in any case measured (times as fast: {which}): not suitable here.")
        else:
            lines.append(f"For {kind}: it depends (times as fast: {which}).")
    return lines


def _crowd(found: dict[str, Any]) -> str:
    if found["failures"]:
        return f"Several models at once: {len(found['failures'])} of {found['processes']} processes failed."
    if found["ratio"] is None:
        return "Several models at once: not answered, no round was complete."
    return (
        f"Several models at once: {found['processes']} processes with {found['models']} models ({found['state']}) "
        f"moved {found['together_gbps']['median']:.2f} GB/s together, {found['ratio']:.2f} of one alone "
        f"({found['alone_gbps']['median']:.2f} GB/s); no process failed."
    )


def _claim_speed(case: Case) -> str:
    factor = faster(case)
    if factor is None or case["model"] not in _STUDY or case["state"] != "warm":
        return ""
    theirs, own, _, _ = _STUDY[case["model"]]
    claim = f"{own / theirs:.2f}x slower" if own > theirs else f"{theirs / own:.2f}x faster"
    if own > theirs:
        holds = factor < 1 - _SAME
    else:
        holds = factor > 1 + _SAME
    here = f"{factor:.2f}x faster" if factor > 1 else f"{1 / factor:.2f}x slower"
    return f'"{case["model"]}: {claim} than Hugging Face": {_verdict(holds)}; here {here} (warm).'


def _claim_memory(case: Case) -> str:
    ours, theirs = _pair(case)
    if ours is None or theirs is None or case["model"] not in _STUDY or case["state"] != "warm":
        return ""
    mine, other = ours["anonymous_peak"], theirs["anonymous_peak"]
    if not mine or not other or mine <= 0 or other <= 0:
        return ""
    _, _, study_theirs, study_own = _STUDY[case["model"]]
    ratio = mine / other
    here = f"{bytes_text(mine)} of its own against {bytes_text(other)} at the peak, {ratio:.2f} of it"
    resident, mapped = ours["rss_peak"], theirs["rss_peak"]
    if resident is not None and mapped is not None:
        here += f"; with mapped pages of files {bytes_text(resident['median'])} against {bytes_text(mapped['median'])}"
    if case["device"] == "host":
        here += " (the tensors themselves are host memory here)"
    verdict = _verdict(ratio > 1 + _SAME)
    return f'"CPU memory {study_own / study_theirs:.1f}x more": {verdict} ({case["model"]}); {here}.'


def _claim_overhead(case: Case) -> str:
    ours, _ = _pair(case)
    if ours is None or ours["first"] is None or case["state"] != "warm":
        return ""
    each = ours["overhead_per_tensor"]
    return (
        f'"Overhead of 2.7 ms per tensor": {_verdict(each >= _STUDY_OVERHEAD)} ({case["model"]}); all time beyond the '
        f"bytes at the rate of a plain copy is {seconds_text(each)} per tensor, {ours['overhead_share']:.0%} of a load."
    )


def _verdict(holds: bool) -> str:
    return "holds" if holds else "does not hold"
