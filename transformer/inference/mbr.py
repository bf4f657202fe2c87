"""Minimum Bayes risk: of many random translations take the one most like all of them."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

import numpy as np

from transformer.decoding.config import MbrConfig
from transformer.inference.constraints import Constraints
from transformer.inference.output import BLANK, Output
from transformer.metrics.pairwise import pairwise_bleu, pairwise_chrf
from transformer.metrics.text import BleuTokenize

if TYPE_CHECKING:  # the translator imports this module
    from transformer.inference.translator import Translator


def least_risk(
    translator: "Translator",
    texts: Sequence[str],
    config: MbrConfig,
    *,
    num_best: int,
    constraints: Sequence[Constraints] | None,
    tags: Sequence[str | None] | None,
    bleu_tokenize: BleuTokenize,
    max_tokens_per_batch: int,
    first_line: int,
) -> list[list[Output]]:
    """The translations of each text with the greatest expected utility, best first; for a blank text a blank one.

    The samples are both the candidates and what each candidate is compared with, itself included (Eikema & Aziz 2020;
    "N-by-N" in Eikema & Aziz 2022): the mean of its utility with each sample as the reference estimates the expected
    utility under the model, and is the ``score``. Samples with the same text are one candidate, with the tokens and
    log probability of the most probable of them, and count as often as they were drawn.

    Args:
        translator: draws the samples.
        texts: sources.
        config: how many samples, how they are drawn and compared.
        num_best: different translations of each text at most; there are fewer where fewer were drawn.
        constraints, tags, first_line: as for :meth:`Translator.search`.
        bleu_tokenize: sacreBLEU's tokenizer, for utility: bleu.
        max_tokens_per_batch: padded source tokens at once, times the samples.
    """
    if not 1 <= num_best <= config.samples:
        raise ValueError(
            f"the number of best translations must be from 1 to `samples` ({config.samples}), but is {num_best}."
        )
    drawn = translator.search(
        texts,
        config.sampling,
        num_best=config.samples,
        constraints=constraints,
        tags=tags,
        max_tokens_per_batch=max_tokens_per_batch,
        first_line=first_line,
    )
    return [
        _best(samples, config, num_best, bleu_tokenize) if text.strip() else [BLANK]
        for text, samples in zip(texts, drawn, strict=True)
    ]


def _best(samples: Sequence[Output], config: MbrConfig, num_best: int, bleu_tokenize: BleuTokenize) -> list[Output]:
    """The candidates with the greatest expected utility; equal ones in the order in which they were drawn."""
    counts = Counter(sample.text for sample in samples)
    candidates = {text: max((s for s in samples if s.text == text), key=lambda s: s.log_probability) for text in counts}
    expected = _utilities(list(counts), config, bleu_tokenize) @ np.array(list(counts.values())) / len(samples)
    order = np.argsort(-expected.round(9), kind="stable")[:num_best]  # rounding errors decide nothing
    outputs = list(candidates.values())
    return [outputs[place]._replace(score=float(expected[place])) for place in order]


def _utilities(texts: Sequence[str], config: MbrConfig, bleu_tokenize: BleuTokenize) -> np.ndarray:
    match config.utility:
        case "chrf":
            return pairwise_chrf(texts)
        case "bleu":
            return pairwise_bleu(texts, bleu_tokenize)
        case _:
            assert_never(config.utility)
