"""Where words begin and end: at what characters, and at what bytes that are none."""

import functools
from random import Random

import pytest

from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.token_texts import TokenTexts
from transformer.decoding.word_characters import INSIDE, OUTSIDE, is_word_character, word_characters


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dog", True),
        ("a dog.", True),
        ("dogs", False),
        ("underdog", False),
        ("Dog", False),
        ("dog_house", True),
        ("dog2", False),
        ("dog" + chr(0x301), False),
        ("dog\ufe0f", True),  # a variation selector
        ("犬dog犬", True),
        ("カーdogー", True),
        ("édog", False),
        ("—dog—", True),
        ("dogдог", False),
        ("dogs dog", True),
    ],
)
def test_whole_words(text: str, found: bool) -> None:
    assert is_found("dog", text.encode()) == found


def is_found(phrase: str, content: bytes) -> bool:
    """The same for a text in one token and in one a byte."""
    answers = set()
    for tokens in ([content], [bytes([byte]) for byte in content]):
        matcher = PhraseMatcher(TokenTexts(tokens), [phrase])
        answers.add(matcher.accepted_at_end(functools.reduce(matcher.advance, range(len(tokens)), matcher.start)))
    assert len(answers) == 1
    return answers.pop()


@pytest.mark.parametrize("content", [b"dog\xe2", b"dog\xe2a", b"dog\xe2\x80a", b"\x80dog\x80", b"a\xe2dog", b"dog\xff"])
def test_broken_characters_end_words(content: bytes) -> None:
    assert is_found("dog", content)


def test_phrases_of_scripts_without_spaces_are_found_inside() -> None:
    matcher = PhraseMatcher(TokenTexts(["子犬が".encode()]), ["犬"])
    assert matcher.accepted(matcher.advance(matcher.start, 0))


def test_every_character_has_the_class_that_its_bytes_lead_to() -> None:
    following, valid = word_characters()
    # The Unicode tables of the two libraries may be of different years: only characters that Python knows.
    random = Random(0)
    codes = [
        *range(0x3100),
        *random.sample([code for code in range(0x3100, 0x110000) if not 0xD800 <= code < 0xE000], 9_000),
    ]
    for code in codes:
        character = chr(code)
        state = OUTSIDE
        for byte in character.encode():
            assert valid[state, byte]
            state = int(following[state, byte])
        assert state == (INSIDE if is_word_character(character) else OUTSIDE)


def test_bytes_that_are_no_utf8_are_outside_of_words() -> None:
    following, valid = word_characters()
    for content in (b"\x80", b"\xc0", b"\xff", b"\xe0\x80", b"\xed\xa0", b"\xf0\x80", b"\xf4\x90", b"\xc3("):
        state, ok = INSIDE, True
        for byte in content:
            ok = ok and bool(valid[state, byte])
            state = int(following[state, byte])
        assert (state, ok) == (OUTSIDE, False)
