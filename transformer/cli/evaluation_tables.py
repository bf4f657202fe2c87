"""What an evaluation found, as tables for the terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from transformer.cli.evaluation_report import (
    EvaluationReport,
    SystemReport,
    interval,
    search_in_words,
    sentence_heading,
    sentence_texts,
    span,
    titled_sentences,
    versions_in_words,
)
from transformer.metrics.breakdown import LengthBreakdown, Sentence
from transformer.metrics.significance import PairedScore
from transformer.metrics.spread import Spread
from transformer.training.callbacks import visible


def report_tables(report: EvaluationReport) -> Iterator[RenderableType]:
    """Scores of all systems; of each, how it compares, lengths and sentences; what it was done with."""
    several = len(report.everything) > 1
    yield from _scores(report)
    if report.spreads:
        yield from _spreads(report.spreads)
    for system in report.everything:
        parts = list(_system_tables(system))
        if several and parts:
            yield Text(f"\n{system.name}{' (baseline)' if system is report.baseline else ''}", style="bold")
        yield from parts
    yield Text(f"\n{report.machine}; {versions_in_words(report.versions)}", style="dim")


def length_table(lengths: LengthBreakdown) -> Iterator[RenderableType]:
    """Scores by source length."""
    yield _title("by source length")
    table = _table(lengths.unit, "sentences", "BLEU", "chrF", "length ratio")
    for group in lengths.groups:
        values = (group.bleu, group.chrf, group.length_ratio)
        table.add_row(
            span(group.shortest, group.longest), f"{group.num_sentences:,}", *(f"{value:.2f}" for value in values)
        )
    yield table


def sentence_list(title: str, sentences: list[Sentence]) -> Iterator[RenderableType]:
    """Sentences one below the other: side by side, long ones would be columns of a few letters."""
    yield _title(f"{title[:1].lower()}{title[1:]}")
    for sentence in sentences:
        yield Padding(Text(sentence_heading(sentence)), (0, 0, 0, 2), expand=False)
        texts = Table.grid(padding=(0, 2), pad_edge=True)
        texts.add_column(no_wrap=True)
        texts.add_column(overflow="fold")
        for name, text in sentence_texts(sentence):
            texts.add_row(Text(f"  {name}", style="dim"), visible(text) if text else Text("(empty)", style="dim"))
        yield texts


def _system_tables(system: SystemReport) -> Iterator[RenderableType]:
    if system.paired:
        yield from _paired(system.paired)
    if system.lengths is not None:
        yield from length_table(system.lengths)
    for title, sentences in titled_sentences(system):
        yield from sentence_list(title, sentences)


def _scores(report: EvaluationReport) -> Iterator[RenderableType]:
    """One row for each system, by number: names are paths, too long for a column."""
    yield _title(f"scores on {report.test_set.origin}: {report.test_set.size}")
    numbers = [*([] if report.baseline is None else ["baseline"]), *(str(n + 1) for n in range(len(report.systems)))]
    for number, system in zip(numbers, report.everything, strict=True):
        search = "" if system.decoding is None else f", {search_in_words(system.decoding)}"
        yield Padding(Text(f"{number}  {system.name}{search}"), (0, 0, 0, 2), expand=False)
    names = [score.name for score in report.systems[0].scored.scores]
    table = _table("", *names)
    for number, system in zip(numbers, report.everything, strict=True):
        values = {score.name: _shown(score.value) for score in system.scored.scores}
        table.add_row(number, *(values.get(name, "–") for name in names))
    yield table


def _spreads(spreads: list[Spread]) -> Iterator[RenderableType]:
    yield _title(f"mean and standard deviation (n - 1) of {spreads[0].n} bundles")
    table = _table("", "mean", "deviation")
    for spread in spreads:
        table.add_row(spread.name, _shown(spread.mean), _shown(spread.deviation))
    yield table


def _paired(paired: list[PairedScore]) -> Iterator[RenderableType]:
    yield _title("against the baseline (95% intervals; one-sided p by paired bootstrap)")
    table = _table("", "baseline", "this", "change", "p")
    table.add_column("this is")
    for each in paired:
        shown = []
        for estimate in (each.baseline, each.system):
            low, high = interval(estimate)
            shown.append(f"{estimate.value:.2f} [{low:.1f}, {high:.1f}]")
        cells = (each.name, *shown, f"{each.difference:+.2f}", f"{each.p_value:.3f}", each.verdict)
        table.add_row(*(Text(cell) for cell in cells))
    yield table


def _title(text: str) -> RenderableType:
    """Not the table's own, which would be as narrow as the table."""
    return Text(f"\n{text}", style="italic")


def _table(first: str, *numbers: str) -> Table:
    """A table of names and columns of numbers."""
    table = Table(box=None, padding=(0, 0, 0, 2))
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _shown(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"
