"""Required terms and banned phrases of whole outputs, against a count in the decoded text."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.terms import BannedPhrases, RequiredTerms
from transformer.decoding.token_texts import TokenTexts

Term = tuple[str, ...]


def is_word(character: str) -> bool:
    return character.isalnum() and not "\u3040" < character < "\ua000"


def in_order(text: str, terms: Sequence[Term], begin: int = 0) -> bool:
    """Whether terms stand in a text one after another, tried in every place."""
    if not terms:
        return True
    for phrase in terms[0]:
        for place in range(begin, len(text) - len(phrase) + 1):
            end = place + len(phrase)
            before, after = text[:place][-1:], text[end:][:1]
            if (
                text[place:end] == phrase
                and not (before and is_word(before) and is_word(phrase[0]))
                and not (after and is_word(after) and is_word(phrase[-1]))
                and in_order(text, terms[1:], end)
            ):
                return True
    return False


def all_there(text: str, terms: Sequence[Term], *, ordered: bool) -> bool:
    if ordered:
        return in_order(text, terms)
    return all(in_order(text, [term] * count) for term, count in Counter(terms).items())


def required(tokens: Sequence[bytes | None], terms: Sequence[Term], *, ordered: bool) -> RequiredTerms:
    texts = TokenTexts(tokens)
    return RequiredTerms([PhraseMatcher(texts, term) for term in terms], ordered=ordered)


def decode(tokens: Sequence[bytes | None], ids: Sequence[int]) -> str:
    return b"".join(tokens[index] or b"" for index in ids).decode(errors="replace")


CHARACTERS = "ab. é犬—"
words = st.text(CHARACTERS, min_size=1, max_size=3).map(str.strip).filter(bool)
term_lists = st.lists(st.lists(words, min_size=1, max_size=2, unique=True).map(tuple), min_size=1, max_size=3)
repeated = st.builds(lambda terms, twice: terms + terms[: int(twice)], term_lists, st.booleans())
more_tokens = st.lists(st.text(CHARACTERS, min_size=2, max_size=6).map(str.encode), max_size=8)
vocabularies = st.builds(
    lambda base, more: [None, *base, *more],
    st.sampled_from([[c.encode() for c in CHARACTERS], [bytes([b]) for b in sorted(set(CHARACTERS.encode()))]]),
    more_tokens,
)


@settings(max_examples=100, deadline=None)
@given(vocabularies, repeated, st.booleans(), st.data())
def test_terms_are_met_if_they_are_in_the_text(
    tokens: list[bytes | None], terms: list[Term], ordered: bool, data: st.DataObject
) -> None:
    rules = required(tokens, terms, ordered=ordered)
    matchers = [PhraseMatcher(TokenTexts(tokens), term) for term in terms]
    most = sum(matcher.distance(matcher.start) for matcher in matchers)
    spelt = [
        token
        for token in range(len(tokens))
        if (tokens[token] or b"").decode(errors="ignore") in " ".join(map(" ".join, terms))
    ]
    ids = data.draw(st.lists(st.sampled_from(spelt), max_size=20))
    state = rules.start()
    for count in range(len(ids) + 1):
        assert rules.met_at_end(state) == all_there(decode(tokens, ids[:count]), terms, ordered=ordered)
        assert (rules.need(state) == 0) == rules.met_at_end(state)
        assert 0 <= rules.progress(state) <= most
        if rules.met_at_end(state):
            assert rules.progress(state) == most
        hash(state)
        if count < len(ids):
            state = rules.advance(state, ids[count])


@settings(max_examples=60, deadline=None)
@given(vocabularies, repeated, st.booleans(), st.data())
def test_urgent_tokens_lower_the_need_from_wherever_the_text_is(
    tokens: list[bytes | None], terms: list[Term], ordered: bool, data: st.DataObject
) -> None:
    rules = required(tokens, terms, ordered=ordered)
    state, ids = rules.start(), data.draw(st.lists(st.integers(0, len(tokens) - 1), max_size=8))
    for token in ids:
        state = rules.advance(state, token)
    budget = rules.need(state)
    while not rules.met_at_end(state):
        need, urgent = rules.need(state), rules.urgent(state).tolist()
        assert need <= budget
        assert urgent
        for token in urgent:
            assert rules.need(rules.advance(state, token)) < need
        # One token of each group is enough: the most probable of this one lowers the need as well.
        assert any(group.tolist() == urgent for group in rules.forced(state))
        ids.append(data.draw(st.sampled_from(urgent)))
        state, budget = rules.advance(state, ids[-1]), budget - 1
    assert rules.urgent(state).tolist() == []
    assert rules.forced(state) == ()
    assert all_there(decode(tokens, ids), terms, ordered=ordered)


LETTERS = TokenTexts([letter.encode() for letter in "abcdgot. "])


def letters(text: str) -> list[int]:
    return ["abcdgot. ".index(letter) for letter in text]


def of_letters(*terms: str, ordered: bool = False) -> RequiredTerms:
    return RequiredTerms([PhraseMatcher(LETTERS, term.split("|")) for term in terms], ordered=ordered)


def met(rules: RequiredTerms, text: str) -> bool:
    state = rules.start()
    for token in letters(text):
        state = rules.advance(state, token)
    return rules.met_at_end(state)


def test_unordered_terms_may_overlap_and_ordered_ones_may_not() -> None:
    assert met(of_letters("a b", "b c"), "a b c")
    assert met(of_letters("b c", "a b"), "a b c")
    assert not met(of_letters("a b", "b c", ordered=True), "a b c")
    assert met(of_letters("a b", "b c", ordered=True), "a b b c")
    assert not met(of_letters("b c", "a b", ordered=True), "a b b c")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_term_given_twice_must_be_there_twice(ordered: bool) -> None:
    twice = of_letters("a b a", "a b a", ordered=ordered)
    assert not met(twice, "a b a")
    assert not met(twice, "a b a b a")
    assert met(twice, "a b a a b a")
    # The same alternatives in another order are the same term.
    assert met(of_letters("a|b", "b|a", ordered=ordered), "b a")
    assert not met(of_letters("a|b", "b|a", ordered=ordered), "b")


def test_ordered_terms_within_one_token() -> None:
    tokens = TokenTexts(["犬。。".encode(), b"dog. dog", b"s", b" "])
    matchers = [PhraseMatcher(tokens, [term]) for term in ("犬", "。", "。")]
    rules = RequiredTerms(matchers, ordered=True)
    assert rules.met_at_end(rules.advance(rules.start(), 0))
    rules = RequiredTerms([PhraseMatcher(tokens, [term]) for term in ("dog", ".", "dog")], ordered=True)
    state = rules.advance(rules.start(), 1)
    assert rules.met_at_end(state)
    assert not rules.met_at_end(rules.advance(state, 2))


def test_progress_counts_tokens_of_the_terms() -> None:
    rules = of_letters("dog", "a")
    seen = []
    state = rules.start()
    for token in letters("do dog a"):
        state = rules.advance(state, token)
        seen.append(rules.progress(state))
    assert seen == [1, 2, 0, 1, 2, 3, 3, 4]  # "a" is 1 token away after a space, 2 after a letter, never less than none


def test_need_of_one_term_is_its_distance() -> None:
    rules = of_letters("dog")
    assert rules.need(rules.start()) == 3
    assert rules.need(rules.advance(rules.start(), letters("a")[0])) == 4
    assert rules.forced(rules.start())[0].tolist() == letters("d")
    assert len(rules.forced(rules.start())) == 1


def test_need_of_several_terms() -> None:
    # One of them and the character after it; the other from the worst place.
    assert of_letters("dog", "a").need(of_letters("dog", "a").start()) == min(3 + 1 + 3, 1 + 1 + 5)
    ordered = of_letters("dog", "a", ordered=True)
    assert ordered.need(ordered.start()) == 3 + 1 + 2


def test_no_terms_are_met() -> None:
    for ordered in (False, True):
        rules = RequiredTerms([], ordered=ordered)
        assert rules.met_at_end(rules.start())
        assert rules.need(rules.start()) == rules.progress(rules.start()) == 0


def test_terms_that_nothing_can_follow_are_errors_unless_they_are_the_last() -> None:
    tokens = TokenTexts([b"x.dog"])
    dog = PhraseMatcher(tokens, [".dog"])  # "x" goes on after "g"
    alone = RequiredTerms([dog], ordered=False)
    assert alone.met_at_end(alone.advance(alone.start(), 0))
    for ordered in (False, True):
        message = r"^The vocabulary has no token that could stand between the phrase '\.dog' and others\.$"
        with pytest.raises(ValueError, match=message):
            RequiredTerms([dog, dog], ordered=ordered)


def test_terms_that_cannot_be_spelt_are_errors() -> None:
    tokens = TokenTexts([b" dog"])
    with pytest.raises(ValueError, match=r"^The vocabulary cannot spell the phrase 'cat'\.$"):
        RequiredTerms([PhraseMatcher(tokens, [term]) for term in ("dog", "cat")], ordered=False)


@settings(max_examples=100, deadline=None)
@given(vocabularies, st.lists(words, max_size=3), st.data())
def test_banned_phrases_stay_out(tokens: list[bytes | None], banned: list[str], data: st.DataObject) -> None:
    texts = TokenTexts(tokens)
    rules = BannedPhrases([PhraseMatcher(texts, [phrase]) for phrase in banned])
    state, ids = rules.start(), list[int]()
    for _ in range(10):
        text = decode(tokens, ids)
        assert rules.end_forbidden(state) == any(in_order(text, [(phrase,)]) for phrase in banned)
        forbidden = rules.forbidden(state).tolist()
        for token in forbidden:
            assert any(in_order(decode(tokens, [*ids, token]), [(phrase,)]) for phrase in banned)
        allowed = sorted(set(range(len(tokens))) - set(forbidden))
        if not allowed:
            break
        ids.append(data.draw(st.sampled_from(allowed)))
        state = rules.advance(state, ids[-1])


def test_an_output_may_end_where_the_last_word_is_none_of_the_banned_ones() -> None:
    rules = BannedPhrases([PhraseMatcher(LETTERS, ["dog"]), PhraseMatcher(LETTERS, ["dogg"])])
    forbidden, state = [rules.end_forbidden(rules.start())], rules.start()
    for token in letters("dogga"):
        state = rules.advance(state, token)
        forbidden.append(rules.end_forbidden(state))
    assert forbidden == [False, False, False, True, True, False]


def test_no_bans_forbid_nothing() -> None:
    assert BannedPhrases([]).forbidden(()).tolist() == []
