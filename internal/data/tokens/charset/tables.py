# SPDX-License-Identifier: Apache-2.0
"""Writes tables.bin: the character classes that the Python package tokenizers (0.23.3) uses.

The package tokenizers has several Unicode versions inside: one in its regex engine, one in Rust's standard library and
an old one for BERT. This script asks the package about every code point, so that our ids are equal to its ids.

Run: python tables.py (with tokenizers==0.23.3 installed)
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
)
SCRIPTS = "Han Hiragana Katakana Hangul Latin Cyrillic Arabic Thai Devanagari Greek Hebrew".split()


def uvarint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for c in sorted(codes):
        if out and out[-1][1] == c - 1:
            out[-1] = (out[-1][0], c)
        else:
            out.append((c, c))
    return out


def table(name: str, codes: Iterable[int]) -> bytes:
    out, last = bytearray(), 0
    found = ranges(codes)
    for lo, hi in found:
        out += uvarint(lo - last) + uvarint(hi - lo)
        last = hi
    return bytes([len(name)]) + name.encode() + uvarint(len(found)) + out


def kept(split: Callable[[str], list[tuple[str, tuple[int, int]]]]) -> set[int]:
    out: set[int] = set()
    for i in range(0, len(CODES), 4096):
        for piece, _ in split("".join(map(chr, CODES[i : i + 4096]))):
            out.update(map(ord, piece))
    return out


def matched(pattern: str) -> set[int]:
    return kept(pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str)


def removed(normalizer: normalizers.Normalizer) -> set[int]:
    return {c for c in CODES if normalizer.normalize_str(chr(c)) == ""}


def isolated(split: Callable[[str], list[tuple[str, tuple[int, int]]]]) -> set[int]:
    return {c for c in CODES if len(split("a" + chr(c) + "a")) == 3}


def main() -> None:
    out = bytearray()
    for name in CATEGORIES + SCRIPTS:
        out += table(name, matched(rf"\p{{{name}}}"))
    out += table("word", matched(r"\w"))
    out += table("numeric", isolated(pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str))
    out += table("punctuation", isolated(pre_tokenizers.Punctuation("isolated").pre_tokenize_str))
    whole = pre_tokenizers.Whitespace().pre_tokenize_str
    out += table("rustword", {c for c in CODES if len(whole("a" + chr(c) + "a")) == 1})
    bert = normalizers.BertNormalizer
    out += table("control", removed(bert(True, False, False, False)))
    out += table("nonspacing", removed(bert(False, False, True, False)))
    out += table("combining", removed(normalizers.StripAccents()))
    lower = normalizers.Lowercase()
    pairs = [(c, lower.normalize_str(chr(c))) for c in CODES]
    pairs = [(c, text) for c, text in pairs if text != chr(c) and len(text) == 1]
    out += table("upper", [c for c, _ in pairs])
    for c, text in pairs:
        delta = ord(text) - c
        out += uvarint(delta << 1 if delta >= 0 else (-delta << 1) - 1)
    Path(__file__).with_name("tables.bin").write_bytes(out)


if __name__ == "__main__":
    main()
