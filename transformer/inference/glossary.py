"""Terms and their translations, from a file."""

from collections.abc import Mapping
from pathlib import Path

from transformer.data.corpora.opening import open_bytes
from transformer.decoding.word_characters import cut_at_words

Translations = tuple[str, ...]
"""One of them is enough."""


class Glossary:
    """Which terms a translation must have, by those in its source.

    Terms are found as whole words, whatever their case, and however wide the space between their words.

    Args:
        entries: the translations of each term.
    """

    def __init__(self, entries: Mapping[str, Translations]) -> None:
        self._entries = {_units(term): translations for term, translations in entries.items()}
        lengths: dict[str, set[int]] = {}
        for units in self._entries:
            lengths.setdefault(units[0], set()).add(len(units))
        self._lengths = {first: sorted(some, reverse=True) for first, some in lengths.items()}

    @classmethod
    def load(cls, path: str | Path) -> "Glossary":
        """Read a file of lines ``term TAB translation`` or ``term TAB translation|another|...``; maybe .gz, .xz, .zst.

        Raises:
            ValueError: The file cannot be read; or, naming the line, it is not UTF-8, has not two columns, has an empty
                one, or a term once more with other translations.
        """
        path = Path(path)
        entries: dict[str, Translations] = {}
        lines: dict[tuple[str, ...], tuple[int, Translations]] = {}
        with open_bytes(path) as file:
            for number, content in enumerate(file, 1):
                where = f"{str(path)!r}, line {number}"
                entry = _entry(content.removeprefix(b"\xef\xbb\xbf") if number == 1 else content, where)
                if entry is None:
                    continue
                term, translations = entry
                before, known = lines.setdefault(_units(term), (number, translations))
                if known != translations:
                    raise ValueError(
                        f"{where}: a term must have its translations in one line, separated by '|', but {term!r} has "
                        f"others in line {before}."
                    )
                entries.setdefault(term, translations)
        return cls(entries)

    def terms_in(self, source: str) -> list[Translations]:
        """The translations of the terms in a text, each entry once, in the order in which they come.

        A term inside of another one does not count there: of "ice cream" and "cream", the text "ice cream" has one.
        """
        units = _units(source)
        found: dict[tuple[str, ...], Translations] = {}
        covered = 0
        for begin, first in enumerate(units):
            for length in self._lengths.get(first, ()):
                end = begin + length
                term = units[begin:end]
                # It is inside of another if one that began before, or a longer one here, ends no earlier.
                if covered < end <= len(units) and term in self._entries:
                    found.setdefault(term, self._entries[term])
                    covered = end
        return list(found.values())


def _units(text: str) -> tuple[str, ...]:
    """What is compared: words in lower case, single spaces, other characters."""
    return tuple(" " if unit.isspace() else unit for unit in cut_at_words(text.strip().casefold()))


def _entry(content: bytes, where: str) -> tuple[str, Translations] | None:
    """The two columns of a line; None if it is blank."""
    try:
        line = content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: the text must be UTF-8, but is not: {error.reason}.") from error
    if not line.strip():
        return None
    columns = line.rstrip("\r\n").split("\t")
    if len(columns) != 2:
        raise ValueError(f"{where}: a line must have 2 columns, term and translation, but has {len(columns)}.")
    term, translations = columns[0].strip(), tuple(part.strip() for part in columns[1].split("|"))
    if not term:
        raise ValueError(f"{where}: the term must not be empty.")
    if "" in translations:
        raise ValueError(f"{where}: the translation must not be empty, nor one of several.")
    return term, translations
