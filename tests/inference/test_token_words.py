"""Which words tokens spell, for every kind of vocabulary."""

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from transformer.data.subwords.config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    SpecialTokens,
    UnigramConfig,
    WordPieceConfig,
)
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.inference.token_words import words_of_tokens

TEXTS = ["ein hund läuft über die straße", "zwei hunde laufen", "drei straßen, vier hunde"] * 4


def test_bytes_of_a_character_belong_to_its_word():
    tokenizer = Tokenizer.train(ByteConfig(), [])
    ids = tokenizer.encode("aß €")
    assert len(ids) == 1 + 2 + 1 + 3
    assert words_of_tokens(tokenizer, ids, "aß €") == [[0], [0], [0], [], [1], [1], [1]]
    assert words_of_tokens(tokenizer, ids, "aß €", limit=2) == [[0], [0]]


def test_a_token_of_a_space_and_half_a_character_belongs_to_the_word_after_the_space():
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=261), [" ä ö ü ß ä ö"] * 3)
    ids = tokenizer.encode("a ö")
    assert tokenizer.pieces(ids)[:2] == ["a", "ĠÃ"]
    assert words_of_tokens(tokenizer, ids, "a ö") == [[0], [1], [1]]


@pytest.mark.parametrize(
    "config",
    [
        CharConfig(),
        ByteConfig(),
        BpeConfig(vocab_size=300),
        BpeConfig(vocab_size=300, units="characters"),
        UnigramConfig(vocab_size=300),
        WordPieceConfig(vocab_size=560),
    ],
    ids=["char", "byte", "bpe", "character-bpe", "unigram", "wordpiece"],
)
def test_every_kind_of_vocabulary(config):
    """Words are found again from the pieces of each word, counted without decoding more than that word."""
    tokenizer = Tokenizer.train(config, TEXTS)
    text = "ein straßenhund läuft,  über zwei"
    ids = tokenizer.encode(text)
    words = words_of_tokens(tokenizer, ids, text)
    assert [number for numbers in words for number in numbers] == sorted(n for numbers in words for n in numbers)
    for number, word in enumerate(text.split()):
        own = [token for token, numbers in zip(ids, words, strict=True) if number in numbers]
        assert tokenizer.decode(own).strip() == word
    assert {tokenizer.decode([token]).strip() for token, numbers in zip(ids, words, strict=True) if not numbers} <= {""}


def test_tokens_that_the_tokenizer_would_not_choose():
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=300), TEXTS)
    usual = tokenizer.encode("zwei hunde")
    spelt = [index for character in "zwei hunde" for index in tokenizer.encode(character)]
    assert len(spelt) == 10 > len(usual)
    assert words_of_tokens(tokenizer, spelt, "zwei hunde") == [[0]] * 4 + [[]] + [[1]] * 5


def test_a_token_of_two_words_belongs_to_both():
    tokenizer = Tokenizer.train(CharConfig(user_symbols=("b c",)), ["abcd "])
    ids = tokenizer.encode("ab cd")
    assert tokenizer.pieces(ids) == ["a", "b c", "d"]
    assert words_of_tokens(tokenizer, ids, "ab cd") == [[0], [0, 1], [1]]


def test_normalisation_that_makes_words():
    """NFKC makes a space and a mark of U+00A8: three words are read, but the text has two."""
    tokenizer = Tokenizer.train(ByteConfig(normalization="nfkc"), [])
    text = "x\u00a8y z"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids).split() == ["x", "\u0308y", "z"]
    assert words_of_tokens(tokenizer, ids, text) == [[0], [], [0], [0], [0], [], [1]]


def test_a_vocabulary_that_takes_punctuation_for_words():
    specials = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {word: index for index, word in enumerate([*specials, "it", "'", "s", "a", "dog", "!"])}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    tokenizer = Tokenizer(backend, SpecialTokens())
    ids = tokenizer.encode("It's a dog!")
    assert tokenizer.decode(ids) == "it ' s a dog !"
    assert words_of_tokens(tokenizer, ids, "It's a dog!") == [[0], [0], [0], [1], [2], [2]]


def test_unknown_characters_count_as_long_as_they_are_in_words():
    tokenizer = Tokenizer.train(CharConfig(byte_fallback=False), ["ab "])
    assert words_of_tokens(tokenizer, tokenizer.encode("ax b"), "ax b") == [[0], [0], [], [1]]
    assert words_of_tokens(tokenizer, tokenizer.encode("a\tb"), "a\tb") is None


def test_tags_spell_nothing():
    tokenizer = Tokenizer.train(CharConfig(), ["ab "], tags=["<2de>"])
    ids = [tokenizer.tag_id("<2de>"), *tokenizer.encode("a b")]
    assert words_of_tokens(tokenizer, ids, "a b") == [[], [0], [], [1]]


@pytest.mark.parametrize("text", ["", " ", " \t "])
def test_blank_texts_have_no_words(text):
    tokenizer = Tokenizer.train(ByteConfig(), [])
    assert words_of_tokens(tokenizer, tokenizer.encode(text), text) == [[]] * len(text)
