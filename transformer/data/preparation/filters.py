"""Which training examples are left out: short, long, lopsided, copied, repeated, or in the wrong letters.

Terms. A *character* is a Unicode code point of the text as it is, white space included. *White space* is what
``str.isspace`` says, and *words* are what it separates. *Letters* are the characters of the categories L and M (letters
and the marks on them), *digits* those of Nd. A text exactly at a limit is kept.
"""

import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Literal, Self, assert_never

import regex
import xxhash

from transformer.data.preparation.filter_config import DocumentFiltersConfig, PairFiltersConfig, TextFiltersConfig
from transformer.data.preparation.scripts import script_class

BLANK = "blank"

IsOutOfPlace = Callable[[str], bool]
DropsRow = Callable[[tuple[str, ...]], bool]

_LETTERS = regex.compile(r"[\p{L}\p{M}]+")
_DIGITS = regex.compile(r"\p{Nd}+")
# All of the category Cc but tab, line feed and carriage return; and the replacement character.
_CONTROLS = regex.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")


class Filters:
    """Decides which rows of a training corpus are left out, one after the other.

    The cheap filters come first, and the search for duplicates last: a row that another filter drops has not been
    seen. Filters of single texts drop a pair when one of its sides is out of place.

    Args:
        config: The settings; pairs need those of pairs, single texts those of documents.
    """

    def __init__(self, config: PairFiltersConfig | DocumentFiltersConfig) -> None:
        self._filters: tuple[tuple[str, DropsRow], ...] = (
            *_size_filters(config),
            *_content_filters(config),
            *_script_filters(config),
            *_duplicate_filters(config),
        )
        self._config, self._remembers = config, bool(config.duplicates)

    def __reduce__(self) -> tuple[type[Self], tuple[PairFiltersConfig | DocumentFiltersConfig]]:
        return type(self), (self._config,)  # for workers that are started anew; what was seen is not copied

    @property
    def needs_memory(self) -> bool:
        """Whether a decision depends on the rows before: duplicates are to be left out.

        Their digests (16 bytes of xxHash's XXH3) take about 120 bytes of memory for each row that is kept.
        """
        return self._remembers

    def reason(self, row: tuple[str | None, ...]) -> str | None:
        """The setting of the first filter that drops `row`, or None if it is kept.

        A missing text, an empty one and one of white space only are ``"blank"``, whatever the settings.
        """
        for text in row:
            if not text or text.isspace():
                return BLANK
        texts: tuple[str, ...] = row  # type: ignore[assignment]  # a missing one was blank
        for name, drops in self._filters:
            if drops(texts):
                return name
        return None


def _size_filters(config: PairFiltersConfig | DocumentFiltersConfig) -> Iterator[tuple[str, DropsRow]]:
    if (fewest := config.min_characters) is not None:
        yield "min_characters", _on_any_side(lambda text: len(text) < fewest)
    if (most := config.max_characters) is not None:
        yield "max_characters", _on_any_side(lambda text: len(text) > most)
    if not isinstance(config, PairFiltersConfig):
        return
    if (ratio := config.max_length_ratio) is not None:
        yield "max_length_ratio", lambda texts: _length_ratio(*texts) > ratio
    if config.identical:
        yield "identical", lambda texts: texts[0] == texts[1]


def _content_filters(config: TextFiltersConfig) -> Iterator[tuple[str, DropsRow]]:
    if config.control_characters:
        yield "control_characters", _on_any_side(lambda text: _CONTROLS.search(text) is not None)
    if (form := config.normal_form) is not None:
        yield "normal_form", _on_any_side(_in_other_form(form))
    if (most_words := config.max_words) is not None:
        yield "max_words", _on_any_side(lambda text: len(text.split()) > most_words)
    if (repeats := config.max_repeats) is not None:
        yield "max_repeats", _on_any_side(lambda text: _longest_run(text.split()) > repeats)
    if (letters := config.min_letter_share) is not None:
        yield "min_letter_share", _on_any_side(lambda text: _share(_LETTERS, text) < letters)
    if (digits := config.max_digit_share) is not None:
        yield "max_digit_share", _on_any_side(lambda text: _share(_DIGITS, text) > digits)


def _in_other_form(form: Literal["nfc", "nfkc", "nfd", "nfkd"]) -> IsOutOfPlace:
    match form:
        case "nfc":
            return lambda text: not unicodedata.is_normalized("NFC", text)
        case "nfkc":
            return lambda text: not unicodedata.is_normalized("NFKC", text)
        case "nfd":
            return lambda text: not unicodedata.is_normalized("NFD", text)
        case "nfkd":
            return lambda text: not unicodedata.is_normalized("NFKD", text)
        case _:
            assert_never(form)


def _script_filters(config: PairFiltersConfig | DocumentFiltersConfig) -> Iterator[tuple[str, DropsRow]]:
    share = 0.5 if config.min_script_share is None else config.min_script_share
    if isinstance(config, PairFiltersConfig):
        scripts = {"source_script": config.source_script, "target_script": config.target_script}
    else:
        scripts = {"script": config.script}
    for side, (name, script) in enumerate(scripts.items()):
        if script is not None:
            yield name, _on_side(side, _in_other_script(script, share))


def _duplicate_filters(config: PairFiltersConfig | DocumentFiltersConfig) -> Iterator[tuple[str, DropsRow]]:
    match config.duplicates:
        case False | None:
            return
        case True | "pair":
            sides = slice(None)
        case "source":
            sides = slice(0, 1)
        case "target":
            sides = slice(1, 2)
    seen: set[bytes] = set()

    def came_before(texts: tuple[str, ...]) -> bool:
        # No UTF-8 has the byte FF, so that ("ab", "c") and ("a", "bc") differ.
        encoded = b"\xff".join([text.encode("utf-8", "surrogatepass") for text in texts[sides]])
        digest = xxhash.xxh3_128_digest(encoded)
        before = len(seen)
        seen.add(digest)
        return len(seen) == before

    yield "duplicates", came_before


def _on_any_side(is_out_of_place: IsOutOfPlace) -> DropsRow:
    return lambda texts: any(map(is_out_of_place, texts))


def _on_side(side: int, is_out_of_place: IsOutOfPlace) -> DropsRow:
    return lambda texts: is_out_of_place(texts[side])


def _length_ratio(source: str, target: str) -> float:
    # A quotient, since it is rounded to just the number that a limit of the same value is written as.
    return max(len(source), len(target)) / min(len(source), len(target))


def _longest_run(words: list[str]) -> int:
    if len(set(words)) == len(words):
        return 1
    return max(len(list(run)) for _, run in groupby(words))


def _share(pattern: regex.Pattern[str], text: str) -> float:
    """What part of the characters that are no white space the matches make up; neither may be empty."""
    return len("".join(pattern.findall(text))) / len("".join(text.split()))


def _in_other_script(script: str, least: float) -> IsOutOfPlace:
    """Whether less than a share `least` of a text's letters is in `script`.

    Letters and marks of all scripts (Common, Inherited), such as ``ー`` or U+0301, count for no side. A text without
    letters is in no other script.
    """
    wanted = script_class(script)
    flags = regex.VERSION1  # for differences and intersections of classes
    ours = regex.compile(rf"[[\p{{L}}\p{{M}}]&&[{wanted}]]+", flags)
    others = regex.compile(rf"[[\p{{L}}\p{{M}}]--[\p{{Script=Common}}\p{{Script=Inherited}}{wanted}]]+", flags)

    def is_out_of_place(text: str) -> bool:
        foreign = len("".join(others.findall(text)))
        if foreign == 0:
            return False
        expected = len("".join(ours.findall(text)))
        return expected / (expected + foreign) < least

    return is_out_of_place
