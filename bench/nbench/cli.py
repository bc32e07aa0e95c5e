# SPDX-License-Identifier: Apache-2.0
"""Command line of bench/run.py: selects the rows, the device and the place of the results."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import (
    machine,
    methods,
    report,
    results,
    rows_analysis,
    rows_cufile,
    rows_four,
    rows_half,
    rows_process,
    rows_rate,
    rows_save,
    rows_slice,
    rows_three,
    rows_verify,
)
from .context import ROW_LIMIT, Clock, Context, NoTime, Row
from .device import Device
from .measure import in_words
from .models import MODELS, Library

KINDS = report.ORDER
ROOT = Path(__file__).resolve().parents[2]  # of the source tree
PER_MODEL = ("warm", "cold", "half", "three", "save", "verify", "cufile", "slice")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all options, with their defaults."""
    p = argparse.ArgumentParser(prog="run.py", description="Measure how fast model files become tensors on a device.")
    p.add_argument("--only", default="", metavar="ROW[,ROW]",
                   help=f"rows such as warm-7b, or kinds: {', '.join(KINDS)}")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--device", default="", help="device: cuda:N or host; default cuda:0 if torch sees a GPU, else host")
    p.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "nebulaio-bench",
                   help="folder for the model files")
    p.add_argument("--out", type=Path, default=ROOT / "build" / "bench",
                   help="folder for results.json (extended if it exists), results.md and plot.svg")
    p.add_argument("--models", default="", help="models: tiny, 0.6b, 7b; default 0.6b,7b on a GPU and tiny on host")
    p.add_argument("--methods", default="", metavar="NAME[,NAME]",
                   help=f"methods: {', '.join((*methods.DEFAULT, *methods.CEILINGS))}; default all")
    p.add_argument("--nebulaio", default="", metavar="PATH", help="the nebulaio program, for `generate`")
    p.add_argument("--route", default=None, help="route for nebulaio's load_file; default auto")
    p.add_argument("--budget", type=float, default=None, metavar="SECONDS",
                   help="longest duration of the run; no round is started that would end later")
    p.add_argument("--row-limit", type=float, default=ROW_LIMIT, metavar="SECONDS",
                   help="longest duration of a row; no round is started that would end later")
    p.add_argument("--drop", choices=("all", "file"), default="",
                   help="cold by /proc/sys/vm/drop_caches (where permitted), which every process feels, or by the "
                        "file's own pages alone; all on a GPU and file on host, if not given")
    p.add_argument("--sweep-mib", type=int, default=2048, help="MiB to read per setting in the sweep of ceiling_raw")
    p.add_argument("--no-torch", action="store_true", help="on host: use numpy even if torch is installed")
    return p


def find_cli(given: str) -> str | None:
    """Return the nebulaio program: as given, from $NEBULAIO_CLI, from the source tree, or from PATH."""
    named = given or os.environ.get("NEBULAIO_CLI", "")
    if named:
        return str(Path(named).resolve())
    for candidate in (ROOT / "bin" / "nebulaio", ROOT / "build" / "nebulaio"):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which("nebulaio")


def plan(only: str, models: list[str]) -> list[tuple[str, str]]:
    """Return the rows to run as (kind, model).

    The model is "" for rows that choose their models themselves. Raises ValueError for a row that does not exist.
    """
    every = [(kind, model) for kind in PER_MODEL for model in models]
    every += [(kind, "") for kind in KINDS if kind not in PER_MODEL]
    if not only:
        return every
    chosen: list[tuple[str, str]] = []
    for name in filter(None, (part.strip() for part in only.split(","))):
        found = [(kind, model) for kind, model in every if name in (kind, f"{kind}-{model}")]
        if not found:
            raise ValueError(f"{name}: no such row with models {', '.join(models)}")
        chosen += [row for row in found if row not in chosen]
    return chosen


def runner(context: Context, kind: str, model: str) -> Callable[[], Row]:
    """Return the function that runs one kind of row."""
    models = list(context.models)
    single = "0.6b" if "0.6b" in models else models[0]
    return {
        "warm": lambda: rows_rate.run(context, "warm", model),
        "cold": lambda: rows_rate.run(context, "cold", model),
        "half": lambda: rows_half.run(context, model),
        "three": lambda: rows_three.run(context, model),
        "save": lambda: rows_save.run(context, model),
        "verify": lambda: rows_verify.run(context, model),
        "cufile": lambda: rows_cufile.run(context, model),
        "slice": lambda: rows_slice.run(context, model),
        "first": lambda: rows_process.first(context, single),
        "memory": lambda: rows_process.memory(context, models),
        "four": lambda: rows_four.run(context, single),
        "analysis": lambda: rows_analysis.run(context, models),
    }[kind]


def _listed(text: str, known: tuple[str, ...], default: tuple[str, ...]) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()] or list(default)
    for name in names:
        if name not in known:
            raise ValueError(f"{name}: not one of {', '.join(known)}")
    return names


def say(text: str) -> None:
    """Print and flush, so that an interrupted run has printed its progress."""
    print(text, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run rows; return 0 if every row gave a result, 1 if a row failed, 2 for a bad option."""
    arguments = sys.argv[1:] if arguments is None else arguments
    given = parser().parse_args(arguments)
    clock = Clock(given.budget, given.row_limit)
    # cuFile, which torch_gds uses, writes a log into the current folder unless told otherwise.
    os.environ.setdefault("CUFILE_LOGFILE_PATH", str(given.workdir / "cufile.log"))
    try:
        device = _device(given)
        models = _listed(given.models, tuple(MODELS), ("0.6b", "7b") if device.is_cuda else ("tiny",))
        names = _listed(given.methods, (*methods.DEFAULT, *methods.CEILINGS), (*methods.DEFAULT, *methods.CEILINGS))
        rows = plan(given.only, models)
    except (ValueError, RuntimeError) as problem:
        print(f"run.py: {problem}", file=sys.stderr)
        return 2
    methods.import_nebulaio()
    cli = find_cli(given.nebulaio)
    library = Library(given.workdir, device, cli, say)
    context = Context(device, library, clock, rounds=given.rounds, wanted=names, models=models,
                      drop_everything=(given.drop or ("all" if device.is_cuda else "file")) == "all",
                      sweep_bytes=given.sweep_mib << 20, log=say,
                      route=given.route)
    given.out.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["python", "bench/run.py", *arguments])
    store = results.ResultsFile(given.out / "results.json", command, machine.facts(given.workdir, cli))
    failed = 0
    for kind, model in rows:
        data = _run(context, kind, model)
        failed += bool(data.get("failed"))
        store.append(data)
        report.write([store.data], given.out)
    say(f"wrote {given.out / 'results.json'}, results.md and plot.svg")
    return 1 if failed else 0


def _device(given: argparse.Namespace) -> Device:
    if given.device:
        return Device(given.device, use_torch=not given.no_torch)
    try:
        return Device("cuda:0")
    except RuntimeError:
        return Device("host", use_torch=not given.no_torch)


def _run(context: Context, kind: str, model: str) -> results.Data:
    """Run one row.

    A failure, or a lack of time, becomes a row without samples, so that the other rows still run.
    """
    context.clock.begin_row()
    name = f"{kind}-{model}" if model else kind
    empty = Row(name, kind, model, context.device.name, rounds_asked=context.rounds)
    try:
        if context.clock.left() <= 0:
            raise NoTime("time: none was left")
        row = runner(context, kind, model)()
    except NoTime as problem:
        context.log(f"row {name}: not run, {problem}")
        empty.stopped = str(problem)
        return empty.as_dict()
    except Exception as problem:  # noqa: BLE001  the next row may well work
        context.log(f"row {name}: failed: {in_words(problem)}")
        empty.took_s = round(context.clock.took(), 1)
        context.device.give_back()
        return {**empty.as_dict(), "failed": in_words(problem)}
    row.took_s = round(context.clock.took(), 1)
    context.log(f"row {row.name}: {row.rounds_done} of {row.rounds_asked} rounds in {row.took_s:.0f} s")
    return row.as_dict()
