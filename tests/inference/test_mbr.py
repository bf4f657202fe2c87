"""Minimum Bayes risk against the definition, on samples that are given."""

import re

import pytest
from pydantic import ValidationError
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer.bundle import Bundle
from transformer.decoding.config import MbrConfig, SampleConfig
from transformer.inference.constraints import Constraints
from transformer.inference.mbr import least_risk
from transformer.inference.output import BLANK, Output
from transformer.inference.translator import Translator

SAMPLES = ["ein hund", "ein hund rennt", "ein hund rennt", "eine katze", "der hund rennt", "ein hund"]
REST = {"constraints": None, "tags": None, "bleu_tokenize": "13a", "max_tokens_per_batch": 2048, "first_line": 1}


class Sampler:
    """Stands in for a translator: gives the samples of each text, and keeps what it was asked."""

    def __init__(self, samples, log_probabilities=None):
        self.samples, self.asked = samples, []
        self.log_probabilities = log_probabilities or [-1.0] * len(samples)

    def search(self, texts, decoding, **settings):
        self.asked.append((decoding, settings))
        drawn = zip(self.samples, self.log_probabilities, strict=True)
        outputs = [Output(t, [7 + place], p, p, True, [p]) for place, (t, p) in enumerate(drawn)]
        return [outputs[: settings["num_best"]] if text.strip() else [BLANK] for text in texts]


def _config(samples=6, **settings):
    return MbrConfig(name="mbr", samples=samples, **settings)


def _expected(text, samples, utility):
    metric = {"chrf": CHRF(), "bleu": BLEU(effective_order=True)}[utility]
    return sum(metric.sentence_score(text, [sample]).score for sample in samples) / len(samples)


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_the_score_is_the_mean_utility_with_all_samples(utility):
    [outputs] = least_risk(Sampler(SAMPLES), ["x"], _config(utility=utility), num_best=6, **REST)
    assert {output.text for output in outputs} == set(SAMPLES)
    assert len(outputs) == 4  # different ones
    for output in outputs:
        assert output.score == pytest.approx(_expected(output.text, SAMPLES, utility), abs=1e-9)
    scores = [output.score for output in outputs]
    assert scores == sorted(scores, reverse=True)
    assert outputs[0].text == "ein hund rennt"


def test_words_are_cut_as_the_data_says(tiny_bundle):
    """By 13a a Chinese sentence is one word, and two that differ in one character have nothing in common."""
    samples = ["今天天气很好我们去公园", "今天天气很好我们去学校", "昨天下雨他在家里睡觉", "今天天气真好我们去公园"]
    rest = {**REST, "bleu_tokenize": "zh"}
    [outputs] = least_risk(Sampler(samples), ["x"], _config(4, utility="bleu"), num_best=4, **rest)
    metric = BLEU(tokenize="zh", effective_order=True)
    for output in outputs:
        expected = sum(metric.sentence_score(output.text, [sample]).score for sample in samples) / 4
        assert output.score == pytest.approx(expected, abs=1e-9)
    assert outputs[-1].text == samples[2]
    assert outputs[0].score > 60

    bundle = tiny_bundle("encoder_decoder")
    data = bundle.config.data.model_copy(update={"bleu_tokenize": "char"})
    config = bundle.config.model_copy(update={"data": data})
    translator = Translator(Bundle(config, bundle.model, bundle.source_tokenizer, bundle.target_tokenizer))
    sampling = SampleConfig(name="sample", max_new_tokens=6, temperature=0.7)
    found = translator.search(["hund"], _config(8, utility="bleu", sampling=sampling), num_best=1)
    [texts] = [[each.text for each in drawn] for drawn in translator.search(["hund"], sampling, num_best=8)]
    metric = BLEU(tokenize="char", effective_order=True)
    expected = sum(metric.sentence_score(found[0][0].text, [text]).score for text in texts) / 8
    assert found[0][0].score == pytest.approx(expected, abs=1e-9)


def test_samples_count_as_often_as_they_were_drawn():
    """Each text alone would win by its likeness to the others; being drawn often is what decides."""
    once, often = ["abc", "abd", "xyz"], ["abc", "abd", *["xyz"] * 4]
    assert least_risk(Sampler(once), ["x"], _config(3), num_best=1, **REST)[0][0].text == "abc"
    [[best]] = least_risk(Sampler(often), ["x"], _config(6), num_best=1, **REST)
    assert best.text == "xyz"
    assert best.score == pytest.approx(400 / 6)


def test_fewer_best_ones_are_the_first_of_more():
    every, config = least_risk(Sampler(SAMPLES), ["x"], _config(), num_best=6, **REST), _config()
    for num_best in (1, 2, 3):
        assert least_risk(Sampler(SAMPLES), ["x"], config, num_best=num_best, **REST) == [every[0][:num_best]]


def test_equal_utilities_stay_in_the_order_of_the_draws():
    for samples in (["ab", "cd", "ef"], ["ef", "cd", "ab"]):
        [outputs] = least_risk(Sampler(samples), ["x"], _config(3), num_best=3, **REST)
        assert [output.text for output in outputs] == samples


def test_a_text_has_the_tokens_of_its_most_probable_sample():
    sampler = Sampler(["ab", "cd", "ab", "ab"], [-3.0, -1.0, -2.0, -2.0])
    [[best]] = least_risk(sampler, ["x"], _config(4), num_best=1, **REST)
    assert best == Output("ab", [9], -2.0, 75.0, True, [-2.0])


def test_blank_lines_stay_blank_and_the_rest_is_passed_on():
    sampler, sampling = Sampler(SAMPLES), SampleConfig(name="sample", top_k=3)
    constraints = [Constraints(prefix="a")] * 3
    outputs = least_risk(
        sampler, ["", "x", " \t"], _config(sampling=sampling), num_best=1, constraints=constraints, tags=["<a>"] * 3,
        bleu_tokenize="13a", max_tokens_per_batch=60, first_line=5,
    )  # fmt: skip
    assert [[output.text for output in best] for best in outputs] == [[""], ["ein hund rennt"], [""]]
    assert outputs[0] == [BLANK]
    settings = {"num_best": 6, "constraints": constraints, "tags": ["<a>"] * 3, "first_line": 5}
    assert sampler.asked == [(sampling, {**settings, "max_tokens_per_batch": 60})]
    assert least_risk(sampler, [], _config(), num_best=1, **REST) == []


def test_a_translator_searches_with_it(tiny_bundle):
    """A line's result is of its own samples, whatever the batch."""
    translator, lines = Translator(tiny_bundle("encoder_decoder")), ["abc", "", "hund", "ein haus"]
    sampling = SampleConfig(name="sample", max_new_tokens=6, temperature=0.7)
    config = MbrConfig(name="mbr", samples=8, sampling=sampling)
    together = translator.search(lines, config, num_best=2)
    for number, line in enumerate(lines, start=1):
        [alone] = translator.search([line], config, num_best=2, first_line=number)
        assert [output.text for output in alone] == [output.text for output in together[number - 1]]
        if line:
            [samples] = translator.search([line], sampling, num_best=8, first_line=number)
            texts = [sample.text for sample in samples]
            best = max(texts, key=lambda text: _expected(text, texts, "chrf"))
            assert alone[0].score == pytest.approx(_expected(best, texts, "chrf"), abs=1e-9)
            assert alone[0].text in texts
    assert translator.translate(lines, config) == [outputs[0].text for outputs in together]


@pytest.mark.parametrize("num_best", [0, 7])
def test_no_more_best_ones_than_samples(num_best):
    message = f"the number of best translations must be from 1 to `samples` (6), but is {num_best}."
    with pytest.raises(ValueError, match=re.escape(message)):
        least_risk(Sampler(SAMPLES), ["x"], _config(), num_best=num_best, **REST)


def test_samples_that_cannot_differ_are_refused():
    with pytest.raises(ValidationError, match=r"`sampling.temperature` must be above 0, or all samples are the same"):
        _config(sampling=SampleConfig(name="sample", temperature=0.0))
