"""Scores of translations against references, by sacreBLEU (Post 2018). A new metric is a function and its name here."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

BleuTokenize = Literal["13a", "none", "intl", "char", "zh"]


class Score(NamedTuple):
    """A corpus score and what it takes to compute it again."""

    name: str
    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: BleuTokenize = "13a") -> Score:
    """Corpus BLEU (Papineni et al. 2002), 0 to 100, one reference for each hypothesis."""
    check_pairs(hypotheses, references)
    metric = BLEU(tokenize=tokenize, force=True)
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("bleu", value, str(metric.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF (Popović 2015), 0 to 100, one reference for each hypothesis."""
    check_pairs(hypotheses, references)
    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("chrf", value, str(metric.get_signature()))


def ter(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus translation edit rate (Snover et al. 2006): edits per 100 reference words, so less is better.

    Upper and lower case are the same to it. Long and bad translations take it a long time.
    """
    check_pairs(hypotheses, references)
    metric = TER()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("ter", value, str(metric.get_signature()))


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Percentage of hypotheses that equal their reference, character by character, but for surrounding spaces."""
    check_pairs(hypotheses, references)
    same = sum(
        hypothesis.strip() == reference.strip() for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return Score("exact_match", 100.0 * same / len(references), "exact|strip")


def validation_scores(
    hypotheses: Sequence[str], references: Sequence[str], bleu_tokenize: BleuTokenize = "13a"
) -> list[Score]:
    """The scores that are quick however bad the translations are; more is better of each."""
    return [bleu(hypotheses, references, bleu_tokenize), chrf(hypotheses, references),
            exact_match(hypotheses, references)]  # fmt: skip


def all_scores(
    hypotheses: Sequence[str], references: Sequence[str], bleu_tokenize: BleuTokenize = "13a"
) -> list[Score]:
    """Every translation score."""
    return [bleu(hypotheses, references, bleu_tokenize), chrf(hypotheses, references), ter(hypotheses, references),
            exact_match(hypotheses, references)]  # fmt: skip


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each sentence by itself, 0 to 100."""
    check_pairs(hypotheses, references)
    metric = CHRF()
    return [
        metric.sentence_score(hypothesis, [reference]).score
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse unequal or empty lists."""
    if len(hypotheses) != len(references):
        raise ValueError(f"there must be as many hypotheses as references, but there are {len(hypotheses)} and "
                         f"{len(references)}.")  # fmt: skip
    if not references:
        raise ValueError("there is nothing to score: no hypothesis and no reference.")
