"""A sentence's outputs depend on nothing but the sentence: not on batch, order, padding, batch size or threads."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.decoding.interface import Hypothesis, Request, StepModel
from transformer.decoding.phrases import PhraseMatcher
from transformer.decoding.search import search
from transformer.decoding.terms import BannedPhrases, RequiredTerms
from transformer.decoding.token_texts import TokenTexts
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import ContinuationSteps, TranslationSteps

END, START = 0, 1
TEXTS = [None, None, b"a", b"b", b"c", b" ", b"ab", b" a", b"ba", b"."]
VOCAB = len(TEXTS)
SPELLINGS = TokenTexts(TEXTS)
PHRASES = {text: PhraseMatcher(SPELLINGS, [text]) for text in ("a", "b", "ab", "a b", "c.")}
LONGEST = 7

Session = Callable[[Sequence[int], bool, int], StepModel]  # of which sentences, padded on the left, by how much more


def examples(number: int) -> settings:
    return settings(max_examples=number, derandomize=True, deadline=None, database=None)


@pytest.fixture(autouse=True, scope="module")
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Settings(NamedTuple):
    """One search and what is asked of each sentence."""

    config: GreedyConfig | BeamConfig | SampleConfig
    requests: list[Request]
    num_best: int


@st.composite
def stacks(draw: st.DrawFn) -> dict[str, Any]:
    """Settings that both models share."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    return {
        "d_model": 16,
        "num_heads": 4,
        "num_kv_heads": draw(st.sampled_from([4, 4, 2, 1])),
        "d_ff": 16,
        "max_length": 24,
        "activation": draw(st.sampled_from(["relu", "swiglu"])),
        "norm": draw(st.sampled_from(["layer_norm", "rms_norm"])),
        "norm_position": draw(st.sampled_from(["pre", "post"])),
        "position": draw(st.sampled_from(["sinusoidal", "learned", "rotary", "alibi"])),
        "qk_norm": draw(st.booleans()),
        "initialization": "normal",
        "init_std": 0.5,
    }


@st.composite
def sentences(draw: st.DrawFn) -> list[list[int]]:
    """Three of different lengths, mostly."""
    return [draw(st.lists(st.integers(2, VOCAB - 1), min_size=1, max_size=7)) for _ in range(3)]


@st.composite
def searches(draw: st.DrawFn, kind: str) -> Settings:
    shared = {
        "repetition_penalty": draw(st.sampled_from([1.0, 1.0, 1.5])),
        "no_repeat_ngram": draw(st.sampled_from([None, None, 2])),
    }
    limits = st.integers(0, LONGEST)
    requests = [Request(draw(limits), draw(st.sampled_from([0, 0, 3])), line) for line in (5, 7, 11)]
    if draw(st.booleans()):
        prefix = tuple(draw(st.lists(st.integers(2, VOCAB - 1), max_size=3)))
        requests[1] = Request(LONGEST, line=7, prefix=prefix, banned=BannedPhrases([PHRASES["a"], PHRASES["ab"]]))
    if kind == "greedy":
        return Settings(GreedyConfig(name="greedy", **shared), requests, 1)
    if kind == "sample":
        cuts = draw(st.sampled_from([{}, {"top_k": 4}, {"top_p": 0.9, "temperature": 1.5}, {"epsilon": 0.05}]))
        config = SampleConfig(name="sample", seed=draw(st.integers(0, 99)), **shared, **cuts)
        return Settings(config, requests, draw(st.integers(1, 3)))
    size = draw(st.integers(2, 5))
    beam: dict[str, Any] = {"normalization": draw(st.sampled_from(["gnmt", "average"]))}
    if kind == "constrained":
        terms = draw(st.lists(st.sampled_from(sorted(PHRASES)), min_size=1, max_size=2))
        for place in (0, 2) if draw(st.booleans()) else (0,):
            required = RequiredTerms([PHRASES[term] for term in terms], ordered=draw(st.booleans()))
            requests[place] = Request(required.need(required.start()) + 3, line=3, required=required)
    else:
        beam["patience"] = draw(st.sampled_from([1.0, 2.0]))
        if size == 4 and draw(st.booleans()):
            beam |= {"groups": 2, "diversity": 0.5}
    if kind == "covering":
        beam["coverage_penalty"] = 0.5
    return Settings(BeamConfig(name="beam", size=size, **beam, **shared), requests, draw(st.integers(1, size)))


def run(session: StepModel, wanted: Settings, numbers: Sequence[int]) -> list[list[Hypothesis]]:
    requests = [wanted.requests[number] for number in numbers]
    return search(session, wanted.config, requests, eos_id=END, suppressed=[START], num_best=wanted.num_best)


def assert_nothing_else_matters(session: Session, wanted: Settings, data: st.DataObject) -> None:
    """Two alone on one thread; together with a third in any order, padded on either side; or in batches of two."""
    torch.set_num_threads(1)
    order, batch = data.draw(st.permutations(range(3))), data.draw(st.sampled_from([3, 3, 2]))
    left, more = data.draw(st.booleans()), data.draw(st.integers(0, 2))
    alone = {number: run(session([number], False, 0), wanted, [number])[0] for number in order[:2]}
    torch.set_num_threads(data.draw(st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2])))
    order = data.draw(st.permutations(order))
    for start in range(0, 3, batch):
        numbers = order[start : start + batch]
        together = run(session(numbers, left, more), wanted, numbers)
        for number, found in zip(numbers, together, strict=True):
            if number not in alone:
                continue
            assert [each.tokens for each in found] == [each.tokens for each in alone[number]]
            assert [each.finished for each in found] == [each.finished for each in alone[number]]
            for one, other in zip(found, alone[number], strict=True):
                assert one.score == pytest.approx(other.score, abs=1e-4)
                assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
                assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)


def padded(rows: Sequence[Sequence[int]], left: bool, more: int) -> tuple[Tensor, Tensor]:
    """Rows padded to one length on either side, and True for the real tokens."""
    length = max(map(len, rows)) + more
    ids, real = torch.full((len(rows), length), START), torch.zeros(len(rows), length, dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(length - len(row), length) if left else slice(0, len(row))
        ids[index, place], real[index, place] = torch.tensor(row), True
    return ids, real


@pytest.mark.parametrize("kind", ["greedy", "beam", "covering", "sample", "constrained"])
@given(stacks(), st.integers(1, 2), sentences(), st.data())
@examples(56)
def test_a_translation_depends_on_its_source_alone(
    kind: str, stack: dict[str, Any], layers: int, sources: list[list[int]], data: st.DataObject
) -> None:
    stack |= {"num_encoder_layers": 1, "num_decoder_layers": layers, "tie_embeddings": "none"}
    config = EncoderDecoderConfig.from_plain({"name": "encoder_decoder"} | stack)
    model, attending = EncoderDecoder(config, VOCAB, VOCAB).eval(), kind == "covering"

    def session(numbers: Sequence[int], left: bool, more: int) -> StepModel:
        ids, real = padded([sources[number] for number in numbers], left, more)
        return TranslationSteps(model, ids, real, START, attending=attending)

    assert_nothing_else_matters(session, data.draw(searches(kind)), data)


@pytest.mark.parametrize("kind", ["greedy", "beam", "sample", "constrained"])
@given(stacks(), st.sampled_from([None, None, 2, 3]), sentences(), st.data())
@examples(56)
def test_a_continuation_depends_on_its_prompt_alone(
    kind: str, stack: dict[str, Any], window: int | None, prompts: list[list[int]], data: st.DataObject
) -> None:
    config = DecoderOnlyConfig.from_plain(
        {"name": "decoder_only", "num_layers": 2, "sliding_window": window, "tie_embeddings": False} | stack
    )
    model = DecoderOnly(config, VOCAB).eval()

    def session(numbers: Sequence[int], left: bool, more: int) -> StepModel:
        return ContinuationSteps(model, *padded([prompts[number] for number in numbers], True, more))

    assert_nothing_else_matters(session, data.draw(searches(kind)), data)


def test_nor_does_it_on_threads_where_they_share_the_work() -> None:
    """A model large enough that torch splits its products."""
    torch.manual_seed(4)
    stack = {"d_model": 128, "num_heads": 4, "max_length": 64, "initialization": "normal", "init_std": 0.1}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "tie_embeddings": "none"}
    config = EncoderDecoderConfig.from_plain({"name": "encoder_decoder"} | stack | layers)
    model, sources = EncoderDecoder(config, 2000, 2000).eval(), torch.randint(2, 2000, (6, 30))
    found = []
    for threads, at_once in ((1, 6), (2, 6), (2, 3)):
        torch.set_num_threads(threads)
        found.append([])
        for part in sources.split(at_once):
            session = TranslationSteps(model, part, torch.ones_like(part, dtype=torch.bool), START)
            found[-1] += search(
                session, BeamConfig(name="beam", size=4), [Request(8)] * at_once, eos_id=END, num_best=2
            )
    for other in found[1:]:
        for hypotheses, expected in zip(other, found[0], strict=True):
            assert [each.tokens for each in hypotheses] == [each.tokens for each in expected]
            assert [each.score for each in hypotheses] == pytest.approx([each.score for each in expected], abs=1e-4)
    assert len({tuple(best.tokens) for best, _ in found[0]}) > 1


@pytest.mark.parametrize("kind", ["beam", "groups", "constrained"])
def test_nor_do_equal_totals_depend_on_the_batch(table_model: Any, kind: str) -> None:
    """Where all tokens are as probable, the row and the token decide, wherever the rows stand."""

    def even(text: str) -> list[float]:
        return [0.1, 0.3, 0.3, 0.3]

    more = {"groups": 2, "diversity": 0.5} if kind == "groups" else {}
    config = BeamConfig(name="beam", size=4, **more)
    required = None
    if kind == "constrained":
        spellings = TokenTexts([None, b"a", b"b", b" "])
        required = RequiredTerms([PhraseMatcher(spellings, ["a b"]), PhraseMatcher(spellings, ["bb"])], ordered=False)
    request = Request(12, required=required)
    [alone] = search(table_model([even]), config, [request], eos_id=END, num_best=4)
    for before in ([], [1], [2], [3, 1], [1, 4, 2], [5, 2, 3, 3]):  # limits of those whose rows leave gaps
        requests = [*map(Request, before), request, Request(2), request]
        found = search(table_model([even] * len(requests)), config, requests, eos_id=END, num_best=4)
        assert found[len(before)] == alone
        assert found[-1] == alone
