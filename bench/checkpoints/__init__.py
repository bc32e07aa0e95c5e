# SPDX-License-Identifier: Apache-2.0
"""Compares checkpoints of NebulaIO with those of torch: loads, saves, saves in the background, and `.pt` files.

states.py      the saved state, made again from seeds, and its comparison bit by bit
ranks.py       a world of processes that saves the state in parts
files.py       the checkpoints and files on disk, within a limit, cold or warm
references.py  the limits of the machine: pinned copies, O_DIRECT reads and writes
rounds.py      alternating rounds within a time, and their results
loads.py       rows `warm`, `cold` and `pt`
saves.py       row `save`
background.py  the savers that row `async` compares
training.py    row `async`: a training loop with saves
child.py       runs rows in a process of its own
run.py         the command line
table.py       ratios, the printed table, and the comparison with what is wanted
"""
