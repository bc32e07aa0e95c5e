# SPDX-License-Identifier: Apache-2.0
"""The command line of ``python -m nebulaio.compare``."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from ..errors import NebulaioError
from . import child, conclusions, ranked, run, table
from .fit import DoesNotFit
from .imports import prepare
from .loaders import LOADERS
from .parts import Rank
from .process import ChildFailed, forkable
from .shapes import SPECS

_FOLDER = "/var/tmp/nebulaio-compare"


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    made = argparse.ArgumentParser(
        prog="python -m nebulaio.compare",
        description="Load a synthetic model with Hugging Face's from_pretrained and with NebulaIO, and compare "
        "logits, time and memory. Exit code: 0 done, 1 logits differ or a load failed, 2 bad argument, "
        "9 torch or transformers is missing, 130 interrupted.",
    )
    made.add_argument("--model", default="0.6b", help=f"models to load, separated by commas: {', '.join(SPECS)}")
    made.add_argument("--device", default="auto", help="device that receives the model: auto, cpu (or host), cuda:N")
    made.add_argument("--rounds", type=int, default=5, help="rounds, loaders interleaved")
    made.add_argument("--repeats", type=int, default=1, help="additional warm loads in each new process")
    made.add_argument("--cold", nargs="?", const="also", choices=("also", "only"),
                      help="also load with a cold page cache; --cold only skips the warm loads")
    made.add_argument("--loaders", default="nebulaio,transformers",
                      help=f"loaders, separated by commas: {', '.join(LOADERS)}")
    made.add_argument("--models", type=int, default=4, help="number of different models for concurrent processes")
    made.add_argument("--processes", type=int, default=0, help="number of concurrent processes; 0 skips this part")
    made.add_argument("--rank", type=_rank, metavar="R/N",
                      help="load only the part of rank R of N tensor-parallel ranks, such as 0/4, and compare with safetensors")
    made.add_argument("--only", choices=("load", "crowd"), help="run only the comparison, or only concurrent processes")
    made.add_argument("--sparse", action="store_true", help="create sparse files even if the disk has room")
    made.add_argument("--spawn", action="store_true", help="start new processes instead of forking")
    made.add_argument("--no-watch", action="store_true", help="skip the untimed loads that measure peak memory")
    made.add_argument("--dir", type=Path, default=Path(_FOLDER), help=f"directory for the models ({_FOLDER})")
    made.add_argument("--keep", action="store_true", help="keep the created models")
    made.add_argument("--json", type=Path, help="write all measurements to this file")
    return made


def _rank(text: str) -> Rank:
    """Parse the value of --rank."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r}: expected R/N, counted from 0, such as 0/4")
    return Rank(int(found[1]), int(found[2]))


def _checked(made: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the requested models and loaders. Exits with code 2 for unknown names."""
    lists = []
    for option, value, known in (("--model", given.model, SPECS), ("--loaders", given.loaders, LOADERS)):
        names = [name.strip() for name in value.split(",") if name.strip()]
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            made.error(f"{option} {value!r}: expected some of {', '.join(known)}")
        lists.append(list(dict.fromkeys(names)))
    for option, count, least in (
        ("--rounds", given.rounds, 1),
        ("--repeats", given.repeats, 0),
        ("--models", given.models, 1),
        ("--processes", given.processes, 0),
    ):
        if not least <= count <= 256:
            made.error(f"{option} {count}: expected {least} to 256")
    if given.json is not None and not given.json.resolve().parent.is_dir():
        made.error(f"--json {given.json}: expected a file in a directory that exists")
    if given.only == "crowd" and given.processes == 0:
        made.error("--only crowd: expected --processes too")
    if given.rank is not None and (given.only or given.processes):
        made.error("--rank: expected no --only and no --processes")
    return lists[0], lists[1]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    made = parser()
    given = made.parse_args(arguments)
    models, loaders = _checked(made, given)
    alone = len(os.listdir("/proc/self/task")) == 1  # other threads do not survive fork, locks that they hold do
    try:
        versions = prepare([SPECS[name].architecture() for name in models], loaders)
    except ImportError as problem:
        print(f"nebulaio.compare: {problem} (fix: pip install torch transformers safetensors)", file=sys.stderr)
        return 9
    spawn = given.spawn or not alone or not forkable()
    began = time.monotonic()
    try:
        device = child.run("probe", {"device": given.device}, 180, spawn)
    except ChildFailed as problem:
        print(f"nebulaio.compare: device {given.device}: {problem}", file=sys.stderr)
        return 1
    watch = not given.no_watch
    setup = run.Setup(
        given.dir, device, given.rounds, given.repeats, loaders, given.cold, given.sparse, watch, spawn, _say
    )
    _say(_device_line(device, versions))
    found: dict[str, Any] = {"device": device, "versions": versions, "command": sys.argv[1:]}
    found.update(models=[], crowds=[], ranks=[], spawned=spawn)
    code = 0
    try:
        _runs(setup, given, models, found)
    except (DoesNotFit, NebulaioError, ChildFailed, OSError) as problem:
        setup.problems.append(str(problem))
    except KeyboardInterrupt:
        setup.problems.append("interrupted")
        code = 130
    finally:
        if not given.keep:
            setup.clean()
    found["problems"] = setup.problems
    found["seconds"] = time.monotonic() - began
    for line in summary(found):
        _say(line)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return code or (1 if setup.problems else 0)


def _runs(setup: run.Setup, given: argparse.Namespace, models: list[str], found: dict[str, Any]) -> None:
    if given.rank is not None:
        for name in models:
            found["ranks"].append(ranked.compare(setup, name, given.rank))
            if not given.keep:
                setup.clean()
        return
    if given.only != "crowd":
        for name in models:
            model = run.compare(setup, name)
            found["models"].append(model)
            if not given.keep and given.processes == 0:
                setup.clean()  # the next model may need the room
    if given.processes and given.only != "load":
        for name in models:
            found["crowds"].append(run.crowded(setup, name, given.models, given.processes))


def summary(found: dict[str, Any]) -> list[str]:
    """Return all results as text."""
    lines: list[str] = []
    cases = []
    for model in found["models"]:
        lines += ["", *table.model_lines(model, found["device"])]
        for state, result in model["states"].items():
            figures = result["figures"]
            lines += ["", f"{state}:"]
            base = figures.get(table.BASE)
            for name in sorted(figures, key=lambda name: name != table.BASE):
                shown = table.loader_lines(name, figures[name], None if name == table.BASE else base)
                lines += [f"  {line}" for line in shown]
            lines += _logits_lines(result["logits"])
            lines.append("  Stages (medians; stages of one loader can overlap):")
            for name in figures:
                lines += [f"  {line}" for line in table.stage_lines(name, figures[name])]
            cases.append(_case(found, model, state, figures))
    for part in found["ranks"]:
        lines += ["", *table.rank_lines(part, found["device"])]
    for crowd in found["crowds"]:
        lines += ["", *table.crowd_lines(crowd, crowd["like"])]
    if cases or found["crowds"]:
        lines += ["", "Conclusions, from the figures above", *conclusions.questions(cases, found["crowds"])]
        held = conclusions.claims(cases, found["crowds"])
        if held:
            where = " (host memory; the study loaded to a GPU)" if found["device"]["device"] == "host" else ""
            lines += [f"Claims of the mini-gds study, here{where}", *(f"   {line}" for line in held)]
    lines += ["", *(f"PROBLEM: {problem}" for problem in found["problems"])]
    lines.append(f"{'done' if not found['problems'] else 'done, with problems,'} in {found['seconds']:.0f} s")
    return lines


def _case(found: dict[str, Any], model: dict[str, Any], state: str, figures: dict[str, Any]) -> conclusions.Case:
    picked = {key: model[key] for key in ("parameters", "bytes", "tensors", "holes")}
    device = found["device"]
    named = {"model": model["name"], "state": state, "device": device["device"], "ceiling": device["ceiling_gbps"]}
    return {**picked, **named, "loaders": figures}


def _logits_lines(logits: dict[str, Any]) -> list[str]:
    lines = []
    for pair, one in logits["against"].items():
        word = "equal, bit by bit" if one["equal"] else f"DIFFERENT, by at most {one['max_abs_diff']}"
        finite = "finite" if one["finite"] else "NOT FINITE"
        lines.append(f"  Logits of {pair}: {word}; {finite}, standard deviation {one['spread']:.3g}")
    same = "all the same" if logits["digests"] == 1 else f"{logits['digests']} different results"
    lines.append(f"  Logits of {logits['loads']} loads: {same}")
    return lines


def _device_line(device: dict[str, Any], versions: dict[str, str]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    what = "host memory: no GPU takes part" if device["device"] == "host" else f"{device['device']}, {device['name']}"
    return f"device {what}; plain copy {device['ceiling_gbps']:.1f} GB/s; nebulaio {device['nebulaio']}, {packages}"


def _say(line: str) -> None:
    print(line, flush=True)
