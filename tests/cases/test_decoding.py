"""Reported faults of searches, by the id of their case."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from transformer.data.batches.collate import pad
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.decoding.greedy import step_by_step
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules
from transformer.decoding.sampling import probabilities, sample_search
from transformer.decoding.search import search
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.models.stepping import ContinuationSteps, TranslationSteps

GREEDY = GreedyConfig(name="greedy")


def beam_search(model, config, *, limits, num_best=1):
    return search(model, config, [Request(limit) for limit in limits], eos_id=0, num_best=num_best)


def greedy_search(model, *, limits):
    return [hypothesis for [hypothesis] in beam_search(model, GREEDY, limits=limits)]


# Rows are the probabilities of E, a, b.


def _early_stop(text):
    return {"": [0.0, 0.6, 0.4], "a": [0.5, 0.3, 0.2], "b": [0.1, 0.2, 0.7], "bb": [0.95, 0.03, 0.02]}.get(
        text, [0.98, 0.01, 0.01]
    )


def _table_a(text):
    return {"": [0.0001, 0.9, 0.0999], "a": [0.9, 0.07, 0.03]}.get(text, [0.001, 0.6, 0.399])


def _table_b(text):
    if text == "b" * len(text) and len(text) < 5:
        return [0.0001, 0.0999, 0.9]
    return [0.95, 0.03, 0.02] if text == "bbbbb" else [0.001, 0.6, 0.399]


def _never_ends(text):
    return [[0.0, 0.6, 0.4], [0.0, 0.7, 0.3], [0.0, 0.8, 0.2]][min(len(text), 2)]


def _a_then_end(text):
    return [0.0, 0.9, 0.1] if text == "" else [0.9, 0.05, 0.05]


def _beam(size=2, normalization="average", length_penalty=1.0):
    return BeamConfig(name="beam", size=size, normalization=normalization, length_penalty=length_penalty)


def _text(hypothesis):
    return "".join("Eab"[token] for token in hypothesis.tokens)


DEC_01 = pytest.mark.parametrize(
    ("normalization", "length_penalty", "text", "log_probability", "score"),
    [
        ("average", 1.0, "bb", -1.3243, -0.4414),
        ("gnmt", 1.0, "bb", -1.3243, -0.9932),
        ("gnmt", 0.0, "a", -1.2040, -1.2040),
        ("average", 0.0, "a", -1.2040, -1.2040),
        ("gnmt", 0.6, "a", -1.2040, -1.0976),
    ],
)


@DEC_01
@pytest.mark.parametrize("num_best", [1, 2])
def test_DEC_01_a_longer_output_may_still_win(
    table_model, normalization, length_penalty, text, log_probability, score, num_best
):
    config = _beam(2, normalization, length_penalty)
    [found] = beam_search(table_model([_early_stop]), config, limits=[5], num_best=num_best)
    assert len(found) == num_best
    assert _text(found[0]) == text
    assert found[0].log_probability == pytest.approx(log_probability, abs=5e-5)
    assert found[0].score == pytest.approx(score, abs=5e-5)
    assert found[0].finished


def test_DEC_01_the_values_tell_early_stopping(table_model, monkeypatch):
    def may_win(self, example_X, total_X):  # the fault: whatever ends first wins
        return np.array([not self.hypotheses[example] for example in example_X.tolist()], dtype=bool)

    monkeypatch.setattr("transformer.decoding.endings.Endings.may_win", may_win)
    [[hypothesis]] = beam_search(table_model([_early_stop]), _beam(), limits=[5])
    assert _text(hypothesis) == "a"


@pytest.mark.parametrize("config", [_beam(2), _beam(2, "gnmt"), _beam(2, "gnmt", 0.0), _beam(1), None])
def test_DEC_02_sentences_of_a_batch_do_not_disturb_each_other(table_model, config):
    expected = {_table_a: ("a", math.log(0.81)), _table_b: ("bbbbb", math.log(0.9**5 * 0.95))}
    assert [round(log, 4) for _, log in expected.values()] == [-0.2107, -0.5781]
    for order in ([_table_a], [_table_b], [_table_a, _table_b], [_table_b, _table_a]):
        model, limits = table_model(order), [8] * len(order)
        if config is None:
            hypotheses = greedy_search(model, limits=limits)
        else:
            hypotheses = [best for [best] in beam_search(model, config, limits=limits)]
        for table, hypothesis in zip(order, hypotheses, strict=True):
            assert (_text(hypothesis), hypothesis.finished) == (expected[table][0], True)
            assert hypothesis.log_probability == pytest.approx(expected[table][1], abs=1e-6)


@pytest.mark.parametrize("config", [_beam(4, "gnmt"), _beam(1), GreedyConfig(name="greedy")])
def test_DEC_02_real_model_in_any_batch(tiny_bundle, config):
    bundle = tiny_bundle("encoder_decoder", seed=3, max_length=12)
    generator = random.Random(0)
    sources = [[generator.randrange(4, bundle.model.vocab_size) for _ in range(length)] for length in range(1, 8)]

    def run(numbers):
        source_BS, mask_BS = pad([[*sources[number], 2] for number in numbers], 0)
        with torch.inference_mode():
            session = TranslationSteps(bundle.model, source_BS, mask_BS, bos_id=1)
            requests = [Request(10, line=number) for number in numbers]
            return [best for [best] in search(session, config, requests, eos_id=2)]

    alone = [run([number])[0] for number in range(7)]
    assert len({tuple(hypothesis.tokens) for hypothesis in alone}) > 3  # the sources matter
    for size in (1, 2, 3, 7):
        order = generator.sample(range(7), 7)
        for numbers in (order[start : start + size] for start in range(0, 7, size)):
            for number, hypothesis in zip(numbers, run(numbers), strict=True):
                assert hypothesis.tokens == alone[number].tokens
                assert hypothesis.score == pytest.approx(alone[number].score, abs=1e-4)
                assert 2 not in hypothesis.tokens


def test_DEC_04_the_limit_cuts_what_has_not_ended(table_model):
    [found] = beam_search(table_model([_never_ends]), _beam(2, "gnmt", 0.0), limits=[3], num_best=2)
    assert [(_text(hypothesis), hypothesis.finished) for hypothesis in found] == [("aaa", False), ("baa", False)]
    assert [math.exp(hypothesis.log_probability) for hypothesis in found] == pytest.approx([0.336, 0.224], abs=1e-6)
    assert [hypothesis.log_probability for hypothesis in found] == pytest.approx([-1.0906, -1.4961], abs=5e-5)


@pytest.mark.parametrize("max_tokens_per_batch", [1, 20, 1000])  # one line, two or so, all lines at once
def test_DEC_06_empty_lines_inside_a_batch(tiny_bundle, max_tokens_per_batch):
    translator = Translator(tiny_bundle("encoder_decoder"))
    lines = ["ein Hund", "", "   ", "zwei Katzen", ""]
    outputs = translator.translate(lines, max_tokens_per_batch=max_tokens_per_batch)
    [dog], [cats] = translator.translate(lines[:1]), translator.translate(lines[3:4])
    assert outputs == [dog, "", "", cats, ""]
    assert dog != cats
    assert dog.strip()
    assert cats.strip()


def test_DEC_06_many_lines_with_every_fourth_blank(tiny_bundle):
    translator = Translator(tiny_bundle("encoder_decoder"))
    lines = ["" if number % 4 == 0 else f"zeile {number}" for number in range(1, 1301)]
    quick = GreedyConfig(name="greedy", max_new_tokens=6)
    outputs = translator.translate(lines[:1024], quick) + translator.translate(lines[1024:], quick, first_line=1025)
    assert len(outputs) == 1300
    assert [number for number, output in enumerate(outputs, 1) if output == ""] == list(range(4, 1301, 4))
    assert len(set(outputs)) > 20
    for number in range(0, 1300, 13):
        assert translator.translate([lines[number]], quick) == [outputs[number]]


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize(
    ("table", "limit", "text", "finished"),
    [
        (_never_ends, 0, "", False),
        (_never_ends, 1, "a", False),
        (_never_ends, 2, "aa", False),
        (_never_ends, 3, "aaa", False),
        (_never_ends, 10, "a" * 10, False),
        (_a_then_end, 0, "", False),
        (_a_then_end, 1, "a", False),
        (_a_then_end, 2, "a", True),
        (_a_then_end, 5, "a", True),
    ],
)
def test_DEC_07_length_limits_are_exact(table_model, size, table, limit, text, finished):
    """The end token takes one of the tokens that the limit allows; greedy search and beams agree."""
    if size is None:
        [hypothesis] = greedy_search(table_model([table]), limits=[limit])
    else:
        [[hypothesis]] = beam_search(table_model([table]), _beam(size), limits=[limit])
        if limit > 0:  # the length that scores are divided by is the number of tokens
            length = len(text) + finished
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / length, abs=1e-6)
    assert (_text(hypothesis), hypothesis.finished) == (text, finished)


DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.float32])


@DTYPES
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"temperature": 1.0}, [0.6652, 0.2447, 0.0900]),
        ({"temperature": 0.5}, [0.8668, 0.1173, 0.0159]),
        ({"temperature": 1e-4}, [1, 0, 0]),
        ({"temperature": 1e-6}, [1, 0, 0]),
        ({"temperature": 0.0}, [1, 0, 0]),
        ({"top_k": 2}, [0.7311, 0.2689, 0]),
        ({"top_k": 50}, [0.6652, 0.2447, 0.0900]),
        ({"top_p": 0.9}, [0.7311, 0.2689, 0]),
        ({"top_p": 1e-4}, [1, 0, 0]),
    ],
)
def test_DEC_09_extreme_sampling_settings(table_model, dtype, settings, expected):
    config = SampleConfig(name="sample", **settings)
    logits = torch.tensor([[2.0, 1.0, 0.0]], dtype=dtype)
    assert probabilities(logits, config)[0].tolist() == pytest.approx(expected, abs=5e-5)

    class OneStep:
        def start(self):
            return logits.expand(500, 3)

    rules = Rules(config, [Request(1, line=line) for line in range(500)], eos_id=9)
    runs = [[sample for [sample] in sample_search(OneStep(), config, rules)] for _ in range(2)]
    assert runs[0] == runs[1]  # same seed, same sample
    assert {token for hypothesis in runs[0] for token in hypothesis.tokens} == {
        token for token, share in enumerate(expected) if share > 0
    }


@pytest.mark.parametrize(
    "settings", [{"temperature": -1.0}, {"top_k": 0}, {"temperature": math.inf}, {"temperature": math.nan}]
)
def test_DEC_09_senseless_settings_are_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        SampleConfig.from_plain({"name": "sample", **settings})


def _logits_of_a_run(bundle, prompts, steps=5):
    """Logits of each greedy step, all prompts of the same length."""
    rows = []

    def choose(logits_MV, examples):
        rows.append(logits_MV.clone())
        return logits_MV.argmax(-1)

    prompt_BL = torch.tensor(prompts)
    session = ContinuationSteps(bundle.model, prompt_BL, torch.ones_like(prompt_BL, dtype=torch.bool))
    step_by_step(session, choose, Rules(GREEDY, [Request(steps)] * len(prompts), eos_id=-1))
    return torch.stack(rows)


class InterruptedRunError(Exception):
    pass


def test_DEC_10_nothing_is_left_of_an_earlier_call(tiny_bundle):
    settings = {"seed": 5, "max_length": 32, "position": "rotary"}
    used = tiny_bundle("decoder_only", **settings)
    long = [5 + 3 * k for k in range(12)]
    short = [39, 5, 7, 40]
    fresh = {
        name: _logits_of_a_run(tiny_bundle("decoder_only", **settings), [prompt])
        for name, prompt in (("long", long), ("short", short))
    }
    assert (fresh["long"][0] - fresh["short"][0]).abs().max() > 1e-2
    for prompt, expected in ((long, "long"), (short, "short"), (long, "long")):
        assert (_logits_of_a_run(used, [prompt]) - fresh[expected]).abs().max() < 1e-5
    _logits_of_a_run(used, [short, short[::-1], [6, 6, 6, 6]])
    assert (_logits_of_a_run(used, [long]) - fresh["long"]).abs().max() < 1e-5

    steps = itertools.count()

    def interrupt(logits_MV, examples):
        if next(steps) == 3:
            raise InterruptedRunError
        return logits_MV.argmax(-1)

    prompt_BL = torch.tensor([short])
    session = ContinuationSteps(used.model, prompt_BL, torch.ones_like(prompt_BL, dtype=torch.bool))
    with pytest.raises(InterruptedRunError):
        step_by_step(session, interrupt, Rules(GREEDY, [Request(9)], eos_id=-1))
    assert (_logits_of_a_run(used, [long]) - fresh["long"]).abs().max() < 1e-5


def test_DEC_10_texts_of_one_generator_equal_those_of_fresh_ones(tiny_bundle):
    generator = Generator(tiny_bundle("decoder_only", max_length=32))
    first, second = "once upon a ", "then"
    fresh = [Generator(tiny_bundle("decoder_only", max_length=32)).generate([text])[0] for text in (first, second)]
    assert fresh[0] != fresh[1]
    assert generator.generate([first]) == fresh[:1]
    assert generator.generate([second]) == fresh[1:]
    generator.generate(["aaaa", "bbbb", "cccc"])
    assert generator.generate([first]) == fresh[:1]
