"""How texts are cut into subwords, as plain settings."""

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


class _TokenizerBase(Config):
    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normal form that texts take before they are cut; ``none`` returns every text exactly."""
    joint: bool = True
    """Translation: one vocabulary for both languages, or one each. A language model has one text anyway."""
    pad_vocab_to_multiple_of: int = Field(default=1, gt=0)
    """The vocabulary grows by unused tokens to a multiple of this; 64 suits tensor cores."""
    user_symbols: tuple[NonEmpty, ...] = ()
    """Texts that are one token wherever they occur, such as ``<br>`` or a placeholder; they stay visible in output."""


class _TrainedSubwords(_TokenizerBase):
    vocab_size: int = Field(default=8_000, gt=4)
    """Tokens in all, the four special ones and the 256 bytes included; the trained size is what counts."""
    split_digits: bool = True
    """Every digit is a token of its own, so that numbers look alike whatever their length."""
    max_training_texts: int = Field(default=1_000_000, gt=0)
    """Of a larger corpus so many texts, evenly spread, are learnt from; all of them are cut."""


class BpeConfig(_TrainedSubwords):
    """Byte-pair encoding (Sennrich et al. 2016). No text is out of vocabulary."""

    name: Literal["bpe"] = "bpe"
    units: Literal["bytes", "characters"] = "bytes"
    """What is merged: bytes, or the characters of the training text, with bytes for all other characters."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """BPE-dropout (Provilkov et al. 2020): each merge is left out with this probability, on training texts only."""


class UnigramConfig(_TrainedSubwords):
    """Unigram language-model subwords over bytes (Kudo 2018): no text is out of vocabulary."""

    name: Literal["unigram"] = "unigram"


class WordPieceConfig(_TrainedSubwords):
    """WordPiece over bytes: the longest known piece first (Wu et al. 2016). No text is out of vocabulary."""

    name: Literal["wordpiece"] = "wordpiece"


class CharConfig(_TokenizerBase):
    """Every character of the training text is a token."""

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
    """Translation: the target's own file; null is one vocabulary for both."""
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
