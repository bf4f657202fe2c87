"""Properties of every kind of tokenizer: texts come back, and text never becomes a control token."""

import json
from random import Random

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.corpora.files import cut_at_words
from transformer.data.subwords.config import BpeConfig, ByteConfig, CharConfig, UnigramConfig, WordPieceConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_training import TrainedConfig

CONTROLS = ("<pad>", "<s>", "</s>", "<unk>", "<2de>", "<2en>", "<unused0>", "<0x0A>", "<0x41>")
SYMBOLS = ("<br>", "<br/>", "é§", "two words")
TAGS = ("<2de>", "<2en>")
# What looks like a control token is frequent in training, so that pieces could grow into it.
TEXTS = [
    *(f"{control} the cat {control}number {n} sat{control} on über {n}" for n in range(20) for control in CONTROLS),
    *(control * 3 for control in CONTROLS),
]

few = settings(max_examples=60, derandomize=True, deadline=None, database=None)

WORDS = (
    "< > </ s br ### ## the cat über 1 23 ½ 's Ġ ﬁ ① e \u0301 \u0338 \u1100 \u1161 \u11a8 \u2581 \uffed \u200d \ufeff"
)
OTHERS = (" ", "  ", " sat", "\n", "\r\n", "\t", "\x00", "\x7f", "\x85", "\ufffd", "\uffff", "\U0001f469", "\U0010ffff")
confusing = st.sampled_from([*CONTROLS, *SYMBOLS, *WORDS.split(" "), *OTHERS])
characters = st.characters(exclude_categories=["Cs"])  # every plane, controls and combining marks; no surrogates
texts = st.lists(confusing | st.text(characters, max_size=4), max_size=12).map("".join)


def trained(config: TrainedConfig) -> Tokenizer:
    return Tokenizer.train(config, TEXTS, TAGS)


LOSSLESS: dict[str, TrainedConfig] = {
    f"{name} {form}": kind.model_copy(update={"normalization": form, "user_symbols": SYMBOLS})
    for name, kind in {
        "bpe": BpeConfig(vocab_size=330),
        "bpe of unsplit digits": BpeConfig(vocab_size=330, split_digits=False),
        "bpe of characters": BpeConfig(vocab_size=360, units="characters"),
        "bpe of few characters": BpeConfig(vocab_size=280, units="characters", split_digits=False),
        "unigram": UnigramConfig(vocab_size=330),
        "wordpiece": WordPieceConfig(vocab_size=600),
        "char with bytes": CharConfig(byte_fallback=True),
        "byte": ByteConfig(),
    }.items()
    for form in ("none", "nfc", "nfkc")
    if form != "nfc" or name in ("bpe", "char with bytes")
}
TOKENIZERS = {name: trained(config) for name, config in LOSSLESS.items()}
WITH_MERGES = {name: tokenizer for name, tokenizer in TOKENIZERS.items() if name.startswith("bpe")}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=texts)
@few
def test_every_text_comes_back_in_its_normal_form(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.normalize(text)
    assert tokenizer.decode_batch(tokenizer.encode_batch([text])) == [tokenizer.normalize(text)]
    if name.endswith("none"):
        assert tokenizer.normalize(text) == text


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=texts)
@few
def test_text_is_never_a_control_token(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    controls = {0, 1, 2, 3, *tokenizer.tags.values()}
    assert len(controls) == 6
    assert controls.isdisjoint(tokenizer.encode(text))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_looks_like_a_control_token_is_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    controls = {0, 1, 2, 3, *tokenizer.tags.values()}
    for text in (*CONTROLS, *TEXTS, "".join(CONTROLS)):
        ids = tokenizer.encode(text)
        assert controls.isdisjoint(ids)
        assert len(tokenizer.encode(text)) > 1
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name.endswith("none")])
@given(parts=st.lists(st.sampled_from([*SYMBOLS, "the", " ", "<", "br", "é"]), max_size=10))
@few
def test_symbols_are_found_wherever_they_occur(name: str, parts: list[str]) -> None:
    tokenizer, text = TOKENIZERS[name], "".join(parts)
    expected, place = [], 0
    while place < len(text):
        found = max((symbol for symbol in SYMBOLS if text.startswith(symbol, place)), key=len, default="")
        expected += [found] if found else []
        place += len(found) or 1
    symbols = tokenizer.symbols
    ids = set(symbols.values())
    assert [index for index in tokenizer.encode(text) if index in ids] == [symbols[symbol] for symbol in expected]


@pytest.mark.parametrize("name", WITH_MERGES)
@given(text=texts, p=st.sampled_from([0.1, 0.5, 0.9, 1.0]), seed=st.integers(0, 1000))
@few
def test_sampled_pieces_spell_the_same_text(name: str, text: str, p: float, seed: int) -> None:
    tokenizer = WITH_MERGES[name]
    assert tokenizer.sampled(text, 0, Random(seed)) == tokenizer.encode(text)
    ids = tokenizer.sampled(text, p, Random(seed))
    assert tokenizer.decode(ids) == tokenizer.normalize(text)
    assert {0, 1, 2, 3, *tokenizer.tags.values()}.isdisjoint(ids)
    assert ids == tokenizer.sampled(text, p, Random(seed))


@given(text=texts)
@few
def test_characters_without_bytes_show_the_unknown(text: str) -> None:
    tokenizer = Tokenizer.train(CharConfig(), ["abc <>/spadunk2e"])
    known = set("abc <>/spadunk2e")
    expected = "".join(character if character in known else "<unk>" for character in text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected


SEPARABLE = {
    name: trained(config.model_copy(update={"user_symbols": ("<br>", "<br/>", "é§", "s")}))
    for name, config in {**LOSSLESS, "char none": CharConfig()}.items()
}


@pytest.mark.parametrize("name", SEPARABLE)
@given(text=texts, size=st.integers(1, 9))
@few
def test_a_text_in_pieces_has_the_ids_of_the_whole(name: str, text: str, size: int) -> None:
    tokenizer = SEPARABLE[name]
    assert tokenizer.cuts_at_words
    pieces = list(cut_at_words(text, size))
    assert "".join(pieces) == text
    assert [index for piece in pieces for index in tokenizer.encode(piece)] == tokenizer.encode(text)


def test_symbols_with_white_space_are_not_cut() -> None:
    assert not any(tokenizer.cuts_at_words for tokenizer in TOKENIZERS.values())


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bpe none", {"pre_tokenizer": None}),
        ("bpe none", {"normalizer": {"type": "Prepend", "prepend": "▁"}}),
        ("bpe none", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}),
        ("bpe none", {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}}),
        (
            "bpe none",
            {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
        ),
        (
            "bpe none",
            {
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": True,
                    "use_regex": False,
                }
            },
        ),
        ("bpe none", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "FixedLength", "length": 5}]}}),
        ("unigram none", {"pre_tokenizer": None}),
        ("wordpiece none", {"pre_tokenizer": None}),
    ],
)
def test_files_that_may_do_something_else_are_not_cut(name: str, changes: dict[str, object]) -> None:
    content = json.loads(SEPARABLE[name]._backend.to_str())
    assert Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(content))).cuts_at_words
    assert not Tokenizer(tokenizers.Tokenizer.from_str(json.dumps({**content, **changes}))).cuts_at_words
