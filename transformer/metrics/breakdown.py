"""Where a translation is good and where it is bad: scores by source length, and the best and worst sentences."""

import bisect
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sacrebleu.metrics.bleu import BLEU

from transformer.metrics.text import BleuTokenize, check_pairs, check_references, chrf, sentence_chrf

NUM_GROUPS = 5

LengthUnit = Literal["words", "characters"]


class LengthGroup(NamedTuple):
    """The sentences whose source has ``shortest`` to ``longest`` words or characters.

    Attributes:
        shortest, longest: both included.
        num_sentences: how many there are.
        bleu, chrf: corpus scores of them alone.
        length_ratio: words of the outputs, as BLEU counts them, for each of the references (of several, those whose
            length is nearest); below 1 the outputs are short.
    """

    shortest: int
    longest: int
    num_sentences: int
    bleu: float
    chrf: float
    length_ratio: float


class LengthBreakdown(NamedTuple):
    """Scores by the length of the source, short ones first; groups without a sentence are left out."""

    unit: LengthUnit
    groups: list[LengthGroup]


class Sentence(NamedTuple):
    """One sentence of a test set.

    Attributes:
        line: its number, from 1.
        chrf: sentence chrF of the output.
        source, output, reference: texts.
        baseline: another system's output, or None.
        difference: how much better the output is than that, in sentence chrF, or None.
        more_references: further references, if there are any.
    """

    line: int
    chrf: float
    source: str
    output: str
    reference: str
    baseline: str | None = None
    difference: float | None = None
    more_references: tuple[str, ...] = ()


class Extremes(NamedTuple):
    """The last and the first of the sentences in order of their score; a sentence is in one of the two only."""

    worst: list[Sentence]
    best: list[Sentence]


def length_breakdown(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    more_references: Sequence[Sequence[str]] = (),
    borders: Sequence[int] | None = None,
    bleu_tokenize: BleuTokenize = "13a",
) -> LengthBreakdown:
    """BLEU and chrF of short, longer and long sentences.

    Lengths are in words, between white space; in characters if most sources have no white space, as Chinese ones.

    Args:
        sources, outputs, references: texts, line by line.
        more_references: further references of all sentences, line by line.
        borders: the greatest length of each group but the last; default: five groups of about as many sentences.
        bleu_tokenize: sacreBLEU's tokenizer.

    Raises:
        ValueError: there are not as many of each, or none.
    """
    check_pairs(sources, references)
    check_references(outputs, [references, *more_references])
    unit: LengthUnit = (
        "words" if 2 * sum(len(source.split()) > 1 for source in sources) >= len(sources) else "characters"
    )
    lengths = [len(source.split()) if unit == "words" else len(source) for source in sources]
    limits = equal_borders(lengths, NUM_GROUPS) if borders is None else list(borders)
    members: list[list[int]] = [[] for _ in range(len(limits) + 1)]
    for number, length in enumerate(lengths):
        members[bisect.bisect_left(limits, length)].append(number)
    groups = []
    for numbers in filter(None, members):
        own_outputs = [outputs[n] for n in numbers]
        own_references, *own_more = ([each[n] for n in numbers] for each in (references, *more_references))
        score = BLEU(tokenize=bleu_tokenize, force=True).corpus_score(own_outputs, [own_references, *own_more])
        own_lengths = [lengths[n] for n in numbers]
        groups.append(
            LengthGroup(
                min(own_lengths),
                max(own_lengths),
                len(numbers),
                score.score,
                chrf(own_outputs, own_references, more_references=own_more).value,
                score.sys_len / max(score.ref_len, 1),
            )
        )
    return LengthBreakdown(unit, groups)


def equal_borders(lengths: Sequence[int], num_groups: int) -> list[int]:
    """The greatest length of each group but the last, for groups of about as many; fewer where many are equal."""
    ordered = sorted(lengths)
    places = [round(len(ordered) * part / num_groups) - 1 for part in range(1, num_groups)]
    borders = sorted({ordered[max(place, 0)] for place in places})
    return [border for border in borders if border < ordered[-1]]


def extremes(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    number: int,
    more_references: Sequence[Sequence[str]] = (),
    baseline: Sequence[str] | None = None,
) -> Extremes:
    """The worst and the best sentences by sentence chrF, worst and best first; equal ones in their order.

    With a baseline it is those that are most worse, and most better, than its; sentences of equal scores are neither.

    Args:
        sources, outputs, references: texts, line by line.
        number: of sentences of either kind, at most.
        more_references: further references of all sentences, line by line.
        baseline: another system's outputs.

    Raises:
        ValueError: there are not as many of each, or none.
    """
    check_pairs(sources, references)
    scores = sentence_chrf(outputs, references, more_references=more_references)
    sentences = [
        Sentence(line, score, source, output, reference, more_references=tuple(more))
        for line, (score, source, output, reference, *more) in enumerate(
            zip(scores, sources, outputs, references, *more_references, strict=True), start=1
        )
    ]
    if baseline is None:
        order = sorted(sentences, key=lambda sentence: sentence.chrf)
        worst = order[: min(number, (len(order) + 1) // 2)]
        rest = sorted(order[len(worst) :], key=lambda sentence: -sentence.chrf)
        return Extremes(worst, rest[:number])
    others = sentence_chrf(baseline, references, more_references=more_references)
    compared = [
        sentence._replace(baseline=other, difference=sentence.chrf - other_score)
        for sentence, other, other_score in zip(sentences, baseline, others, strict=True)
    ]
    lost = sorted((each for each in compared if _difference(each) < 0), key=_difference)
    won = sorted((each for each in compared if _difference(each) > 0), key=lambda each: -_difference(each))
    return Extremes(lost[:number], won[:number])


def _difference(sentence: Sentence) -> float:
    assert sentence.difference is not None
    return sentence.difference
