"""The preparation report on the terminal."""

import io

import pytest
from rich.console import Console

from transformer.cli.preparation import report_tables, summary_line
from transformer.data.preparation.histogram import Histogram
from transformer.data.preparation.report import (
    CorpusReport,
    CorpusTally,
    PreparationReport,
    RoundTripFailure,
    SideReport,
)


def side(name: str, *, failures: tuple[RoundTripFailure, ...] = (), unknown: int = 0) -> SideReport:
    """Ten texts of 1 to 10 tokens."""
    return SideReport(
        name=name,
        lengths=Histogram(counts=(0, *[1] * 10), total=55, longest=10),
        unknown=unknown,
        checked=8,
        checked_tokens=40,
        words=16,
        round_trip_failures=len(failures),
        failures=failures,
    )


def corpus() -> CorpusReport:
    tally = CorpusTally("news [dim]")
    tally.keep(28_950)
    for line in range(19):
        tally.drop("duplicates", f"'news.en', line {line}", ("tick", "tack"))
    for line in range(31):
        tally.drop(
            "blank",
            f"'folder[bold]/news.en', line {line}",
            (("", None), (" \t", "x"), ("a", "\x1b[31m\n[red]"))[line % 3],
        )
    return tally.report()


def printed(report: PreparationReport, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for table in report_tables(report):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(text: str, *start: str) -> list[str]:
    """The words of the line that begins with these."""
    (line,) = [words for words in map(str.split, text.splitlines()) if words[: len(start)] == list(start)]
    return line[len(start) :]


REPORT = PreparationReport(corpora=(corpus(),), sides=(side("source"), side("target", unknown=11)))


@pytest.mark.parametrize("width", [80, 120])
def test_rows_and_tokens(width: int) -> None:
    text = printed(REPORT, width)
    assert max(map(len, text.splitlines())) <= width
    assert cells(text, "news", "[dim]", "read") == ["29,000", "100.00", "%"]
    assert cells(text, "kept") == ["28,950", "99.83", "%"]
    assert cells(text, "left", "out:", "blank") == ["31", "0.11", "%"]
    assert cells(text, "left", "out:", "duplicates") == ["19", "0.07", "%"]
    assert text.index("blank") < text.index("duplicates"), "the most frequent first"
    assert cells(text, "texts") == ["10", "10"]
    assert cells(text, "tokens", "per", "word") == ["2.50", "2.50"]
    assert cells(text, "tokens", "of", "a", "text,", "on", "average") == ["5.5", "5.5"]
    assert cells(text, "50", "%", "have", "at", "most") == ["5", "5"]
    assert cells(text, "95", "%", "have", "at", "most") == ["10", "10"]
    assert cells(text, "the", "longest", "has") == ["10", "10"]
    assert cells(text, "unknown", "tokens") == ["0", "(0.00", "%)", "11", "(20.00", "%)"]
    assert cells(text, "not", "the", "same", "after", "decoding") == ["0", "of", "8", "0", "of", "8"]


def test_examples_show_what_cannot_be_seen() -> None:
    text = printed(REPORT, 120)
    assert cells(text, "blank:") == ["31"]
    assert cells(text, "'folder[bold]/news.en',", "line", "0") == ["(empty)", "(missing)"]
    assert cells(text, "'folder[bold]/news.en',", "line", "1") == ["(white", "space)", "x"]
    assert cells(text, "'folder[bold]/news.en',", "line", "2") == ["a", "�[31m⏎[red]"]
    assert "\x1b" not in text
    assert "'news.en', line 2" in text
    assert "'news.en', line 3" not in text
    assert "left out of news [dim]" in text


def test_examples_of_documents_and_of_rows_without_texts() -> None:
    tally = CorpusTally("docs")
    tally.drop("broken", "line 3: must be UTF-8, but is not.")
    text = printed(PreparationReport(corpora=(tally.report(),), sides=()), 80)
    assert "line 3: must be UTF-8" in text
    assert cells(text, "place") == ["text"]
    tally.drop("min_characters", "line 4", ("a",))
    assert cells(printed(PreparationReport(corpora=(tally.report(),), sides=()), 80), "line", "4") == ["a"]


def test_failed_round_trips() -> None:
    failures = (RoundTripFailure(text="a[b]\x07", decoded=""),)
    text = printed(PreparationReport(corpora=(), sides=(side("text", failures=failures),)), 80)
    assert cells(text, "not", "the", "same", "after", "decoding", "1") == ["of", "8"]
    assert cells(text, "text", "a[b]�") == ["(empty)"]


def test_tables_with_nothing_to_say_are_not_there() -> None:
    clean = CorpusReport(name="clean", read=3, kept=3, dropped={}, examples={})
    assert len(report_tables(PreparationReport(corpora=(clean,), sides=(side("text"),)))) == 2
    assert report_tables(PreparationReport(corpora=(), sides=())) == []


@pytest.mark.parametrize(
    ("kept", "dropped", "shown"),
    [(0, 0, ["–"]), (1, 0, ["100.00", "%"]), (0, 1, ["0.00", "%"]), (99_999, 1, [">", "99.99", "%"])],
)
def test_shares_are_not_rounded_to_all_or_nothing(kept: int, dropped: int, shown: list[str]) -> None:
    corpus = CorpusReport(name="c", read=kept + dropped, kept=kept, dropped={"blank": dropped}, examples={})
    text = printed(PreparationReport(corpora=(corpus,), sides=()), 80)
    assert cells(text, "kept")[1:] == shown
    if kept > 1:
        assert cells(text, "left", "out:", "blank") == ["1", "<", "0.01", "%"]


def test_summary_line() -> None:
    assert summary_line(REPORT) == "kept 28,950 of 29,000 pairs; left out: 31 blank, 19 duplicates"
    more = CorpusReport(name="more", read=1_000, kept=980, dropped={"duplicates": 20}, examples={})
    both = PreparationReport(corpora=(corpus(), more), sides=REPORT.sides)
    assert summary_line(both) == "kept 29,930 of 30,000 pairs; left out: 39 duplicates, 31 blank"
    clean = CorpusReport(name="clean", read=1_234, kept=1_234, dropped={}, examples={})
    assert summary_line(PreparationReport(corpora=(clean,), sides=(side("text"),))) == "kept all 1,234 texts"
    assert summary_line(PreparationReport(corpora=(clean,), sides=())) == "kept all 1,234 rows"
