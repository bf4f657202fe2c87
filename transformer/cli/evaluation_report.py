"""What an evaluation found, as JSON lines and as a report in JSON or Markdown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from transformer.cli.markdown import code, escaped, table
from transformer.inference.split import SplitScores
from transformer.metrics.breakdown import Extremes, LengthBreakdown, Sentence
from transformer.metrics.significance import Estimate, PairedScore
from transformer.metrics.spread import Spread
from transformer.metrics.text import Score


@dataclass(frozen=True)
class SystemReport:
    """What was found about one bundle, or about a file of translations.

    Attributes:
        name: its folder or file.
        scored: scores and texts.
        lengths, sentences: by source length, and the best and worst ones; None where not asked for, or of texts.
        paired: its scores against the baseline's; none without a baseline.
        against: the sentences that lost and won most against the baseline's, or None.
    """

    name: str
    scored: SplitScores
    lengths: LengthBreakdown | None = None
    sentences: Extremes | None = None
    paired: list[PairedScore] = field(default_factory=list)
    against: Extremes | None = None


@dataclass(frozen=True)
class EvaluationReport:
    """Everything that an evaluation found.

    Attributes:
        systems: the bundles.
        baseline: what they are compared with, or None.
        spreads: mean and deviation of the scores of several bundles of the same settings; none otherwise.
        command: what was typed.
    """

    systems: list[SystemReport]
    baseline: SystemReport | None
    spreads: list[Spread]
    command: str

    @property
    def split(self) -> str:
        """What they were scored on."""
        return self.systems[0].scored.split

    @property
    def everything(self) -> list[SystemReport]:
        """The baseline, if there is one, and the bundles."""
        return [*([] if self.baseline is None else [self.baseline]), *self.systems]


def score_line(split: str, score: Score, system: str | None = None) -> dict[str, Any]:
    """A score as a JSON object; it names its system where there are several."""
    named = {} if system is None else {"bundle": system}
    return {"split": split, **named, "name": score.name, "value": score.value, "how": score.signature}


def spread_line(split: str, spread: Spread) -> dict[str, Any]:
    """Mean and deviation of a score as a JSON object."""
    name, mean, deviation, n, signature = spread
    return {"split": split, "name": name, "mean": mean, "deviation": deviation, "n": n, "how": signature}


def paired_line(split: str, system: str, baseline: str, paired: PairedScore) -> dict[str, Any]:
    """A comparison as a JSON object."""
    return {
        "split": split,
        "bundle": system,
        "baseline": baseline,
        "name": paired.name,
        "difference": paired.difference,
        "p_value": paired.p_value,
        "verdict": paired.verdict,
        "interval": interval(paired.system),
        "baseline_interval": interval(paired.baseline),
        "how": paired.signature,
    }


def interval(estimate: Estimate) -> list[float]:
    """Both ends of a 95% confidence interval."""
    return [estimate.mean - estimate.margin, estimate.mean + estimate.margin]


def to_plain(report: EvaluationReport) -> dict[str, Any]:
    """The report for a JSON file."""
    baseline = report.baseline
    return {
        "command": report.command,
        "split": report.split,
        "baseline": None if baseline is None else baseline.name,
        "systems": [
            {
                "bundle": system.name,
                "scores": [score_line(report.split, score) for score in system.scored.scores],
                "lengths": None if system.lengths is None else _plain_lengths(system.lengths),
                "sentences": None if system.sentences is None else _plain_extremes(system.sentences),
                "paired": [
                    paired_line(report.split, system.name, "" if baseline is None else baseline.name, paired)
                    for paired in system.paired
                ],
                "against_baseline": None if system.against is None else _plain_extremes(system.against),
            }
            for system in report.everything
        ],
        "spreads": [spread_line(report.split, spread) for spread in report.spreads],
    }


def to_markdown(report: EvaluationReport) -> str:
    """The report for people."""
    return "\n\n".join(_sections(report)) + "\n"


def scores_table(scores: list[Score]) -> str:
    """Scores with what it takes to compute them again."""
    rows = [[score.name, f"{score.value:.4f}", code(score.signature)] for score in scores]
    return table(["score", "value", "how"], rows, numbers=[1])


def lengths_section(lengths: LengthBreakdown) -> str:
    """The table of scores by source length."""
    rows = [
        [span(group.shortest, group.longest), f"{group.num_sentences:,}", f"{group.bleu:.2f}", f"{group.chrf:.2f}",
         f"{group.length_ratio:.2f}"]
        for group in lengths.groups
    ]  # fmt: skip
    headings = [f"{lengths.unit} of the source", "sentences", "BLEU", "chrF", "output length / reference length"]
    return table(headings, rows, numbers=[1, 2, 3, 4])


def span(shortest: int, longest: int) -> str:
    """Such as ``8 to 12``."""
    return str(shortest) if shortest == longest else f"{shortest} to {longest}"


def _sections(report: EvaluationReport) -> Iterator[str]:
    yield f"# Scores on the {report.split} split"
    yield f"{code(report.command)}"
    if report.spreads:
        n = report.spreads[0].n
        yield f"## Mean and standard deviation of {n} bundles"
        yield "The deviation is that of a sample (n - 1)."
        rows = [
            [spread.name, f"{spread.mean:.4f}", f"{spread.deviation:.4f}", code(spread.signature)]
            for spread in report.spreads
        ]
        yield table(["score", "mean", "deviation", "how"], rows, numbers=[1, 2])
    for system in report.everything:
        yield f"## {escaped(system.name)}" + (" (baseline)" if system is report.baseline else "")
        yield scores_table(system.scored.scores)
        if system.paired:
            yield f"### Against {escaped(report.baseline.name if report.baseline else '')}"
            yield paired_table(system.paired)
        if system.lengths is not None:
            yield "### By source length"
            yield lengths_section(system.lengths)
        for title, sentences in titled_sentences(system):
            yield f"### {title}"
            yield "\n\n".join(map(_sentence_item, sentences))


def paired_table(paired: list[PairedScore]) -> str:
    """The comparison with a baseline: scores with their 95% intervals, and how likely chance is."""
    rows = [
        [each.name, f"{each.baseline.value:.2f} ({each.baseline.mean:.2f} ± {each.baseline.margin:.2f})",
         f"{each.system.value:.2f} ({each.system.mean:.2f} ± {each.system.margin:.2f})", f"{each.difference:+.2f}",
         f"{each.p_value:.4f}", each.verdict, code(each.signature)]
        for each in paired
    ]  # fmt: skip
    headings = ["score", "baseline (95% interval)", "this (95% interval)", "difference", "p", "this is", "how"]
    return table(headings, rows, numbers=[1, 2, 3, 4])


def titled_sentences(system: SystemReport) -> Iterator[tuple[str, list[Sentence]]]:
    """The lists of sentences that are there, with their headings."""
    if system.sentences is not None:
        yield "Worst sentences (by chrF)", system.sentences.worst
        yield "Best sentences (by chrF)", system.sentences.best
    if system.against is not None:
        if system.against.worst:
            yield "Most lost against the baseline (in chrF)", system.against.worst
        if system.against.best:
            yield "Most won against the baseline (in chrF)", system.against.best


def sentence_heading(sentence: Sentence) -> str:
    """Such as ``sentence 17: chrF 31.2``, with the difference from a baseline's."""
    heading = f"sentence {sentence.line}: chrF {sentence.chrf:.1f}"
    return heading if sentence.difference is None else f"{heading} ({sentence.difference:+.1f})"


def sentence_texts(sentence: Sentence) -> list[tuple[str, str]]:
    """The texts of a sentence with their names."""
    texts = [("source", sentence.source), ("output", sentence.output)]
    texts += [] if sentence.baseline is None else [("baseline", sentence.baseline)]
    return [*texts, ("reference", sentence.reference)]


def _sentence_item(sentence: Sentence) -> str:
    texts = [f"  - {name}: {escaped(text) or '*(empty)*'}" for name, text in sentence_texts(sentence)]
    return "\n".join([f"- {sentence_heading(sentence)}", *texts])


def _plain_lengths(lengths: LengthBreakdown) -> dict[str, Any]:
    return {"unit": lengths.unit, "groups": [group._asdict() for group in lengths.groups]}


def _plain_extremes(extremes: Extremes) -> dict[str, Any]:
    return {
        name: [{key: value for key, value in sentence._asdict().items() if value is not None} for sentence in sentences]
        for name, sentences in extremes._asdict().items()
    }
