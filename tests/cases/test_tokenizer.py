"""Reported tokenizer faults, by the id of their case."""

import logging
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, processors

from transformer.data.subwords.config import BpeConfig, ByteConfig, CharConfig, UnigramConfig, WordPieceConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_training import TrainedConfig

ASCII_TEXTS = ["Only plain letters here, 123 digits and some ./ signs.", "Another plain sentence."] * 20
ROUND_TRIP = [
    "123 fdsafsfa ~_! ./",
    "  two  leading and trailing  ",
    "cafe\u0301 caf\u00e9",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 ok",
    "a\u2581b",
    "tab\there",
    "\u4e2d\u6587",
    "\ufb01ne\u2460\uff21",
    "",
]


KINDS: dict[str, tuple[type[TrainedConfig], dict[str, Any]]] = {
    "bpe": (BpeConfig, {"vocab_size": 300}),
    "bpe of characters": (BpeConfig, {"vocab_size": 300, "units": "characters"}),
    "unigram": (UnigramConfig, {"vocab_size": 300}),
    "wordpiece": (WordPieceConfig, {"vocab_size": 540}),
    "char with bytes": (CharConfig, {"byte_fallback": True}),
    "byte": (ByteConfig, {}),
}


@pytest.mark.parametrize("form", ["none", "nfc", "nfkc"])
@pytest.mark.parametrize("kind", KINDS)
def test_TOK_01_round_trip(kind: str, form: str) -> None:
    make, settings = KINDS[kind]
    tokenizer = Tokenizer.train(make(**settings, normalization=form), ASCII_TEXTS)
    for text in ROUND_TRIP:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == (text if form == "none" else unicodedata.normalize(form.upper(), text))
        assert tokenizer.unk_id not in ids


def test_TOK_03_a_template_in_the_file_adds_nothing(tmp_path: Path) -> None:
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "hallo": 4}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("hallo").ids == [1, 4, 2]

    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.encode("hallo") == [4]
    assert tokenizer.encode_batch(["hallo", "hallo"]) == [[4], [4]]


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (BpeConfig(vocab_size=50), 256 + 4),
        (BpeConfig(vocab_size=50, units="characters"), 256 + 4),
        (UnigramConfig(vocab_size=50), 256 + 4),
        (WordPieceConfig(vocab_size=50), 2 * 256 + 4),
    ],
)
def test_TOK_04_b_vocabulary_smaller_than_the_byte_alphabet(
    config: TrainedConfig, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.train(config, ["a b"])
    assert tokenizer.vocab_size == size
    assert caplog.messages == [f"`vocab_size` is 50, but these texts give {size} tokens: that is the size."]


def test_TOK_05_the_ignored_label_is_padding_to_the_decoder(tmp_path: Path) -> None:
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "x": 4, "y": 5, "z": 6, "a": 7, "b": 8}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    labels = [[7, 8, 2, -100, -100], [7, 2, -100, -100, -100]]
    assert tokenizer.decode_batch(labels) == ["a b", "a"]
    assert [tokenizer.decode(row) for row in labels] == ["a b", "a"]
