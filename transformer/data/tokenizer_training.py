"""A tokenizer's vocabulary, learnt from texts: special tokens first, then pieces, symbols, tags and padding."""

import logging
from collections.abc import Iterable, Sequence
from typing import assert_never

import tokenizers
from tokenizers import normalizers

from transformer.data.added_tokens import add_symbols, add_tags, any_of, between, check_names, pad_vocabulary
from transformer.data.byte_vocabulary import BYTE_ALPHABET, learn_bpe, learn_unigram, learn_wordpiece, only_bytes
from transformer.data.character_vocabulary import learn_character_bpe, learn_characters
from transformer.data.thinning import EvenSample
from transformer.data.tokenizer_config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    SpecialTokens,
    UnigramConfig,
    WordPieceConfig,
)

logger = logging.getLogger(__name__)

SubwordConfig = BpeConfig | UnigramConfig | WordPieceConfig
TrainedConfig = SubwordConfig | CharConfig | ByteConfig


def train_backend(config: TrainedConfig, texts: Iterable[str], tags: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """Learn a vocabulary from `texts`, read once. The same arguments give the same tokenizer, byte for byte.

    Raises:
        ValueError: A tag or symbol is no token of its own; characters are to be learnt and there are none.
    """
    symbols = config.user_symbols
    check_names(SpecialTokens(), tags, symbols)
    normalizer = _normalizer(config)
    match config:
        case ByteConfig():
            backend = only_bytes(normalizer)
        case CharConfig():
            backend = learn_characters(config, _without(symbols, texts, normalizer), normalizer)
        case BpeConfig() | UnigramConfig() | WordPieceConfig():
            backend = _learn_subwords(config, texts, normalizer, num_tags=len(tags))
        case _:
            assert_never(config)
    add_symbols(backend, symbols)
    add_tags(backend, tags)
    if isinstance(config, SubwordConfig) and (size := backend.get_vocab_size()) != config.vocab_size:
        logger.warning("`vocab_size` is %d, but these texts give %d tokens: that is the size.", config.vocab_size, size)
    pad_vocabulary(backend, config.pad_vocab_to_multiple_of)
    return backend


def _learn_subwords(
    config: SubwordConfig, texts: Iterable[str], normalizer: normalizers.Normalizer | None, *, num_tags: int
) -> tokenizers.Tokenizer:
    symbols = config.user_symbols
    sample = EvenSample.of(texts, config.max_training_texts)
    kept = sample.texts
    if len(kept) < sample.num_seen:
        logger.info("The vocabulary is learnt from %d of %d texts, evenly spread.", len(kept), sample.num_seen)
    parts = list(_without(symbols, kept, normalizer)) if symbols else kept
    if isinstance(config, BpeConfig) and config.units == "characters":
        return learn_character_bpe(config, parts, normalizer, size=config.vocab_size - num_tags - len(symbols))
    # A symbol that is one ASCII character is a token already.
    size = config.vocab_size - num_tags - len(set(symbols).difference(BYTE_ALPHABET))
    match config:
        case BpeConfig():
            return learn_bpe(config, parts, normalizer, size=size)
        case UnigramConfig():
            return learn_unigram(config, parts, normalizer, size=size)
        case WordPieceConfig():
            return learn_wordpiece(config, parts, normalizer, size=size)
        case _:
            assert_never(config)


def _without(symbols: Sequence[str], texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Iterable[str]:
    """What is cut into pieces of these texts: all that is no symbol."""
    if not symbols:
        return texts
    return between(texts if normalizer is None else map(normalizer.normalize_str, texts), any_of(symbols))


def _normalizer(config: TrainedConfig) -> normalizers.Normalizer | None:
    match config.normalization:
        case "none":
            return None
        case "nfc":
            return normalizers.NFC()
        case "nfkc":
            return normalizers.NFKC()
        case _:
            assert_never(config.normalization)
