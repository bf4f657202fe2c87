"""Labels: short, in characters that can be drawn, and never cut inside of a character."""

import pytest

from transformer.attention_maps.labels import columns, is_single_character, label_texts, shortened
from transformer.attention_maps.token_texts import Token


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcdef", "abcdef"),
        ("abcdefg", "abc…fg"),
        ("abcdefghijkl", "abc…kl"),
        ("e\u0301bcde\u0301f", "e\u0301bcde\u0301f"),
        ("e\u0301bcde\u0301fgu\u0308", "e\u0301bc…gu\u0308"),
        ("abcdefe\u0301fgu\u0308u\u0308", "abc…u\u0308u\u0308"),
        ("一个戴", "一个戴"),
        ("一个戴着", "一…着"),
    ],
)
def test_a_long_label_loses_its_middle(text, expected):
    assert shortened(text, 6) == expected
    assert columns(expected) <= 6


def test_marks_have_no_width_and_east_asian_characters_two_columns():
    assert [columns(text) for text in ("abc", "e\u0301", "你好", "ｱ", "Ａ", "")] == [3, 1, 4, 1, 2, 0]


def test_a_token_without_glyphs_is_labelled_by_its_place_and_code_points():
    tokens = [Token(n, "", text) for n, text in enumerate(["a", "你", "␣你b", "你好吗呢", "好[1/2]"])]
    assert label_texts(tokens, frozenset("你好吗呢")) == [
        "a",
        "2 U+4F60",
        "3 ␣U+4F60b",
        "4 U+4F60U+597D…",
        "5 U+597D[1/2]",
    ]
    assert label_texts(tokens, frozenset()) == ["a", "你", "␣你b", "你好吗呢", "好[1/2]"]


def test_one_character_is_one_with_its_marks():
    assert [is_single_character(text) for text in ("a", "你", "e\u0301", "ab", "</s>")] == [
        True,
        True,
        True,
        False,
        False,
    ]
