"""Phrases in texts of tokens, against a search in the decoded text."""

import codecs
import itertools
import unicodedata
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.token_graph import NEVER
from transformer.decoding.token_texts import TokenTexts

UNSPACED = ("CJK UNIFIED", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def makes_words(character: str) -> bool:
    """Alphanumeric by Python's own tables, by the name of the character not of an unspaced script."""
    named = unicodedata.name(character, "").startswith(UNSPACED)
    return not named and unicodedata.category(character) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Mn", "Mc")


def ends_of(text: str, phrases: Sequence[str], *, whole_words: bool = True) -> list[tuple[int, int]]:
    """Where the phrases begin and end in a text."""
    places = []
    for phrase in phrases:
        for begin in range(len(text) - len(phrase) + 1):
            end = begin + len(phrase)
            if text[begin:end] != phrase:
                continue
            before, after = text[begin - 1 : begin], text[end : end + 1]
            if whole_words and before and makes_words(before) and makes_words(phrase[0]):
                continue
            if whole_words and after and makes_words(after) and makes_words(phrase[-1]):
                continue
            places.append((begin, end))
    return places


def contains(text: str, phrases: Sequence[str], *, whole_words: bool = True) -> bool:
    return bool(ends_of(text, phrases, whole_words=whole_words))


def decode(tokens: Sequence[bytes | None], ids: Sequence[int]) -> str:
    return b"".join(tokens[index] or b"" for index in ids).decode(errors="replace")


def state_after(matcher: PhraseMatcher, ids: Sequence[int]) -> int:
    state = matcher.start
    for index in ids:
        state = matcher.advance(state, index)
    return state


# Few characters, so that phrases come up: of one to four bytes, of words and not, of scripts with spaces and without.
CHARACTERS = "ab. é—犬、ж𝟏😀"
texts = st.text(CHARACTERS, min_size=1, max_size=4)
fragments = st.builds(
    lambda text, begin, end: text.encode()[begin : len(text.encode()) - end],
    texts,
    st.integers(0, 2),
    st.integers(0, 2),
)
single = [character.encode() for character in CHARACTERS]
single_bytes = [bytes([byte]) for byte in sorted(set(b"".join(single)))]
vocabularies = st.builds(
    lambda base, more: [None, b"", *base, *more],
    st.sampled_from([single, single_bytes, []]),
    st.lists(fragments, min_size=3, max_size=12),
)
phrases = texts.map(str.strip).filter(bool)


@settings(max_examples=120, deadline=None)
@given(vocabularies, st.lists(phrases, min_size=1, max_size=3), st.booleans(), st.data())
def test_phrases_are_found_in_the_text_however_it_is_cut(
    tokens: list[bytes | None], alternatives: list[str], whole_words: bool, data: st.DataObject
) -> None:
    matcher = PhraseMatcher(TokenTexts(tokens), alternatives, whole_words=whole_words)
    ids = data.draw(st.lists(st.integers(0, len(tokens) - 1), max_size=12))
    state = matcher.start
    for count in range(len(ids) + 1):
        text = decode(tokens, ids[:count])
        assert matcher.accepted_at_end(state) == contains(text, alternatives, whole_words=whole_words)
        if not begun_character(b"".join(tokens[index] or b"" for index in ids[:count])):
            surely = all(contains(text + more, alternatives, whole_words=whole_words) for more in "xж犬.")
            assert matcher.accepted(state) == surely
        after = matcher.step(state)
        assert after.tolist() == [matcher.advance(state, token) for token in range(len(tokens))]
        if count < len(ids):
            state = int(after[ids[count]])


@settings(max_examples=120, deadline=None)
@given(phrases, st.text(CHARACTERS, max_size=6), st.text(CHARACTERS, max_size=6), st.integers(0, 2**32))
def test_a_phrase_in_a_longer_text_is_found_in_every_segmentation(
    phrase: str, before: str, after: str, seed: int
) -> None:
    content, random = (before + phrase + after).encode(), Random(seed)
    cuts = sorted({0, len(content), *random.choices(range(len(content) + 1), k=random.randrange(10))})
    tokens = [content[begin:end] for begin, end in itertools.pairwise(cuts)]
    matcher = PhraseMatcher(TokenTexts(tokens), [phrase])
    state = state_after(matcher, range(len(tokens)))
    assert matcher.accepted_at_end(state) == contains(before + phrase + after, [phrase])


Goal = Callable[[int], bool]


def shortest(matcher: PhraseMatcher, state: int, goal: Goal, pending: bytes | None = None) -> int | None:
    """Tokens to the nearest goal, breadth first, one token after another.

    With bytes `pending` that begin a character, only tokens that keep to UTF-8 are taken.
    """
    queue, seen = deque([(state, pending, 0)]), {(state, pending)}
    while queue:
        current, begun, distance = queue.popleft()
        if goal(current):
            return distance
        for token in range(matcher.tokens.vocab_size):
            rest = begun if begun is None else kept_clean(begun + matcher.tokens[token])
            if begun is not None and rest is None:
                continue
            after = matcher.advance(current, token), rest
            if after not in seen:
                seen.add(after)
                queue.append((*after, distance + 1))
    return None


def kept_clean(content: bytes) -> bytes | None:
    """The bytes that begin a character at the end of UTF-8; None if it is none."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(content)
    except UnicodeDecodeError:
        return None
    return decoder.getstate()[0]


def begun_character(content: bytes) -> bytes:
    """The same for bytes with faults."""
    for size in (3, 2, 1):
        end = content[-size:]
        if len(end) == size and kept_clean(end) == end:
            return end
    return b""


@settings(max_examples=60, deadline=None)
@given(vocabularies, st.lists(phrases, min_size=1, max_size=2), st.booleans(), st.data())
def test_bans_forbid_what_no_further_tokens_can_mend(
    tokens: list[bytes | None], alternatives: list[str], whole_words: bool, data: st.DataObject
) -> None:
    matcher = PhraseMatcher(TokenTexts(tokens), alternatives, whole_words=whole_words)
    state, ids = matcher.start, list[int]()

    def may_end(state: int) -> bool:
        return not matcher.accepted_at_end(state)

    for _ in range(6):
        assert matcher.accepted_at_end(state) == contains(decode(tokens, ids), alternatives, whole_words=whole_words)
        forbidden = matcher.forbidden(state).tolist()
        doomed = [t for t in range(len(tokens)) if shortest(matcher, matcher.advance(state, t), may_end) is None]
        assert forbidden == doomed
        ids.append(data.draw(st.sampled_from(sorted(set(range(len(tokens))) - set(forbidden)))))
        state = matcher.advance(state, ids[-1])


@settings(max_examples=60, deadline=None)
@given(vocabularies, st.lists(phrases, min_size=1, max_size=2), st.booleans(), st.data())
def test_distances_are_the_least_numbers_of_tokens(
    tokens: list[bytes | None], alternatives: list[str], whole_words: bool, data: st.DataObject
) -> None:
    matcher = PhraseMatcher(TokenTexts(tokens), alternatives, whole_words=whole_words)
    ids = data.draw(st.lists(st.integers(0, len(tokens) - 1), max_size=6))
    state = state_after(matcher, ids)
    begun = begun_character(b"".join(tokens[index] or b"" for index in ids))
    without_way = [
        reached for reached in all_reached(matcher) if shortest(matcher, reached, matcher.accepted_at_end) is None
    ]
    if without_way:
        unspellable = matcher.start in without_way
        with pytest.raises(ValueError, match="cannot spell" if unspellable else "could stand between a word"):
            matcher.distance(state)
        return
    for goal, distances in (
        (matcher.accepted_at_end, matcher.to_accepted_at_end),
        (matcher.accepted, matcher.to_accepted),
    ):
        distance = int(distances.tokens[state])
        clean = shortest(matcher, state, goal, begun)
        fastest = shortest(matcher, state, goal)
        if clean is not None:
            assert distance == clean
        else:
            assert (distance == NEVER) == (fastest is None)
            assert fastest is None or distance >= fastest
        assert distance <= distances.largest or distances.largest == NEVER
        nearer = matcher.nearer(state, distances).tolist()
        assert bool(nearer) == (distance > 0)
        for token in nearer:
            assert 0 <= distances.tokens[matcher.advance(state, token)] < distance
            assert clean is None or kept_clean(begun + matcher.tokens[token]) is not None


def all_reached(matcher: PhraseMatcher) -> set[int]:
    reached, queue = {matcher.start}, [matcher.start]
    while queue:
        new = set(np.unique(matcher.step(queue.pop())).tolist()) - reached
        reached |= new
        queue += new
    return reached


def test_the_largest_distance_is_that_of_a_reachable_state() -> None:
    tokens = TokenTexts([b"d", b"o", b"g", b" ", b"x"])
    matcher = PhraseMatcher(tokens, ["dog"])
    assert matcher.distance(matcher.start) == 3
    assert matcher.to_accepted_at_end.largest == 4  # after "x" a space comes first
    assert matcher.to_accepted.largest == 5


def test_a_character_is_completed_rather_than_broken() -> None:
    dash = "—".encode()
    tokens = TokenTexts([b"dog", dash[:1], dash[1:2], dash[2:], b" "])
    matcher = PhraseMatcher(tokens, ["dog"])
    state = matcher.advance(matcher.start, 1)
    assert matcher.distance(state) == 3
    assert matcher.nearer(state, matcher.to_accepted_at_end).tolist() == [2, 3]  # E2 94 begins characters too
    # Where no token completes it, it is broken.
    matcher = PhraseMatcher(TokenTexts([b"dog", dash[:1], b" "]), ["dog"])
    state = matcher.advance(matcher.start, 1)
    assert matcher.distance(state) == 1
    assert matcher.nearer(state, matcher.to_accepted_at_end).tolist() == [0]


def test_a_banned_word_may_go_on_as_another() -> None:
    tokens = TokenTexts([b" dog", b"dog", b"s", b" ", b"."])
    matcher = PhraseMatcher(tokens, ["dog"])
    state = matcher.advance(matcher.start, 0)
    assert matcher.accepted_at_end(state)
    assert matcher.forbidden(state).tolist() == [0, 3, 4]
    assert not matcher.accepted_at_end(matcher.advance(state, 2))


def test_a_banned_word_that_could_not_go_on_is_not_begun() -> None:
    matcher = PhraseMatcher(TokenTexts([b" dog", b" do", b" ", b"."]), ["dog"])
    assert matcher.forbidden(matcher.start).tolist() == [0]


@pytest.mark.parametrize("alternatives", [[], [""], [" "], ["dog", " "]])
def test_empty_phrases_are_errors(alternatives: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^A phrase must have a character that is not space, but is \["):
        PhraseMatcher(TokenTexts([b"a"]), alternatives)


def test_phrases_that_cannot_be_spelt_are_errors_only_where_required() -> None:
    matcher = PhraseMatcher(TokenTexts([b"d", b"o", None]), ["dog", "god"])
    assert matcher.forbidden(matcher.start).tolist() == []
    with pytest.raises(ValueError, match=r"^The vocabulary cannot spell the phrase 'dog' or 'god'\.$"):
        matcher.distance(matcher.start)
    matcher = PhraseMatcher(TokenTexts([b"dog", b"x"]), ["dog"])
    message = r"^The vocabulary has no token that could stand between a word and the phrase 'dog'\.$"
    with pytest.raises(ValueError, match=message):
        matcher.distance(matcher.start)


def test_overlong_phrases_are_errors() -> None:
    with pytest.raises(
        ValueError, match=r"^The alternatives of a phrase must have 10000 bytes at most, but have more\.$"
    ):
        PhraseMatcher(TokenTexts([b"a"]), ["ab" * 6_000])
