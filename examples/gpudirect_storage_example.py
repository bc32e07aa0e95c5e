#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What stands between this storage and this GPU, measured.

    python examples/gpudirect_storage_example.py /mnt/data [--quick]

Five things, each a figure of this machine followed by what it means for a
DataLoader: GPUDirect Storage (is there a direct path from this folder to this
GPU), sequential against random reads, the number of workers, pinned against
pageable memory, and how to watch the disk and the GPU while it runs.
"""

import sys

import dataloader
from nebulaio_bench import (
    advise_workers,
    best,
    follows,
    get,
    heading,
    main,
    processors,
    rate,
    say,
    seconds,
    size,
    sweep,
    table,
)


def gpudirect(bench):
    heading("1. GPUDirect Storage: is there a direct path?")
    say(
        """With GPUDirect Storage the SSD's DMA engine writes into GPU memory. The CPU starts the
        transfer and touches no byte. It needs the right GPU, driver, file system and disk together,
        and NVIDIA's library quietly copies through the CPU where one of them is missing."""
    )
    found = bench.doctor()
    verdict = get(found, "verdict")
    print(f"  direct path: {get(verdict, 'direct')}   route: {get(verdict, 'route')}")
    say(get(verdict, "summary"))
    cause = verdict.get("cause")
    if cause:
        print(f"  first obstacle: {cause.get('title')}: {cause.get('observed')} (expected {cause.get('expected')})")
        if cause.get("fix_now"):
            print(f"  what to do: {cause['fix_now']}")
    for finding in found.get("findings") or []:
        if finding.get("level") == "FAIL":
            print(f"  FAIL {finding.get('title')}: {finding.get('observed')}")
    if verdict["direct"] == "yes":
        follows("bytes can skip host memory: pin_memory does nothing for samples that a GDS reader loads.")
    elif verdict["direct"] == "none":
        follows("no GPU is here: what follows measures storage to host memory, which is what DataLoader workers do.")
    else:
        follows("samples go through host memory: pinned memory and enough reads in flight decide the rate, see 2 to 4.")


def pattern(bench):
    heading("2. Sequential against random access")
    before = disks()
    question, answer, points, file = bench.sweep("pattern")
    grown = {d: n - before.get(d, 0) for d, n in disks().items() if n > before.get(d, 0)}
    say(question)
    table(points)
    say(answer)
    rates = {}
    for _, _, label, run in points:
        kind = get(run, "settings.pattern")
        rates[kind] = max(rates.get(kind, 0), get(run, "gbps"))
    if {"sequential", "random"} <= rates.keys() and rates["random"] > 0:
        ratio = rates["sequential"] / rates["random"]
        if ratio > 1.5:
            follows(
                f"""sequential reads are {ratio:.1f} times as fast: store samples in large shards (tar, RecordIO,
                one file of records) that each worker reads from front to back, and shuffle the order of shards
                and a buffer in memory instead of single samples."""
            )
        else:
            follows(
                f"""the order hardly matters here (factor {ratio:.1f}) at this read size: a map-style data set with a
                random sampler costs no bandwidth, as long as one sample is one large read."""
            )
    else:
        follows("the result does not have both orders, so nothing can be said of them.")
    return points, file, grown


def workers(bench):
    points, _ = sweep(bench, "3. How many workers", "workers")
    count, why = advise_workers(points, processors())
    follows(
        f"""num_workers={count}: {'; '.join(why)}. That is for reading alone. persistent_workers=True keeps
        workers between epochs."""
    )
    tuning = dataloader.tune(bench)
    if tuning is not None:
        follows(
            f"""num_workers={tuning.settings['num_workers']} for a real DataLoader, whose workers are processes that also
            collate batches: {tuning.reasons['num_workers']} This figure counts, not the one of the threads above."""
        )


def memory(bench):
    points, file = sweep(bench, "4. Pinned against pageable memory", "memory")
    if get(file, "machine.device.kind") == "host":
        follows("there is no GPU, so pinning changes nothing here; pin_memory=True is for machines with one.")
        return
    by = {}
    for _, _, _, run in points:
        kind = get(run, "settings.memory")
        by[kind] = max(by.get(kind, 0), get(run, "gbps"))
    if by.get("pinned") and by.get("pageable"):
        gain = by["pinned"] / by["pageable"]
        if gain > 1.1:
            follows(f"pin_memory=True: batches reach the GPU {gain:.1f} times as fast, and .to(device, non_blocking=True) then overlaps with the step.")
        else:
            follows(
                f"""pinning alone gives {(gain - 1) * 100:.0f} %: storage is slower than either way into the GPU. Keep
                pin_memory=True for the overlap it allows, and look at 2 and 3 for the rate."""
            )
    if by.get("engine"):
        follows(f"nebulaio's own engine reaches {rate(by['engine'])} on the same path, with reading and copying overlapped.")


def disks():
    """Bytes read by each block device so far, from /proc/diskstats."""
    read = {}
    try:
        with open("/proc/diskstats", encoding="ascii") as lines:
            for line in lines:
                f = line.split()
                read[f[2]] = int(f[5]) * 512  # the kernel counts in 512 bytes, whatever the disk has
    except OSError:
        pass
    return read


def monitor(points, file, grown):
    heading("5. Watching it")
    say("The kernel counts what each disk reads. Counted around the runs of 2, it shows what really came from storage:")
    asked = sum(run.get("bytes", 0) for _, _, _, run in points)
    for name, n in sorted(grown.items(), key=lambda x: -x[1])[:4]:
        print(f"  {name:12} {size(n):>10} read")
    print(f"  the program  {size(asked):>10} read")
    if not grown:
        follows("no disk was read: the data came from memory (tmpfs, a network file system or the page cache).")
    else:
        follows(
            """where the disks read far less than the program, the page cache answered: a training rate measured
            so holds only for a data set that fits into memory."""
        )
    device = get(file, "machine.device")
    print(f"  device       {device.get('id')} ({device.get('model')})")
    _, _, _, run = best(points)
    share = run.get("share")
    if share:
        print(f"  {rate(get(run, 'gbps'))} is {share.get('ratio', 0) * 100:.0f} % of {share.get('name')} ({rate(share.get('ceiling_gbps', 0))})")
        follows("at 90 % and more the hardware is the limit; far below it the loader is, and 2 to 4 say how.")
    else:
        follows("measure this machine's limits once (nebulaio bench ceilings DIR) to see each rate as a share of them.")
    latency = run.get("latency")
    if latency and latency.get("p50"):
        say(f"One block took {seconds(latency['p50'])} in the middle and {seconds(latency.get('p99', 0))} for the slowest hundredth.")
        follows("a slowest hundredth many times the middle stalls a step now and then: prefetch_factor evens that out.")


def body(bench):
    print(__doc__.strip().splitlines()[0])
    gpudirect(bench)
    watched = pattern(bench)
    workers(bench)
    memory(bench)
    monitor(*watched)


if __name__ == "__main__":
    sys.exit(main(__doc__, body))
