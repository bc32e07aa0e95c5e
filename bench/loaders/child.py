# SPDX-License-Identifier: Apache-2.0
"""Runs one measurement in a process of its own.

Run as `python -m loaders.child TASK`, with the task in JSON; the last printed line is the result in JSON. A first epoch,
which is not timed, starts worker processes and brings everything into memory that a loader keeps. The timed epoch begins
before its iterator is made, and ends when its last batch is in the memory of the device.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from nbench import cache
from nbench.measure import in_words

from . import references
from .contenders import OWN, Contender, Task
from .peers import PEERS
from .samples import Digest, Samples, make

CONTENDERS: dict[str, type[Contender]] = {**OWN, **PEERS}


def task_of(asked: dict[str, Any]) -> Task:
    """Return the task in the JSON of a parent."""
    samples = Samples(**{**asked["samples"], "folder": Path(asked["samples"]["folder"])})
    return Task(samples, asked["batch"], asked["device"], asked["shuffle"], asked.get("source", ""),
                asked.get("setting") or {},
                asked.get("epochs", 1))


def drop(samples: Samples, form: str) -> float:
    """Drop all files of a form from the page cache, and return the largest share that stays."""
    files = samples.files(form)
    for path in files[1:]:
        cache.drop(path, everything=False)
    left = max([cache.drop(files[0]), *(cache.resident(path) for path in files[1:])])
    if left > cache.COLD_LIMIT:
        raise RuntimeError(f"{left:.0%} of a file of {samples.path(form)} stays in the page cache")
    return left


def epoch(contender: Contender, number: int) -> dict[str, Any]:
    """Return the seconds of an epoch, after a check that no sample is missing."""
    samples = nbytes = 0
    start = time.perf_counter()
    for batch in contender.epoch(number):
        more = contender.shape(batch)
        samples, nbytes = samples + more[0], nbytes + more[1]
    contender.finish()
    seconds = time.perf_counter() - start
    wanted = contender.task.samples
    if (samples, nbytes) != (wanted.count, wanted.bytes):
        raise RuntimeError(f"the epoch has {samples} samples and {nbytes} bytes, not {wanted.count} and {wanted.bytes}")
    return {"seconds": seconds, "samples": samples, "bytes": nbytes}


def measure(contender: Contender, cold: bool) -> dict[str, Any]:
    """Return the mean seconds of the epochs after the first one."""
    first = epoch(contender, 0)["seconds"]
    contender.begin()
    if cold:
        if not contender.form:
            raise RuntimeError("the objects of a server cannot be made cold")
        drop(contender.task.samples, contender.form)
    several = [epoch(contender, number + 1) for number in range(contender.task.epochs)]
    mean = sum(each["seconds"] for each in several) / len(several)
    return {**several[0], "seconds": mean, "first_epoch_s": first, "report": contender.report()}


def verify(contender: Contender) -> dict[str, Any]:
    """Return the digest of the samples of an epoch."""
    found = Digest()
    for batch in contender.epoch(0):
        for sample in contender.each(batch):
            found.add(sample)
    return {"digest": found.text()}


def job(asked: dict[str, Any]) -> dict[str, Any]:
    """Do what the parent asks for."""
    what, task = asked["job"], task_of(asked)
    if what == "make":
        make(task.samples, asked["form"])
        return {}
    if what == "pinned":
        return {"seconds": references.pinned_copy(task.device, task.samples.bytes)}
    if what == "settings":
        return {"settings": CONTENDERS[asked["contender"]].settings(task, asked["workers"])}
    contender = CONTENDERS[asked["contender"]](task)
    return verify(contender) if what == "verify" else measure(contender, asked["cold"])


def main(arguments: list[str]) -> int:
    """Run a job and print its result; an error is a result, too."""
    warnings.simplefilter("ignore")  # torch warns of tensors over bytes, which cannot be written
    try:
        result = job(json.loads(arguments[0]))
    except Exception as problem:  # noqa: BLE001  handed to the parent as data
        result = {"error": in_words(problem)}
    print(json.dumps(result, default=str), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
