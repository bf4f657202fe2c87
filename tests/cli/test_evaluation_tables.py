"""The tables of an evaluation in a terminal of 80 columns, and what a report calls things."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from transformer.cli.evaluation_report import EvaluationReport, EvaluationSet, SystemReport, search_in_words
from transformer.cli.evaluation_tables import report_tables
from transformer.decoding.config import BeamConfig, GreedyConfig, MbrConfig
from transformer.inference.split import PairSplit, SplitScores, TextSplit
from transformer.metrics.significance import Estimate, PairedScore
from transformer.metrics.text import Score

PAIRED = [
    PairedScore("bleu", Estimate(34.12, 34.1, 1.8), Estimate(35.97, 36.0, 1.75), 0.0120, "s"),
    PairedScore("chrf", Estimate(60.12, 60.1, 1.3), Estimate(60.20, 60.2, 1.2), 0.3120, "s"),
    PairedScore("ter", Estimate(57.12, 57.1, 1.3), Estimate(59.97, 60.0, 1.2), 0.0010, "s"),
]
TEXTS = PairSplit("test", ["a", "b"], ["c", "d"], [None, None], "13a")


def report(paired: list[PairedScore], *names: str) -> EvaluationReport:
    scored = SplitScores("test", [Score("bleu", 35.97, "s"), Score("loss", 1.5, "nats")], [], [], [])
    systems = [SystemReport(name, scored, BeamConfig(name="beam"), paired=paired) for name in names]
    baseline = SystemReport("base.txt", scored) if paired else None
    return EvaluationReport(
        EvaluationSet.of(TEXTS, {"name": "phrases"}), systems, baseline, [], "command", "a machine", {"torch": "2.13"}
    )


def shown(given: EvaluationReport) -> list[str]:
    file = StringIO()
    console = Console(file=file, width=80)
    for part in report_tables(given):
        console.print(part)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_comparison_fits_into_80_columns() -> None:
    lines = shown(report(PAIRED, "runs/a/bundle"))
    assert "  bleu  34.12 [32.3, 35.9]  35.97 [34.2, 37.8]   +1.85  0.012  better" in lines
    assert "  chrf  60.12 [58.8, 61.4]  60.20 [59.0, 61.4]   +0.08  0.312  may be chance" in lines
    assert "  ter   57.12 [55.8, 58.4]  59.97 [58.8, 61.2]   +2.85  0.001  worse" in lines


def test_long_numbers_are_not_cut() -> None:
    """An edit rate may be above 100; only the verdict may take two lines then."""
    long = PairedScore("ter", Estimate(157.12, 157.1, 11.3), Estimate(159.97, 160.0, 21.2), 0.2010, "s")
    lines = shown(report([*PAIRED, long], "runs/a/bundle"))
    assert not any("…" in line for line in lines)
    assert any("157.12 [145.8, 168.4]  159.97 [138.8, 181.2]" in line for line in lines)


def test_scores_are_shown_of_a_single_bundle_too() -> None:
    lines = shown(report([], "runs/a/bundle"))
    place = lines.index("scores on the test split of phrases: 2 sentences, one reference each")
    assert lines[place + 1] == "  1  runs/a/bundle, beam (size 5)"
    assert lines[place + 2].split() == ["bleu", "loss"]
    assert lines[place + 3].split() == ["1", "35.97", "1.5000"]
    assert lines[-1] == "a machine; torch 2.13"


@pytest.mark.parametrize(
    ("texts", "data", "words"),
    [
        (
            TEXTS._replace(more_references=[["e", "f"]]),
            {"name": "tsv"},
            ("the test split", "the test split of tsv", "2 sentences, 2 references each"),
        ),
        (
            TEXTS._replace(split=None),
            {"source": "a.en", "reference": ["a.de", "b.de"], "tag": "<2de>"},
            ("files of your own", "a.en, a.de, b.de, <2de>", "2 sentences, one reference each"),
        ),
        (
            TextSplit("validation", ["ab", "c"]),
            {"name": "plain_text"},
            ("the validation split", "the validation split of plain_text", "2 texts, 3 characters"),
        ),
    ],
)
def test_the_test_set_in_words(texts: PairSplit | TextSplit, data: dict[str, Any], words: tuple[str, str, str]) -> None:
    found = EvaluationSet.of(texts, data)
    assert (found.name, found.origin, found.size) == words


def test_a_search_in_words() -> None:
    assert search_in_words(GreedyConfig(name="greedy")) == "greedy"
    assert search_in_words(BeamConfig(name="beam", size=4, length_penalty=0.6)) == "beam (size 4, length_penalty 0.6)"
    assert search_in_words(MbrConfig(name="mbr", utility="bleu")) == "mbr (samples 32, utility bleu)"
