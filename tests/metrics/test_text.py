"""Scores of translations."""

import random
from collections.abc import Callable

import pytest
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer.metrics.names import TRANSLATION_METRICS
from transformer.metrics.text import (
    Score,
    all_scores,
    bleu,
    chrf,
    exact_match,
    sentence_chrf,
    ter,
    validation_scores,
)

HYPOTHESES = ["The dog bit the man.", "It was not very surprising.", "The man had bitten the dog first."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]


def test_EVAL_01_bleu_is_that_of_the_corpus_with_one_reference_each() -> None:
    score = bleu(HYPOTHESES, REFERENCES)
    assert score.value == pytest.approx(43.587859, abs=1e-6)
    for fault in (100.0, 0.0, 49.36):  # references as N lists of one, flat strings, mean of sentences
        assert abs(score.value - fault) > 1
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_EVAL_01_the_order_of_pairs_does_not_matter() -> None:
    expected = [score.value for score in all_scores(HYPOTHESES, REFERENCES)]
    pairs = list(zip(HYPOTHESES, REFERENCES, strict=True))
    for seed in range(4):
        random.Random(seed).shuffle(pairs)
        hypotheses, references = zip(*pairs, strict=True)
        assert [score.value for score in all_scores(hypotheses, references)] == pytest.approx(expected, abs=1e-9)


def test_bleu_of_tokenised_texts() -> None:
    score = bleu(["a b , c d ."], ["a b , c e ."], "none")
    # Hits and n-grams: 5/6, 3/5, 2/4, 1/3; equal lengths.
    assert score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert "tok:none" in score.signature


def test_chrf_by_hand() -> None:
    assert chrf(["abc"], ["abc"]).value == pytest.approx(100)
    assert chrf(["xyz"], ["abc"]).value == 0
    assert "nc:6" in chrf(["abc"], ["abc"]).signature


def test_exact_match_counts_equal_lines() -> None:
    assert exact_match(["a", " b ", "c d", "e"], ["a", "b", "c  d", "E"]).value == 50
    assert exact_match([""], [""]).value == 100


def test_ter_by_hand() -> None:
    # One word replaced; two words moved together, which is one edit; one word left out: 3 edits of 4 + 4 + 2 words.
    score = ter(["a b x d", "c d a b", "a"], ["a b c d", "a b c d", "A b"])
    assert score.value == pytest.approx(30)
    assert score.signature.startswith("nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:")
    assert ter(["a b c d e"], ["x"]).value == pytest.approx(500)  # more than 100 is possible


@pytest.mark.parametrize("tokenize", ["zh", "char"])
def test_ter_of_texts_without_spaces_counts_their_characters(tokenize: str) -> None:
    """As one word each, both sentences would be wrong altogether."""
    hypotheses, references = ["我喜欢北京。", "私は猫が好き"], ["我喜欢上海。", "私は犬が好き"]
    score = ter(hypotheses, references, tokenize)
    assert "|norm:yes|punct:yes|asian:yes|" in score.signature
    assert score.value == pytest.approx(TER(normalized=True, asian_support=True).corpus_score(hypotheses, [references])
                                        .score)  # fmt: skip
    assert score.value < 40
    assert ter(hypotheses, references).value == 100
    assert all_scores(hypotheses, references, tokenize)[2] == score


@pytest.mark.parametrize("score", [bleu, chrf, ter])
def test_several_references(score: Callable[..., Score]) -> None:
    """The best n-grams of all count; the first reference alone gives another score."""
    others = [["The dog bit a man.", "It was no surprise.", "The dog was bitten by the man first."], HYPOTHESES]
    found = score(HYPOTHESES, REFERENCES, more_references=others[:1])
    assert found.signature.startswith("nrefs:2|")
    assert found.value != pytest.approx(score(HYPOTHESES, REFERENCES).value)
    perfect = 0 if score is ter else 100
    assert score(HYPOTHESES, REFERENCES, more_references=others).value == pytest.approx(perfect)
    with pytest.raises(ValueError, match="as many hypotheses as references, but there are 3 and 2"):
        score(HYPOTHESES, REFERENCES, more_references=[others[0][:2]])


def test_any_of_several_references_may_match() -> None:
    found = exact_match(["a", "b", "c"], ["a", "x", "y"], more_references=[["z", " b", "z"], ["a", "a", "a"]])
    assert found == Score("exact_match", pytest.approx(200 / 3), "nrefs:3|exact|strip")
    best = sentence_chrf(["a dog", "b"], ["a cat", "b"], more_references=[["a dog", "x"]])
    assert best == pytest.approx([100, 100])
    assert all_scores(["a"], ["b"], more_references=[["a"]])[3].value == 100


def test_sentence_chrf_is_that_of_sacrebleu() -> None:
    metric = CHRF()
    expected = [metric.sentence_score(*pair).score for pair in zip(HYPOTHESES, ([r] for r in REFERENCES), strict=True)]
    assert sentence_chrf(HYPOTHESES, REFERENCES) == expected
    assert expected[0] == pytest.approx(100)
    assert expected[2] < 70


def test_every_score() -> None:
    scores = all_scores(HYPOTHESES, REFERENCES, "char")
    assert scores == [
        *(bleu(HYPOTHESES, REFERENCES, "char"), chrf(HYPOTHESES, REFERENCES)),
        *(ter(HYPOTHESES, REFERENCES, "char"), exact_match(HYPOTHESES, REFERENCES)),
    ]


def test_validation_scores_have_a_known_direction() -> None:
    scores = validation_scores(HYPOTHESES, REFERENCES)
    assert [score.name for score in scores] == ["bleu", "chrf", "exact_match"]
    assert all(TRANSLATION_METRICS[f"validation/{score.name}"] == "max" for score in scores)
    assert scores[0] == bleu(HYPOTHESES, REFERENCES)


def test_a_perfect_and_an_empty_output() -> None:
    assert [score.value for score in all_scores(REFERENCES, REFERENCES)] == pytest.approx([100, 100, 0, 100])
    assert [score.value for score in all_scores(["", "", ""], REFERENCES)] == [0, 0, 100, 0]


@pytest.mark.parametrize("score", [bleu, chrf, ter, exact_match, validation_scores, all_scores, sentence_chrf])
def test_unequal_or_no_lines_are_refused(score: object) -> None:
    assert callable(score)
    with pytest.raises(ValueError, match="there are 2 and 3"):
        score(HYPOTHESES[:2], REFERENCES)
    with pytest.raises(ValueError, match="there is nothing to score"):
        score([], [])
