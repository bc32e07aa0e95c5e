# SPDX-License-Identifier: Apache-2.0
"""Checks the opcodes of a pickle before it is loaded: none may make the unpickler allocate more than the file justifies."""

from __future__ import annotations

import pickle
import pickletools
import re
from functools import cache

_TEXT, _COUNTED_1, _COUNTED_4, _COUNTED_8, _PLACE, _STOP, _UNKNOWN = 0, -1, -2, -3, -4, -5, -6

_PUT = ord("p")
_SHORT = 80  # texts of fewer bytes are a part of runs


@cache
def _sizes() -> list[int]:
    """Return the number of bytes of each opcode with its argument, or how to find it."""
    table = [_UNKNOWN] * 256
    named = {"uint1": 1, "uint2": 2, "int4": 4, "uint4": 4, "uint8": 8, "float8": 8}
    for opcode in pickletools.opcodes:
        argument = opcode.arg
        code = ord(opcode.code)
        if argument is None:
            table[code] = 1
        elif argument.name in named:
            table[code] = 1 + named[argument.name]
        elif argument.n == pickletools.TAKEN_FROM_ARGUMENT1:
            table[code] = _COUNTED_1
        elif argument.n in (pickletools.TAKEN_FROM_ARGUMENT4, pickletools.TAKEN_FROM_ARGUMENT4U):
            table[code] = _COUNTED_4
        elif argument.n == pickletools.TAKEN_FROM_ARGUMENT8U:
            table[code] = _COUNTED_8
        else:
            table[code] = _TEXT
    table[ord("r")] = _PLACE
    table[ord(".")] = _STOP
    return table


@cache
def _runs() -> re.Pattern[bytes]:
    """Return a pattern for some opcodes of known size and short texts in a row, which saves a step of Python for each.

    Each opcode begins one alternative only, and the length of a text is in its alternative. So a match always ends
    behind an opcode with its argument.
    """
    table = _sizes()
    kinds = []
    for size in sorted({size for size in table if size > 0}):
        codes = b"".join(re.escape(bytes([code])) for code, own in enumerate(table) if own == size)
        kinds.append(b"[" + codes + (b"]+" if size == 1 else b"]" + b"." * (size - 1)))
    texts = (re.escape(bytes([size])) + b".{%d}" % size for size in range(1, _SHORT))
    kinds.append(re.escape(pickle.SHORT_BINUNICODE) + b"(?:" + b"|".join(texts) + b")")
    return re.compile(b"(?:" + b"|".join(kinds) + b"){1,4096}", re.DOTALL)


def check(data: bytes) -> None:
    """Raise ValueError for a pickle that is cut, has unknown opcodes, or uses places of the memo that it cannot need.

    The memo of the unpickler is an array as long as the largest place. A place in a file of a few bytes can be
    4294967295, which would take 64 GB.
    """
    table, runs, at, end = _sizes(), _runs().match, 0, len(data)
    while at < end:
        if (run := runs(data, at)) is not None:
            at = run.end()
            continue
        step = table[data[at]]
        if step > 0:
            at += step
        elif step == _COUNTED_1:
            at += 2 + _number(data, at, 1)
        elif step == _COUNTED_4:
            at += 5 + _number(data, at, 4)
        elif step == _COUNTED_8:
            at += 9 + _number(data, at, 8)
        elif step == _TEXT:
            at = _after_text(data, at)
        elif step == _PLACE:
            if _number(data, at, 4) > end:
                raise ValueError(f"the pickle uses place {_number(data, at, 4)} of its memo")
            at += 5
        elif step == _STOP:
            return
        else:
            raise ValueError(f"the pickle has an unknown opcode {data[at]:#04x}")
    raise ValueError("the pickle is cut")


def _number(data: bytes, at: int, size: int) -> int:
    """Return the number behind the opcode at an offset."""
    return int.from_bytes(data[at + 1 : at + 1 + size], "little")


def _after_text(data: bytes, at: int) -> int:
    """Return the offset behind the lines of text that belong to the opcode at an offset."""
    code, at = data[at], at + 1
    for _ in range(2 if code in b"ci" else 1):
        line = data.find(b"\n", at)
        if line < 0:
            raise ValueError("the pickle is cut")
        if code == _PUT and (line - at > 20 or int(data[at:line] or b"0") > len(data)):
            raise ValueError("the pickle uses a place of its memo that it cannot need")
        at = line + 1
    return at
