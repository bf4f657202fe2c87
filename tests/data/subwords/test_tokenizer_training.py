"""Learning vocabularies: sizes, order, thinning, tags, symbols, the same file every time."""

import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from transformer.data.subwords.byte_vocabulary import BYTE_ALPHABET, CONTINUING
from transformer.data.subwords.character_vocabulary import BYTE_TOKENS
from transformer.data.subwords.config import BpeConfig, ByteConfig, CharConfig, UnigramConfig, WordPieceConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_training import TrainedConfig

TEXTS = [f"the cat number {n} sat on the mat, and the {n + 1} others did not sit there" for n in range(90, 160)]
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]
MAKERS: dict[str, tuple[type[TrainedConfig], dict[str, Any]]] = {
    "bpe": (BpeConfig, {"vocab_size": 280}),
    "bpe_of_characters": (BpeConfig, {"vocab_size": 310, "units": "characters"}),
    "unigram": (UnigramConfig, {"vocab_size": 300}),
    "wordpiece": (WordPieceConfig, {"vocab_size": 540}),
    "char": (CharConfig, {}),
    "char_with_bytes": (CharConfig, {"byte_fallback": True}),
    "byte": (ByteConfig, {}),
}
every_kind = pytest.mark.parametrize("kind", MAKERS)


def config_of(kind: str, **settings: Any) -> TrainedConfig:
    make, sizes = MAKERS[kind]
    return make(**{**sizes, **settings})


def test_char_vocabulary_needs_text() -> None:
    with pytest.raises(ValueError, match="A character vocabulary needs training text"):
        Tokenizer.train(CharConfig(), ["", ""])


@pytest.mark.parametrize("kind", ["bpe", "bpe_of_characters", "unigram", "wordpiece"])
def test_split_digits_makes_every_digit_a_token(kind: str) -> None:
    texts = [f"{word} of {year}" for word in ("may", "june") for year in range(1900, 2100)]
    cut = []
    for split in (True, False):
        tokenizer = Tokenizer.train(config_of(kind, split_digits=split), texts)
        cut.append(tokenizer.pieces(tokenizer.encode("may of 2021")))
    assert cut[0][-4:] == ["2", "0", "2", "1"]
    assert len(cut[1]) < len(cut[0])
    assert cut[1][-4:] != cut[0][-4:]


@pytest.mark.parametrize("kind", ["bpe", "bpe_of_characters", "wordpiece"])
@pytest.mark.parametrize(("tags", "symbols"), [((), ()), (("<2de>", "<2en>"), ("<br>", "|"))])
def test_trained_size_counts_everything(
    kind: str, tags: tuple[str, ...], symbols: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(kind, user_symbols=symbols)
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.train(config, TEXTS, tags)
    assert tokenizer.vocab_size == MAKERS[kind][1]["vocab_size"]
    assert caplog.records == []


@pytest.mark.parametrize(("multiple", "size"), [(1, 260), (8, 264), (64, 320), (130, 260)])
def test_vocabulary_is_padded_to_a_multiple(multiple: int, size: int, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(ByteConfig(pad_vocab_to_multiple_of=multiple), [])
    tokenizer.save(tmp_path / "t.json")
    for tok in (tokenizer, Tokenizer.load(tmp_path / "t.json")):
        assert tok.vocab_size == size
        assert tok.decode([*tok.encode("a"), *range(260, size)]) == "a"
        assert max(tok.encode("<unused0>")) < 260
        assert tok.tags == {}


def test_padding_is_there_also_beside_a_symbol_of_its_name() -> None:
    tokenizer = Tokenizer.train(ByteConfig(pad_vocab_to_multiple_of=66, user_symbols=("<unused0>",)), [])
    assert tokenizer.vocab_size == 264
    assert tokenizer.pieces([260, 261, 263]) == ["<unused0>", "<unused1>", "<unused3>"]
    assert tokenizer.encode("<unused0>") == [260]


@pytest.mark.parametrize(("form", "name"), [("none", None), ("nfc", "NFC"), ("nfkc", "NFKC")])
@every_kind
def test_normalization(kind: str, form: str, name: str | None) -> None:
    text = "cafe\u0301 ﬁne ① Ａ"
    tokenizer = Tokenizer.train(config_of(kind, normalization=form), [*TEXTS, text])
    expected = text if name is None else unicodedata.normalize(name, text)
    assert tokenizer.decode(tokenizer.encode(text)) == expected
    assert tokenizer.normalize(text) == expected


@every_kind
def test_training_is_deterministic_across_processes(kind: str, tmp_path: Path) -> None:
    # Many rare words, and ties: what an order by hash would change.
    texts = [*TEXTS, *(f"{chr(0x4E00 + n)}{chr(97 + n % 26)}{chr(97 + n // 26)} é" for n in range(200))]
    script = (
        "import json, sys; from transformer.data.subwords import config as tokenizer_config, tokenizer;"
        "kind, plain, texts, tags = json.load(sys.stdin);"
        "config = getattr(tokenizer_config, kind).from_plain(plain);"
        "tokenizer.Tokenizer.train(config, texts, tags).save(sys.argv[1])"
    )
    config, tags = config_of(kind, user_symbols=("<br>",)), ["<2de>"]
    sent = json.dumps([type(config).__name__, config.to_plain(), texts, tags])
    path = tmp_path / "other.json"
    subprocess.run([sys.executable, "-c", script, str(path)], input=sent.encode(), check=True)
    Tokenizer.train(config, iter(texts), tags).save(tmp_path / "here.json")
    assert path.read_bytes() == (tmp_path / "here.json").read_bytes()


def test_byte_pair_encoding_by_hand() -> None:
    # Pairs: "lo" 5, "ow" 5, "Ġl" 4 (a word takes the space before it), "we" 2, "er" 2.
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=263), ["low low low", "lower lower"])
    assert tokenizer.pieces([260, 261, 262]) == ["lo", "low", "Ġlow"]
    assert tokenizer.pieces(tokenizer.encode("low lower")) == ["low", "Ġlow", "e", "r"]


def test_character_pieces_spell_characters_and_others_are_bytes() -> None:
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=268, units="characters"), ["über über", "über"])
    assert tokenizer.pieces(range(260, 268)) == [" ", "b", "e", "r", "ü", "be", "übe", "über"]
    assert tokenizer.pieces(tokenizer.encode("über übê")) == ["über", " ", "ü", "b", "<0xC3>", "<0xAA>"]
    assert tokenizer.vocab_size == 268
    assert tokenizer.symbols == {}  # the bytes are ordinary pieces: "<0xC3>" in a text is text


def test_the_most_frequent_characters_are_tokens_where_not_all_fit(caplog: pytest.LogCaptureFixture) -> None:
    config = BpeConfig(vocab_size=263, units="characters")
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.train(config, ["aaaa]", "bb]]^-", "ccccc", "é"])
    assert tokenizer.pieces(range(260, 263)) == ["]", "a", "c"]
    assert tokenizer.pieces(tokenizer.encode("ab^é")) == ["a", "<0x62>", "<0x5E>", "<0xC3>", "<0xA9>"]
    assert caplog.records == []


def test_characters_with_bytes() -> None:
    tokenizer = Tokenizer.train(CharConfig(byte_fallback=True), ["ba"])
    assert tokenizer.vocab_size == 4 + 256 + 2
    assert tokenizer.pieces([0, 1, 2, 3, 4, 259, 260, 261]) == [*SPECIALS, "<0x00>", "<0xFF>", "a", "b"]
    assert tokenizer.encode("ab") == [260, 261]
    assert tokenizer.encode("aé") == [260, 4 + 0xC3, 4 + 0xA9]
    assert tokenizer.decode([4 + 0xC3, 4 + 0xA9]) == "é"


def test_wordpiece_takes_the_longest_piece_first() -> None:
    tokenizer = Tokenizer.train(WordPieceConfig(vocab_size=519), ["abcd abcd", "abcd"])
    learnt = tokenizer.pieces(range(516, 519))
    assert learnt == [f"{CONTINUING}bc", f"{CONTINUING}bcd", "abcd"]
    assert tokenizer.pieces(tokenizer.encode("abcdbc")) == ["abcd", f"{CONTINUING}bc"]


def test_wordpiece_has_every_byte_at_the_beginning_and_inside_of_words() -> None:
    tokenizer = Tokenizer.train(WordPieceConfig(vocab_size=300), [])
    assert CONTINUING not in BYTE_ALPHABET
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    assert pieces == [*SPECIALS, *BYTE_ALPHABET, *(f"{CONTINUING}{byte}" for byte in BYTE_ALPHABET)]
    assert tokenizer.pieces(tokenizer.encode("###")) == ["#", f"{CONTINUING}#", f"{CONTINUING}#"]


@every_kind
def test_a_megabyte_without_a_space(kind: str) -> None:
    tokenizer = Tokenizer.train(config_of(kind), [*TEXTS, "é"])
    text = "theathé" * 12_500  # 100,000 bytes; what grew with the square would take minutes
    ids = tokenizer.encode(text)
    assert 3 not in ids
    assert tokenizer.decode(ids) == text


@every_kind
def test_tags_are_tokens_of_their_own_that_no_text_gives(kind: str, tmp_path: Path) -> None:
    tags = ("<2de>", "__en__")
    tokenizer = Tokenizer.train(config_of(kind), [*TEXTS, "<2de> __en__"], tags)
    tokenizer.save(tmp_path / "t.json")
    for tok in (tokenizer, Tokenizer.load(tmp_path / "t.json")):
        ids = [tok.tag_id(tag) for tag in tags]
        assert tok.tags == dict(zip(tags, ids, strict=True))
        assert tok.pieces(ids) == list(tags)
        assert set(ids).isdisjoint(tok.encode("a <2de> __en__<2de>"))
        assert tok.decode([ids[0], *tok.encode("the <2de>"), ids[1]]) == "the <2de>"
    with pytest.raises(ValueError, match=r"^The tag '<2fr>' is not in the vocabulary; .* are '<2de>', '__en__'\.$"):
        tokenizer.tag_id("<2fr>")
    for name in ("<s>", "the"):
        with pytest.raises(ValueError, match="is not in the vocabulary"):
            tokenizer.tag_id(name)


@every_kind
def test_symbols_are_one_token_wherever_they_occur_and_stay_visible(kind: str, tmp_path: Path) -> None:
    symbols = ("<br>", "<brr>", "two words", "für§", f"{CONTINUING}-x")
    text = "the<br>cat  <brr>two words<br><br>sat für§§ two word " + CONTINUING + "-x" + CONTINUING
    tokenizer = Tokenizer.train(config_of(kind, user_symbols=symbols), [*TEXTS, text, f"§ {CONTINUING}"] * 3)
    tokenizer.save(tmp_path / "t.json")
    for tok in (tokenizer, Tokenizer.load(tmp_path / "t.json")):
        ids = tok.encode(text)
        pieces = tok.pieces(ids)
        found = [symbols[0], symbols[1], symbols[2], symbols[0], symbols[0], symbols[3], symbols[4]]
        assert [piece for piece in pieces if piece in symbols] == found
        assert tok.decode(ids) == text
        assert tok.decode_batch([ids, ids[:2]]) == [text, tok.decode(ids[:2])]
        assert set(tok.symbols) == set(symbols)
        assert tok.tags == {}


def test_symbols_are_looked_for_in_normalised_text() -> None:
    tokenizer = Tokenizer.train(ByteConfig(normalization="nfkc", user_symbols=("<br>",)), [])
    assert tokenizer.encode("＜br＞") == [260]
    # A combining stroke makes another character of ">".
    assert 260 not in tokenizer.encode("<br>\u0338")
    assert tokenizer.decode(tokenizer.encode("<br>\u0338")) == "<br\u226f"


def test_nothing_is_learnt_from_symbols() -> None:
    texts = ["aXXYYb aXXYYb"] * 9
    with_symbols = Tokenizer.train(BpeConfig(vocab_size=270, user_symbols=("XX", "XXYY")), texts)
    assert with_symbols.pieces(range(260, with_symbols.vocab_size)) == ["Ġa", "XX", "XXYY"]
    assert "YY" in Tokenizer.train(BpeConfig(vocab_size=270), texts).pieces(range(260, 264))


def test_a_symbol_that_is_a_byte_of_ascii_keeps_its_token() -> None:
    tokenizer = Tokenizer.train(ByteConfig(user_symbols=("|",)), [])
    assert tokenizer.vocab_size == 260
    assert tokenizer.decode(tokenizer.encode("a|b")) == "a|b"


@pytest.mark.parametrize(
    ("kind", "tags", "symbols", "message"),
    [
        ("byte", ["<s>"], (), "The tag '<s>' must be a token of its own, but is a special token too."),
        ("byte", ["<a>", "<a>"], (), "The tag '<a>' must be a token of its own, but is listed twice."),
        ("byte", ["<a>"], ("<a>",), "The symbol '<a>' must be a token of its own, but is a tag too."),
        ("byte", [""], (), "A tag must be a text, but is empty."),
        ("byte", ["a"], (), "The tag 'a' must be a token of its own, but is an ordinary token of the vocabulary; write "
                            "it differently, such as '<2a>'."),
        ("bpe", ["cat"], (), "The tag 'cat' must be a token of its own, but is an ordinary token .*"),
        ("char", ["t"], (), "The tag 't' must be a token of its own, but is an ordinary token .*"),
        ("byte", [], ("é",), "The symbol 'é' must be a token of its own, but that is how this vocabulary spells other "
                             "bytes; write it differently, such as '<é>'."),
        ("bpe", [], ("Ġthe",), "The symbol 'Ġthe' must be a token .* spells other bytes; .*"),
        ("bpe_of_characters", [], ("<0x41>",), "The symbol '<0x41>' must be a token .* spells other bytes; .*"),
    ],
)  # fmt: skip
def test_clashing_names_are_refused(kind: str, tags: list[str], symbols: tuple[str, ...], message: str) -> None:
    config = config_of(kind, user_symbols=symbols)
    texts = ["the cat sat. the cat sat"] * 5
    with pytest.raises(ValueError, match=f"^{message}$"):
        Tokenizer.train(config, texts, tags)


@pytest.mark.parametrize(
    ("symbols", "form", "message"),
    [
        (("<s>",), "none", "`user_symbols` must not name the special token '<s>'."),
        (("a", "b", "a"), "none", "`user_symbols` must differ from each other, but 'a' is listed twice."),
        (("e\u0301",), "nfc", "must be in the normal form nfc: 'é' instead of 'e\u0301'."),
        (("ﬁ",), "nfkc", "must be in the normal form nfkc: 'fi' instead of 'ﬁ'."),
    ],
)
def test_wrong_symbols_are_refused_in_the_settings(symbols: tuple[str, ...], form: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        config_of("byte", user_symbols=symbols, normalization=form)
    assert message in str(caught.value)


def test_large_corpora_are_thinned_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def texts() -> Iterator[str]:
        for number in range(1000):
            yield "even even" if number % 2 == 0 else "odd odd"

    config = BpeConfig(vocab_size=265, max_training_texts=100)
    with caplog.at_level(logging.INFO):
        thinned = Tokenizer.train(config, texts())
    assert caplog.messages[0] == "The vocabulary is learnt from 100 of 1000 texts, evenly spread."
    thinned_pieces = thinned.pieces(range(260, thinned.vocab_size))
    assert "even" in thinned_pieces
    assert "odd" not in thinned_pieces  # every eighth text is an even one
    caplog.clear()
    with caplog.at_level(logging.INFO):
        Tokenizer.train(BpeConfig(vocab_size=265, max_training_texts=1000), texts())
    assert not any("evenly spread" in message for message in caplog.messages)


def test_byte_tokens_are_all_there() -> None:
    assert (len(set(BYTE_TOKENS)), BYTE_TOKENS[0], BYTE_TOKENS[10], BYTE_TOKENS[255]) == (
        256,
        "<0x00>",
        "<0x0A>",
        "<0xFF>",
    )
