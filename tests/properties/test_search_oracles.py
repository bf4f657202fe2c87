"""Searches against all outputs that a small model can give, worked out by teacher forcing in one batch."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.decoding.config import BeamConfig, GreedyConfig
from transformer.decoding.ensemble import EnsembleSteps
from transformer.decoding.interface import Hypothesis, Request, StepModel
from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.search import search
from transformer.decoding.terms import BannedPhrases, RequiredTerms
from transformer.decoding.token_texts import TokenTexts
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import ContinuationSteps, TranslationSteps

END = 0  # also the start token of targets
TEXTS = (None, b"a", b"b", b" ", b"ab", b".")
TERMS = ("a", "b", "ab", "a b", "b a", "aa", "a.")
PENALTIES = [("gnmt", 0.0), ("gnmt", 0.6), ("gnmt", 1.0), ("average", 1.0), ("average", 0.5), ("average", 2.0)]
SPACES = [(4, 5), (4, 4), (4, 3), (5, 4), (5, 3), (6, 3), (6, 4), (5, 5)]  # tokens of the vocabulary, longest output

Tokens = tuple[int, ...]
Output = tuple[bool, float, Tokens, float]  # whether it is cut, minus its score, its tokens and its log probability


def examples(number: int) -> settings:
    return settings(max_examples=number, derandomize=True, deadline=None, database=None)


@pytest.fixture(scope="module", autouse=True)
def _float64_on_one_thread() -> Iterator[None]:
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Demand:
    """What is asked of one output, as plain data."""

    limit: int
    minimum: int = 0
    prefix: Tokens = ()
    terms: tuple[tuple[str, ...], ...] = ()
    ordered: bool = False
    banned: tuple[str, ...] = ()

    def request(self, vocab: int) -> Request:
        texts = TokenTexts(TEXTS[:vocab])
        required, banned = None, None
        if self.terms:
            required = RequiredTerms([PhraseMatcher(texts, term) for term in self.terms], ordered=self.ordered)
        if self.banned:
            banned = BannedPhrases([PhraseMatcher(texts, (phrase,)) for phrase in self.banned])
        return Request(self.limit, minimum=self.minimum, prefix=self.prefix, required=required, banned=banned)

    def allows_text(self, tokens: Tokens, *, finished: bool) -> bool:
        text = b"".join(TEXTS[token] or b"" for token in tokens).decode()
        if any(in_order(text, [(phrase,)]) for phrase in self.banned):
            return False
        if not finished:
            return True  # the search says so
        return in_order(text, self.terms) if self.ordered else all(
            in_order(text, [term] * count) for term, count in Counter(self.terms).items()
        )  # fmt: skip


def in_order(text: str, terms: Sequence[Sequence[str]], begin: int = 0) -> bool:
    """Whether terms stand in a text one after another as whole words, tried in every place."""
    if not terms:
        return True
    for phrase in terms[0]:
        for place in range(begin, len(text) - len(phrase) + 1):
            end = place + len(phrase)
            inside_word = text[:place][-1:].isalpha() and phrase[0].isalpha()
            inside_word |= text[end:][:1].isalpha() and phrase[-1].isalpha()
            if text[place:end] == phrase and not inside_word and in_order(text, terms[1:], end):
                return True
    return False


@dataclass(frozen=True)
class Space:
    """What a model says after each beginning of an output of one example.

    ``coverage`` is the sum over the source tokens of the logarithm of the attention they got, 1 at most, when the
    token after a beginning was predicted.
    """

    logits: dict[Tokens, np.ndarray]
    coverage: dict[Tokens, float]

    def gains(self, beginning: Tokens, repetition_penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities that the search ranks by, and the model's own."""
        logits = self.logits[beginning].copy()
        own = logits - np.logaddexp.reduce(logits)
        for token in set(beginning):
            logits[token] *= 1 / repetition_penalty if logits[token] > 0 else repetition_penalty
        return logits - np.logaddexp.reduce(logits), own

    def outputs(self, config: Any, demand: Demand, suppressed: Sequence[int] = ()) -> list[Output]:
        """All that are allowed, best first."""
        found: list[Output] = []

        def keep(finished: bool, beginning: Tokens, last: int, total: float, own: float) -> None:
            tokens = beginning if finished else (*beginning, last)
            if demand.allows_text(tokens, finished=finished):
                score = normalized(total, len(beginning) + 1, config)
                score += config.coverage_penalty * self.coverage.get(beginning, 0.0)
                found.append((not finished, -score, tokens, own))

        def extend(beginning: Tokens, total: float, own: float) -> None:
            ranked_V, own_V = self.gains(beginning, config.repetition_penalty)
            for token in range(len(own_V)):
                if may_follow(beginning, token, config, demand, suppressed) and ranked_V[token] > -math.inf:
                    sums = total + ranked_V[token], own + own_V[token]
                    if token == END or len(beginning) + 1 == demand.limit:
                        keep(token == END, beginning, token, *sums)
                    else:
                        extend((*beginning, token), *sums)

        extend((), 0.0, 0.0)
        return sorted(found)


def may_follow(beginning: Tokens, token: int, config: Any, demand: Demand, suppressed: Sequence[int]) -> bool:
    length, size = len(beginning), config.no_repeat_ngram
    if length < len(demand.prefix):
        return token == demand.prefix[length]
    if token == END:
        return length >= demand.minimum
    if size is not None:
        ngram = (*beginning, token)[-size:]
        if any(beginning[place : place + size] == ngram for place in range(length - size + 1)):
            return False
    return token not in suppressed


def normalized(total: float, length: int, config: BeamConfig) -> float:
    base = length if config.normalization == "average" else (5 + length) / 6
    return total / base**config.length_penalty


class Problem(NamedTuple):
    """Examples of one model: how to search in them, and what it says of each."""

    vocab: int
    longest: int
    session: Callable[[], StepModel]
    spaces: list[Space]


def table_problem(seed: int, vocab: int, longest: int, random_table: Any, table_model: Any) -> Problem:
    tables = [random_table(seed + place, vocab, 1.0) for place in range(2)]

    def space(table: Callable[[str], list[float]]) -> Space:
        beginnings = [tokens for size in range(longest) for tokens in itertools.product(range(1, vocab), repeat=size)]
        return Space({each: np.log(table("".join("Eabcd"[token] for token in each))) for each in beginnings}, {})

    return Problem(vocab, longest, lambda: table_model(tables), [space(table) for table in tables])


@st.composite
def problems(
    draw: st.DrawFn, sizes: Sequence[tuple[int, int]] = SPACES, dtype: torch.dtype = torch.float64
) -> Problem:
    """A real model with large random weights, and two sources or prompts of different lengths."""
    vocab, longest = draw(st.sampled_from(sizes))
    data = {
        "name": draw(st.sampled_from(["encoder_decoder", "decoder_only"])),
        "d_model": 8,
        "num_heads": 2,
        "d_ff": 8,
        "max_length": 10,
        "norm_position": draw(st.sampled_from(["pre", "post"])),
        "position": draw(st.sampled_from(["sinusoidal", "learned", "rotary", "alibi"])),
        "initialization": "normal",
        "init_std": draw(st.sampled_from([0.5, 1.0])),
    }
    torch.manual_seed(draw(st.integers(0, 2**16)))
    lengths = draw(st.sampled_from([(1, 3), (3, 1), (2, 2)]))
    inputs = [torch.randint(vocab, (length,)) for length in lengths]
    padded, real = torch.zeros(2, max(lengths), dtype=torch.long), torch.zeros(2, max(lengths), dtype=torch.bool)
    for row, ids in enumerate(inputs):  # on the left, as prompts need it
        padded[row, max(lengths) - len(ids) :], real[row, max(lengths) - len(ids) :] = ids, True
    if data["name"] == "encoder_decoder":
        layers = {"num_encoder_layers": 1, "num_decoder_layers": draw(st.integers(1, 2)), "tie_embeddings": "none"}
        translation = EncoderDecoder(EncoderDecoderConfig.from_plain(data | layers), vocab, vocab).to(dtype).eval()
        spaces = [translation_space(translation, ids, vocab, longest) for ids in inputs]
        return Problem(vocab, longest, lambda: TranslationSteps(translation, padded, real, END, attending=True), spaces)
    layers = {"num_layers": draw(st.integers(1, 2)), "sliding_window": draw(st.sampled_from([None, 3]))}
    language_model = DecoderOnly(DecoderOnlyConfig.from_plain(data | layers), vocab).to(dtype).eval()
    spaces = [continuation_space(language_model, ids, vocab, longest) for ids in inputs]
    return Problem(vocab, longest, lambda: ContinuationSteps(language_model, padded, real), spaces)


def all_longest(vocab: int, longest: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(1, vocab), repeat=longest - 1)), dtype=torch.long)


@torch.no_grad()
def translation_space(model: EncoderDecoder, source: torch.Tensor, vocab: int, longest: int) -> Space:
    tokens_NT = all_longest(vocab, longest)
    input_NT = torch.cat([torch.full((len(tokens_NT), 1), END), tokens_NT], dim=1)
    memory = model.encode(source[None]).memory_BSD.expand(len(tokens_NT), -1, -1)
    decoded = model.decode(input_NT, memory, backend="explicit")
    cross_NHTS = decoded.cross_weights[-1]
    assert cross_NHTS is not None
    covered_NT = cross_NHTS.mean(1).cumsum(1).clamp(max=1.0).log().sum(-1)
    space = Space({}, {})
    for row, logits_TV, covered_T in zip(tokens_NT.tolist(), model.output(decoded.hidden_BTD).numpy(),
                                         covered_NT.tolist(), strict=True):  # fmt: skip
        for length in range(longest):
            space.logits[tuple(row[:length])] = logits_TV[length]
            space.coverage[tuple(row[:length])] = covered_T[length]
    return space


@torch.no_grad()
def continuation_space(model: DecoderOnly, prompt: torch.Tensor, vocab: int, longest: int) -> Space:
    tokens_NT = all_longest(vocab, longest)
    logits_NLV = model(torch.cat([prompt.expand(len(tokens_NT), -1), tokens_NT], dim=1))[:, len(prompt) - 1 :].numpy()
    return Space(
        {
            tuple(row[:length]): logits_LV[length]
            for row, logits_LV in zip(tokens_NT.tolist(), logits_NLV, strict=True)
            for length in range(longest)
        },
        {},
    )


@st.composite
def demands(draw: st.DrawFn, vocab: int, longest: int, kinds: Sequence[str]) -> Demand:
    """Zero to all of the kinds at once."""
    demand = Demand(draw(st.integers(1, longest)))
    chosen = draw(st.sets(st.sampled_from(kinds)))
    phrases = [term for term in TERMS if vocab == 6 or "." not in term]
    if "minimum" in chosen:
        demand = replace(demand, minimum=draw(st.integers(1, longest)))
    if "prefix" in chosen:
        demand = replace(demand, prefix=tuple(draw(st.lists(st.integers(1, vocab - 1), min_size=1, max_size=3))))
    if "terms" in chosen:
        term = st.lists(st.sampled_from(phrases), min_size=1, max_size=2, unique=True).map(tuple)
        terms = draw(st.lists(term, min_size=1, max_size=2))
        demand = replace(demand, terms=(*terms, *terms[: draw(st.integers(0, 1))]), ordered=draw(st.booleans()))
    if "banned" in chosen:
        demand = replace(demand, banned=tuple(draw(st.lists(st.sampled_from(phrases), min_size=1, max_size=2))))
    return demand


@st.composite
def beam_settings(draw: st.DrawFn) -> dict[str, Any]:
    """All that changes what a beam prefers; most of the time not all of it."""
    normalization, exponent = draw(st.sampled_from(PENALTIES))
    return {
        "normalization": normalization,
        "length_penalty": exponent,
        "repetition_penalty": draw(st.sampled_from([1.0, 1.0, 0.6, 1.7])),
        "no_repeat_ngram": draw(st.sampled_from([None, None, 1, 2, 3])),
        "coverage_penalty": draw(st.sampled_from([0.0, 0.4])),
    }


def assert_same(hypotheses: Sequence[Hypothesis], expected: Sequence[Output], precision: float = 1e-9) -> None:
    shown = [(not each.finished, tuple(each.tokens)) for each in hypotheses]
    assert shown == [(cut, tokens) for cut, _, tokens, _ in expected]
    for hypothesis, (_, negative_score, _, own) in zip(hypotheses, expected, strict=True):
        assert hypothesis.score == pytest.approx(-negative_score, abs=1e-5)
        assert hypothesis.log_probability == pytest.approx(own, abs=precision)
        assert sum(hypothesis.token_log_probabilities) == pytest.approx(own, abs=precision)
        assert len(hypothesis.token_log_probabilities) == len(hypothesis.tokens) + hypothesis.finished


def assert_beam_finds_the_best(
    problem: Problem, wanted: dict[str, Any], data: st.DataObject, precision: float = 1e-9
) -> None:
    vocab, kinds = problem.vocab, ("minimum", "prefix", "terms", "banned")
    asked = [data.draw(demands(vocab, problem.longest, kinds)) for _ in problem.spaces]
    suppressed = data.draw(st.sampled_from([(), (), (1,), (vocab - 1,)]))
    width = sum((vocab - 1) ** length for length in range(problem.longest + 1))
    config = BeamConfig(name="beam", size=width, **wanted)
    num_best = data.draw(st.integers(1, 8))
    requests = [demand.request(vocab) for demand in asked]
    found = search(problem.session(), config, requests, eos_id=END, suppressed=suppressed, num_best=num_best)
    for hypotheses, space, demand in zip(found, problem.spaces, asked, strict=True):
        expected = space.outputs(config, demand, suppressed)[:num_best]
        if expected:
            assert_same(hypotheses, expected, precision)
        else:  # every output is forbidden
            assert not any(hypothesis.finished for hypothesis in hypotheses)


@given(problems(), beam_settings(), st.data())
@examples(150)
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(
    problem: Problem, wanted: dict[str, Any], data: st.DataObject
) -> None:
    if not problem.spaces[0].coverage:
        wanted = wanted | {"coverage_penalty": 0.0}
    assert_beam_finds_the_best(problem, wanted, data)


@given(st.integers(0, 2**16), st.sampled_from([each for each in SPACES if each[0] < 6]), beam_settings(), st.data())
@examples(60)
def test_and_so_it_does_in_tables(
    random_table: Any, table_model: Any, seed: int, size: tuple[int, int], wanted: dict[str, Any], data: st.DataObject
) -> None:
    problem = table_problem(seed, *size, random_table, table_model)
    assert_beam_finds_the_best(problem, wanted | {"coverage_penalty": 0.0}, data)


@given(problems(), beam_settings(), st.data())
@examples(60)
def test_a_beam_of_one_is_greedy_search(problem: Problem, wanted: dict[str, Any], data: st.DataObject) -> None:
    shared = {name: wanted[name] for name in ("repetition_penalty", "no_repeat_ngram")}
    kinds = ("minimum", "prefix", "banned")
    requests = [data.draw(demands(problem.vocab, problem.longest, kinds)).request(problem.vocab) for _ in range(2)]
    config = BeamConfig(name="beam", size=1, **wanted | {"coverage_penalty": 0.0})
    greedy = search(problem.session(), GreedyConfig(name="greedy", **shared), requests, eos_id=END)
    for [one], [other] in zip(search(problem.session(), config, requests, eos_id=END), greedy, strict=True):
        assert one.tokens == other.tokens
        assert one.finished == other.finished
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-9)


@st.composite
def ensembles(draw: st.DrawFn) -> tuple[Problem, Problem]:
    """Two models over the same vocabulary, of any kind each."""
    size = draw(st.sampled_from(SPACES))
    return draw(problems([size])), draw(problems([size]))


@given(ensembles(), beam_settings(), st.data())
@examples(30)
def test_an_ensemble_finds_the_best_by_mean_probability(
    models: tuple[Problem, Problem], wanted: dict[str, Any], data: st.DataObject
) -> None:
    one, other = models

    def mean(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        shares = [np.exp(logits - np.logaddexp.reduce(logits)) for logits in (first, second)]
        return np.log((shares[0] + shares[1]) / 2)

    spaces = [
        Space({beginning: mean(a.logits[beginning], b.logits[beginning]) for beginning in a.logits}, {})
        for a, b in zip(one.spaces, other.spaces, strict=True)
    ]
    both = Problem(one.vocab, one.longest, lambda: EnsembleSteps([one.session(), other.session()]), spaces)
    assert_beam_finds_the_best(both, wanted | {"coverage_penalty": 0.0}, data, precision=1e-5)


@given(problems(dtype=torch.float32), beam_settings(), st.integers(2, 6), st.data())
@examples(60)
def test_scores_are_those_of_forcing_the_same_tokens(
    problem: Problem, wanted: dict[str, Any], size: int, data: st.DataObject
) -> None:
    """In float32, of every hypothesis of a narrow beam, token by token."""
    if not problem.spaces[0].coverage:
        wanted = wanted | {"coverage_penalty": 0.0}
    config = BeamConfig(name="beam", size=size, **wanted)
    asked = [data.draw(demands(problem.vocab, problem.longest, ("minimum", "prefix"))) for _ in problem.spaces]
    requests = [demand.request(problem.vocab) for demand in asked]
    found = search(problem.session(), config, requests, eos_id=END, num_best=size)
    for hypotheses, space, demand in zip(found, problem.spaces, asked, strict=True):
        possible = {(cut, tokens): (score, own) for cut, score, tokens, own in space.outputs(config, demand)}
        ranks = [(not hypothesis.finished, -hypothesis.score) for hypothesis in hypotheses]
        assert ranks == sorted(ranks)
        assert len({(hypothesis.finished, *hypothesis.tokens) for hypothesis in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            tokens = [*hypothesis.tokens, END] if hypothesis.finished else hypothesis.tokens
            forced = [
                space.gains(tuple(tokens[:place]), 1.0)[1][token] for place, token in enumerate(tokens)
            ]
            assert hypothesis.token_log_probabilities == pytest.approx(forced, abs=1e-5)
            assert hypothesis.log_probability == pytest.approx(sum(forced), abs=1e-5)
            if hypothesis.finished or len(hypothesis.tokens) == demand.limit:  # not cut as nothing may follow
                negative_score, _ = possible[not hypothesis.finished, tuple(hypothesis.tokens)]
                assert hypothesis.score == pytest.approx(-negative_score, abs=1e-5)
