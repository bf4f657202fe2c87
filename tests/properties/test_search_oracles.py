"""Searches against all outputs that a small model can give, worked out by teacher forcing in one batch."""

import itertools
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


class Space(NamedTuple):
    """What a model says after each beginning of an output of one example; see ``all_outputs``."""

    logits: dict[Tokens, np.ndarray]
    coverage: dict[Tokens, float]


class Problem(NamedTuple):
    """Examples of one model: how to search in them, and what it says of each."""

    vocab: int
    longest: int
    session: Callable[[], StepModel]
    spaces: list[Space]

    def beam(self, size: int, wanted: dict[str, Any]) -> BeamConfig:
        """Without a penalty for coverage where there is no source."""
        unfit = {} if self.spaces[0].coverage else {"coverage_penalty": 0.0}
        return BeamConfig(name="beam", size=size, **wanted | unfit)


def table_problem(seed: int, vocab: int, longest: int, random_table: Any, table_model: Any) -> Problem:
    tables = [random_table(seed + place, vocab, 1.0) for place in range(2)]

    def space(table: Callable[[str], list[float]]) -> Space:
        beginnings = [tokens for size in range(longest) for tokens in itertools.product(range(1, vocab), repeat=size)]
        return Space({each: np.log(table("".join("Eabcd"[token] for token in each))) for each in beginnings}, {})

    return Problem(vocab, longest, lambda: table_model(tables), [space(table) for table in tables])


@st.composite
def problems(draw: st.DrawFn, sizes: Sequence[tuple[int, int]] = SPACES, dtype: torch.dtype = torch.float64) -> Problem:
    """A real model with large random weights, and two sources or prompts of different lengths."""
    vocab, longest = draw(st.sampled_from(sizes))
    small = {"d_model": 8, "num_heads": 2, "d_ff": 8, "max_length": 10}
    data = small | {
        "name": draw(st.sampled_from(["encoder_decoder", "decoder_only"])),
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
    rows = zip(tokens_NT.tolist(), logits_NLV, strict=True)
    return Space({tuple(row[:length]): logits_LV[length] for row, logits_LV in rows for length in range(longest)}, {})


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


def assert_same(hypotheses: Sequence[Hypothesis], expected: Sequence[Any], precision: float = 1e-9) -> None:
    shown = [(not each.finished, tuple(each.tokens)) for each in hypotheses]
    assert shown == [(cut, tokens) for cut, _, tokens, _ in expected]
    for hypothesis, (_, negative_score, _, own) in zip(hypotheses, expected, strict=True):
        assert hypothesis.score == pytest.approx(-negative_score, abs=1e-5)
        assert hypothesis.log_probability == pytest.approx(own, abs=precision)
        assert sum(hypothesis.token_log_probabilities) == pytest.approx(own, abs=precision)
        assert len(hypothesis.token_log_probabilities) == len(hypothesis.tokens) + hypothesis.finished


def assert_beam_finds_the_best(
    all_outputs: Any, problem: Problem, wanted: dict[str, Any], data: st.DataObject, precision: float = 1e-9
) -> None:
    vocab, kinds = problem.vocab, ("minimum", "prefix", "terms", "banned")
    asked = [data.draw(demands(vocab, problem.longest, kinds)) for _ in problem.spaces]
    suppressed = data.draw(st.sampled_from([(), (), (1,), (vocab - 1,)]))
    width = sum((vocab - 1) ** length for length in range(problem.longest + 1))
    config = problem.beam(width, wanted)
    num_best, requests = data.draw(st.integers(1, 8)), [demand.request(vocab) for demand in asked]
    found = search(problem.session(), config, requests, eos_id=END, suppressed=suppressed, num_best=num_best)
    for hypotheses, space, demand in zip(found, problem.spaces, asked, strict=True):
        expected = all_outputs(*space, TEXTS, config, demand, suppressed)[:num_best]
        if expected:
            assert_same(hypotheses, expected, precision)
        else:  # every output is forbidden
            assert not any(hypothesis.finished for hypothesis in hypotheses)


@given(problems(), beam_settings(), st.data())
@examples(150)
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(
    all_outputs: Any, problem: Problem, wanted: dict[str, Any], data: st.DataObject
) -> None:
    assert_beam_finds_the_best(all_outputs, problem, wanted, data)


@given(st.integers(0, 2**16), st.sampled_from([each for each in SPACES if each[0] < 6]), beam_settings(), st.data())
@examples(60)
def test_and_so_it_does_in_tables(
    all_outputs: Any, random_table: Any, table_model: Any, seed: int, size: tuple[int, int], wanted: dict[str, Any],
    data: st.DataObject,
) -> None:  # fmt: skip
    problem = table_problem(seed, *size, random_table, table_model)
    assert_beam_finds_the_best(all_outputs, problem, wanted, data)


@given(problems(), beam_settings(), st.data())
@examples(60)
def test_a_beam_of_one_is_greedy_search(problem: Problem, wanted: dict[str, Any], data: st.DataObject) -> None:
    kinds = ("minimum", "prefix", "banned")
    requests = [data.draw(demands(problem.vocab, problem.longest, kinds)).request(problem.vocab) for _ in range(2)]
    config = problem.beam(1, wanted)
    same = {name: wanted[name] for name in ("repetition_penalty", "no_repeat_ngram")}
    greedy = search(problem.session(), GreedyConfig(name="greedy", **same), requests, eos_id=END)
    for [one], [other] in zip(search(problem.session(), config, requests, eos_id=END), greedy, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
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
    all_outputs: Any, models: tuple[Problem, Problem], wanted: dict[str, Any], data: st.DataObject
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
    assert_beam_finds_the_best(all_outputs, both, wanted, data, precision=1e-5)


@given(problems(dtype=torch.float32), beam_settings(), st.integers(2, 6), st.data())
@examples(60)
def test_scores_are_those_of_forcing_the_same_tokens(
    all_outputs: Any, gains: Any, problem: Problem, wanted: dict[str, Any], size: int, data: st.DataObject
) -> None:
    """In float32 (whose rounding depends on the batch, by up to 3e-5), of a narrow beam, token by token."""
    config = problem.beam(size, wanted)
    asked = [data.draw(demands(problem.vocab, problem.longest, ("minimum", "prefix"))) for _ in problem.spaces]
    requests = [demand.request(problem.vocab) for demand in asked]
    found = search(problem.session(), config, requests, eos_id=END, num_best=size)
    for hypotheses, space, demand in zip(found, problem.spaces, asked, strict=True):
        possible = {(cut, tokens): score for cut, score, tokens, _ in all_outputs(*space, TEXTS, config, demand)}
        ranks = [(not hypothesis.finished, -hypothesis.score) for hypothesis in hypotheses]
        assert ranks == sorted(ranks)
        assert len({(hypothesis.finished, *hypothesis.tokens) for hypothesis in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            tokens = [*hypothesis.tokens, END] if hypothesis.finished else hypothesis.tokens
            forced = [gains(space.logits[tuple(tokens[:place])], ())[1][token] for place, token in enumerate(tokens)]
            assert hypothesis.token_log_probabilities == pytest.approx(forced, abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(sum(forced), abs=1e-4)
            if hypothesis.finished or len(hypothesis.tokens) == demand.limit:  # not cut as nothing may follow
                score = -possible[not hypothesis.finished, tuple(hypothesis.tokens)]
                assert hypothesis.score == pytest.approx(score, abs=1e-4)
