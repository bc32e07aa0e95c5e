# SPDX-License-Identifier: Apache-2.0
"""Headers: hostile ones are refused by name, and the reference decides what must be refused."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors
from nebulaio.errors import CorruptError
from nebulaio.safetensors import inspect, load_file
from support import encode

# What is refused here and accepted by the reference: rule -> how the message says it.
# The same list stands in the package's README.
STRICTER = {
    "the header object is the first byte": r"the first byte of the header is",
    "only spaces follow it": r"the padding after the header object",
    "no unknown field in a tensor object": r"field .* is unknown",
    "no key twice": r"is a duplicate",
    "integers below 2^48": r"an integer from 0 to 281474976710655",
    "no NUL in a name": r"holds NUL",
    "at most 64 dimensions": r"more dimensions",
    "names of at most 4096 bytes": r"too long",
    "an entry is an object": r"expected an object with dtype, shape and data_offsets",
    "a dtype is text": r"dtype is .* expected a JSON string",
    "small unknown fields": r"is unknown|is nested deeper|is one too many|is too long",
    "at most 1,000,000 tensors and 65,536 entries of metadata": r"at most 65536",
}
LENIENT = {"the header object is the first byte", "only spaces follow it", "no unknown field in a tensor object"}


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE = {
    "empty": b"",
    "short length": b"\x02\0\0",
    "length beyond the file": (100).to_bytes(8, "little") + b"{}",
    "length of all ones": b"\xff" * 8 + b"{}",
    "length over the limit": (100_000_001).to_bytes(8, "little") + b"{}",
    "length zero": bytes(8),
    "not UTF-8": encode(b'{"\xff":1}'),
    "not JSON": encode("{"),
    "array": encode("[]"),
    "null": encode("null"),
    "text after": encode("{}x"),
    "deep nesting": encode('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "unknown dtype": encode({"a": entry("F128", [1], 0, 16)}, bytes(16)),
    "hole": encode({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}, bytes(3)),
    "overlap": encode({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, bytes(3)),
    "shared range": encode({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 0, 2)}, bytes(2)),
    "first not at zero": encode({"a": entry("U8", [1], 1, 2)}, bytes(2)),
    "end before begin": encode({"a": entry("U8", [1], 1, 0)}, bytes(1)),
    "trailing byte": encode({"a": entry("U8", [1], 0, 1)}, bytes(2)),
    "missing byte": encode({"a": entry("U8", [2], 0, 2)}, bytes(1)),
    "wrong size": encode({"a": entry("F32", [2], 0, 4)}, bytes(4)),
    "negative": encode('{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}'),
    "float": encode('{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', bytes(1)),
    "exponent": encode('{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', bytes(1)),
    "leading zero": encode('{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', bytes(1)),
    "overflowing shape": encode({"a": entry("F64", [1 << 40, 1 << 40], 0, 0)}),
    "overflowing bits": encode({"a": entry("F64", [1 << 31, 1 << 31], 0, 0)}),
    "half a byte": encode({"a": entry("F4", [1], 0, 1)}, bytes(1)),
    "offsets of three": encode('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}', bytes(1)),
    "no shape": encode('{"a":{"dtype":"U8","data_offsets":[0,1]}}', bytes(1)),
    "metadata of numbers": encode({"__metadata__": {"a": 1}}),
    "unpaired surrogate": encode('{"\\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', bytes(1)),
    "raw control character": encode('{"a\n":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', bytes(1)),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("lenient", [False, True])
def test_hostile_header(tmp_path: Path, case: str, lenient: bool) -> None:
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(HOSTILE[case])
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(HOSTILE[case])
    with pytest.raises(CorruptError, match=re.escape(str(path))):
        inspect(path, lenient=lenient)
    with pytest.raises(CorruptError, match=re.escape(str(path))):
        load_file(path, "cpu", framework="numpy", lenient=lenient)


GOOD = {
    "__metadata__": {"format": "pt", "note": "ä"},
    "a.weight": entry("F32", [2, 3], 0, 24),
    "a.bias": entry("BF16", [4], 24, 32),
    "empty": entry("I64", [0, 5], 32, 32),
    "scalar": entry("F64", [], 32, 40),
    "q": entry("F4", [2, 4], 40, 44),
}
DATA = bytes(range(44))

STRICTER_CASES = {
    "the header object is the first byte": [encode(" \n{}"), encode("\t" + json.dumps(GOOD), DATA)],
    "only spaces follow it": [encode("{}\n"), encode("{}\t \r")],
    "no unknown field in a tensor object": [encode({"a": {**entry("U8", [1], 0, 1), "extra": [1, {}]}}, b"x")],
    "no key twice": [
        encode(
            '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"x"),
        encode('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        encode('{"__metadata__":{"k":"1","k":"2"}}'),
    ],
    "integers below 2^48": [encode({"a": entry("U8", [0, 1 << 48], 0, 0)})],
    "no NUL in a name": [encode({"a\0b": entry("U8", [1], 0, 1)}, b"x")],
    "at most 64 dimensions": [encode({"a": entry("U8", [1] * 65, 0, 1)}, b"x")],
    "names of at most 4096 bytes": [encode({"n" * 4097: entry("U8", [1], 0, 1)}, b"x")],
    "an entry is an object": [encode({"a": ["U8", [1], [0, 1]]}, b"x")],
    "a dtype is text": [encode({"a": {**entry("U8", [1], 0, 1), "dtype": {"U8": None}}}, b"x")],
    "small unknown fields": [
        encode('{"a":{"x":' + "[" * 17 + "]" * 17 + ',"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        encode({"a": {**entry("U8", [1], 0, 1), "x": {str(n): 0 for n in range(257)}}}, b"x"),
        encode({"a": {**entry("U8", [1], 0, 1), "x": {"k" * 4097: 0}}}, b"x"),
    ],
    "at most 1,000,000 tensors and 65,536 entries of metadata": [
        encode({"__metadata__": {str(n): "" for n in range(65_537)}})
    ],
}


@pytest.mark.parametrize("rule", STRICTER)
def test_stricter_rules_are_real(tmp_path: Path, rule: str) -> None:
    """Each documented difference exists: the reference accepts, we refuse and say why."""
    path = tmp_path / "strict.safetensors"
    for content in STRICTER_CASES[rule]:
        safetensors.deserialize(content)
        path.write_bytes(content)
        with pytest.raises(CorruptError, match=STRICTER[rule]):
            inspect(path)
        if rule in LENIENT:
            inspect(path, lenient=True)
        else:
            with pytest.raises(CorruptError, match=STRICTER[rule]):
                inspect(path, lenient=True)


def test_stricter_rules_are_documented() -> None:
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    listed = readme.partition("## What is stricter than the reference")[2]
    assert sum(line.startswith("- ") for line in listed.splitlines()) == len(STRICTER)


def mutants(seed: int, count: int) -> Iterator[bytes]:
    """Files made from a good one by small changes of bytes, tokens or structure."""
    rng = random.Random(seed)
    base = json.dumps(GOOD, separators=(",", ":"), ensure_ascii=False).encode()
    tokens = [b"{", b"}", b"[", b"]", b",", b":", b'"', b" ", b"\n", b"0", b"1", b"-", b".", b"e5", b"null", b"\\u0000",
              b"\\ud83d\\ude00", b"\\ud83d", b'"dtype"', b'"shape"', b'"F32"', b'"U8"', b"\xc3\xa4", b"\xff", b"true",
              b"18446744073709551616", b"281474976710656", b'"x":1,', b'"__metadata__":null,']
    for _ in range(count):
        header, data = bytearray(base), DATA
        kind = rng.randrange(6)
        if kind == 5:
            yield encode(structural(rng), data, pad=rng.choice([1, 8]))
            continue
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            at = rng.randrange(len(header))
            if kind == 0:
                header[at] = rng.randrange(256)
            elif kind == 1:
                del header[at : at + rng.randrange(1, 6)]
            elif kind == 2:
                header[at:at] = rng.choice(tokens)
            elif kind == 3:
                numbers = list(re.finditer(rb"\d+", header))
                match = rng.choice(numbers)
                header[match.start() : match.end()] = rng.choice([b"0", b"1", b"2", b"8", b"24", b"32", b"40", b"44"])
            else:
                edges = [m.start() for m in re.finditer(rb'[,:{}\[\]]', header)]
                spot = rng.choice(edges)
                header[spot : spot + 1] = header[spot : spot + 1] + rng.choice([b" ", b"\n", b"\t", b"\x0c"])
        content = encode(bytes(header), data, pad=rng.choice([1, 8]))
        if rng.random() < 0.1:
            content = bytes([(content[0] + rng.choice([-1, 1, 8])) % 256]) + content[1:]
        if rng.random() < 0.1:
            content = content[: -rng.randrange(1, 9)] if rng.random() < 0.5 else content + b"\0"
        yield content


def structural(rng: random.Random) -> dict[str, Any]:
    """The good header with one field replaced, moved or taken away."""
    header = json.loads(json.dumps(GOOD))
    name = rng.choice([key for key in header if key != "__metadata__"])
    tensor = header[name]
    change = rng.randrange(9)
    if change == 0:
        tensor["dtype"] = rng.choice(["F32", "I32", "U32", "U8", "BOOL", "F4", "F6_E2M3", "C64", "F64", "f32", "",
                                      "F8_E8M0"])
    elif change == 1:
        tensor["shape"] = rng.choice([[], [1], [2, 3], [0], [3, 2], [6], [24], [1, 1, 4], [None], ["1"], None, {},
                                      [1 << 62, 4]])
    elif change == 2:
        tensor["data_offsets"] = rng.choice([[0, 24], [24, 32], [32, 32], [0, 0], [44, 44], [32, 24], [0], [], None,
                                             [0, 44]])
    elif change == 3:
        tensor[rng.choice(["extra", "", "Dtype", "shape "])] = rng.choice([1, None, [], {"a": [{}]}])
    elif change == 4:
        del tensor[rng.choice(list(tensor))]
    elif change == 5:
        header["__metadata__"] = rng.choice([None, {}, {"a": "b"}, {"a": None}, {"a": 1}, [], "x", {"": ""}])
    elif change == 6:
        items = list(header.items())
        rng.shuffle(items)
        header = dict(items)
    elif change == 7:
        header[rng.choice(["new", "", "zero", "\u0000", "ü" * 3])] = entry("U8", [0],
                                                                           *rng.choice([(0, 0), (44, 44), (7, 7),
                                                                                        (24, 24)]))
    else:
        del header[name]
    return header


@pytest.mark.parametrize("lenient", [False, True])
def test_differential(tmp_path: Path, lenient: bool) -> None:
    """Whatever the reference refuses we refuse; what we refuse beyond is on the list."""
    path = tmp_path / "mutant.safetensors"
    seen: Counter[str] = Counter()
    for content in mutants(seed=20 + lenient, count=800):
        path.write_bytes(content)
        try:
            theirs = {name: (info["dtype"], list(info["shape"])) for name, info in safetensors.deserialize(content)}
        except safetensors.SafetensorError:
            theirs = None
        try:
            ours = {t["name"]: (t["dtype"], t["shape"]) for t in inspect(path, lenient=lenient)["tensors"]}
        except CorruptError as refused:
            assert str(path) in str(refused)
            if theirs is None:
                seen["both refuse"] += 1
                continue
            rules = [rule for rule, said in STRICTER.items() if re.search(said, str(refused))]
            assert rules, f"refused beyond the documented rules: {refused}\n{content!r}"
            assert not (lenient and rules[0] in LENIENT), f"{refused}\n{content!r}"
            seen[rules[0]] += 1
            continue
        assert theirs is not None, f"the reference refuses what we accept: {content!r}"
        assert ours == theirs
        seen["both accept"] += 1
    assert seen["both accept"] > 30 and seen["both refuse"] > 300, seen
