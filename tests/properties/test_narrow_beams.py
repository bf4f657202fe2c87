"""Beams too narrow to see everything, against the same search written out plainly for one example and to the end."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.decoding.config import BeamConfig
from transformer.decoding.endings import Endings
from transformer.decoding.interface import Hypothesis, Request
from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.search import search
from transformer.decoding.terms import BannedPhrases, RequiredTerms
from transformer.decoding.token_texts import TokenTexts

Table = Callable[[str], Sequence[float]]
Ended = tuple[bool, float, str, float]  # whether it is cut, minus its score, the text, the log probability

SPELLINGS = TokenTexts([None, b"a", b"b", b" ", b"ab"])
TEXTS = ["", "a", "b", " ", "ab"]


def examples(number: int) -> settings:
    return settings(max_examples=number, derandomize=True, deadline=None, database=None)


def plain_beam(table: Table, config: BeamConfig, limit: int, minimum: int = 0) -> list[Ended]:
    """All endings of one example, best first; nothing is dropped early."""
    size = config.size // config.groups
    left = [math.ceil(config.patience * size)] * config.groups
    live: list[list[tuple[float, str]]] = [[(0.0, "")] for _ in left]
    ended: dict[tuple[bool, str], Ended] = {}

    def end(cut: bool, total: float, text: str, length: int) -> None:
        base = length if config.normalization == "average" else (5 + length) / 6
        ended.setdefault((cut, text), (cut, -total / base**config.length_penalty, text, total))

    for length in range(1, limit + 1):
        taken: Counter[int] = Counter()
        for group, rows in enumerate(live):
            extensions = [
                (-(total + math.log(share) - config.diversity * taken[token]), total + math.log(share), text, token)
                for total, text in rows
                for token, share in enumerate(table(text))
                if share > 0 and not (token == 0 and length <= minimum)
            ]
            best = sorted(extensions)[: min(left[group], size)]
            live[group] = [(total, text + "Eabcd"[token]) for _, total, text, token in best if token != 0]
            for _, total, text, token in best:
                if token == 0:
                    left[group] -= 1
                    end(False, total, text, length)
            taken.update(token for *_, token in best)
    for total, text in itertools.chain(*live):
        end(True, total, text, limit)
    return sorted(ended.values())


def texts_of(hypotheses: Sequence[Hypothesis]) -> list[tuple[bool, str]]:
    return [(not each.finished, "".join("Eabcd"[token] for token in each.tokens)) for each in hypotheses]


def run(model: Any, config: BeamConfig, limits: Sequence[int], num_best: int, minimum: int = 0) -> Any:
    return search(model, config, [Request(limit, minimum) for limit in limits], eos_id=0, num_best=num_best)


shapes = st.sampled_from([(1, 1), (2, 1), (3, 1), (5, 1), (2, 2), (4, 2), (6, 2), (3, 3), (6, 3), (8, 4)])
penalties = st.sampled_from([("gnmt", 0.0), ("gnmt", 1.0), ("average", 1.0), ("average", 0.5), ("average", 2.0)])
seeds = st.integers(0, 2**20)


@st.composite
def configs(draw: st.DrawFn) -> BeamConfig:
    size, groups = draw(shapes)
    normalization, exponent = draw(penalties)
    return BeamConfig(
        name="beam",
        size=size,
        groups=groups,
        diversity=draw(st.sampled_from([0.1, 0.5, 2.0])) if groups > 1 else 0.0,
        normalization=normalization,
        length_penalty=exponent,
        patience=draw(st.sampled_from([1.0, 1.0, 1.3, 2.0, 4.0])),
    )


@given(configs(), seeds, st.integers(2, 5), st.sampled_from([0.7, 1.5]), st.integers(0, 3), st.data())
@examples(150)
def test_all_endings_are_those_of_the_plain_search(
    table_model: Any, random_table: Any, config: BeamConfig, seed: int, vocab: int, sharpness: float, minimum: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    """Groups, patience and penalties together; and asking for fewer gives the first of them."""
    tables = [random_table(seed + place, vocab, sharpness) for place in range(3)]
    limits = [data.draw(st.integers(0, 7)), data.draw(st.integers(1, 7)), 7]
    expected = [plain_beam(table, config, max(limit, 1), minimum) for table, limit in zip(tables, limits, strict=True)]
    for num_best in sorted({1, data.draw(st.integers(1, config.size)), config.size}):
        found = run(table_model(tables), config, limits, num_best, minimum)
        for hypotheses, best, limit in zip(found, expected, limits, strict=True):
            if limit == 0:
                assert hypotheses == [Hypothesis([], 0.0, 0.0, False, [])]
                continue
            assert texts_of(hypotheses) == [(cut, text) for cut, _, text, _ in best[:num_best]]
            for hypothesis, (_, score, _, total) in zip(hypotheses, best, strict=False):
                assert hypothesis.score == pytest.approx(-score, abs=1e-9)
                assert hypothesis.log_probability == pytest.approx(total, abs=1e-9)


ENDS_EARLY = {
    "": [0, 0.36, 0.5, 0.14], "a": [0, 1, 0, 0], "aa": [1, 0, 0, 0], "b": [0, 0, 1, 0], "bb": [0, 0, 1, 0],
    "bbb": [0.04, 0.96, 0, 0], "bbba": [0, 0.26 / 0.48, 0.22 / 0.48, 0], "bbbaa": [0, 0.5, 0.5, 0],
    "bbbab": [0, 1, 0, 0], "bbbaba": [1, 0, 0, 0], "c": [0, 0, 0, 1], "cc": [0, 0, 0, 1],
}  # fmt: skip


def test_hopeless_rows_keep_their_places_from_endings(table_model: Any) -> None:
    """After "aa" has ended, "ccc" cannot win; without it "bbb" would end in its place, and "bbbab" have none."""

    def table(text: str) -> Sequence[float]:
        return ENDS_EARLY.get(text, [0, 1, 0, 0])

    config = BeamConfig(name="beam", size=3)
    [[best]] = run(table_model([table]), config, [7], 1)
    assert texts_of([best]) == [(False, "bbbaba")]
    assert best.score == pytest.approx(math.log(0.22) * 6 / 12, abs=1e-9)
    assert plain_beam(table, config, 7)[0][2] == "bbbaba"


def test_an_example_ends_when_none_of_its_rows_can_win(table_model: Any, random_table: Any) -> None:
    """Stopping loses nothing, and saves steps."""
    steps: Counter[bool] = Counter()
    for seed, stopping in itertools.product(range(60), (True, False)):
        with pytest.MonkeyPatch.context() as patch:
            if not stopping:
                patch.setattr(Endings, "may_win", lambda self, example_X, total_X: np.ones(len(total_X), dtype=bool))
            model = table_model([random_table(seed, 5, 2.0)])
            config = BeamConfig(name="beam", size=4, patience=2.0, length_penalty=0.5)
            [[best]] = run(model, config, [9], 1)
            steps[stopping] += len(model.texts[0])
            if stopping:
                wanted = best
            else:
                assert best == wanted
    assert steps[True] < steps[False]


@given(seeds, shapes.filter(lambda shape: shape[1] > 1), penalties)
@examples(40)
def test_groups_that_hardly_differ_are_one_beam_of_their_size(
    table_model: Any, random_table: Any, seed: int, shape: tuple[int, int], penalty: tuple[Any, float]
) -> None:
    """And the first group is such a beam however much the others differ from it."""
    size, groups = shape
    of_beam = {"name": "beam", "normalization": penalty[0], "length_penalty": penalty[1]}
    tables, limits = [random_table(seed + place, 4, 1.0) for place in range(2)], [6, 4]
    group = run(table_model(tables), BeamConfig(**of_beam, size=size // groups), limits, size // groups)
    for diversity in (1e-12, 1.0):
        config = BeamConfig(**of_beam, size=size, groups=groups, diversity=diversity)
        for all_of_them, first in zip(run(table_model(tables), config, limits, size), group, strict=True):
            assert len(set(texts_of(all_of_them))) == len(all_of_them)
            assert set(texts_of(first)) <= set(texts_of(all_of_them))
            if diversity < 1:
                assert texts_of(all_of_them) == texts_of(first)


@given(seeds, st.integers(2, 5), penalties, st.sampled_from([0.5, 1.5, 3.0]), st.data())
@examples(150)
def test_required_terms_are_always_there_and_banned_phrases_never(
    has_terms: Any, table_model: Any, random_table: Any, seed: int, size: int, penalty: tuple[Any, float],
    sharpness: float, data: st.DataObject,
) -> None:  # fmt: skip
    """In a limit that leaves room, however improbable they are: these outputs are about as long as they can be."""
    phrases = ["a", "b", "ab", "aa", "a b", "b a", "aba"]
    term = st.lists(st.sampled_from(phrases), min_size=1, max_size=2, unique=True).map(tuple)
    asked = [data.draw(st.tuples(st.lists(term, max_size=3), st.booleans(), st.integers(0, 4))) for _ in range(2)]
    banned = data.draw(st.lists(st.sampled_from(phrases), min_size=1, max_size=3, unique=True))
    requests = [Request(data.draw(st.integers(1, 7)), banned=BannedPhrases([PhraseMatcher(SPELLINGS, (phrase,))
                                                                            for phrase in banned]))]  # fmt: skip
    for terms, ordered, spare in asked:
        required = RequiredTerms([PhraseMatcher(SPELLINGS, each) for each in terms], ordered=ordered)
        limit = required.need(required.start()) + 1 + spare
        requests.append(Request(limit, data.draw(st.sampled_from([0, limit - 1, spare])), required=required))
    tables = [random_table(seed + place, 5, sharpness) for place in range(3)]
    config = BeamConfig(name="beam", size=size, normalization=penalty[0], length_penalty=penalty[1])
    first, *others = search(table_model(tables), config, requests, eos_id=0, num_best=size)
    for hypothesis in first:
        text = "".join(TEXTS[token] for token in hypothesis.tokens)
        assert not any(has_terms(text, [(phrase,)], ordered=True) for phrase in banned)
    for hypotheses, (terms, ordered, _) in zip(others, asked, strict=True):
        assert hypotheses[0].finished
        for hypothesis in hypotheses:
            if hypothesis.finished:
                text = "".join(TEXTS[token] for token in hypothesis.tokens)
                assert has_terms(text, terms, ordered=ordered)


def test_of_the_tokens_that_bring_a_term_nearer_the_most_probable_is_tried(table_model: Any) -> None:
    """Neither is among the two most probable ones, and the limit leaves room for nothing else."""
    required = RequiredTerms([PhraseMatcher(SPELLINGS, ["a", "b"])], ordered=False)
    for shares, wanted in (([0.1, 0.02, 0.04, 0.5, 0.34], 2), ([0.1, 0.04, 0.02, 0.5, 0.34], 1)):
        model = table_model([lambda text, shares=shares: shares])
        config = BeamConfig(name="beam", size=2)
        [[best]] = search(model, config, [Request(2, required=required)], eos_id=0)
        assert best.tokens == [wanted]
        assert best.finished
