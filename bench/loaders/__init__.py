# SPDX-License-Identifier: Apache-2.0
"""Compares loaders of training data: NebulaIO, webdataset, mosaicml-streaming, litdata and torch's DataLoader.

    samples.py     the samples, and the packed forms that the loaders read
    contenders.py  NebulaIO's loader and engine, and a plain loop
    peers.py       the loaders of other projects
    references.py  the limits of the machine: pinned copies, random reads past the page cache
    child.py       one measurement in a process of its own
    store.py       a server with the samples as objects
    run.py         rows, rounds and the command line
    table.py       medians, ratios and the printed table
"""
