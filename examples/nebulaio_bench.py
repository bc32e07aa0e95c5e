# SPDX-License-Identifier: Apache-2.0
"""Calls the nebulaio command and reads its JSON, for the two examples of DataLoader settings.

The command is looked for in $NEBULAIO_CLI, then as bin/nebulaio in this
checkout, then on the PATH. Only the standard library is needed.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap


class Unusable(Exception):
    """What was asked for could not be had; the text says why and what to do."""


def find_cli():
    """Return the path of the nebulaio command, or raise Unusable."""
    named = os.environ.get("NEBULAIO_CLI")
    if named:
        if not os.access(named, os.X_OK):
            raise Unusable(f"NEBULAIO_CLI names {named}, which is not a program that can be run")
        return named
    built = pathlib.Path(__file__).resolve().parent.parent / "bin" / "nebulaio"
    if os.access(built, os.X_OK):
        return str(built)
    found = shutil.which("nebulaio")
    if found:
        return found
    raise Unusable("there is no nebulaio command: build it with 'make build', or name it in NEBULAIO_CLI")


class Bench:
    """The command with the settings of one example run."""

    def __init__(self, options):
        self.cli = find_cli()
        self.dir = options.dir
        self.size = options.size or ("128MiB" if options.quick else "1GiB")
        self.time = options.time or ("400ms" if options.quick else "2s")
        self.rounds = ["--rounds", "2"] if options.quick else []
        self.device = options.device
        self.quick = options.quick
        self.torch = options.torch

    def run(self, *words, ok=(0,)):
        """Run a command and return its JSON; progress goes to the terminal."""
        args = [self.cli, *words, "--json"]
        print("$ " + " ".join(args), flush=True)
        done = subprocess.run(args, stdout=subprocess.PIPE, text=True)
        if done.returncode not in ok:
            raise Unusable(f"{' '.join(args)} failed with exit code {done.returncode}; its own words are above")
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError as err:
            raise Unusable(f"{' '.join(args)} did not print JSON ({err}); it printed {done.stdout[:200]!r}") from err

    def doctor(self):
        return self.run("doctor", self.dir, ok=(0, 1))  # 1: a finding is FAIL

    def sweep(self, name):
        """Return question, answer, points and the whole result of one sweep; a point is (series, x, label, run)."""
        file = self.run("bench", "sweep", name, self.dir, "--size", self.size, "--time", self.time, *self._device())
        runs = get(file, "runs")
        for sweep in get(file, "sweeps"):
            if sweep.get("id") == name:
                points = []
                for p in get(sweep, "points"):
                    n = get(p, "run")
                    if not 0 <= n < len(runs):
                        raise Unusable(f"the sweep {name!r} points at run {n}, and there are {len(runs)} runs")
                    points.append((p.get("series", ""), p.get("x", 0), p.get("label", ""), runs[n]))
                if not points:
                    raise Unusable(f"the sweep {name!r} has no points: was it interrupted?")
                return sweep.get("question", ""), sweep.get("answer", ""), points, file
        raise Unusable(f"the result has no sweep called {name!r}; is this nebulaio older than these examples?")

    def ceilings(self):
        return self.run("bench", "ceilings", self.dir, "--size", self.size, "--time", self.time, *self.rounds,
                        *self._device())

    def train(self, *more):
        return get(self.run("bench", "train", self.dir, "--size", self.size, *self._device(), *more), "train")

    def _device(self):
        return ["--device", self.device] if self.device else []


def get(obj, path):
    """Return obj["a"]["b"] for the path "a.b", or say which field is missing."""
    at = obj
    for part in path.split("."):
        if not isinstance(at, dict) or at.get(part) is None:
            raise Unusable(f"the result has no field {path!r}; is this nebulaio older than these examples?")
        at = at[part]
    return at


def rate(gbps):
    return f"{gbps:.2f} GB/s" if gbps >= 0.1 else f"{gbps * 1000:.1f} MB/s"


def seconds(s):
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if s * scale >= 1:
            return f"{s * scale:.3g} {unit}"
    return f"{s * 1e6:.2g} µs"


def size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.3g} {unit}"
        n /= 1024


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}")


def say(text):
    print(textwrap.fill(" ".join(text.split()), 88))


def follows(text):
    """What a figure means for a DataLoader."""
    print(textwrap.fill("=> " + " ".join(text.split()), 88, subsequent_indent="   "))


def table(points):
    """Print the points of a sweep, each with what its run measured."""
    print(f"  {'':12} {'':>14} {'rate':>11} {'p99 of a block':>15} {'CPU s/GiB':>10}  measured")
    for series, _, label, run in points:
        latency, cpu = run.get("latency") or {}, run.get("cpu") or {}
        p99 = seconds(latency["p99"]) if "p99" in latency else "-"
        used = f"{cpu['seconds_per_gib']:.3f}" if "seconds_per_gib" in cpu else "-"
        verdict = (run.get("cache") or {}).get("verdict", "-")
        print(f"  {series:12} {label:>14} {rate(get(run, 'gbps')):>11} {p99:>15} {used:>10}  {verdict}")
        for refusal in run.get("refusals") or []:
            print(f"  {'':12} {refusal.get('what')} was refused: {refusal.get('reason')}")


def sweep(bench, title, name):
    """Run a sweep under a heading, print its question, points and answer, and return the points and the result."""
    heading(title)
    question, answer, points, file = bench.sweep(name)
    say(question)
    table(points)
    say(answer)
    return points, file


def best(points):
    return max(points, key=lambda p: get(p[3], "gbps"))


def enough(points, share=0.95):
    """The first point, in the order of x, that gives nearly as much as the best."""
    top = get(best(points)[3], "gbps")
    return next(p for p in sorted(points, key=lambda p: p[1]) if get(p[3], "gbps") >= share * top)


def series(points):
    """The points of the series that holds the best one."""
    name = best(points)[0]
    return [p for p in points if p[0] == name]


def uncached(points):
    """The points whose bytes came from storage, and whether there are any; all points if there are none.

    Rates from the page cache say nothing about storage: they grow with processors, not with requests.
    """
    cold = [p for p in points if (p[3].get("cache") or {}).get("verdict") != "memory"
            and (p[3].get("settings") or {}).get("cache") != "warm"]
    return (cold, True) if cold else (points, False)


def cpus_used(run):
    """How many processors a run kept busy; 0 if it does not say."""
    per_gib = (run.get("cpu") or {}).get("seconds_per_gib", 0)
    return per_gib * get(run, "gbps") * 1e9 / (1 << 30)


def advise_workers(points, cpus):
    """The number of workers that follows from a sweep of workers, and the sentences that say why.

    Only reads from storage count. The number is the smallest that gives nearly the best rate, so it is never
    above the number that was measured best. More workers than processors need a reason: reading has to leave
    the processors idle, and has to be faster by a quarter, because a worker of a DataLoader is a process.
    """
    cold, from_storage = uncached(points)
    row = series(cold)
    few = [p for p in row if p[1] <= cpus] or [min(row, key=lambda p: p[1])]
    knee, top = enough(row, 0.9), best(row)
    why = []
    if not from_storage:
        why.append("no run read from storage, so this holds for cached data alone")
    if knee[1] > cpus:
        gain = get(knee[3], "gbps") / max(get(best(few)[3], "gbps"), 1e-9)
        busy = cpus_used(knee[3])
        if not from_storage or busy > 0.5 * cpus:
            knee = enough(few)
            why.append(f"not above the {cpus} processors, because reading alone keeps {busy:.1f} of them busy")
        elif gain < 1.25:
            knee = enough(few)
            why.append(f"not above the {cpus} processors, because more of them read only {gain:.2f} times as fast")
        else:
            why.append(f"more than the {cpus} processors, because such workers wait for storage; workers that decode need a processor each")
    figures = f"{rate(get(knee[3], 'gbps'))} with {int(knee[1])}, and the most there is is {rate(get(top[3], 'gbps'))} with {int(top[1])}"
    return int(knee[1]), [figures, *why]


def processors():
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def main(doc, body):
    """Parse the arguments, run body(bench), and end with 1 and a message where it cannot."""
    parser = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    parser.add_argument("dir", nargs="?", default=".",
                        help="folder on the storage to look at; files are made there and removed (default: .)")
    parser.add_argument("--quick", action="store_true", help="small files and short runs, under a minute in all: enough to see it work, not to trust a number")
    parser.add_argument("--size", help="size of the file to make, such as 4GiB")
    parser.add_argument("--time", help="how long each run lasts, such as 5s")
    parser.add_argument("--device", help="auto, host, cuda or cuda:N")
    parser.add_argument("--torch", choices=("auto", "no", "require"), default="auto",
                        help="measure real DataLoaders: where torch is installed (auto), never (no), or fail without torch (require)")
    options = parser.parse_args()
    try:
        if not os.path.isdir(options.dir):
            raise Unusable(f"{options.dir} is not a folder; name one on the storage that holds your data")
        body(Bench(options))
    except Unusable as err:
        print(f"{os.path.basename(sys.argv[0])}: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
