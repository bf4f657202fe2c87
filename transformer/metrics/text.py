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


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: BleuTokenize = "13a",
    *,
    more_references: Sequence[Sequence[str]] = (),
) -> Score:
    """Corpus BLEU (Papineni et al. 2002), 0 to 100.

    Args:
        hypotheses, references: texts, line by line.
        tokenize: sacreBLEU's tokenizer.
        more_references: further references of all hypotheses, line by line.
    """
    return _corpus_score("bleu", BLEU(tokenize=tokenize, force=True), hypotheses, [references, *more_references])


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> Score:
    """Corpus chrF (Popović 2015), 0 to 100. Arguments as for :func:`bleu`."""
    return _corpus_score("chrf", CHRF(), hypotheses, [references, *more_references])


def ter(
    hypotheses: Sequence[str],
    references: Sequence[str],
    bleu_tokenize: BleuTokenize = "13a",
    *,
    more_references: Sequence[Sequence[str]] = (),
) -> Score:
    """Corpus translation edit rate (Snover et al. 2006): edits per 100 reference words, so less is better.

    Upper and lower case are the same to it. Long and bad translations take it a long time. Arguments as for
    :func:`bleu`; for ``bleu_tokenize`` see :func:`ter_metric`.
    """
    return _corpus_score("ter", ter_metric(bleu_tokenize), hypotheses, [references, *more_references])


def ter_metric(bleu_tokenize: BleuTokenize) -> TER:
    """sacreBLEU's TER for texts of the kind that BLEU's tokenizer is for.

    Where that is ``zh`` or ``char``, Chinese and Japanese characters count as words of their own, and punctuation is
    cut off (tercom's ``normalized`` and ``asian_support``); a sentence without spaces would be a single word otherwise.
    """
    without_spaces = bleu_tokenize in ("zh", "char")
    return TER(normalized=without_spaces, asian_support=without_spaces)


def exact_match(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> Score:
    """Percentage of hypotheses that equal a reference, character by character, but for surrounding spaces."""
    check_references(hypotheses, [references, *more_references])
    same = sum(
        hypothesis.strip() in {reference.strip() for reference in own}
        for hypothesis, *own in zip(hypotheses, references, *more_references, strict=True)
    )
    several = f"nrefs:{1 + len(more_references)}|" if more_references else ""
    return Score("exact_match", 100.0 * same / len(references), f"{several}exact|strip")


def validation_scores(
    hypotheses: Sequence[str], references: Sequence[str], bleu_tokenize: BleuTokenize = "13a"
) -> list[Score]:
    """The scores that are quick however bad the translations are; more is better of each."""
    return [bleu(hypotheses, references, bleu_tokenize), chrf(hypotheses, references),
            exact_match(hypotheses, references)]  # fmt: skip


def all_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    bleu_tokenize: BleuTokenize = "13a",
    *,
    more_references: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """Every translation score. Arguments as for :func:`bleu`."""
    return [
        bleu(hypotheses, references, bleu_tokenize, more_references=more_references),
        chrf(hypotheses, references, more_references=more_references),
        ter(hypotheses, references, bleu_tokenize, more_references=more_references),
        exact_match(hypotheses, references, more_references=more_references),
    ]


def sentence_chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, more_references: Sequence[Sequence[str]] = ()
) -> list[float]:
    """chrF of each sentence by itself, 0 to 100; of several references, the best."""
    check_references(hypotheses, [references, *more_references])
    metric = CHRF()
    return [
        metric.sentence_score(hypothesis, own).score
        for hypothesis, *own in zip(hypotheses, references, *more_references, strict=True)
    ]


def check_references(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse unequal or empty lists."""
    for each in references:
        check_pairs(hypotheses, each)


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse unequal or empty lists."""
    if len(hypotheses) != len(references):
        raise ValueError(f"there must be as many hypotheses as references, but there are {len(hypotheses)} and "
                         f"{len(references)}.")  # fmt: skip
    if not references:
        raise ValueError("there is nothing to score: no hypothesis and no reference.")


def _corpus_score(
    name: str, metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Score:
    check_references(hypotheses, references)
    value = metric.corpus_score(list(hypotheses), [list(each) for each in references]).score
    return Score(name, value, str(metric.get_signature()))
