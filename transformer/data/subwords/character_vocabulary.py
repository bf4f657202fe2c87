"""Vocabularies over the characters of the training texts; other characters are spelt by bytes, or unknown."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from transformer.data.subwords.added_tokens import between
from transformer.data.subwords.config import BpeConfig, CharConfig, SpecialTokens

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))

# Words as in GPT-2 (Radford et al. 2019): a word takes the space before it; every character is in exactly one.
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def learn_characters(
    config: CharConfig, texts: Iterable[str], normalizer: normalizers.Normalizer | None
) -> tokenizers.Tokenizer:
    """One token a character of `texts`, in the order of their code points.

    Raises:
        ValueError: There is not one character.
    """
    characters = sorted(_count(texts, normalizer))
    if not characters:
        raise ValueError("A character vocabulary needs training text, but there is not one character.")
    names = SpecialTokens().names
    symbols = [*names, *(BYTE_TOKENS if config.byte_fallback else ()), *characters]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    unknown = SpecialTokens().unknown
    model = models.BPE(vocab=vocabulary, merges=[], unk_token=unknown, byte_fallback=config.byte_fallback)
    backend = tokenizers.Tokenizer(model)
    backend.add_special_tokens(names)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = _byte_fallback() if config.byte_fallback else decoders.Fuse()
    return backend


def learn_character_bpe(
    config: BpeConfig, texts: Sequence[str], normalizer: normalizers.Normalizer | None, *, size: int
) -> tokenizers.Tokenizer:
    """Byte-pair encoding over characters, `size` tokens in all, or fewer where the texts have no more.

    If there are more characters than there is room, the most frequent ones are tokens.
    """
    fixed = [*SpecialTokens().names, *BYTE_TOKENS]
    counts = _count(texts, normalizer)
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    known = ranked[: max(size - len(fixed), 0)]
    parts: Iterable[str] = texts
    if len(known) < len(ranked):
        # Merges are learnt from the text between the characters that are spelt by bytes.
        others = re.compile("[" + "".join(map(re.escape, ranked[len(known) :])) + "]+")
        parts = between(texts if normalizer is None else map(normalizer.normalize_str, texts), others)
    trainer = trainers.BpeTrainer(
        vocab_size=max(size, len(fixed)),
        min_frequency=2,
        special_tokens=fixed,
        initial_alphabet=known,
        show_progress=False,
    )
    backend = tokenizers.Tokenizer(models.BPE(byte_fallback=True))
    if normalizer is not None:
        backend.normalizer = normalizer
    words: pre_tokenizers.PreTokenizer = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    if config.split_digits:
        words = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    backend.pre_tokenizer = words
    backend.decoder = _byte_fallback()
    backend.train_from_iterator(iter(parts), trainer)
    # The bytes got their ids by being special to the trainer; to the tokenizer they are ordinary pieces.
    content = json.loads(backend.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in BYTE_TOKENS]
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def _count(texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text if normalizer is None else normalizer.normalize_str(text))
    return counts


def _byte_fallback() -> decoders.Decoder:
    return decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
