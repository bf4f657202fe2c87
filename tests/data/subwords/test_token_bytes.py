"""The bytes of tokens, against what the tokenizer decodes."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from transformer.data.subwords.config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    SpecialTokens,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)
from transformer.data.subwords.token_bytes import token_bytes
from transformer.data.subwords.tokenizer import Tokenizer

TEXTS = [f"the cat number {n} sät on the mat, and «{n + 1}» others — 犬も — did not" for n in range(90, 140)]
SYMBOLS = ("<br>", "éaé", "Ġx", "a b")
CONFIGS = [
    BpeConfig(vocab_size=320, user_symbols=SYMBOLS),
    BpeConfig(vocab_size=320, user_symbols=SYMBOLS, units="characters"),
    UnigramConfig(vocab_size=320, user_symbols=SYMBOLS),
    WordPieceConfig(vocab_size=560, user_symbols=SYMBOLS),
    CharConfig(user_symbols=SYMBOLS),
    CharConfig(user_symbols=SYMBOLS, byte_fallback=True),
    ByteConfig(user_symbols=SYMBOLS),
]
ALPHABET = "".join(sorted(set("".join(TEXTS)))) + "éĠx<>br \n\t😀ж" + chr(0x301)


def by_name(config: TokenizerConfig) -> str:
    variant = {"characters": "_of_characters", True: "_with_bytes"}
    return config.name + variant.get(getattr(config, "units", getattr(config, "byte_fallback", None)), "")


def random_texts(seed: int) -> list[str]:
    random = Random(seed)
    words = [word for text in TEXTS[:5] for word in text.split(" ")] + [*SYMBOLS, "  ", "</s>"]
    texts = ["", " ", " the", "cat ", "<unk>"]
    for _ in range(150):
        texts.append("".join(random.choices(ALPHABET, k=random.randrange(12))))
        texts.append(" ".join(random.choices(words, k=random.randrange(8))))
    return texts


def joined(texts: Sequence[bytes | None], ids: Sequence[int]) -> bytes:
    return b"".join(texts[index] or b"" for index in ids)


@pytest.mark.parametrize("config", CONFIGS, ids=by_name)
def test_bytes_of_a_texts_tokens_are_its_utf8(config: TokenizerConfig) -> None:
    tokenizer = Tokenizer.train(config, TEXTS, ["<2de>"])
    texts = token_bytes(tokenizer)
    assert len(texts) == tokenizer.vocab_size
    for text in random_texts(1):
        ids = tokenizer.encode(text)
        decoded = tokenizer.decode(ids)
        assert joined(texts, ids).decode() == decoded
        if config not in (CONFIGS[4],):  # characters without bytes have unknown ones
            assert decoded == text


@pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[2], CONFIGS[3], CONFIGS[6]], ids=by_name)
def test_bytes_of_any_tokens_are_the_text_that_they_decode_to(config: TokenizerConfig) -> None:
    tokenizer = Tokenizer.train(config, TEXTS, ["<2de>"])
    texts, random = token_bytes(tokenizer), Random(2)
    for _ in range(300):
        ids = random.choices(range(tokenizer.vocab_size), k=random.randrange(10))
        assert joined(texts, ids).decode(errors="replace") == tokenizer.decode(ids)


def test_special_tokens_and_tags_add_nothing_but_an_unknown_token_does() -> None:
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=300, pad_vocab_to_multiple_of=64), TEXTS, ["<2de>"])
    texts = token_bytes(tokenizer)
    assert texts[:4] == [None, None, None, b"<unk>"]
    assert texts[tokenizer.tag_id("<2de>")] is None
    assert tokenizer.vocab_size % 64 == 0
    assert texts[-1] is None


PIECES = [
    "the",
    "cat",
    "s",
    "a",
    "t",
    "e",
    "h",
    "c",
    ".",
    ",",
    "n't",
    "##",
    "n",
    "'",
    "<0x41>",
    "<0xe2>",
    "<0xZZ>",
    "é",
]
NAMES = SpecialTokens().names


def foreign(marks: Sequence[str], decoder: decoders.Decoder | None) -> Tokenizer:
    """A vocabulary of others: PIECES, plain and with each mark."""
    pieces = [mark.format(piece) for mark in ("{}", *marks) for piece in PIECES]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys([*NAMES, *pieces]))}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(NAMES)
    if decoder is not None:
        backend.decoder = decoder
    return Tokenizer(backend)


LLAMA = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


@pytest.mark.parametrize(
    ("marks", "decoder", "left_out_before", "left_out_after"),
    [
        (["▁{}"], decoders.Metaspace(), " ", ""),
        (["▁{}"], decoders.Metaspace(prepend_scheme="never"), "", ""),
        (["▁{}"], LLAMA, " ", ""),
        (["▁{}"], decoders.Sequence([decoders.Replace(Regex("▁+"), " "), decoders.Fuse()]), "", ""),
        (["▁{}"], decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]), "", ""),
        (["##{}"], decoders.WordPiece(cleanup=True), " ", ""),
        (["##{}"], decoders.WordPiece(cleanup=False), " ", ""),
        (["{}</w>"], decoders.BPEDecoder(), "", " "),
        ([], None, " ", ""),
    ],
    ids=["metaspace", "metaspace_never", "llama", "regex", "strip_each", "bert", "bert_plain", "bpe_suffix", "none"],
)
def test_files_of_others(
    marks: list[str], decoder: decoders.Decoder | None, left_out_before: str, left_out_after: str, tmp_path: Path
) -> None:
    foreign(marks, decoder).save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path)
    texts, random = token_bytes(tokenizer), Random(3)
    for _ in range(400):
        ids = random.choices(range(tokenizer.vocab_size), k=random.randrange(1, 8))
        ids = [index for index in ids if texts[index] not in (None, b"\xe2")]
        if ids and tokenizer.pieces(ids)[0].startswith("##"):
            continue  # such a piece begins no text
        text = joined(texts, ids).decode()
        assert tokenizer.decode(ids) in (text, text.removeprefix(left_out_before), text.removesuffix(left_out_after))


def test_byte_tokens_of_others_are_bytes() -> None:
    tokenizer = foreign([], LLAMA)
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    texts = token_bytes(tokenizer)
    assert [texts[ids[piece]] for piece in ("<0x41>", "<0xe2>", "<0xZZ>")] == [b"A", b"\xe2", b"<0xZZ>"]


def test_symbols_of_others_stay_as_they_are() -> None:
    backend = foreign(["▁{}"], LLAMA)._backend
    backend.add_tokens([AddedToken("▁▁", normalized=True)])
    tokenizer = Tokenizer(backend)
    index = tokenizer.symbols["▁▁"]
    assert token_bytes(tokenizer)[index] == "▁▁".encode()
    assert tokenizer.decode([index]) == "▁▁"


def test_a_decoder_that_looks_at_neighbours_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^Phrases need a vocabulary whose tokens each have a text, .* is 'CTC'\.$"):
        token_bytes(foreign([], decoders.CTC()))
