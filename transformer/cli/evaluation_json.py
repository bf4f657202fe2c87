"""What an evaluation found, as JSON: a line for each score, and a report of everything."""

import json
import math
from typing import Any

from transformer.cli.evaluation_report import EvaluationReport, SystemReport, interval
from transformer.data.corpora.rows import Split
from transformer.metrics.breakdown import Extremes, LengthBreakdown
from transformer.metrics.significance import PairedScore
from transformer.metrics.spread import Spread
from transformer.metrics.text import Score


def to_json(plain: dict[str, Any], *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """JSON that every reader takes: it has no numbers for infinity and the like, so those are null."""
    return json.dumps(_finite(plain), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)


def score_line(split: Split | None, score: Score, system: str | None = None) -> dict[str, Any]:
    """A score as a JSON object; it names its system where there are several. No split stands for the user's files."""
    named = {} if system is None else {"bundle": system}
    return {"split": split, **named, "name": score.name, "value": score.value, "how": score.signature}


def spread_line(split: Split | None, spread: Spread) -> dict[str, Any]:
    """Mean and deviation of a score as a JSON object."""
    name, mean, deviation, n, signature = spread
    return {"split": split, "name": name, "mean": mean, "deviation": deviation, "n": n, "how": signature}


def paired_line(split: Split | None, system: str, baseline: str, paired: PairedScore) -> dict[str, Any]:
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


def report_json(report: EvaluationReport) -> str:
    """The report for a JSON file."""
    test_set, baseline = report.test_set, report.baseline
    plain = {
        "command": report.command,
        "split": test_set.split,
        "data": dict(test_set.data),
        **test_set.counts,
        "machine": report.machine,
        "versions": dict(report.versions),
        "baseline": None if baseline is None else baseline.name,
        "systems": [_system(report, system) for system in report.everything],
        "spreads": [spread_line(test_set.split, spread) for spread in report.spreads],
    }
    return to_json(plain, indent=1, ensure_ascii=False) + "\n"


def _system(report: EvaluationReport, system: SystemReport) -> dict[str, Any]:
    split, baseline = report.test_set.split, "" if report.baseline is None else report.baseline.name
    return {
        "bundle": system.name,
        "decoding": None if system.decoding is None else system.decoding.to_plain(),
        "scores": [score_line(split, score) for score in system.scored.scores],
        "lengths": None if system.lengths is None else _lengths(system.lengths),
        "sentences": None if system.sentences is None else _extremes(system.sentences),
        "paired": [paired_line(split, system.name, baseline, paired) for paired in system.paired],
        "against_baseline": None if system.against is None else _extremes(system.against),
    }


def _lengths(lengths: LengthBreakdown) -> dict[str, Any]:
    return {"unit": lengths.unit, "groups": [group._asdict() for group in lengths.groups]}


def _extremes(extremes: Extremes) -> dict[str, Any]:
    return {
        name: [
            {key: value for key, value in sentence._asdict().items() if value is not None and value != ()}
            for sentence in sentences
        ]
        for name, sentences in extremes._asdict().items()
    }


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value
