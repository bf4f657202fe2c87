"""Tokenizers: training, special ids, exact texts, files."""

import logging
from pathlib import Path
from random import Random

import pytest
import tokenizers
from tokenizers import models

from transformer.data.subwords.config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    FileTokenizerConfig,
    SpecialTokens,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)
from transformer.data.subwords.tokenizer import Tokenizer

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


def test_a_file_with_random_merges_cuts_texts_the_same_way_every_time(tmp_path: Path) -> None:
    vocabulary = {name: index for index, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "a", "b", "ab"])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")], dropout=0.9))
    backend.save(str(tmp_path / "t.json"))
    tokenizer = Tokenizer.load(tmp_path / "t.json")
    assert {tuple(tokenizer.encode("abab")) for _ in range(50)} == {(6, 6)}


def test_fingerprints_are_equal_for_equal_files_alone(tmp_path: Path) -> None:
    settings = [BpeConfig(vocab_size=270), BpeConfig(vocab_size=271), BpeConfig(vocab_size=270, normalization="nfc")]
    trained = [Tokenizer.train(config, TEXTS) for config in settings]
    trained.append(Tokenizer.train(settings[0], TEXTS, ["<2de>"]))
    prints = [tokenizer.fingerprint() for tokenizer in trained]
    assert len(set(prints)) == 4
    assert all(len(fingerprint) == 32 for fingerprint in prints)
    trained[0].save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert loaded.fingerprint() == Tokenizer.train(settings[0], TEXTS).fingerprint() == prints[0]
    # What begins and ends a text is no part of the file, but of what the ids mean.
    swapped = Tokenizer.load(tmp_path / "t.json", SpecialTokens(begin="</s>", end="<s>"))
    assert swapped.fingerprint() != prints[0]


def test_what_a_vocabulary_says_of_itself() -> None:
    assert [Tokenizer.train(config, TEXTS).kind for config in CONFIGS] == [
        *("BPE", "BPE", "Unigram", "WordPiece", "BPE", "BPE", "BPE")
    ]
    assert Tokenizer.train(ByteConfig(), []).normalization is None
    assert Tokenizer.train(ByteConfig(normalization="nfkc"), []).normalization == "NFKC"


def file_config(path: Path, **settings: object) -> FileTokenizerConfig:
    return FileTokenizerConfig.from_plain({"name": "file", "path": str(path), **settings})


def test_files_of_one_vocabulary_and_of_two(tmp_path: Path) -> None:
    first = foreign(tmp_path / "first.json", "[PAD]", "[CLS]", "[SEP]", "[UNK]")
    second = foreign(tmp_path / "second.json", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")
    names = FOREIGN_NAMES.to_plain()
    source, target = Tokenizer.from_file_config(file_config(first, special_tokens=names))
    assert source is target
    assert source.vocab_size == 6
    source, target = Tokenizer.from_file_config(
        file_config(first, target_path=str(second), special_tokens=names), ["<2de>"]
    )
    assert (source.vocab_size, target.vocab_size) == (7, 7)
    assert (source.tags, target.tags) == ({"<2de>": 6}, {"[MASK]": 3})  # tags stand before sources
    assert (source.encode("a b"), target.encode("a b")) == ([4, 5], [5, 6])


def test_tags_that_a_file_lacks_are_added_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = foreign(tmp_path / "t.json", "<pad>", "<s>", "</s>", "<2en>", "<unk>")
    with caplog.at_level(logging.INFO):
        tokenizer, _ = Tokenizer.from_file_config(file_config(path), ["<2de>", "<2en>", "<2fr>"])
    assert caplog.messages == [f"{path}: tags added to the vocabulary, now 9 tokens: '<2de>', '<2fr>'."]
    assert tokenizer.tags == {"<2en>": 3, "<2de>": 7, "<2fr>": 8}
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert Tokenizer.load(path, tags=["<2en>"]).vocab_size == 7
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["a"], "The tag 'a' must be a token of its own, but is an ordinary token of the vocabulary"),
        (["</s>"], "The tag '</s>' must be a token of its own, but is a special token too"),
        (["<x>", "<x>"], "The tag '<x>' must be a token of its own, but is listed twice"),
    ],
)
def test_clashing_tags_are_refused_for_files(tags: list[str], message: str, tmp_path: Path) -> None:
    path = foreign(tmp_path / "t.json", "<pad>", "<s>", "</s>", "<unk>")
    with pytest.raises(ValueError, match=rf"t\.json': {message}"):
        Tokenizer.load(path, tags=tags)


def test_dropout_of_merges_needs_a_file_with_merges(tmp_path: Path) -> None:
    words = foreign(tmp_path / "words.json", "<pad>", "<s>", "</s>", "<unk>")
    Tokenizer.from_file_config(file_config(words))
    merges = tmp_path / "merges.json"
    Tokenizer.train(BpeConfig(vocab_size=280), TEXTS).save(merges)
    message = r"words\.json': BPE-dropout needs byte-pair encoding, but this vocabulary is WordLevel\."
    for settings in ({"path": str(words)}, {"path": str(merges), "target_path": str(words)}):
        with pytest.raises(ValueError, match=message):
            Tokenizer.from_file_config(FileTokenizerConfig.from_plain({**settings, "dropout": 0.1}))
    tokenizer, _ = Tokenizer.from_file_config(file_config(merges, dropout=0.5))
    ids = tokenizer.encode(TEXTS[0])
    assert len(tokenizer.sampled(TEXTS[0], 0.5, Random(1))) > len(ids)
    assert tokenizer.encode(TEXTS[0]) == ids


def test_control_tokens_among_the_pieces_of_a_foreign_model_are_not_cut_from_text(tmp_path: Path) -> None:
    pieces = [("<pad>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(piece, -3.0) for piece in ("▁", "<", "/", "s", ">", "▁a")]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=3))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    backend.add_special_tokens(["<pad>", "<s>", "</s>", "<unk>"])
    backend.encode_special_tokens = True
    assert backend.encode("a </s>").tokens == ["▁a", "▁", "</s>"]  # the fault
    backend.save(str(tmp_path / "t.json"))
    tokenizer = Tokenizer.load(tmp_path / "t.json")
    ids = tokenizer.encode("a </s>")
    assert tokenizer.pieces(ids) == ["▁a", "▁", "<", "/", "s", ">"]
    assert tokenizer.encode_batch(["a </s>"]) == [ids]
    assert tokenizer.decode(ids) == "a </s>"

    vocabulary = {name: index for index, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "<", "/", "s", ">"])}
    whole = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    whole.save(str(tmp_path / "t.json"))
    tokenizer = Tokenizer.load(tmp_path / "t.json")
    assert tokenizer.encode("</s>") == [4, 5, 6, 7]
    assert tokenizer.sampled("</s>", 0, Random(1)) == [4, 5, 6, 7]


def test_a_folder_with_a_tokenizer_stands_for_its_file(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path).fingerprint() == tokenizer.fingerprint()
    with pytest.raises(ValueError, match=r"nowhere' cannot be read"):
        Tokenizer.load(tmp_path / "nowhere")
