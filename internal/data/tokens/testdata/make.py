# SPDX-License-Identifier: Apache-2.0
"""Makes the test vectors: small tokenizers, texts, and the ids that the Python package tokenizers gives them.

The tokenizers are trained on the texts in this file, in the style of published tokenizers. Training breaks ties at random,
so that another run makes other tokenizers, with ids that match them. The package tokenizers is
the reference for the ids.

Run: python make.py [FOLDER] (with tokenizers==0.23.3 and sentencepiece==0.2.2 installed)
With FOLDER, the script also reads FOLDER/corpus.txt, and writes larger tokenizers and vectors to FOLDER. Then
`go test ./internal/data/tokens -run TestGolden -golden FOLDER` compares the ids.
"""

import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, processors, trainers
from tokenizers import models as M
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

HERE = Path(__file__).parent
OUT = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
BIG = OUT != HERE

# Article 1 of the Universal Declaration of Human Rights, and code.
PROSE = [
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and "
    "should act towards one another in a spirit of brotherhood. It's what we've said; they'll agree, I'd hope.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und "
    "sollen einander im Geist der Brüderlichkeit begegnen. GROẞ und groß.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité. L'été, ça va?",
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны "
    "поступать в отношении друг друга в духе братства.",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "def fib(n: int) -> int:\n\tif n < 2:\n\t\treturn n\n    return fib(n - 1) + fib(n-2)  # 1234567890\n",
    "for (int i = 0; i < 10; ++i) {\r\n    printf(\"%d\\n\", a[i] * 3.14159e-10);\r\n}\r\n\r\n",
    "SELECT * FROM users WHERE id=42 AND name LIKE '%o''neil%'; -- HTTPServer getURLFromXMLHttpRequest",
]

HARD = [
    "", " ", "  ", "\n", "\r\n", "\t \n", "a", "   leading", "trailing   ", "a  b   c    d", " \n \n\n  x",
    "x\u3000y\u00a0z",
    "'s 'S 'ſ 'RE 've'LL 'd'm't x'y ''ll", "it's IT'S we'Re", "12345678901234 1 22 333 4444 ½ Ⅷ ٣٤٥ 一二三",
    "👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ ☺", "e\u0301 é a\u0323\u0302 ậ \u1100\u1161\u11a8 각 \u0344 q\u0307\u0323",
    "ﬁ ﬀ \u212b \u2126 ① ㎞ ＡＢＣ ｶﾞ ⅷ",
    "Z" + "\u0351\u0323\u0300" * 14 + "algo", "\x00\x01\x7f\x85\u200b\ufeff\u200d\ufffd", "İstanbul ΣΑΣ ǅ ﬃ ẞ",
    "<|endoftext|>", "a<|endoftext|>b", "x <mask> y", "x<mask>", "  <mask>  \n z", "<s>Hello</s> <s> </s>", "<unk>",
    "[CLS] hello [SEP][MASK]ing", "<extra_id_0> word <extra_id_1>", "yesterday Yesterdayed YESTERDAY yesterday_",
    "<|begin_of_text|><|eot_id|>user\n\n", "▁ ▁▁a ▁b▁ c▁", "\u2581", "a\u2028b\u2029c\u0085d\x0be\x0cf",
    "supercalifragilisticexpialidocious" * 4, "=" * 90, " " * 70 + "x", "\n" * 33, "ab" * 100, "ÀÉÎõü" * 12,
    "中文字符没有空格" * 6, "$x_1 += y[2]**3; //!?", "https://example.com/a_b-c?d=e&f=%20#g", "\u0e33\u0e4d", "क्षत्रिय त्र",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0001f9ff \U0010ffff \ue000", "\u1c89\ua7cb\U00010d50 \u0897 \U00011938", "tab\there\r\rcr",
    "don`t “quote” ‘x’ —dash… ¿qué? «non» ۔ । 。，", "Hello, y'all! How are you 😁 ?", "a\u0300\u0301\u0302\u0303b",
    "\r\n\ufb01\u0301 1\ufe0f\u20e3 a\u200db \u0600a", "  multiple   spaces  ", "NaN null \\u0041 \\x41 \\\\",
]

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def level(space: bool = False, regex: bool = False) -> P.PreTokenizer:
    return P.ByteLevel(add_prefix_space=space, use_regex=regex)


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> P.PreTokenizer:
    return P.Split(Regex(pattern), behavior, invert)


def corpus() -> list[str]:
    if BIG:
        return (OUT / "corpus.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    return PROSE


def bpe(pre: P.PreTokenizer | None, normalizer: N.Normalizer | None = None, add: list[AddedToken] | None = None,
        size: int = 700, alphabet: bool = True, **options: Any) -> Tokenizer:
    t = Tokenizer(M.BPE(**options))
    if pre is not None:
        t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    special = [AddedToken("<|endoftext|>", special=True)] if alphabet else []
    trainer = trainers.BpeTrainer(vocab_size=size * (25 if BIG else 1), show_progress=False, special_tokens=special,
                                  initial_alphabet=P.ByteLevel.alphabet() if alphabet else [], limit_alphabet=400)
    t.train_from_iterator(corpus(), trainer)
    for token in add or []:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    return t


def metaspace_bpe(change: Callable[[dict[str, Any]], None]) -> Tokenizer:
    """A BPE vocabulary of SentencePiece's kind: with bytes, and with ▁ for a space."""
    t = Tokenizer(M.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = P.Metaspace(prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900 * (20 if BIG else 1), show_progress=False, special_tokens=special,
                                  limit_alphabet=150)
    t.train_from_iterator(corpus(), trainer)
    d = json.loads(t.to_str())
    d["added_tokens"] = [a for a in d["added_tokens"] if a["id"] < 3]
    change(d)
    return Tokenizer.from_str(json.dumps(d))


def llama2(d: dict[str, Any]) -> None:
    d["pre_tokenizer"] = None
    d["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}


def mistral(d: dict[str, Any]) -> None:
    d["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


def gemma(d: dict[str, Any]) -> None:
    d["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    d["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False}


def unknown(d: dict[str, Any]) -> None:
    d["model"]["byte_fallback"] = False
    d["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]}
    d["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "Strip", "strip_left": True,
                                                                            "strip_right": False}]}


def unigram(normalizer: N.Normalizer, pre: P.PreTokenizer, bytes_too: bool) -> Tokenizer:
    t = Tokenizer(M.Unigram())
    t.normalizer, t.pre_tokenizer = normalizer, pre
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=600 * (20 if BIG else 1), show_progress=False, special_tokens=special,
                                      unk_token="<unk>")
    t.train_from_iterator(corpus(), trainer)
    if bytes_too:
        d = json.loads(t.to_str())
        d["model"]["byte_fallback"] = True
        d["model"]["vocab"] += [[f"<0x{i:02X}>", 0.0] for i in range(256)]
        t = Tokenizer.from_str(json.dumps(d))
    t.add_special_tokens([AddedToken(f"<extra_id_{i}>", special=True, rstrip=i == 1) for i in range(2)])
    return t


def charsmap() -> bytes:
    """A compiled normalization rule of SentencePiece. The full rule has 240 kB, so the test vectors have a part of it."""
    model = io.BytesIO()
    arguments: dict[str, Any] = {"normalization_rule_name": "nmt_nfkc"}
    if not BIG:
        rule = OUT / "rule.tsv"
        pairs = {"\t": " ", "\n": " ", "\r": " ", "\u3000": " ", "\u00a0": " ", "ﬁ": "fi", "ﬀ": "ff", "①": "1",
                 "Ａ": "A",
                 "Ｂ": "B", "e\u0301": "\u00e9", "a\u0323\u0302": "\u1ead", "ｶ\uff9e": "ガ", "㎞": "km", "\u200b": " ",
                 "\u212b": "\u00c5",
                 "\x01": "", "½": "1⁄2", "\u0600": "x"}
        rule.write_text("".join(
            " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
            for a, b in pairs.items()), encoding="utf-8")
        arguments = {"normalization_rule_tsv": str(rule)}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in PROSE for line in text.splitlines()]), model_writer=model,
        vocab_size=500, hard_vocab_limit=False, character_coverage=1.0, minloglevel=2, **arguments)
    if not BIG:
        rule.unlink()
    return charsmap_of(model.getvalue())


def charsmap_of(proto: bytes) -> bytes:
    """Reads field 3 (normalizer_spec), and in it field 2 (precompiled_charsmap), of a SentencePiece model."""

    def varint(b: bytes, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (b[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if b[at - 1] < 0x80:
                return value, at

    def field(b: bytes, wanted: int) -> bytes:
        at = 0
        while at < len(b):
            key, at = varint(b, at)
            if key & 7 == 2:
                size, at = varint(b, at)
                if key >> 3 == wanted:
                    return b[at : at + size]
                at += size
            elif key & 7 == 0:
                _, at = varint(b, at)
            else:
                at += {1: 8, 5: 4}[key & 7]
        raise ValueError(f"no field {wanted}")

    return field(field(proto, 3), 2)


def wordpiece(lower: bool) -> Tokenizer:
    t = Tokenizer(M.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = N.BertNormalizer(lowercase=lower, strip_accents=None)
    t.pre_tokenizer = P.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=700 * (20 if BIG else 1), show_progress=False,
                                        special_tokens=special,
                                        limit_alphabet=200)
    t.train_from_iterator(corpus(), trainer)
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_tokens([AddedToken("yesterday", single_word=True, normalized=True)])
    return t


def make() -> dict[str, Tokenizer]:
    added = AddedToken
    llama3 = bpe(P.Sequence([split(CL100K % "{1,3}"), level()]), ignore_merges=True, add=[
        added("<|begin_of_text|>", special=True), added("<|eot_id|>", special=True)])
    llama3.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A",
                                                          special_tokens=[("<|begin_of_text|>", 700)])
    llama3.enable_truncation(5)
    llama3.enable_padding(length=9)
    return {
        "gpt2": bpe(level(regex=True)),
        "roberta": bpe(level(space=True, regex=True), add=[
            added("<mask>", special=True, lstrip=True), added("yesterday", single_word=True),
            added(" word", rstrip=True)]),
        "llama3": llama3,
        "qwen2": bpe(P.Sequence([split(CL100K % ""), level()]), N.NFC(), add=[added("<|im_start|>", special=True)]),
        "o200k": bpe(P.Sequence([split(O200K), level()])),
        "deepseek": bpe(P.Sequence([split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), level()])),
        "starcoder": bpe(P.Sequence([P.Digits(individual_digits=True), level(regex=True)])),
        "falcon": bpe(P.Sequence([P.Punctuation("contiguous"), level(regex=True), P.Digits(individual_digits=False),
                                  split("[0-9][0-9][0-9]")])),
        "bloom": bpe(P.Sequence([split(BLOOM), level()])),
        "llama2": metaspace_bpe(llama2),
        "mistral": metaspace_bpe(mistral),
        "gemma": metaspace_bpe(gemma),
        "unknown": metaspace_bpe(unknown),
        "clip": bpe(P.Sequence([split(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "removed", True),
                                level()]), N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
                    end_of_word_suffix="</w>", unk_token="<|endoftext|>"),
        "xlmr": unigram(N.Sequence([N.Precompiled(charsmap()), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), False),
        "nfkc": unigram(N.Sequence([N.Nmt(), N.StripAccents(), N.NFKC()]), P.Metaspace(prepend_scheme="first"), True),
        "bert": wordpiece(True),
        "cased": wordpiece(False),
        "words": words(),
    }


def words() -> Tokenizer:
    t = Tokenizer(M.WordLevel(unk_token="<unk>"))
    t.normalizer = N.Sequence([N.NFKD(), N.Strip(left=True, right=True), N.Prepend("x ")])
    t.pre_tokenizer = P.Sequence([P.Whitespace(), P.Punctuation("merged_with_next"), P.Digits()])
    t.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=300, show_progress=False,
                                                              special_tokens=["<unk>"]))
    return t


def random_texts() -> list[str]:
    """Random texts from the pieces of the hard texts and from all of Unicode."""
    rng = random.Random(1)
    pool = "".join(HARD + PROSE)
    out = []
    for _ in range(4000 if BIG else 80):
        text = ""
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.6:
                at = rng.randrange(len(pool))
                text += pool[at : at + rng.randrange(1, 9)]
            elif rng.random() < 0.5:
                text += rng.choice(HARD)[:20]
            else:
                c = rng.randrange(0x30000) if rng.random() < 0.5 else rng.randrange(0x3000)
                text += chr(c) if not 0xD800 <= c < 0xE000 else " "
        out.append(text)
    return out


def main() -> None:
    texts = PROSE + HARD + random_texts()
    if BIG:
        text = "".join(corpus())
        texts += [text[i : i + 5000] for i in range(0, min(len(text), 3_000_000), 5000)]
    (OUT / "texts.json").write_text(json.dumps(texts, ensure_ascii=True, separators=(",", ":")), encoding="ascii")
    for name, t in make().items():
        path = OUT / f"{name}.json"
        path.write_text(t.to_str(), encoding="utf-8")
        t = Tokenizer.from_file(str(path))
        t.no_truncation()
        t.no_padding()
        ids = [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]
        t.encode_special_tokens = True
        plain = [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]
        expected = {"size": t.get_vocab_size(with_added_tokens=True), "ids": ids,
                    "plain": {str(i): p for i, p in enumerate(plain) if p != ids[i]}}
        (OUT / f"{name}.ids").write_text(json.dumps(expected, separators=(",", ":")), encoding="ascii")
        print(name, expected["size"], sum(map(len, ids)))


if __name__ == "__main__":
    main()
