#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which DataLoader settings suit this storage and this GPU, from measurements.

    python examples/storage_io_optimization.py /mnt/data [--quick]

Measures the limits of the machine, the size of a read, the batches ahead, a
training-shaped run and the number of workers, explains each figure, and ends with
the settings that follow. Only reads from storage count, not reads from the page
cache. Where torch is installed, the settings are measured with a real DataLoader.
"""

import math
import sys

import dataloader
from nebulaio_bench import (
    advise_workers,
    enough,
    follows,
    get,
    heading,
    main,
    processors,
    rate,
    say,
    seconds,
    series,
    size,
    sweep,
    uncached,
)


def ceilings(bench):
    heading("1. What this machine can do at best")
    limits = get(bench.ceilings(), "limits")
    known = {}
    for limit in limits:
        known[get(limit, "id")] = get(limit, "gbps")
        print(f"  {limit.get('name', limit['id']):44} {rate(limit['gbps']):>11}   {limit.get('how', '')}")
    storage, link = known.get("storage_read"), known.get("h2d_pinned")
    if storage and link:
        if storage < link:
            follows(f"storage ({rate(storage)}) is the narrow place, not the link to the GPU ({rate(link)}): layout and read size decide.")
        else:
            follows(f"the link to the GPU ({rate(link)}) is narrower than storage ({rate(storage)}): pinned memory and few bytes decide.")
    elif storage:
        follows(f"no loader on this path gets more than {rate(storage)} out of storage, however it is tuned.")
    return known


def read_size(bench):
    points, _ = sweep(bench, "2. How large a read should be", "block-size")
    row = series(uncached(points)[0])
    knee = enough(row, 0.9)
    follows(
        f"""reads of {size(knee[1])} and more give 90 % of the best. Samples smaller than that belong together in
        shards, read in pieces of at least that size; one file for each small sample wastes the storage."""
    )
    return int(knee[1])


def prefetch(bench):
    points, _ = sweep(bench, "3. How many batches ahead", "prefetch")
    row = series(uncached(points)[0])
    knee = enough(row)
    follows(f"{int(knee[1])} batches ahead are enough here. A DataLoader holds num_workers x prefetch_factor of them; each costs a batch of host memory.")
    return int(knee[1])


def train(bench):
    heading("4. A training-shaped run")
    say("Batches are read, copied into device memory and consumed by steps of known length, as in training.")
    t = bench.train()
    print(f"  step {get(t, 'step')}, timed by {t.get('timing', '-')}; batch of {t.get('batch')} x {size(t.get('sample_bytes', 0))}; "
          f"{t.get('workers')} workers, prefetch {t.get('prefetch')}, {t.get('memory')} memory, route {t.get('route')}")
    for name, key, what in (
        ("Isolated", "isolated_seconds", "the loader alone, storage to host memory"),
        ("Copy", "copy_seconds", "the copy alone, host to device memory"),
        ("Target", "target_seconds", "the step itself, the accelerator's own pace"),
        ("Idle", "idle_seconds", "what the accelerator really waited between two steps"),
    ):
        print(f"  {name:9} {seconds(get(t, key)):>9}  {what}")
    au = get(t, "au")
    wanted = t.get("wanted_au")
    print(f"  the accelerator was busy {au * 100:.1f} % of the time" + (f" ({wanted * 100:.0f} % are wanted)" if wanted
                                                                        else "")
          + f", {rate(get(t, 'gbps'))}, {t.get('samples_per_second', 0):.0f} samples/s")
    say(f"{get(t, 'bound')}: {t.get('why', '')}")
    for step in t.get("next") or []:
        follows(step)
    return t


def workers(bench):
    points, _ = sweep(bench, "5. How many workers", "workers")
    count, why = advise_workers(points, processors())
    follows(f"at most {count} workers are worth having for reading: {'; '.join(why)}.")
    return count


def settings(bench, limits, read, ahead, t, most):
    heading("6. The loader settings that follow")
    target, isolated = get(t, "target_seconds"), get(t, "isolated_seconds")
    tuning = dataloader.tune(bench, target)
    if tuning is not None:
        shown = ", ".join(f"{name}={value}" for name, value in tuning.settings.items())
        print(f"  DataLoader({shown})")
        for name, reason in tuning.reasons.items():
            say(f"{name}={tuning.settings[name]}: {reason}")
    else:
        threads(t, ahead, most, target, isolated)
    say(f"read at least {size(read)} at a time; keep samples in shards of many such pieces.")
    storage = limits.get("storage_read")
    need = get(t, "batch_bytes") / target / 1e9 if target > 0 else 0
    if storage and need > storage:
        follows(f"no setting is enough: such steps need {rate(need)} and storage gives {rate(storage)}; it takes faster storage or smaller samples.")


def threads(t, ahead, most, target, isolated):
    """Print the settings that follow from nebulaio bench alone, without a DataLoader."""
    used = t.get("workers") or 1
    need = max(1, math.ceil(used * isolated / target)) if target > 0 else most
    workers = min(need, most)
    factor = max(1, -(-ahead // workers))
    gpu = "wait on host" not in get(t, "step")
    print(f"  DataLoader(num_workers={workers}, prefetch_factor={factor}, pin_memory={gpu}, persistent_workers=True)")
    if workers < need:
        say(f"num_workers={workers}: {need} would be needed for a step of {seconds(target)}, but 5. shows that more than {workers} do not read faster.")
    else:
        say(f"num_workers={workers}: so many keep up with a step of {seconds(target)}, if each gives what each of {used} gave in 4.")
    say(f"""These are workers that read. Workers that decode keep a processor busy each: for them, more than the
        {processors()} processors here do not help.""")
    say(f"prefetch_factor={factor}: with so many workers, at least {ahead} batches are ahead.")
    say(f"pin_memory={gpu}: " + ("the copy overlaps with the step only from pinned memory." if gpu
                                 else "no GPU took part; set it to True where one does."))


def body(bench):
    print(__doc__.strip().splitlines()[0])
    limits = ceilings(bench)
    read = read_size(bench)
    ahead = prefetch(bench)
    t = train(bench)
    most = workers(bench)
    settings(bench, limits, read, ahead, t, most)


if __name__ == "__main__":
    sys.exit(main(__doc__, body))
