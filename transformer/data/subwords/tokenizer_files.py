"""The tokenizers of a run or a bundle, as files in its folder, and how a run comes by them."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers

from transformer.data.batches.pairs import PairTokenizers
from transformer.data.preparation.cache import Cache
from transformer.data.subwords.config import FileTokenizerConfig, SpecialTokens, TokenizerConfig
from transformer.data.subwords.tokenizer import Tokenizer

TOKENIZER = "tokenizer.json"
TARGET_TOKENIZER = "target_tokenizer.json"  # beside tokenizer.json, then the source's, where they are separate


def save_tokenizers(folder: Path, source: Tokenizer, target: Tokenizer) -> None:
    """One file for a joint vocabulary, two for separate ones."""
    source.save(folder / TOKENIZER)
    (folder / TARGET_TOKENIZER).unlink(missing_ok=True)  # of an earlier save to the same folder
    if target is not source:
        target.save(folder / TARGET_TOKENIZER)


def load_tokenizers(folder: Path, special_tokens: SpecialTokens | None = None) -> PairTokenizers:
    """Source and target tokenizer; the same object for a joint vocabulary.

    Args:
        folder: where they are.
        special_tokens: what their special tokens are called; None stands for our own names.
    """
    source = Tokenizer.load(folder / TOKENIZER, special_tokens)
    separate = folder / TARGET_TOKENIZER
    return PairTokenizers(source, Tokenizer.load(separate, special_tokens) if separate.exists() else source)


def obtain_tokenizers(
    config: TokenizerConfig, tags: Sequence[str], texts: Sequence[Iterable[str]], key: Sequence[str], cache: Cache
) -> PairTokenizers:
    """Read the tokenizers, or learn them from training texts unless the cache has them.

    Args:
        config: what kind of vocabulary.
        tags: tokens to be put before sources.
        texts: of each side; one side for a language model. Read only if a vocabulary is to be learnt.
        key: changes when the texts do.
        cache: where learnt vocabularies are kept.

    Raises:
        ValueError: a file is missing or does not fit, or there is nothing to learn from.
    """
    if isinstance(config, FileTokenizerConfig):
        return PairTokenizers(*Tokenizer.from_file_config(config, tags))

    def build(folder: Path) -> None:
        if config.joint or len(texts) == 1:
            source = target = Tokenizer.train(config, itertools.chain.from_iterable(texts), tags)
        else:
            source = Tokenizer.train(config, texts[0], tags)
            target = Tokenizer.train(config, texts[1])
        save_tokenizers(folder, source, target)

    depends_on = {
        "library": tokenizers.__version__,
        "config": config.model_dump(mode="json", exclude={"dropout"}),
        "tags": list(tags),
        "texts": list(key),
    }
    return load_tokenizers(cache.get("tokenizer", depends_on, build))
