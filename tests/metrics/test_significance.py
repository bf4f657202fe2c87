"""Paired bootstrap resampling, against the same done by resampling texts."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from transformer.metrics.significance import CHANCE, Estimate, PairedScore, paired_bootstrap
from transformer.metrics.text import Score, bleu, chrf, ter

WORDS = ["a", "the", "dog", "cat", "man", "child", "runs", "sleeps", "sees", "big", "small", "red", "in", "of"]
SEED = 12345  # sacreBLEU's


def corpus(share: float, seed: int = 1, size: int = 30) -> tuple[list[str], list[str]]:
    """References, and translations that get about this share of the words right."""
    rng = random.Random(seed)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(size)]
    rng = random.Random(f"{share}")
    return references, [
        " ".join(word if rng.random() < share else rng.choice(WORDS) for word in reference.split())
        for reference in references
    ]


@pytest.mark.parametrize(("number", "score"), [(0, bleu), (1, chrf), (2, ter)])
def test_the_same_by_resampling_texts(number: int, score: Callable[..., Score]) -> None:
    references, system = corpus(0.7)
    _, baseline = corpus(0.62)
    n, num_resamples = len(references), 40
    places = np.random.default_rng(SEED).choice(n, size=(num_resamples, n), replace=True)

    def resampled(texts: Sequence[str]) -> np.ndarray:
        values = [score([texts[i] for i in row], [references[i] for i in row]).value for row in places]
        return np.array(values)

    of_baseline, of_system = resampled(baseline), resampled(system)
    found = paired_bootstrap(baseline, system, references, num_resamples=num_resamples)[number]
    assert found.name == score.__name__
    for estimate, values, texts in ((found.baseline, of_baseline, baseline), (found.system, of_system, system)):
        assert estimate.value == pytest.approx(score(texts, references).value)
        assert estimate.mean == pytest.approx(values.mean(), rel=1e-5)
        ordered = np.sort(values)  # without a fortieth of them, one, at either end
        assert estimate.margin == pytest.approx((ordered[-2] - ordered[1]) / 2, rel=1e-4)
    differences = np.abs(of_system - of_baseline)
    real = abs(found.difference)
    larger = int((differences - differences.mean() > real).sum())
    assert found.p_value == pytest.approx((larger + 1) / (num_resamples + 1))
    assert f"|bs:{num_resamples}|seed:{SEED}|" in found.signature


def test_much_better_is_no_chance_and_a_little_better_may_be() -> None:
    references, good = corpus(0.9)
    _, bad = corpus(0.3)
    others = [[f"x {text}" if number % 2 == wrong else text for number, text in enumerate(good)] for wrong in (0, 1)]
    for paired in paired_bootstrap(bad, good, references, num_resamples=200):
        assert paired.p_value == pytest.approx(1 / 201)
        assert paired.verdict == "better"
    assert {paired.verdict for paired in paired_bootstrap(good, bad, references, num_resamples=200)} == {"worse"}
    for paired in paired_bootstrap(*others, references, num_resamples=200):
        assert paired.p_value > CHANCE
        assert paired.verdict == "may be chance"


def test_of_equal_translations_no_difference_is_significant() -> None:
    references, system = corpus(0.7)
    for paired in paired_bootstrap(system, system, references, num_resamples=100):
        assert (paired.difference, paired.p_value, paired.verdict) == (0.0, 1.0, "may be chance")
    # TER does not see the case of letters.
    upper = [text.upper() for text in system]
    by_name = {paired.name: paired for paired in paired_bootstrap(system, upper, references, num_resamples=100)}
    assert by_name["ter"].p_value == 1.0
    assert by_name["chrf"].verdict == "worse"


def test_the_tokenizer_of_bleu_is_a_setting() -> None:
    references, system = ["a.b c d e"] * 3, ["a. b c d e"] * 3
    words = paired_bootstrap(system, references, references, "none", num_resamples=5)[0]
    assert words.signature.count("tok:none") == 1
    assert words.baseline.value == pytest.approx(bleu(system, references, "none").value)


def test_ter_cuts_as_bleu_does() -> None:
    references, system = ["我喜欢北京。", "他住在这里。"] * 2, ["我喜欢上海。", "他住在那里。"] * 2
    found = paired_bootstrap(system, references, references, "zh", num_resamples=5)[2]
    assert found.baseline.value == pytest.approx(ter(system, references, "zh").value)
    assert "|norm:yes|" in found.signature


def test_several_references() -> None:
    references, system = corpus(0.7)
    _, baseline = corpus(0.62)
    for paired in paired_bootstrap(baseline, system, references, more_references=[system], num_resamples=100):
        assert paired.system.value == pytest.approx(0 if paired.name == "ter" else 100)
        assert 0 < paired.baseline.value < 100
        assert "nrefs:2|" in paired.signature


def test_less_is_better_of_ter_only() -> None:
    for name, verdict in (("bleu", "worse"), ("chrf", "worse"), ("ter", "better")):
        assert PairedScore(name, Estimate(50, 50, 1), Estimate(40, 40, 1), 0.01, "").verdict == verdict


@pytest.mark.parametrize("sizes", [(1, 2, 2), (2, 1, 2), (0, 0, 0)])
def test_other_numbers_of_sentences_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"as many hypotheses as references|nothing to score"):
        paired_bootstrap(*(["a"] * size for size in sizes))


def test_of_equal_systems_five_in_a_hundred_are_called_different() -> None:
    """sacreBLEU's p is of one direction; both are told."""
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(400):
        differences = rng.normal(size=200)  # of sentences; the mean is a corpus' difference
        places = rng.integers(200, size=(300, 200))
        resampled = np.abs(differences[places].mean(1))
        p_value = ((resampled - resampled.mean() > abs(differences.mean())).sum() + 1) / 301
        estimates = [Estimate(value, value, 0.0) for value in (0.0, float(differences.mean()))]
        called += PairedScore("bleu", *estimates, p_value, "").verdict != "may be chance"
    assert 0.01 < called / 400 < 0.09
