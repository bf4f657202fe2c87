"""Vocabularies over the 256 bytes of UTF-8: no text is out of vocabulary, and every text comes back exactly."""

import json
from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from transformer.data.subwords.config import BpeConfig, SpecialTokens, UnigramConfig, WordPieceConfig

# The 256 characters that stand for the 256 bytes in byte-level vocabularies (Radford et al. 2019, GPT-2).
BYTE_ALPHABET = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))

# Marks the WordPiece pieces that continue a word. It is none of BYTE_ALPHABET: with BERT's "##", the piece "###"
# would be both the text "###" and the continuing "#".
CONTINUING = "\uffed"
# WordPiece takes time quadratic in the length of a word.
MAX_WORD_BYTES = 100


def only_bytes(normalizer: normalizers.Normalizer | None) -> tokenizers.Tokenizer:
    """One token a byte: byte-pair encoding without merges."""
    names = SpecialTokens().names
    vocabulary = {symbol: index for index, symbol in enumerate([*names, *BYTE_ALPHABET])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=SpecialTokens().unknown))
    backend.add_special_tokens(names)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def learn_bpe(
    config: BpeConfig, texts: Iterable[str], normalizer: normalizers.Normalizer | None, *, size: int
) -> tokenizers.Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) of `size` tokens, or fewer where the texts have no more."""
    names = SpecialTokens().names
    trainer = trainers.BpeTrainer(
        vocab_size=max(size, len(names) + len(BYTE_ALPHABET)),
        min_frequency=2,
        special_tokens=names,
        initial_alphabet=list(BYTE_ALPHABET),
        show_progress=False,
    )
    backend = _pipeline(models.BPE(), normalizer, split_digits=config.split_digits)
    backend.train_from_iterator(iter(texts), trainer)
    return backend


def learn_unigram(
    config: UnigramConfig, texts: Iterable[str], normalizer: normalizers.Normalizer | None, *, size: int
) -> tokenizers.Tokenizer:
    """Unigram language model (Kudo 2018) of `size` tokens, or fewer where the texts have no more."""
    names = SpecialTokens().names
    trainer = trainers.UnigramTrainer(
        vocab_size=max(size, len(names) + len(BYTE_ALPHABET)),
        unk_token=SpecialTokens().unknown,
        special_tokens=names,
        initial_alphabet=list(BYTE_ALPHABET),
        show_progress=False,
    )
    backend = _pipeline(models.Unigram(), normalizer, split_digits=config.split_digits)
    backend.train_from_iterator(iter(texts), trainer)
    return _in_fixed_order(backend)


def learn_wordpiece(
    config: WordPieceConfig, texts: Iterable[str], normalizer: normalizers.Normalizer | None, *, size: int
) -> tokenizers.Tokenizer:
    """WordPiece (Wu et al. 2016) of `size` tokens, or fewer where the texts have no more.

    Every byte is a token both at the beginning and inside of a word, so the longest match never ends unmatched.
    """
    names = SpecialTokens().names
    # Named beforehand, as otherwise the trainer numbers the continuing bytes in another order in every process.
    fixed = [*names, *BYTE_ALPHABET, *(CONTINUING + byte for byte in BYTE_ALPHABET)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=max(size, len(fixed)),
        min_frequency=2,
        special_tokens=fixed,
        continuing_subword_prefix=CONTINUING,
        show_progress=False,
    )
    pipeline = _pipeline(models.WordPiece(), normalizer, split_digits=config.split_digits, max_word=MAX_WORD_BYTES)
    pipeline.train_from_iterator(iter(texts), trainer)
    vocabulary = pipeline.get_vocab(with_added_tokens=False)
    model = models.WordPiece(
        vocab=vocabulary,
        unk_token="<unk>",
        continuing_subword_prefix=CONTINUING,
        max_input_chars_per_word=MAX_WORD_BYTES,
    )
    backend = _pipeline(model, normalizer, split_digits=config.split_digits, max_word=MAX_WORD_BYTES)
    backend.decoder = decoders.Sequence([decoders.Replace(CONTINUING, ""), decoders.ByteLevel()])
    backend.add_special_tokens(names)
    return backend


def _pipeline(
    model: models.Model, normalizer: normalizers.Normalizer | None, *, split_digits: bool, max_word: int | None = None
) -> tokenizers.Tokenizer:
    """A model of words as GPT-2 cuts them, spelt in BYTE_ALPHABET; words longer than `max_word` bytes are cut."""
    backend = tokenizers.Tokenizer(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if split_digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    if max_word is not None:
        steps.append(pre_tokenizers.FixedLength(length=max_word))
    backend.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend


def _in_fixed_order(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same unigram vocabulary, the same in every process.

    The trainer visits words and characters in an order that differs between processes. That moves scores in
    their last bits, and gives the bytes it never saw scores of the lowest plus 0.0001, 0.0002, ... in random
    order; here these get the lowest score itself.
    """
    content = json.loads(backend.to_str())
    num_special = len(SpecialTokens().names)
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
