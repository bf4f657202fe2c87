"""What an evaluation found, as Markdown."""

from collections.abc import Iterator

from omegaconf import OmegaConf

from transformer.cli.evaluation_report import (
    EvaluationReport,
    search_in_words,
    sentence_heading,
    sentence_texts,
    span,
    titled_sentences,
    versions_in_words,
)
from transformer.cli.markdown import code, code_block, escaped, table
from transformer.metrics.breakdown import LengthBreakdown, Sentence
from transformer.metrics.significance import PairedScore
from transformer.metrics.text import Score


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


def paired_table(paired: list[PairedScore]) -> str:
    """The comparison with a baseline: scores with their 95% intervals, and how likely chance is."""
    rows = [
        [each.name, f"{each.baseline.value:.2f} ({each.baseline.mean:.2f} ± {each.baseline.margin:.2f})",
         f"{each.system.value:.2f} ({each.system.mean:.2f} ± {each.system.margin:.2f})", f"{each.difference:+.2f}",
         f"{each.p_value:.4f}", each.verdict, code(each.signature)]
        for each in paired
    ]  # fmt: skip
    headings = [
        "score",
        "baseline (95% interval)",
        "this (95% interval)",
        "difference",
        "p (one-sided)",
        "this is",
        "how",
    ]
    return table(headings, rows, numbers=[1, 2, 3, 4])


def _sections(report: EvaluationReport) -> Iterator[str]:
    test_set = report.test_set
    yield f"# Scores on {test_set.name}"
    yield code_block(report.command)
    yield f"Scored on {escaped(test_set.origin)}: {test_set.size}."
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
        if system.decoding is not None:
            yield f"Search: {escaped(search_in_words(system.decoding))}."
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
    yield "## How it was scored"
    yield table(["", ""], [["machine", escaped(report.machine)], ["versions", versions_in_words(report.versions)]])
    yield f"The data:\n\n{code_block(OmegaConf.to_yaml(OmegaConf.create(dict(test_set.data))), 'yaml')}"


def _sentence_item(sentence: Sentence) -> str:
    texts = [f"  - {name}: {escaped(text) or '*(empty)*'}" for name, text in sentence_texts(sentence)]
    return "\n".join([f"- {sentence_heading(sentence)}", *texts])
