"""Tokenizers: training, special ids, exact texts, files."""

import json
import logging
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from transformer.data.tokenizer import Tokenizer
from transformer.data.tokenizer_config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    SpecialTokens,
    TokenizerConfig,
    UnigramConfig,
)

TEXTS = [f"the cat number {n} sat on the mat, and the {n + 1} others did not sit there" for n in range(90, 160)]
CONFIGS = [BpeConfig(vocab_size=300), UnigramConfig(vocab_size=300), CharConfig(), ByteConfig()]
BYTE_EXACT = [Tokenizer.train(config, TEXTS) for config in CONFIGS if not isinstance(config, CharConfig)]


def by_name(config: TokenizerConfig) -> str:
    return config.name


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


@pytest.mark.parametrize("tokenizer", BYTE_EXACT, ids=["bpe", "unigram", "byte"])
@given(text=st.text())
def test_byte_level_returns_every_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert 3 not in ids


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


def test_char_vocabulary_needs_text() -> None:
    with pytest.raises(ValueError, match="A character vocabulary needs training text"):
        Tokenizer.train(CharConfig(), ["", ""])


@pytest.mark.parametrize("make", [BpeConfig, UnigramConfig])
def test_split_digits_makes_every_digit_a_token(make: type[BpeConfig] | type[UnigramConfig]) -> None:
    texts = [f"{word} of {year}" for word in ("may", "june") for year in range(1900, 2100)]
    pieces = []
    for split in (True, False):
        tokenizer = Tokenizer.train(make(vocab_size=280, split_digits=split), texts)
        pieces.append(tokenizer.pieces(tokenizer.encode("2021")))
    assert pieces[0] == ["2", "0", "2", "1"]
    assert len(pieces[1]) < 4


def test_trained_size_is_honoured_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert Tokenizer.train(BpeConfig(vocab_size=280), TEXTS).vocab_size == 280
    assert caplog.records == []


@pytest.mark.parametrize(("multiple", "size"), [(1, 260), (8, 264), (64, 320), (130, 260)])
def test_vocabulary_is_padded_to_a_multiple(multiple: int, size: int, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(ByteConfig(pad_vocab_to_multiple_of=multiple), [])
    tokenizer.save(tmp_path / "t.json")
    for tok in (tokenizer, Tokenizer.load(tmp_path / "t.json")):
        assert tok.vocab_size == size
        assert tok.decode([*tok.encode("a"), *range(260, size)]) == "a"
        assert max(tok.encode("<unused0>")) < 260


@pytest.mark.parametrize(("form", "name"), [("none", None), ("nfc", "NFC"), ("nfkc", "NFKC")])
@pytest.mark.parametrize("make", [BpeConfig, UnigramConfig, CharConfig, ByteConfig])
def test_normalization(make: type[TokenizerConfig], form: str, name: str | None) -> None:
    text = "cafe\u0301 ﬁne ① Ａ"
    sizes = {"vocab_size": 300} if make in (BpeConfig, UnigramConfig) else {}
    tokenizer = Tokenizer.train(make(normalization=form, **sizes), [*TEXTS, text])
    assert tokenizer.decode(tokenizer.encode(text)) == (text if name is None else unicodedata.normalize(name, text))


@pytest.mark.parametrize("config", CONFIGS, ids=by_name)
def test_training_is_deterministic_across_processes(config: TokenizerConfig, tmp_path: Path) -> None:
    script = (
        "import json, sys; from transformer.data import config, tokenizer;"
        "kind, plain, texts = json.load(sys.stdin);"
        "tokenizer.Tokenizer.train(getattr(config, kind)(**plain), texts).save(sys.argv[1])"
    )
    sent = json.dumps([type(config).__name__, config.model_dump(), TEXTS])
    path = tmp_path / "other.json"
    subprocess.run([sys.executable, "-c", script, str(path)], input=sent.encode(), check=True)
    Tokenizer.train(config, iter(TEXTS)).save(tmp_path / "here.json")
    assert path.read_bytes() == (tmp_path / "here.json").read_bytes()


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    with pytest.raises(ValueError, match=r"below the vocabulary size \(260\), but one is 260\."):
        tokenizer.decode([5, 260])
    with pytest.raises(ValueError, match=r"below the vocabulary size \(260\), but one is 300\."):
        tokenizer.pieces([300])


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
    tokenizer = Tokenizer.load(path, SpecialTokens("[PAD]", "[CLS]", "[SEP]", "[UNK]"))
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
