"""Tokens as people read them."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from transformer.attention_maps.token_texts import read_tokens
from transformer.data.subwords.config import BpeConfig, ByteConfig, CharConfig
from transformer.data.subwords.tokenizer import Tokenizer


def texts(tokenizer, text):
    return [token.text for token in read_tokens(tokenizer, tokenizer.encode(text))]


@pytest.fixture(scope="module")
def byte_tokenizer():
    return Tokenizer.train(ByteConfig(), [])


def test_byte_level_pieces_are_shown_as_their_text():
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=300), ["ein Bär und ein Mann"] * 9)
    [ein, bear] = read_tokens(tokenizer, tokenizer.encode("ein Bär"))
    assert (ein.piece, ein.text) == ("ein", "ein")
    assert (bear.piece, bear.text) == ("ĠBÃ¤r", "␣Bär")


def test_bytes_of_a_character_name_it_and_their_part(byte_tokenizer):
    assert texts(byte_tokenizer, "é你x") == ["é[1/2]", "é[2/2]", "你[1/3]", "你[2/3]", "你[3/3]", "x"]


def test_a_token_may_end_inside_of_a_character():
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=261), ["a你"] * 9)
    ids = tokenizer.encode("a你")
    assert len(ids) == 3  # one merge, of the first two bytes
    assert texts(tokenizer, "a你") == ["a你[1/3]", "你[2/3]", "你[3/3]"]


def test_bytes_that_are_no_character_are_shown_as_numbers(byte_tokenizer):
    ids = byte_tokenizer.encode("你a")
    assert [token.text for token in read_tokens(byte_tokenizer, [ids[0], ids[3]])] == ["<0xE4>", "a"]


def test_white_space_and_control_characters_have_signs(byte_tokenizer):
    assert texts(byte_tokenizer, "a \n\t\r\x07") == ["a", "␣", "⏎", "⇥", "␍", "<U+0007>"]


def test_a_mark_of_its_own_stands_on_a_circle():
    tokenizer = Tokenizer.train(CharConfig(normalization="none"), ["e\u0301ी"])
    assert texts(tokenizer, "e\u0301") == ["e", "◌\u0301"]
    whole = Tokenizer.train(CharConfig(normalization="none", user_symbols=("e\u0301",)), ["e\u0301x"])
    assert texts(whole, "e\u0301") == ["e\u0301"]


def test_special_tokens_are_spelt_and_part_the_text_on_both_sides(byte_tokenizer):
    first, *rest = byte_tokenizer.encode("你")
    shown = read_tokens(byte_tokenizer, [byte_tokenizer.bos_id, first, byte_tokenizer.eos_id, *rest])
    assert [token.text for token in shown] == ["<s>", "<0xE4>", "</s>", "<0xBD>", "<0xA0>"]
    assert [token.id for token in shown] == [1, first, 2, *rest]


def test_a_foreign_decoder_without_texts_of_single_tokens_gives_pieces():
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "ab": 4, "c": 5}
    backend = Backend(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.CTC()
    assert texts(Tokenizer(backend), "ab c") == ["ab", "c"]
