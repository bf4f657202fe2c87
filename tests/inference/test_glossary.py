"""Glossaries: files, and terms found in sources."""

import gzip
import lzma
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.inference.glossary import Glossary

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


CONTENT = "dog\tHund|Köter\r\n\nice cream\tEis\n  \ncream\t Sahne \nStraße\tstreet\n犬\tdog"


@pytest.mark.parametrize("name", ["g.tsv", "g.tsv.gz", "g.tsv.xz", "g.tsv.zst"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_files(tmp_path: Path, name: str, mark: bytes) -> None:
    content = mark + CONTENT.encode()
    packed = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd.compress}
    (tmp_path / name).write_bytes(packed.get(Path(name).suffix, bytes)(content))
    glossary = Glossary.load(tmp_path / name)
    assert glossary.terms_in("Cream, ice cream and the DOG") == [("Sahne",), ("Eis",), ("Hund", "Köter")]


def test_an_empty_file_has_no_terms(tmp_path: Path) -> None:
    assert Glossary.load(write(tmp_path / "g.tsv", "")).terms_in("dog") == []


ENTRIES = {"dog": ("Hund",), "ice cream": ("Eis",), "cream": ("Sahne",), "Straße": ("street",), "犬": ("dog",)}


@pytest.mark.parametrize(
    ("source", "terms"),
    [
        ("", []),
        ("dogs underdog dog2", []),
        ("a dog-house", ["Hund"]),
        ("dog", ["Hund"]),
        ("dog Dog DOG", ["Hund"]),
        ("ice cream", ["Eis"]),
        ("ice \t cream dog", ["Eis", "Hund"]),
        ("ice cream with cream", ["Eis", "Sahne"]),
        ("cream and ice cream", ["Sahne", "Eis"]),
        ("icecream", []),
        ("ice creams", []),
        ("STRASSE", ["street"]),
        ("strasse straße", ["street"]),
        ("子犬です", ["dog"]),
        ("犬dog犬", ["dog", "Hund"]),
    ],
)
def test_terms_in_sources(source: str, terms: list[str]) -> None:
    assert Glossary(ENTRIES).terms_in(source) == [(term,) for term in terms]


def test_terms_that_overlap_both_count() -> None:
    glossary = Glossary({"machine learning": ("a",), "learning rate": ("b",), "rate": ("c",)})
    assert glossary.terms_in("machine learning rate") == [("a",), ("b",)]


def is_word(character: str) -> bool:
    return character.isalnum() and character != "犬"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("aB .犬", min_size=1, max_size=5).map(str.strip).filter(bool), max_size=5), st.text("aAb .犬"))
def test_terms_against_all_places(terms: list[str], source: str) -> None:
    folded = source.strip().lower()
    while "  " in folded:
        folded = folded.replace("  ", " ")
    entries = {" ".join(term.lower().split()): (term,) for term in terms}
    places = []
    for term in entries:
        for begin in range(len(folded)):
            end = begin + len(term)
            before, after = folded[:begin][-1:], folded[end:][:1]
            if (
                folded[begin:end] == term
                and not (before and is_word(before) and is_word(term[0]))
                and not (after and is_word(after) and is_word(term[-1]))
            ):
                places.append((begin, end, term))
    outermost = [
        (begin, end, term)
        for begin, end, term in places
        if not any(other != (begin, end, term) and other[0] <= begin and end <= other[1] for other in places)
    ]
    expected = dict.fromkeys(term for _, _, term in sorted(outermost))
    assert Glossary(entries).terms_in(source) == [entries[term] for term in expected]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\ndog", "line 2: a line must have 2 columns, term and translation, but has 1."),
        ("a\tb\tc", "line 1: a line must have 2 columns, term and translation, but has 3."),
        ("\n\n \tb", "line 3: the term must not be empty."),
        ("a\t ", "line 1: the translation must not be empty, nor one of several."),
        ("a\tb||c", "line 1: the translation must not be empty, nor one of several."),
        (
            "May\tMai\nx\ty\nmay\tdarf",
            "line 3: a term must have its translations in one line, separated by '|', but 'may' has others in line 1.",
        ),
    ],
)
def test_faults_name_the_line(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "g.tsv", content)
    with pytest.raises(ValueError, match="line") as caught:
        Glossary.load(path)
    assert str(caught.value) == f"{str(path)!r}, {message}"


def test_the_same_line_twice_is_one_entry(tmp_path: Path) -> None:
    glossary = Glossary.load(write(tmp_path / "g.tsv", "dog\tHund\nDog\tHund\n"))
    assert glossary.terms_in("dog") == [("Hund",)]


def test_files_that_are_not_utf8_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_bytes(b"a\tb\ndog\tK\xf6ter\n")
    with pytest.raises(ValueError, match=r"g\.tsv', line 2: the text must be UTF-8, but is not: invalid"):
        Glossary.load(path)


def test_missing_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"g\.tsv' does not exist\.$"):
        Glossary.load(tmp_path / "g.tsv")
