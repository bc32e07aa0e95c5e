# SPDX-License-Identifier: Apache-2.0
"""Prints medians, spreads and ratios of measured rounds, and compares them with what is wanted."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from loaders.table import ratios
from nbench import stats

Row = dict[str, Any]

WHAT = {
    "warm": "load of a checkpoint that several processes saved, into one process, from the page cache",
    "cold": "the same load from storage",
    "save": "durable save from the memory of the device, by one process",
    "pt": "load of a file of torch.save, from the page cache",
    "async": "saves while a loop of matrix products and Adam steps goes on",
}


@dataclass(frozen=True)
class Wanted:
    """A ratio that is wanted: how many times as fast as a reference a contender is at least.

    The reference is the fastest contender whose name starts with `reference`.
    """

    row: str
    contender: str
    reference: str
    least: float


WANTED = (
    Wanted("warm", "ours", "pinned copy", 0.85),
    Wanted("warm", "ours, again", "pinned copy", 0.85),
    Wanted("warm", "ours, files of stock", "pinned copy", 0.85),
    Wanted("warm", "ours, files of stock, again", "pinned copy", 0.85),
    Wanted("warm", "ours, files of stock", "FileSystemReader", 8),
    Wanted("cold", "ours", "O_DIRECT", 0.95),
    Wanted("save", "ours", "O_DIRECT", 0.90),
    Wanted("save", "ours", "FileSystemWriter", 2),
    Wanted("pt", "ours", "torch.load, mmap", 5),
)
STALL, SLOWER = 0.05, 0.03  # of a save that the loop waits for, and of a step without a save
SPARE = 256 << 20  # bytes that the process may add besides the memory of snapshots


def rounds(entry: dict[str, Any]) -> list[float]:
    """Return the seconds of a contender in the rounds in which it took part."""
    return [seconds for seconds in entry["seconds"] if seconds]


def median(entry: dict[str, Any]) -> float:
    """Return the median seconds of a contender; 0 without a round."""
    found = rounds(entry)
    return statistics.median(found) if found else 0.0


def fastest(row: Row, prefix: str) -> str:
    """Return the fastest contender whose name starts with a prefix, or "".

    A contender with fewer rounds than another one was left out, because it was slower.
    """
    found = [
        (-len(rounds(entry)), median(entry), name)
        for name, entry in row["contenders"].items()
        if name.startswith(prefix)
    ]
    return min((one for one in found if one[0]), default=(0, 0.0, ""))[2]


def head(results: dict[str, Any]) -> str:
    """Return the machine, the versions and the command."""
    m = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items() if version)
    gpu = ", ".join(f"{key} {value}" for key, value in m["gpu"].items())
    out = [
        f"{m['date']}, {m['cores']} cores of {m['cpu']}, {m['ram_bytes'] / 2**30:.0f} GiB, Linux {m['kernel']}, "
        f"{m['file_system']}",
        *([f"GPU: {gpu}"] if gpu else []),
        f"Python {m['python']}, {versions}" + (f", program {m['nebulaio_cli']}" if m["nebulaio_cli"] else ""),
        f"`{results['command']}`: device {results['device']}, {results['size'] / 1e9:.2f} GB saved by "
        f"{results['ranks']} processes",
    ]
    return "\n\n".join(out) + "\n"


def row(name: str, result: Row) -> str:
    """Return the table of a row."""
    out = [f"## {name}: {WHAT[name]}", ""]
    if "error" in result:
        return "\n".join([*out, f"Not measured: {result['error']}", ""])
    body = _training(result) if name == "async" else _rates(result)
    return "\n".join([*out, *body, ""])


def _rates(result: Row) -> list[str]:
    out = [f"{result['bytes'] / 1e9:.3f} GB", ""]
    if made := result.get("made_s"):
        out += ["Made in this run: " + ", ".join(f"{name} in {seconds:.1f} s" for name, seconds in made.items()), ""]
    out += ["| contender | seconds | fastest to slowest round | rounds | GB/s | bits "
            "| ours divided by this contender, median (rounds) |",
            "|---|---|---|---|---|---|---|"]
    return out + [_line(name, entry, result) for name, entry in result["contenders"].items()]


def _line(name: str, entry: dict[str, Any], result: Row) -> str:
    seconds = rounds(entry)
    failed = "".join(f"; failed in {text}" for text in entry["failed"])
    if not seconds:
        return f"| {name} | not measured{failed} |" + " |" * 5
    spread = stats.spread(seconds)
    assert spread is not None
    each = [
        (other, ratios(result, other, name))
        for other in result["contenders"]
        if other.startswith("ours") and other != name
    ]
    compared = "; ".join(
        f"{other} **{statistics.median(r):.2f}** ({min(r):.2f} to {max(r):.2f})" for other, r in each if r
    )
    return (f"| {name} | {spread.median:.3f} | {spread.min:.3f} to {spread.max:.3f} | {spread.n} | "
            f"{stats.rate(result['bytes'], spread.median):.2f} | {entry.get('bits', '')}{failed} | "
            f"{compared} |")


def _training(result: Row) -> list[str]:
    blocking = statistics.median(result["blocking_s"])
    out = [
        f"{result['bytes'] / 1e9:.3f} GB of state. A save of ours that the loop waits for takes {blocking:.3f} s "
        f"(median of {len(result['blocking_s'])}). Our savers may take {result['memory'] / 1e9:.3f} GB of host memory.",
        "",
        "| contender | save, s | stall, ms (of the save that waits) | first save's stall, ms | step alone, ms "
        "| step during the save, ms "
        "| host memory, GB: process, machine | GPU memory, GB | bits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return out + [_saver(name, entry, blocking) for name, entry in result["contenders"].items()]


def _saver(name: str, entry: dict[str, Any], blocking: float) -> str:
    failed = "; ".join(entry["failed"])
    if not entry["saves"]:
        return f"| {name} | not measured: {failed} |" + " |" * 7
    stall, slower = stalls(entry, blocking)
    of = {
        key: statistics.median(one[key] for one in entry["saves"])
        for key in ("seconds", "stall_s", "alone_s", "step_s", "gpu_bytes")
    }
    return (f"| {name} | {of['seconds']:.2f} | {of['stall_s'] * 1e3:.1f} (**{stall:.1%}**) | "
            f"{entry['first']['stall_s'] * 1e3:.1f} | "
            f"{of['alone_s'] * 1e3:.2f} | {of['step_s'] * 1e3:.2f} (**{slower:+.1%}**) | "
            f"{entry['process_bytes'] / 1e9:.2f}, {entry['machine_bytes'] / 1e9:.2f} | {of['gpu_bytes'] / 1e9:.2f} | "
            f"{entry.get('bits', '')}{'; ' if failed else ''}{failed} |")


def stalls(entry: dict[str, Any], blocking: float) -> tuple[float, float]:
    """Return the median stall as a share of a save that waits, and the median share by which steps were slower."""
    stall = statistics.median(one["stall_s"] for one in entry["saves"]) / blocking
    return stall, statistics.median(one["slower"] for one in entry["saves"])


def wanted(results: dict[str, Any]) -> str:
    """Return what is wanted of a GPU beside what was measured, for the rows that were measured. "" on host."""
    if results["device"] == "host":
        return ""
    out = ["## Wanted", "", "| row | what | wanted | measured | |", "|---|---|---|---|---|"]
    for one in WANTED:
        result = results["rows"].get(one.row)
        if result is None:
            continue
        reference = "" if "error" in result else fastest(result, one.reference)
        each = ratios(result, one.contender, reference) if reference else []
        what = f"{one.contender}, divided by {reference or one.reference}"
        if not each:
            out.append(f"| {one.row} | {what} | {one.least:g} | not measured | |")
            continue
        found = statistics.median(each)
        out.append(
            f"| {one.row} | {what} | {one.least:g} | {found:.2f} ({min(each):.2f} to {max(each):.2f}) | "
            f"{_judge(found >= one.least)} |"
        )
    return "\n".join(out + _training_wanted(results["rows"].get("async"))) + "\n"


def _training_wanted(result: Row | None) -> list[str]:
    if result is None or "error" in result:
        return [] if result is None else ["| async | stall and steps | | not measured | |"]
    out, blocking = [], statistics.median(result["blocking_s"])
    for name, entry in result["contenders"].items():
        if not name.startswith("ours"):
            continue
        if not entry["saves"]:
            out.append(f"| async | {name} | | not measured | |")
            continue
        stall, slower = stalls(entry, blocking)
        out += [
            f"| async | {name}: stall of a save, share of a save that waits | at most {STALL:.0%} | {stall:.1%} | "
            f"{_judge(stall <= STALL)} |",
            f"| async | {name}: host memory that a save adds, with {SPARE >> 20} MiB for the process | at most "
            f"{(result['memory'] + SPARE) / 1e9:.2f} GB | {entry['process_bytes'] / 1e9:.2f} GB | "
            f"{_judge(entry['process_bytes'] <= result['memory'] + SPARE)} |",
            f"| async | {name}: steps during the save are slower by | at most {SLOWER:.0%} | {slower:+.1%} | "
            f"{_judge(slower <= SLOWER)} |",
        ]
    return out


def _judge(good: bool) -> str:
    return "reached" if good else "**short**"


def missed(result: Row) -> bool:
    """Return whether a row or one of its contenders was not measured, or had other bits."""
    return "error" in result or any(entry["failed"] for entry in result["contenders"].values())


def whole(results: dict[str, Any]) -> str:
    """Return everything that was measured so far as one page."""
    return "\n".join([head(results), *(row(name, result) for name, result in results["rows"].items()), wanted(results)])
