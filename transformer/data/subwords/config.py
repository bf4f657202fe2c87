"""How texts are cut into subwords, as plain settings."""

import unicodedata
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config

NonEmpty = Annotated[str, Field(min_length=1)]


class SpecialTokens(Config):
    """Names of tokens with a meaning of their own; `unknown` is null where no text is out of vocabulary."""

    pad: NonEmpty = "<pad>"
    begin: NonEmpty = "<s>"
    end: NonEmpty = "</s>"
    unknown: NonEmpty | None = "<unk>"

    @property
    def names(self) -> list[str]:
        """All of them in the order of their ids in a trained vocabulary."""
        known = [self.pad, self.begin, self.end]
        return known if self.unknown is None else [*known, self.unknown]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"Special tokens must differ from each other, but are {', '.join(map(repr, self.names))}.")
        return self


class _TokenizerBase(Config):
    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normal form that texts take before they are cut; ``none`` returns every text exactly."""
    joint: bool = True
    """Translation: one vocabulary for both languages, or one each. A language model has one text anyway."""
    pad_vocab_to_multiple_of: int = Field(default=1, gt=0)
    """The vocabulary grows by unused tokens to a multiple of this; 64 suits tensor cores."""
    user_symbols: tuple[NonEmpty, ...] = ()
    """Texts that are one token wherever they occur, such as ``<br>`` or a placeholder; they stay visible in output."""

    @model_validator(mode="after")
    def _check_symbols(self) -> Self:
        for number, symbol in enumerate(self.user_symbols):
            if symbol in SpecialTokens().names:
                raise ValueError(f"`user_symbols` must not name the special token {symbol!r}.")
            if symbol in self.user_symbols[:number]:
                raise ValueError(f"`user_symbols` must differ from each other, but {symbol!r} is listed twice.")
            if self.normalization == "none":
                continue
            # Symbols are looked for in normalised text; this one would never be found there.
            normal = unicodedata.normalize("NFC" if self.normalization == "nfc" else "NFKC", symbol)
            if normal != symbol:
                form = self.normalization
                raise ValueError(f"`user_symbols` must be in the normal form {form}: {normal!r} instead of {symbol!r}.")
        return self


class _TrainedSubwords(_TokenizerBase):
    vocab_size: int = Field(default=8_000, gt=4)
    """Tokens in all: special tokens, tags, symbols and the 256 bytes included (WordPiece holds every byte twice).
    Few texts give fewer tokens; the trained size is what counts."""
    split_digits: bool = True
    """Every digit is a token of its own, so that numbers look alike whatever their length."""
    max_training_texts: int = Field(default=1_000_000, gt=0)
    """Of a larger corpus so many texts (and no more than 200 million characters), evenly spread, are learnt from; all
    of them are cut."""


class BpeConfig(_TrainedSubwords):
    """Byte-pair encoding (Sennrich et al. 2016). No text is out of vocabulary."""

    name: Literal["bpe"] = "bpe"
    units: Literal["bytes", "characters"] = "bytes"
    """What is merged: bytes, or the characters of the training text (the most frequent ones, if they are more than
    `vocab_size` has room for), with bytes for all other characters."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """BPE-dropout (Provilkov et al. 2020): each merge is left out with this probability, on training texts only."""


class UnigramConfig(_TrainedSubwords):
    """Unigram language-model subwords over bytes (Kudo 2018): no text is out of vocabulary."""

    name: Literal["unigram"] = "unigram"


class WordPieceConfig(_TrainedSubwords):
    """WordPiece over bytes: the longest known piece first (Wu et al. 2016). No text is out of vocabulary."""

    name: Literal["wordpiece"] = "wordpiece"


class CharConfig(_TokenizerBase):
    """Every character (Unicode code point) of the training text is a token."""

    name: Literal["char"] = "char"
    byte_fallback: bool = False
    """Other characters are spelt by bytes, 256 tokens more; otherwise they become the unknown token."""


class ByteConfig(_TokenizerBase):
    """Every byte of the UTF-8 text is a token: 256 and the special ones, nothing to train."""

    name: Literal["byte"] = "byte"


class FileTokenizerConfig(Config):
    """A tokenizer that exists already: a ``tokenizer.json`` of the ``tokenizers`` library, ours or anybody's."""

    name: Literal["file"] = "file"
    path: NonEmpty
    """The file; of both languages, or of the source if there is a `target_path`."""
    target_path: NonEmpty | None = None
    """Translation: the target's own file, with the same ids of `pad`, `begin` and `end`; null is one for both."""
    special_tokens: SpecialTokens = SpecialTokens()
    """What the special tokens are called in the file."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """BPE-dropout on training texts, where the file holds byte-pair encoding."""

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary."""
        return self.target_path is None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path == self.target_path:
            raise ValueError(f"`target_path` must differ from `path`, but both are {self.path!r}; leave it out.")
        return self


TokenizerConfig = Annotated[
    BpeConfig | UnigramConfig | WordPieceConfig | CharConfig | ByteConfig | FileTokenizerConfig,
    Field(discriminator="name"),
]
