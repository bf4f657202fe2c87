"""Tokenizers: training, special ids, exact texts, files."""

import json
import logging
from pathlib import Path
from random import Random

import pytest
import tokenizers
from tokenizers import models

from transformer.data.tokenizer import Tokenizer
from transformer.data.tokenizer_config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    FileTokenizerConfig,
    SpecialTokens,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)

TEXTS = [f"the cat number {n} sat on the mat, and the {n + 1} others did not sit there" for n in range(90, 160)]
CONFIGS = [
    BpeConfig(vocab_size=300),
    BpeConfig(vocab_size=300, units="characters"),
    UnigramConfig(vocab_size=300),
    WordPieceConfig(vocab_size=540),
    CharConfig(),
    CharConfig(byte_fallback=True),
    ByteConfig(),
]


def by_name(config: TokenizerConfig) -> str:
    variant = {"characters": "_of_characters", True: "_with_bytes"}
    return config.name + variant.get(getattr(config, "units", getattr(config, "byte_fallback", None)), "")


@pytest.mark.parametrize("config", CONFIGS, ids=by_name)
def test_special_tokens_have_fixed_ids(config: TokenizerConfig) -> None:
    tokenizer = Tokenizer.train(config, TEXTS)
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.pieces([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]


@pytest.mark.parametrize("config", CONFIGS, ids=by_name)
def test_special_tokens_in_a_text_stay_text_also_after_loading(config: TokenizerConfig, tmp_path: Path) -> None:
    text = "a </s><pad><unk> <s>"
    tokenizer = Tokenizer.train(config, [*TEXTS, text])
    tokenizer.save(tmp_path / "tokenizer.json")
    for tok in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        ids = tok.encode(text)
        assert min(ids) > 3
        assert tok.decode([1, *ids, 2, 0, 0]) == text


@pytest.mark.parametrize("config", CONFIGS, ids=by_name)
def test_loading_gives_the_same_tokenizer(config: TokenizerConfig, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(config, TEXTS)
    tokenizer.save(tmp_path / "a.json")
    loaded = Tokenizer.load(tmp_path / "a.json")
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)


@pytest.mark.parametrize("config", CONFIGS, ids=by_name)
def test_batches_equal_single_texts(config: TokenizerConfig) -> None:
    tokenizer = Tokenizer.train(config, TEXTS)
    texts = ["the mat", "", "a cat sat", " "]
    ids = tokenizer.encode_batch(texts)
    assert ids == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(ids) == texts
    assert ids[1] == []


def test_byte_vocabulary_is_one_token_a_byte() -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    assert tokenizer.vocab_size == 260
    for text in ("abc", "é", "中", "a\n b"):
        assert len(tokenizer.encode(text)) == len(text.encode())
    assert len({tokenizer.encode(chr(code))[0] for code in range(128)}) == 128


def test_char_vocabulary_is_the_characters_in_order_and_others_are_unknown() -> None:
    tokenizer = Tokenizer.train(CharConfig(), ["ba", "\nü a"])
    assert tokenizer.vocab_size == 4 + 5
    assert tokenizer.pieces(range(4, 9)) == ["\n", " ", "a", "b", "ü"]
    assert tokenizer.encode("a\n\nzzü") == [6, 4, 4, 3, 3, 8]
    # An unknown character is shown, not swallowed.
    assert tokenizer.decode([6, 3, 8]) == "a<unk>ü"


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    with pytest.raises(ValueError, match=r"below the vocabulary size \(260\), but one is 260\."):
        tokenizer.decode([5, 260])
    with pytest.raises(ValueError, match=r"below the vocabulary size \(260\), but one is 300\."):
        tokenizer.pieces([300])


FOREIGN_NAMES = SpecialTokens(pad="[PAD]", begin="[CLS]", end="[SEP]", unknown="[UNK]")


def foreign(path: Path, *names: str) -> Path:
    vocabulary = {name: index for index, name in enumerate([*names, "a", "b"])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=names[-1]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(list(names))
    backend.enable_padding(length=8, pad_id=0, pad_token=names[0])
    backend.enable_truncation(max_length=2)
    backend.save(str(path))
    return path


def test_foreign_file_neither_pads_nor_truncates(tmp_path: Path) -> None:
    path = foreign(tmp_path / "t.json", "[PAD]", "[CLS]", "[SEP]", "[UNK]")
    tokenizer = Tokenizer.load(path, FOREIGN_NAMES)
    assert tokenizer.encode("a b a b a") == [4, 5, 4, 5, 4]
    assert tokenizer.encode_batch(["a b a b a", "b"]) == [[4, 5, 4, 5, 4], [5]]
    assert tokenizer.decode([1, 4, 5, 2, 0]) == "a b"


def test_missing_special_token_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = foreign(tmp_path / "t.json", "[PAD]", "<s>", "</s>", "<unk>")
    with pytest.raises(
        ValueError, match=r"t\.json': The `pad` token '<pad>' is not in the vocabulary; .* '\[PAD\]', '<s>'"
    ):
        Tokenizer.load(path)


def test_tokenizer_without_unknown_token(tmp_path: Path) -> None:
    path = foreign(tmp_path / "t.json", "<pad>", "<s>", "</s>")
    assert Tokenizer.load(path, SpecialTokens(unknown=None)).unk_id is None


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.json' cannot be read"):
        Tokenizer.load(tmp_path / "nothing.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match=r"bad\.json' is not a `tokenizers` JSON file"):
        Tokenizer.load(tmp_path / "bad.json")
