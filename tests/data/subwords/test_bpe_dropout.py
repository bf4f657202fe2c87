"""BPE-dropout: probabilities by hand, the limits p = 0 and p = 1, files of others, speed that does not explode."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from transformer.data.subwords import bpe_dropout as subwords
from transformer.data.subwords.bpe_dropout import BpeDropout
from transformer.data.subwords.config import BpeConfig, ByteConfig, UnigramConfig, WordPieceConfig
from transformer.data.subwords.tokenizer import Tokenizer

TEXTS = [f"the cat number {n} sat on the mat, and the {n + 1} others did not sit there" for n in range(90, 160)]
NUM_DRAWS = 20_000


def bpe(pieces: Sequence[str], merges: Sequence[tuple[str, str]], **settings: Any) -> tokenizers.Tokenizer:
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    return tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges), **settings))


def shares(backend: tokenizers.Tokenizer, text: str, p: float) -> dict[str, float]:
    """How often `text` is cut in each way."""
    dropout, random = BpeDropout(backend), Random(5)
    counts: Counter[str] = Counter()
    for _ in range(NUM_DRAWS):
        counts[" ".join(map(backend.id_to_token, dropout.sample(text, p, random)))] += 1
    return {cut: count / NUM_DRAWS for cut, count in counts.items()}


@pytest.mark.parametrize("limit", [0, 24], ids=["heap", "remembered"])
@pytest.mark.parametrize(
    ("merges", "text", "expected"),
    [
        # One after the other: both must come through.
        ([("a", "b"), ("ab", "c")], "abc", {"a b c": 0.4, "ab c": 0.6 * 0.4, "abc": 0.6 * 0.6}),
        # In competition: the first learnt wins, unless it alone is dropped.
        ([("b", "c"), ("a", "b")], "abc", {"a bc": 0.6, "ab c": 0.4 * 0.6, "a b c": 0.4 * 0.4}),
        # Two places of one merge are dropped each for itself; the leftmost that is left wins.
        ([("a", "a")], "aaa", {"aa a": 0.6, "a aa": 0.4 * 0.6, "a a a": 0.4 * 0.4}),
        # Two places apart: what was dropped in the first step has another chance in the second.
        (
            [("a", "b"), ("c", "c")],
            "abcc",
            {
                "a b c c": 0.4 * 0.4,
                "ab c c": 0.6 * 0.4,
                "ab cc": 0.6 * 0.6 + 0.4 * 0.6 * 0.6,
                "a b cc": 0.4 * 0.6 * 0.4,
            },
        ),
    ],
)
def test_probabilities_of_two_merges_by_hand(
    merges: list[tuple[str, str]],
    text: str,
    expected: dict[str, float],
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subwords, "MAX_REMEMBERED_LENGTH", limit)
    assert sum(expected.values()) == pytest.approx(1)
    backend = bpe(["a", "b", "c", *("".join(merge) for merge in merges)], merges)
    found = shares(backend, text, 0.4)
    assert found.keys() == expected.keys()
    for cut, share in expected.items():
        assert found[cut] == pytest.approx(share, abs=0.015)  # four standard deviations


@pytest.mark.parametrize("units", ["bytes", "characters"])
def test_the_two_ways_to_merge_agree_draw_by_draw(units: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = BpeConfig.from_plain({"vocab_size": 350, "units": units})
    tokenizer = Tokenizer.train(config, TEXTS)
    for p in (0.0, 0.1, 0.5, 0.9):
        cut = []
        for limit in (24, 0):
            monkeypatch.setattr(subwords, "MAX_REMEMBERED_LENGTH", limit)
            random = Random(3)
            cut.append(([tokenizer.sampled(text, p, random) for text in TEXTS], random.random()))
        assert cut[0] == cut[1]


@pytest.mark.parametrize("units", ["bytes", "characters"])
def test_no_dropout_is_encoding_and_full_dropout_is_single_symbols(units: str) -> None:
    config = BpeConfig.from_plain({"vocab_size": 350, "units": units})
    tokenizer = Tokenizer.train(config, TEXTS)
    random = Random(1)
    for text in (*TEXTS, "", " ", "日本ü\n", "cat" * 50):
        assert tokenizer.sampled(text, 0, random) == tokenizer.encode(text)
        singles = tokenizer.sampled(text, 1, random)
        known = units == "characters" and text.isascii()
        assert len(singles) == (len(text) if known else len(text.encode()))
        assert tokenizer.decode(singles) == text


def test_the_result_depends_on_the_random_numbers_alone() -> None:
    first, second = (Tokenizer.train(BpeConfig(vocab_size=350), TEXTS) for _ in range(2))
    for text in TEXTS[::-1]:
        second.sampled(text, 0.3, Random(9))  # remembers other steps
    a, b = Random(4), Random(4)
    expected = [first.sampled(text, 0.3, a) for text in TEXTS]
    assert [second.sampled(text, 0.3, b) for text in TEXTS] == expected
    assert a.random() == b.random()
    assert [first.sampled(text, 0.3, a) for text in TEXTS] != expected


def test_pieces_become_more_with_p() -> None:
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=350), TEXTS)
    random = Random(2)
    counts = [sum(len(tokenizer.sampled(text, p, random)) for text in TEXTS) for p in (0, 0.1, 0.2, 0.4, 0.6, 0.8, 1)]
    assert counts == sorted(set(counts))
    assert counts[-1] == sum(map(len, TEXTS))


def test_symbols_are_never_cut_and_control_tokens_are_text() -> None:
    config = BpeConfig(vocab_size=350, user_symbols=("<br>", "the cat"))
    tokenizer = Tokenizer.train(config, [*TEXTS, "<br>"], ["<2de>"])
    text = "the cat<br><br> </s><2de><unk> the cats"
    for seed in range(20):
        ids = tokenizer.sampled(text, 0.5, Random(seed))
        pieces = tokenizer.pieces(ids)
        assert (pieces.count("<br>"), pieces.count("the cat")) == (2, 2)
        assert {0, 1, 2, 3, tokenizer.tag_id("<2de>")}.isdisjoint(ids)
        assert tokenizer.decode(ids) == text


def test_a_long_text_without_a_space_takes_seconds() -> None:
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=350), TEXTS)
    text = "thecatsat" * 10_000  # what grew with the square would take hours
    assert tokenizer.decode(tokenizer.sampled(text, 0.1, Random(1))) == text


@pytest.mark.parametrize(
    ("config", "kind"), [(UnigramConfig(vocab_size=300), "Unigram"), (WordPieceConfig(vocab_size=520), "WordPiece")]
)
def test_other_kinds_are_refused(config: UnigramConfig | WordPieceConfig, kind: str) -> None:
    tokenizer = Tokenizer.train(config, TEXTS)
    message = f"BPE-dropout needs byte-pair encoding, but this vocabulary is {kind}."
    with pytest.raises(ValueError, match=message):
        tokenizer.sampled("a", 0.1, Random(1))


def test_single_bytes_have_no_merges() -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    assert tokenizer.sampled("aä", 0.5, Random(1)) == tokenizer.encode("aä")


# Files of others.


def same_without_dropout(backend: tokenizers.Tokenizer, *texts: str) -> None:
    dropout = BpeDropout(backend)
    backend.encode_special_tokens = True
    for text in texts:
        assert dropout.sample(text, 0, Random(1)) == backend.encode(text, add_special_tokens=False).ids


def test_words_taken_whole_by_ignore_merges() -> None:
    backend = bpe(["x", "y", "z", "xyz", "xy"], [("x", "y")], ignore_merges=True)
    same_without_dropout(backend, "xyz", "xy", "xyx", "zz")
    # No merges lead to "xyz": it stays whole, or is merged as any other word.
    found = shares(backend, "xyz", 0.4)
    assert found == {
        "xyz": pytest.approx(0.6, abs=0.015),
        "xy z": pytest.approx(0.4 * 0.6, abs=0.015),
        "x y z": pytest.approx(0.4 * 0.4, abs=0.015),
    }
    assert shares(backend, "xy", 0.4) == {
        "xy": pytest.approx(0.6, abs=0.015),
        "x y": pytest.approx(0.4, abs=0.015),
    }


@pytest.mark.parametrize("fuse", [False, True])
def test_unknown_characters(fuse: bool) -> None:
    backend = bpe(["<unk>", "a", "b", "ab"], [("a", "b")], unk_token="<unk>", fuse_unk=fuse)
    same_without_dropout(backend, "abxxab", "xx", "xaxb", "")
    found = shares(backend, "abxx", 0.4)
    unknown = "<unk>" if fuse else "<unk> <unk>"
    assert found == {
        f"ab {unknown}": pytest.approx(0.6, abs=0.015),
        f"a b {unknown}": pytest.approx(0.4, abs=0.015),
    }


def test_marks_inside_and_at_the_end_of_words() -> None:
    inside = bpe(["a", "b", "##a", "##b", "ab", "##ba", "aba"], [("a", "##b"), ("ab", "##a")],
                 continuing_subword_prefix="##")  # fmt: skip
    same_without_dropout(inside, "aba", "abab", "b")
    assert set(shares(inside, "aba", 0.4)) == {"aba", "ab ##a", "a ##b ##a"}
    end = bpe(["a", "b", "b</w>", "ab</w>", "a</w>"], [("a", "b</w>")], end_of_word_suffix="</w>")
    end.pre_tokenizer = pre_tokenizers.Whitespace()
    same_without_dropout(end, "ab ab", "a", "ba")
    assert set(shares(end, "ab", 0.4)) == {"ab</w>", "a b</w>"}


def test_a_file_of_the_sentencepiece_kind() -> None:
    alphabet = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b"]
    backend = bpe([*alphabet, "ab", "▁ab"], [("a", "b"), ("▁", "ab")],
                  unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # fmt: skip
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>"])
    backend.add_tokens([AddedToken("<x>", special=False, normalized=False, lstrip=True)])
    texts = ["ab ab", "abé ab", "ab <x> ab <s>", ""]
    same_without_dropout(backend, *texts)
    dropout = BpeDropout(backend)
    for seed in range(20):
        for text in texts:
            ids = dropout.sample(text, 0.5, Random(seed))
            whole = backend.decode(backend.encode(text, add_special_tokens=False).ids, skip_special_tokens=False)
            assert backend.decode(ids, skip_special_tokens=False) == whole


def test_padding_and_truncation_of_the_file_have_no_say() -> None:
    backend = bpe(["a", "b", "ab"], [("a", "b")])
    backend.enable_padding(length=9)
    backend.enable_truncation(max_length=1)
    assert BpeDropout(backend).sample("abab", 0, Random(1)) == [2, 2]
