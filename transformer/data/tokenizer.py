"""Subword tokenizers: texts to token ids and back, trained on the training texts, kept in one JSON file."""

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self, assert_never

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from transformer.data.tokenizer_config import BpeConfig, ByteConfig, CharConfig, TokenizerConfig, UnigramConfig

logger = logging.getLogger(__name__)

# The 256 characters that stand for the 256 bytes in byte-level vocabularies (Radford et al. 2019, GPT-2).
BYTE_ALPHABET = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))


class SpecialTokens(NamedTuple):
    """Names of tokens with a meaning of their own; `unknown` is None where no text is out of vocabulary."""

    pad: str = "<pad>"
    begin: str = "<s>"
    end: str = "</s>"
    unknown: str | None = "<unk>"


class Tokenizer:
    """Cuts texts into token ids and puts them together again.

    Trained here, ``<pad>`` is 0, ``<s>`` 1, ``</s>`` 2 and ``<unk>`` 3. Texts never become special tokens:
    ``</s>`` in a text is text. Begin and end are never added here, whatever the tokenizer file says; whoever
    builds a batch adds them.

    Args:
        backend: The tokenizer of the ``tokenizers`` library; its own padding and truncation are switched off.
        special_tokens: What the special tokens are called in `backend`.

    Raises:
        ValueError: A special token is not in the vocabulary.
    """

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: SpecialTokens | None = None) -> None:
        names = SpecialTokens() if special_tokens is None else special_tokens
        # The first is no part of the saved file, the others may be, and cutting texts must not go unnoticed.
        backend.encode_special_tokens = True
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self.special_tokens = names
        self.pad_id = _id_of(backend, "pad", names.pad)
        self.bos_id = _id_of(backend, "begin", names.begin)
        self.eos_id = _id_of(backend, "end", names.end)
        self.unk_id = None if names.unknown is None else _id_of(backend, "unknown", names.unknown)
        specials = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
        # An unknown token is a gap in the text and stays visible; the others are no text.
        self._silent = (specials | {self.pad_id, self.bos_id, self.eos_id}) - {self.unk_id}

    @classmethod
    def train(cls, config: TokenizerConfig, texts: Iterable[str]) -> Self:
        """Learn a vocabulary from `texts`. The same settings and texts give the same file, byte for byte."""
        match config:
            case BpeConfig():
                backend = _train_bpe(config, texts)
            case UnigramConfig():
                backend = _train_unigram(config, texts)
            case CharConfig():
                backend = _collect_characters(config, texts)
            case ByteConfig():
                backend = _symbols(BYTE_ALPHABET, config.normalization)
                backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
                backend.decoder = decoders.ByteLevel()
            case _:
                assert_never(config)
        unused = -backend.get_vocab_size() % config.pad_vocab_to_multiple_of
        backend.add_special_tokens([f"<unused{i}>" for i in range(unused)])
        return cls(backend)

    @classmethod
    def load(cls, path: str | Path, special_tokens: SpecialTokens | None = None) -> Self:
        """Read a ``tokenizer.json``, ours or anybody's.

        Args:
            path: The file.
            special_tokens: What its special tokens are called; None stands for our own names.

        Raises:
            ValueError: The file is missing, is no tokenizer, or lacks a special token.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"The tokenizer file {str(path)!r} cannot be read: {error}.") from error
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"The file {str(path)!r} is not a `tokenizers` JSON file: {error}.") from error
        try:
            return cls(backend, special_tokens)
        except ValueError as error:
            raise ValueError(f"In {str(path)!r}: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write a ``tokenizer.json`` in the format of the ``tokenizers`` library."""
        Path(path).write_text(self._backend.to_str(pretty=True) + "\n", encoding="utf-8", newline="\n")

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special and unused ones included: ids go from 0 to one less."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without begin and end."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without begin and end, computed on all cores."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`. Special tokens other than ``<unk>`` and negative ids (padding) are left out.

        Raises:
            ValueError: An id is not below `vocab_size`.
        """
        return self._backend.decode(self._visible(ids), skip_special_tokens=False)

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each row of `ids`, as by :meth:`decode`."""
        return self._backend.decode_batch([self._visible(row) for row in ids], skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens with these ids as the vocabulary spells them, special ones included; for looking at."""
        pieces = [self._backend.id_to_token(index) for index in self._checked(ids)]
        assert all(piece is not None for piece in pieces)
        return [piece for piece in pieces if piece is not None]

    def _visible(self, ids: Sequence[int]) -> list[int]:
        return [index for index in self._checked(ids) if index not in self._silent]

    def _checked(self, ids: Sequence[int]) -> list[int]:
        largest = max(ids, default=0)
        if largest >= self.vocab_size:
            raise ValueError(f"Token ids must be below the vocabulary size ({self.vocab_size}), but one is {largest}.")
        return [index for index in ids if index >= 0]


def _id_of(backend: tokenizers.Tokenizer, role: str, name: str) -> int:
    index = backend.token_to_id(name)
    if index is None:
        specials = [token.content for token in backend.get_added_tokens_decoder().values() if token.special]
        raise ValueError(
            f"The `{role}` token {name!r} is not in the vocabulary; the special tokens there are "
            f"{', '.join(map(repr, specials)) or 'none'}."
        )
    return index


def _special_names() -> list[str]:
    return [name for name in SpecialTokens() if name is not None]


def _normalizer(form: Literal["none", "nfc", "nfkc"]) -> normalizers.Normalizer | None:
    match form:
        case "none":
            return None
        case "nfc":
            return normalizers.NFC()
        case "nfkc":
            return normalizers.NFKC()
        case _:
            assert_never(form)


def _symbols(symbols: Sequence[str], normalization: Literal["none", "nfc", "nfkc"]) -> tokenizers.Tokenizer:
    """A tokenizer of single symbols: byte-pair encoding without merges."""
    vocabulary = {symbol: index for index, symbol in enumerate([*_special_names(), *symbols])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=SpecialTokens().unknown))
    backend.add_special_tokens(_special_names())
    if (normalizer := _normalizer(normalization)) is not None:
        backend.normalizer = normalizer
    return backend


def _collect_characters(config: CharConfig, texts: Iterable[str]) -> tokenizers.Tokenizer:
    normalizer = _normalizer(config.normalization)
    characters: set[str] = set()
    for text in texts:
        characters.update(text if normalizer is None else normalizer.normalize_str(text))
    if not characters:
        raise ValueError("A character vocabulary needs training text, but there is not one character.")
    backend = _symbols(sorted(characters), config.normalization)
    backend.decoder = decoders.Fuse()
    return backend


def _byte_level(
    model: models.Model, config: BpeConfig | UnigramConfig, texts: Iterable[str], trainer: trainers.Trainer
) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    if (normalizer := _normalizer(config.normalization)) is not None:
        backend.normalizer = normalizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if config.split_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    else:
        backend.pre_tokenizer = byte_level
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(iter(texts), trainer)
    if (size := backend.get_vocab_size()) != config.vocab_size:
        logger.warning("`vocab_size` is %d, but these texts give %d tokens: that is the size.", config.vocab_size, size)
    return backend


def _trainable_size(config: BpeConfig | UnigramConfig) -> int:
    return max(config.vocab_size, len(_special_names()) + len(BYTE_ALPHABET))


def _train_bpe(config: BpeConfig, texts: Iterable[str]) -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=_trainable_size(config),
        min_frequency=2,
        special_tokens=_special_names(),
        initial_alphabet=list(BYTE_ALPHABET),
        show_progress=False,
    )
    return _byte_level(models.BPE(), config, texts, trainer)


def _train_unigram(config: UnigramConfig, texts: Iterable[str]) -> tokenizers.Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=_trainable_size(config),
        unk_token=SpecialTokens().unknown,
        special_tokens=_special_names(),
        initial_alphabet=list(BYTE_ALPHABET),
        show_progress=False,
    )
    return _in_fixed_order(_byte_level(models.Unigram(), config, texts, trainer))


def _in_fixed_order(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same unigram vocabulary, the same in every process.

    The trainer visits words and characters in an order that differs between processes. That moves scores in
    their last bits, and gives the bytes it never saw scores of the lowest plus 0.0001, 0.0002, ... in random
    order; here these get the lowest score itself.
    """
    content = json.loads(backend.to_str())
    num_special = len(_special_names())
    specials, learned = content["model"]["vocab"][:num_special], content["model"]["vocab"][num_special:]
    lowest = min(score for _, score in learned)
    vocabulary = []
    for piece, score in learned:
        steps = (score - lowest) * 10_000
        is_unseen_byte = len(piece) == 1 and steps < len(BYTE_ALPHABET) and abs(steps - round(steps)) < 1e-6
        vocabulary.append([piece, round(lowest if is_unseen_byte else score, 9)])
    vocabulary.sort(key=lambda entry: (-entry[1], entry[0]))
    content["model"]["vocab"] = [*specials, *vocabulary]
    return tokenizers.Tokenizer.from_str(json.dumps(content))
