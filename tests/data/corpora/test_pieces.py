"""Long texts in pieces: where they are cut, and that tokenizers find the same words in them."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from transformer.data.corpora.files import cut_at_words, read_pieces


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


BITS = st.sampled_from(
    ["a", "Ab", ".", "'s", "12", "é", "\u0301", "漢", "\n", "\n", "\n\n", "\r\n", " ", "\t", "\u2028", "\x1c"]
)


@settings(deadline=None)  # a slow disk is no fault
@given(bits=st.lists(BITS, min_size=30, max_size=120), size=st.integers(3, 40))
def test_pieces_give_the_same_words_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, bits: list[str], size: int
) -> None:
    text = "".join(bits)
    path = written(tmp_path_factory.mktemp("pieces") / "a.txt", text.encode())
    pieces = list(read_pieces(path, size))
    assert "".join(pieces) == text
    cl100k = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    for split in (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Split(Regex(cl100k), "isolated"),
        pre_tokenizers.Whitespace(),
    ):
        whole = [word for word, _ in split.pre_tokenize_str(text)]
        assert [word for piece in pieces for word, _ in split.pre_tokenize_str(piece)] == whole


def test_pieces_have_about_the_size_asked_for(tmp_path: Path) -> None:
    text = "".join(f"line {k}\n" for k in range(1000))
    pieces = list(read_pieces(written(tmp_path / "a.txt", b"\xef\xbb\xbf" + text.encode()), size=100))
    assert "".join(pieces) == text
    assert all(90 <= len(piece) <= 130 for piece in pieces[1:-1])
    assert all(piece.endswith("\n") for piece in pieces)


def test_text_without_a_place_to_cut_is_one_piece(tmp_path: Path) -> None:
    for text in ("漢" * 1000, "。\n\n" * 1000, "!\n\t" * 1000, "!\r\n" * 1000):
        assert list(read_pieces(written(tmp_path / "a.txt", text.encode()), size=100)) == [text]


@pytest.mark.parametrize(
    "line", ["word ", "12, ", "a line\n\n", "a line\n b", "one\r\n", "漢字\r\n", "!\n\n!\n\nword  "]
)
def test_text_without_a_line_end_to_cut_at_is_cut_where_words_end(tmp_path: Path, line: str) -> None:
    text = line * 1000
    pieces = list(read_pieces(written(tmp_path / "a.txt", text.encode()), size=100))
    assert "".join(pieces) == text
    assert all(len(piece) <= 450 for piece in pieces)
    assert all(len(piece) >= 200 for piece in pieces[:-1])
    assert all(before[-1:].strip() and not after[0].strip() for before, after in itertools.pairwise(pieces))


def test_what_is_read_before_the_first_piece_of_a_long_text_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", b"a line\r\n" * 1000 + b"\xff")
    pieces = read_pieces(path, size=100)
    assert len(next(pieces)) <= 450
    with pytest.raises(ValueError, match="line 1001 is not"):  # found when it is come to
        list(pieces)


def test_words_are_cut_at_the_first_place_that_is_long_enough() -> None:
    assert list(cut_at_words("ab cd\n\nef. gh\nij", 1)) == ["ab", " cd", "\n\nef.", " gh", "\nij"]
    assert list(cut_at_words("ab cd ef g", 3)) == ["ab cd", " ef g"]
    assert list(cut_at_words("ab cd ef g", 6)) == ["ab cd ef g"]
    assert list(cut_at_words("a.\nb.\r\n", 1)) == ["a.\nb.\r\n"]  # line ends may belong to punctuation
    assert list(cut_at_words("a\x1c b", 1)) == ["a\x1c b"]
    assert list(cut_at_words("", 1)) == [""]
