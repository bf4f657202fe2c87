"""Scores of texts against each other, each as the translation and each as the reference."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from transformer.metrics.text import BleuTokenize


def pairwise_bleu(texts: Sequence[str], tokenize: BleuTokenize = "13a") -> np.ndarray:
    """Sentence BLEU by sacreBLEU, 0 to 100: entry (h, r) is of text h as the translation and text r as the reference.

    Orders longer than the translation do not count (``effective_order``); precisions of zero are smoothed.
    ``tokenize`` is sacreBLEU's tokenizer.
    """
    metric = BLEU(tokenize=tokenize, effective_order=True)
    rows = [[metric.sentence_score(hypothesis, [reference]).score for reference in texts] for hypothesis in texts]
    return np.array(rows).reshape(len(texts), len(texts))


def pairwise_chrf(texts: Sequence[str]) -> np.ndarray:
    """Sentence chrF (Popović 2015), 0 to 100: entry (h, r) is of text h as the translation and r as the reference.

    The values are those of sacreBLEU, which counts the n-grams of both texts for every pair. Here each text is counted
    once, and all matches of an order come from one product of matrices.
    """
    counters = [extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in texts]
    shape = len(texts), len(texts)
    precision, recall, orders = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for order in range(CHRF.CHAR_ORDER):
        matches, totals = _matches([each[order] for each in counters])
        # Orders longer than one of the two texts do not count.
        counts = (totals[:, None] > 0) & (totals[None, :] > 0)
        precision += np.divide(matches, totals[:, None], out=np.zeros(shape), where=counts)
        recall += np.divide(matches, totals[None, :], out=np.zeros(shape), where=counts)
        orders += counts
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    factor = CHRF.BETA**2
    below = factor * precision + recall
    return 100 * np.divide((1 + factor) * precision * recall, below, out=np.zeros(shape), where=below > 0)


def _matches(counters: Sequence[Counter[str]]) -> tuple[np.ndarray, np.ndarray]:
    """How many n-grams each two texts have in common, repeated ones as often as both have them, and how many each has.

    The second occurrence of an n-gram is an item of its own, so every item is there once or not at all, and the common
    ones are the product of two rows of ones and zeros.
    """
    columns: dict[tuple[str, int], int] = {}
    rows, places = [], []
    for row, counter in enumerate(counters):
        for ngram, count in counter.items():
            for occurrence in range(count):
                rows.append(row)
                places.append(columns.setdefault((ngram, occurrence), len(columns)))
    items = np.zeros((len(counters), len(columns)))
    items[rows, places] = 1
    return items @ items.T, items.sum(1)
