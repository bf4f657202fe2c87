"""Scores of all pairs of texts against sacreBLEU, pair by pair."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer.metrics.pairwise import pairwise_bleu, pairwise_chrf

ODD_TEXTS = [
    "", " ", "a", "ab", "a b", "aaaaaaaaaa", "aa aa aaa", "Ein Haus, ein Hund.", "Ein Hund , ein Haus . ",
    "ß\u2028x", "日本語の文", "\t1,000.5%", "ein haus ein haus ein haus ein haus", "Ein Haus, ein Hund.",
]  # fmt: skip
WORDS = ("ein", "mann", "in", "einem", "blauen", "hemd", "steht", "auf", "der", "leiter", "und", "putzt", "das")


def _sentences(count, seed):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 14))) + "." for _ in range(count)]


@pytest.mark.parametrize(
    ("pairwise", "metric"), [(pairwise_chrf, CHRF()), (pairwise_bleu, BLEU(effective_order=True))], ids=["chrf", "bleu"]
)
@pytest.mark.parametrize("texts", [ODD_TEXTS, _sentences(12, 1), _sentences(12, 2), [], ["ein Haus"]], ids=len)
def test_equals_sacrebleu(pairwise, metric, texts):
    expected = [[metric.sentence_score(hypothesis, [reference]).score for reference in texts] for hypothesis in texts]
    found = pairwise(texts)
    assert found.shape == (len(texts), len(texts))
    assert np.abs(found - np.array(expected).reshape(found.shape)).max(initial=0.0) < 1e-9


def test_rows_are_translations_and_columns_references():
    """chrF weighs recall more: of a text and its beginning, the longer one is the better translation of the other."""
    scores = pairwise_chrf(["ein mann steht auf der leiter", "ein mann steht"])
    assert scores[0, 1] > scores[1, 0]
    assert scores[0, 0] == scores[1, 1] == 100
