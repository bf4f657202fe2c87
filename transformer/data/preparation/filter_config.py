"""Which training examples are left out, as plain settings. Validation and test examples never are."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from transformer.config import Config
from transformer.data.preparation.scripts import script_class


def _known_script(name: str) -> str:
    script_class(name)
    return name


Script = Annotated[str, AfterValidator(_known_script)]
"""A Unicode script such as ``Latin``, ``Cyrillic`` or ``Han``; for Japanese and Korean ``Jpan`` and ``Kore``."""
Share = Annotated[float, Field(gt=0, le=1)]


class TextFiltersConfig(Config):
    """Filters of single texts; for pairs each looks at both sides, and one is enough to leave the pair out.

    Blank texts (nothing but white space, or missing) are always left out. Null or false switches a filter off. A text
    exactly at a limit is kept. Characters are Unicode code points.
    """

    broken: Literal["error", "drop"] = "error"
    """A line that cannot be read (not UTF-8, too few columns, no JSON, no such field): an error, or left out."""
    min_characters: int | None = Field(default=None, gt=0)
    """Characters of a text, white space included, at least."""
    max_characters: int | None = Field(default=None, gt=0)
    """Characters of a text, white space included, at most."""
    max_words: int | None = Field(default=None, gt=0)
    """Words are what white space separates."""
    min_letter_share: Share | None = None
    """Least share of letters (and the marks on them) among the characters that are no white space."""
    max_digit_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Greatest share of digits among the characters that are no white space."""
    max_repeats: int | None = Field(default=None, gt=0)
    """The same word so many times in a row is still accepted."""
    control_characters: bool = False
    """Leave out texts with control characters other than tab and line ends, or with U+FFFD (replacement character)."""
    normal_form: Literal["nfc", "nfkc", "nfd", "nfkd"] | None = None
    """Leave out texts that are not in this Unicode normal form. To convert them instead: `tokenizer.normalization`."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        least, most = self.min_characters, self.max_characters
        if least is not None and most is not None and least > most:
            raise ValueError(f"`min_characters` must be at most `max_characters` ({most}), but is {least}.")
        return self


class DocumentFiltersConfig(TextFiltersConfig):
    """Filters of a corpus of documents."""

    script: Script | None = None
    """Unicode script, such as ``Latin`` or ``Cyrillic``, that the letters are expected to be in."""
    min_script_share: Share | None = None
    """Least share of the letters that are in the expected script; null is 0.5. Texts without letters are kept."""
    duplicates: bool = False
    """Leave out documents that came before."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_script_share(self.min_script_share, self.script is not None, "script")
        return self


class PairFiltersConfig(TextFiltersConfig):
    """Filters of a parallel corpus."""

    max_length_ratio: float | None = Field(default=None, ge=1)
    """Characters of the longer side for each of the shorter one, at most."""
    identical: bool = False
    """Leave out pairs whose sides are the same, character by character."""
    duplicates: Literal["pair", "source", "target"] | None = None
    """Leave out what came before: the same pair, the same source, or the same target."""
    source_script: Script | None = None
    """Unicode script, such as ``Latin`` or ``Cyrillic``, that the source's letters are expected to be in."""
    target_script: Script | None = None
    """The same for the target."""
    min_script_share: Share | None = None
    """Least share of a side's letters that are in its expected script; null is 0.5. Sides without letters are kept."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = self.source_script is not None or self.target_script is not None
        check_script_share(self.min_script_share, given, "source_script` or `target_script")
        return self


def check_script_share(share: float | None, script_given: bool, name: str) -> None:
    """Refuse a share of no script."""
    if share is not None and not script_given:
        raise ValueError(f"`min_script_share` has no effect without `{name}`; leave it out.")
